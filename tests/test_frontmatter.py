"""Reading frontmatter: what is let pass, what is kept as written, and what hostile input costs."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from reading_skills import BASIC, read, reason, rules

from skillexec.model import Severity, Source
from skillexec.skills import frontmatter
from skillexec.skills.reading import read_body, split_tools


@pytest.fixture
def within_a_second() -> Iterator[None]:
    """Bad input has to be told from good within a second of work, however busy the machine is."""
    started = time.process_time()
    yield
    assert time.process_time() - started < 1.0


# --- where the frontmatter ends


def test_a_plain_skill_is_read_without_a_diagnostic() -> None:
    skill = read(BASIC + "license: MIT\ncompatibility: Python 3.11\n")
    assert (skill.name, skill.description, skill.license) == ("my-skill", "Reads files.", "MIT")
    assert (skill.compatibility, skill.source, skill.diagnostics) == ("Python 3.11", Source.ORG, ())
    assert skill.location == Path("/skills/my-skill/SKILL.md")


@pytest.mark.parametrize("description", ["'a --- b'", "a---b", "|\n  a\n  ---\n  b", "a\n  --- b"])
def test_dashes_inside_a_value_do_not_end_the_frontmatter(description: str) -> None:
    skill = read(f"name: my-skill\ndescription: {description}\nlicense: MIT\n")
    assert "---" in skill.description
    assert skill.license == "MIT"


@pytest.mark.parametrize("line_end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_a_byte_order_mark_and_any_line_ends_are_fine(mark: str, line_end: str) -> None:
    data = f"{mark}---\n{BASIC}license: MIT\n---\nFirst\nSecond\n".replace("\n", line_end).encode()
    assert (read(data).name, read(data).license, read(data).diagnostics) == ("my-skill", "MIT", ())
    assert read_body(data).split(line_end) == ["First", "Second"]


def test_a_prefix_of_the_file_is_enough() -> None:
    data = f"---\n{BASIC}---\n".encode() + b"\xff" * frontmatter.PREFIX_BYTES
    assert read(data[: frontmatter.PREFIX_BYTES]).name == "my-skill"


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "no frontmatter"),
        (b"# A title\n", "no frontmatter"),
        (b"\n---\nname: a\n---\n", "no frontmatter"),
        (b"---\nname: a\ndescription: b\n", "not closed"),
        (b"---\nname: a\ndescription: b\n----\n", "not closed"),
        (b"---\n---\n", "holds no keys"),
        (b"---\n- a\n---\n", "holds no keys"),
        (b"---\njust text\n---\n", "holds no keys"),
        (b"---\nname: a\n---\n", "no description"),
        (b"---\nname: a\ndescription: '  '\n---\n", "no description"),
        (b"---\nname: a\ndescription: [b]\n---\n", "description is not text"),
        (b"---\nname: {a: b}\ndescription: b\n---\n", "name is not text"),
        (b"---\nname: a\n--- x\ndescription: b\n---\n", "second YAML document"),
        (b"---\nname: a\n...\ndescription: b\n---\n", "line 4: the YAML can't be read"),
        (b"---\n? [a]\n: b\ndescription: b\n---\n", "key that is not text"),
    ],
)
def test_a_broken_skill_says_what_is_wrong(data: bytes, said: str) -> None:
    assert said in reason(data)


def test_the_reason_names_the_line_of_the_file() -> None:
    with pytest.raises(frontmatter.Broken) as caught:
        read(BASIC + "\tlicense: MIT\n")
    assert caught.value.line == 4
    assert caught.value.message.startswith("line 4: ")
    assert caught.value.hint


# --- values


@pytest.mark.parametrize(
    "text", ["123", "2024-01-01", "1.10", "yes", "null", "0x1F", "1_000", "12:30:00", ".inf"]
)
def test_every_scalar_keeps_its_text(text: str) -> None:
    skill = read(f"name: my-skill\ndescription: {text}\nmetadata:\n  version: {text}\nversion: {text}\n")
    assert (skill.description, skill.metadata["version"], skill.extra["version"]) == (text, text, text)


def test_unknown_keys_are_kept_with_a_diagnostic_on_their_line() -> None:
    skill = read(BASIC + "tags:\n- a\n- b\nversion: 1.0\n")
    assert skill.extra == {"tags": ["a", "b"], "version": "1.0"}
    assert [(found.rule, found.line) for found in skill.diagnostics] == [
        ("key-unknown", 4),
        ("key-unknown", 7),
    ]
    assert all(found.severity is Severity.WARNING and found.fix for found in skill.diagnostics)


def test_nested_metadata_is_kept_with_a_diagnostic() -> None:
    skill = read(BASIC + "metadata:\n  author: me\n  openclaw: {requires: {bins: [jq]}}\n")
    assert skill.metadata == {"author": "me", "openclaw": {"requires": {"bins": ["jq"]}}}
    assert [(found.rule, found.line) for found in skill.diagnostics] == [("metadata-nested", 6)]


@pytest.mark.parametrize("value", ["text", "[a]"])
def test_metadata_of_another_type_is_kept_aside(value: str) -> None:
    skill = read(BASIC + f"metadata: {value}\n")
    assert (skill.metadata, rules(skill)) == ({}, ["metadata-type"])
    assert "metadata" in skill.extra


def test_long_text_is_kept_with_a_diagnostic() -> None:
    skill = read(f"name: my-skill\ndescription: {'x' * 1025}\ncompatibility: {'y' * 501}\n")
    assert (len(skill.description), rules(skill)) == (1025, ["description-long", "compatibility-long"])


def test_a_value_with_a_stray_colon_is_read_as_text() -> None:
    skill = read(
        "name: my-skill\ndescription: Use when: the user's file is a PDF\nnote: |\n  a: b: c\nlicense: MIT\n"
    )
    assert skill.description == "Use when: the user's file is a PDF"
    assert (skill.license, skill.extra["note"]) == ("MIT", "a: b: c\n")
    assert ("yaml-unquoted", 3) in [(found.rule, found.line) for found in skill.diagnostics]
    assert rules(skill).count("yaml-unquoted") == 1


@pytest.mark.parametrize(
    "value", ["**Bold** text", "`code` text", "@user asks", "[PDF] files", '"Quoted" and more', "%s"]
)
def test_a_value_that_starts_like_yaml_syntax_is_read_as_text(value: str) -> None:
    assert read(f"name: my-skill\ndescription: {value}\n").description == value


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("Use when: asked\n  for files,\n\n  or not\n", "Use when: asked for files,\nor not"),
        ("Reads files.\n  Use when: it's asked\n", "Reads files. Use when: it's asked"),
        ("[PDF] files\n  and more\n", "[PDF] files and more"),
    ],
)
def test_a_value_of_several_lines_with_a_stray_colon_is_read_as_text(value: str, text: str) -> None:
    skill = read(f"name: my-skill\ndescription: {value}\nlicense: MIT\n")
    assert (skill.description, skill.license) == (text, "MIT")


def test_only_the_value_that_needs_quotes_gets_them() -> None:
    skill = read(BASIC + "list:\n- when: a: b\n  then: c\n- when: 'd: e' # note\n  then: >\n    f: g: h\n")
    assert skill.extra["list"] == [{"when": "a: b", "then": "c"}, {"when": "d: e", "then": "f: g: h\n"}]


def test_yaml_that_quotes_do_not_save_is_broken_for_what_is_left() -> None:
    assert "line 4: the YAML can't be read" in reason("name: my-skill\ndescription: a: b\n\tlicense: MIT\n")


def test_tags_and_anchors_are_ignored_with_a_diagnostic() -> None:
    skill = read("name: !!python/object:os.system my-skill\ndescription: &d Reads files.\n")
    assert (skill.name, skill.description) == ("my-skill", "Reads files.")
    assert rules(skill) == ["tag-ignored", "anchor-ignored"]


# --- names


def test_without_a_name_the_folder_gives_it() -> None:
    skill = read("description: Reads files.\n", folder="pdf")
    assert (skill.name, rules(skill)) == ("pdf", ["name-missing"])


def test_a_name_that_is_not_the_folders_is_a_warning() -> None:
    skill = read(BASIC, folder="other")
    assert [(found.rule, found.severity) for found in skill.diagnostics] == [
        ("name-folder", Severity.WARNING)
    ]
    assert skill.runnable


def test_composed_and_decomposed_names_are_the_same_name() -> None:
    assert "name-folder" not in rules(read("name: cafe\u0301\ndescription: b\n", folder="caf\u00e9"))


@pytest.mark.parametrize("name", ["技能", "мой-навык", "раypal", "café"])
def test_a_name_in_another_script_can_be_read_and_not_run(name: str) -> None:
    skill = read(f"name: {name}\ndescription: b\n", folder=name)
    assert (skill.name, skill.runnable) == (name, False)
    assert rules(skill) == ["name-not-runnable"]


@pytest.mark.parametrize(
    "name",
    [
        '"a\\nb"',
        "a,b",
        "a b",
        "../a",
        "'%2e%2e'",
        "a/b",
        "A",
        "-a",
        "a--b",
        '"a\\0"',
        "x" * 65,
        "a\u200bb",
        "a_b",
        "a.b",
    ],
)
def test_an_unsafe_name_is_an_error_and_can_not_be_run(name: str) -> None:
    skill = read(f"name: {name}\ndescription: b\n")
    assert not skill.runnable
    assert [found for found in skill.diagnostics if found.severity is Severity.ERROR]
    assert all(found.message.isprintable() for found in skill.diagnostics)


def test_a_look_alike_is_not_taken_for_the_name_it_looks_like() -> None:
    skill = read("name: ｍy-skill\ndescription: b\n")  # full width m: the same name only after normalisation
    assert (skill.name == "my-skill", skill.runnable) == (False, False)


# --- allowed-tools


@pytest.mark.parametrize(
    ("text", "entries"),
    [
        ("Read Write", ("Read", "Write")),
        ("Read, Write,Edit", ("Read", "Write", "Edit")),
        ("Bash(git:*)", ("Bash(git:*)",)),
        ("Bash(git add:*, git commit:*) Read", ("Bash(git add:*, git commit:*)", "Read")),
        ("Bash(a (b c) d), Read", ("Bash(a (b c) d)", "Read")),
        ("Bash(open Read", ("Bash(open Read",)),
        ("a) b", ("a)", "b")),
        ("  ", ()),
    ],
)
def test_tools_are_separated_by_blanks_or_commas_outside_parentheses(
    text: str, entries: tuple[str, ...]
) -> None:
    assert split_tools(text) == entries
    assert read(BASIC + f"allowed-tools: '{text}'\n").allowed_tools == entries


@pytest.mark.parametrize("key", ["allowed-tools", "allowed_tools"])
def test_tools_can_be_a_list_in_either_spelling(key: str) -> None:
    skill = read(BASIC + f"{key}:\n- Read\n- Bash(git add:*, git rm:*)\n")
    assert skill.allowed_tools == ("Read", "Bash(git add:*, git rm:*)")
    assert skill.extra == {}


@pytest.mark.parametrize("value", ["{a: b}", "[[a]]"])
def test_a_tool_list_that_can_not_be_understood_breaks_the_skill(value: str) -> None:
    assert "neither text nor a list" in reason(BASIC + f"allowed-tools: {value}\n")


# --- hostile input


def nested(levels: int, opening: str, closing: str = "") -> str:
    return BASIC + "metadata:\n  a: " + opening * levels + "x" + closing * levels + "\n"


@pytest.mark.usefixtures("within_a_second")
@pytest.mark.parametrize(
    ("yaml", "said"),
    [
        (
            BASIC + "a: &a [x]\n" + "".join(f"b{n}: &b{n} [*a, *a]\n" for n in range(50)),
            "aliases are refused",
        ),
        (BASIC + "a: *a\n", "aliases are refused"),
        (BASIC + "a: &a [*a]\n", "aliases are refused"),
        (BASIC + "<<: *a\n", "aliases are refused"),
        (BASIC + "a: " + "x" * (10 << 20) + "\n", "longer than 64 KiB"),
        (BASIC + "a:\n" + "- x\n" * (3 << 20), "longer than 64 KiB"),
        (nested(1000, "[", "]"), "deeper than 256"),
        (nested(1000, "{a: ", "}"), "deeper than 256"),
        (nested(30000, "["), "deeper than 256"),
        (BASIC + "metadata:\n  " + "- " * 1000 + "x\n", "deeper than 256"),
        (BASIC + "".join(" " * n + "a:\n" for n in range(300)), "deeper than 256"),
        (BASIC + "license: a\x00b\n", "line 4: control character U+0000"),
        (BASIC + "license: a\x07b\n", "line 4: control character U+0007"),
        (f"---\n{BASIC}license: ".encode() + b"\xc3\x28\n---\n", "line 4: byte 0xc3 is not UTF-8"),
        (f"---\n{BASIC}license: ".encode() + b"\xed\xa0\x80\n---\n", "line 4: byte 0xed is not UTF-8"),
        ("---\n".encode("utf-16"), "no frontmatter"),
        (BASIC + 'license: "\\ud800"\n', "can't be read"),
    ],
)
def test_hostile_input_is_refused_within_a_second(yaml: str | bytes, said: str) -> None:
    assert said in reason(yaml)


@pytest.mark.usefixtures("within_a_second")
@pytest.mark.parametrize(
    "yaml",
    [
        BASIC + f"? {'k' * 900}\n: {{" + ", ".join(f"a{n}: b" for n in range(6000)) + "}\n",
        BASIC + "".join(f"k{n}: v: w\n" for n in range(4000)),
        BASIC + "a: " + "x: " * 20000 + "\n",
        BASIC + "a: '" + "''" * 30000 + "'\n",
        BASIC + "\n" * 60000,
        BASIC + "allowed-tools: " + "(" * 60000 + "\n",
        BASIC + f"license: {'9' * 60000}\ninput_schema: {{a: {'9' * 5000}, b: 1e9999}}\n",
    ],
)
def test_input_that_is_merely_large_is_read_within_a_second(yaml: str) -> None:
    assert read(yaml).name == "my-skill"


def test_reading_a_skill_imports_neither_pydantic_nor_the_command_line() -> None:
    program = (
        "import sys; from pathlib import Path; from skillexec.model import Source;"
        "from skillexec.skills.reading import read_skill;"
        "read_skill(b'---\\nname: a\\ndescription: b\\nmetadata: {cyberagent: {tool: jq}}\\n---\\n',"
        " directory=Path('a'), file='SKILL.md', source=Source.USER);"
        "print(sorted({'pydantic', 'click', 'strictyaml', 'skills_ref', 'rich'} & set(sys.modules)))"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"


def test_a_body_that_is_not_utf_8_is_read_with_replacement_characters() -> None:
    assert read_body(f"---\n{BASIC}---\n\nA ".encode() + b"\xff\n") == "A \ufffd"
