"""What skillexec adds to a skill: three spellings, one meaning, and nothing that is guessed."""

from __future__ import annotations

import pytest
from reading_skills import BASIC, read, reason, rules

from skillexec.model import TimeoutClass

SPELLINGS = (
    "  cyberagent:\n    timeout_class: long\n    required_env: [A_TOKEN, B]\n    tool: jq\n    subcommand: run\n"
    "    network: [api.example.org, 'b.example.org:8443']\n",
    '  cyberagent: \'{"timeout_class": "long", "required_env": ["A_TOKEN", "B"], "tool": "jq", "subcommand": "run",'
    ' "network": ["api.example.org", "b.example.org:8443"]}\'\n',
    "  cyberagent.timeout_class: long\n  cyberagent.required_env: A_TOKEN, B\n  cyberagent.tool: jq\n"
    "  cyberagent.subcommand: run\n  cyberagent.network: api.example.org b.example.org:8443\n",
)


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_the_three_spellings_of_the_extension_mean_the_same(spelling: str) -> None:
    skill = read(BASIC + "metadata:\n" + spelling)
    assert (skill.timeout_class, skill.required_env) == (TimeoutClass.LONG, ("A_TOKEN", "B"))
    assert (skill.tool, skill.subcommand) == ("jq", "run")
    assert skill.network == ("api.example.org", "b.example.org:8443")


@pytest.mark.parametrize(
    "place",
    [
        "input_schema:\n  type: object\n  maxProperties: 3\n"
        "  properties: {n: {type: number, minimum: 0.5, nullable: true}}\n",
        'input_schema: \'{"type": "object", "maxProperties": 3,'
        ' "properties": {"n": {"type": "number", "minimum": 0.5, "nullable": true}}}\'\n',
        "metadata:\n  cyberagent:\n    input_schema:\n      type: object\n      maxProperties: 3\n"
        "      properties: {n: {type: number, minimum: 0.5, nullable: true}}\n",
        'metadata:\n  cyberagent.input_schema: \'{"type": "object", "maxProperties": 3,'
        ' "properties": {"n": {"type": "number", "minimum": 0.5, "nullable": true}}}\'\n',
    ],
)
def test_a_schema_has_json_types_wherever_it_stands(place: str) -> None:
    number = {"type": "number", "minimum": 0.5, "nullable": True}
    skill = read(BASIC + place)
    assert skill.input_schema == {"type": "object", "maxProperties": 3, "properties": {"n": number}}
    assert skill.output_schema is None


@pytest.mark.parametrize(
    ("extension", "said"),
    [
        ("timeout_class: forever", "short, standard or long"),
        ("timeout_class: 60", "short, standard or long"),
        ("timeout_class: [long]", "short, standard or long"),
        ("required_env: [A-B]", "environment variables"),
        ("required_env: ['A=B']", "environment variables"),
        ("required_env: [1]", "environment variables"),
        ("required_env: {A: op://x}", "environment variables"),
        ("required_env: true", "environment variables"),
        ("tool: ../../bin/sh", "one word"),
        ("tool: 'sh -c'", "one word"),
        ("tool: [sh]", "one word"),
        ("tool: -c", "one word"),
        ("subcommand: run", "subcommand without tool"),
        ("network: true", "list of hosts"),
        ("network: ['*']", "list of hosts"),
        ("network: ['http://x.org/']", "list of hosts"),
        ("network: ['a b']", "list of hosts"),
        ("input_schema: [a]", "a mapping"),
        ("input_schema: '{not json'", "a mapping"),
        ("output_schema: 5", "a mapping"),
    ],
)
def test_an_extension_that_can_not_be_understood_breaks_the_skill(extension: str, said: str) -> None:
    assert said in reason(BASIC + f"metadata:\n  cyberagent:\n    {extension}\n")


@pytest.mark.parametrize("value", ["'{broken'", "[a]", "'[1]'", "'" + "[" * 30000 + "'"])
def test_an_extension_that_is_no_mapping_breaks_the_skill(value: str) -> None:
    assert "must be a mapping" in reason(BASIC + f"metadata:\n  cyberagent: {value}\n")


@pytest.mark.parametrize(
    "yaml",
    [
        "metadata:\n  cyberagent: {tool: jq}\n  cyberagent.tool: sh\n",
        "metadata:\n  cyberagent: {input_schema: {a: b}}\ninput_schema: {}\n",
        "metadata:\n  cyberagent: {tool: jq, tool: sh}\n",
        'metadata:\n  cyberagent: \'{"tool": "jq", "tool": "sh"}\'\n',
        'input_schema: \'{"properties": {"a": {}, "a": {}}}\'\n',
        "metadata: {a: b}\nmetadata: {c: d}\n",
        "name: my-skill\n",
        "allowed-tools: Read\nallowed-tools: Bash\n",
        "input_schema: {type: object, type: array}\n",
    ],
)
def test_what_decides_how_a_skill_runs_can_not_be_given_twice(yaml: str) -> None:
    said = reason(BASIC + yaml)
    assert "given twice" in said or "in two ways" in said


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999"])
def test_what_json_has_no_number_for_breaks_the_skill(number: str) -> None:
    assert "not a number of JSON" in reason(BASIC + f"input_schema: '{{\"maximum\": {number}}}'\n")


def test_json_in_a_text_may_be_as_deep_as_yaml() -> None:
    deep = '{"a":' * 250 + "1" + "}" * 250
    assert read(BASIC + f"input_schema: '{deep}'\n") == read(
        BASIC + f"input_schema: {deep}\n".replace(":", ": ")
    )


def test_other_duplicate_keys_are_a_diagnostic_and_the_last_one_counts() -> None:
    skill = read(BASIC + "license: MIT\nlicense: Apache-2.0\n")
    assert (skill.license, rules(skill)) == ("Apache-2.0", ["key-duplicate"])


def test_an_unknown_key_of_the_extension_is_a_diagnostic() -> None:
    skill = read(BASIC + "metadata:\n  cyberagent.colour: red\n")
    assert (rules(skill), skill.diagnostics[0].line) == (["cyberagent-unknown"], 5)


def test_a_skill_without_extension_has_the_defaults() -> None:
    skill = read(BASIC + "metadata:\n  cyberagents: x\n")
    assert (skill.tool, skill.required_env, skill.network) == (None, (), ())
    assert (skill.timeout_class, skill.diagnostics) == (TimeoutClass.STANDARD, ())
