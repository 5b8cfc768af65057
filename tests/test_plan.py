"""From a request to a command: what is asked for is checked before anything starts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from skillexec.errors import InvalidInput, SkillError
from skillexec.model import (
    Bundle,
    BundleFile,
    Captured,
    Command,
    InputFile,
    Interpreter,
    Limits,
    RunRequest,
    Skill,
    Source,
)
from skillexec.plan import Plan, make_plan, output_problem, parsed_output

LIMITS = Limits()
SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}


def _skill(**fields: Any) -> Skill:
    return Skill("counter", "Counts.", Source.ORG, Path("/skills/counter"), **fields)


def _bundle(*paths: str) -> Bundle:
    return Bundle(
        b"", "sha256:" + "0" * 64, tuple(BundleFile(path, 1, False) for path in ("SKILL.md", *paths))
    )


def _plan(skill: Skill, *paths: str, limits: Limits = LIMITS, **request: Any) -> Plan:
    return make_plan(skill, _bundle(*paths), RunRequest("counter", "agent", **request), limits=limits)


def test_the_only_script_needs_no_name() -> None:
    plan = _plan(_skill(), "scripts/count.py", "references/notes.md")
    assert plan.command == Command(Interpreter.SCRIPT, "scripts/count.py")


def test_a_script_outside_scripts_is_found_when_it_is_the_only_one() -> None:
    assert _plan(_skill(), "run.sh").command.target == "run.sh"


def test_several_scripts_need_a_name_and_are_listed() -> None:
    with pytest.raises(InvalidInput) as refusal:
        _plan(_skill(), "scripts/a.py", "scripts/b.sh")
    assert "scripts/a.py, scripts/b.sh" in refusal.value.hint


def test_a_skill_with_nothing_to_run_says_so() -> None:
    with pytest.raises(SkillError, match="nothing to run"):
        _plan(_skill(), "references/notes.md")


@pytest.mark.parametrize(
    "script", ["../other/run.py", "/etc/passwd", "scripts/none.py", "scripts/../../x", ""]
)
def test_a_script_that_is_not_a_file_of_the_skill_is_refused(script: str) -> None:
    with pytest.raises(InvalidInput, match="has no file"):
        _plan(_skill(), "scripts/count.py", script=script)


@pytest.mark.parametrize("module", ["os; import sys", "-c", "a..b", "", "a/b", "..x"])
def test_what_is_not_a_module_name_is_refused(module: str) -> None:
    with pytest.raises(InvalidInput):
        _plan(_skill(), module=module)


def test_a_tool_gets_its_subcommand_then_the_input_then_the_arguments() -> None:
    plan = _plan(
        _skill(tool="brave-search", subcommand="search"), input={"query": "x", "count": 2}, args=("-v",)
    )
    assert plan.command == Command(
        Interpreter.TOOL, "brave-search", ("search", "--query", "x", "--count", "2", "-v")
    )
    assert plan.stdin is None
    assert plan.label == "tool brave-search search"


def test_the_label_of_a_tool_without_subcommand_holds_no_argument() -> None:
    assert _plan(_skill(tool="jq"), args=("canary",)).label == "tool jq"


def test_a_script_gets_its_input_as_json_on_stdin() -> None:
    assert _plan(_skill(), "run.py", input={"n": 1, "text": "ü"}).stdin == '{"n": 1, "text": "ü"}'.encode()


def test_input_and_stdin_together_are_refused() -> None:
    with pytest.raises(InvalidInput, match="both"):
        _plan(_skill(), "run.py", input={}, stdin=b"x")


def test_input_that_breaks_the_schema_is_refused_with_every_path() -> None:
    with pytest.raises(InvalidInput, match=r"\$\.n"):
        _plan(_skill(input_schema=SCHEMA), "run.py", input={"n": "one"})


def test_no_input_is_held_to_the_schema_too() -> None:
    with pytest.raises(InvalidInput):
        _plan(_skill(input_schema=SCHEMA), "run.py")


def test_a_schema_that_can_not_be_used_refuses_the_skill() -> None:
    with pytest.raises(SkillError, match="input schema"):
        _plan(_skill(input_schema={"$ref": "http://127.0.0.1:1/x"}), "run.py", input={})


@pytest.mark.parametrize("value", [float("nan"), float("inf"), {1: object()}, "x" * (9 << 20)])
def test_input_that_is_not_json_or_too_large_is_refused(value: Any) -> None:
    with pytest.raises(InvalidInput):
        _plan(_skill(), "run.py", input=value)


@pytest.mark.parametrize("value", [{"n": {1, 2}}, {"n": object()}, {"n": float("nan")}])
def test_input_that_is_not_json_is_the_callers_fault_and_not_the_schemas(value: Any) -> None:
    with pytest.raises(InvalidInput, match="not JSON"):
        _plan(_skill(input_schema=SCHEMA), "run.py", input=value)


def test_a_tool_has_its_input_as_options_and_so_can_have_a_stdin_of_its_own() -> None:
    plan = _plan(_skill(tool="jq"), input={"n": 1}, stdin=b"x")
    assert (plan.command.args, plan.stdin) == (("--n", "1"), b"x")


@pytest.mark.parametrize(
    "wrong",
    [
        {"args": "ab"},
        {"args": (1,)},
        {"stdin": "text"},
        {"timeout": "5"},
        {"files": ("a.txt",)},
        {"script": 5},
        {"module": b"scripts.main"},
    ],
)
def test_what_a_program_hands_in_of_another_type_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput):
        _plan(_skill(), "run.py", **wrong)


def test_a_time_out_can_be_lowered_and_never_raised() -> None:
    limits = Limits(seconds=30)
    assert _plan(_skill(), "run.py", limits=limits, timeout=5).limits.seconds == 5
    assert _plan(_skill(), "run.py", limits=limits, timeout=500).limits.seconds == 30


@pytest.mark.parametrize("timeout", [0, -1, float("nan")])
def test_a_time_out_that_is_none_is_refused(timeout: float) -> None:
    with pytest.raises(InvalidInput):
        _plan(_skill(), "run.py", timeout=timeout)


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "../x", "a\0b", "x" * 256])
def test_a_file_name_that_could_leave_its_folder_is_refused(name: str) -> None:
    with pytest.raises(InvalidInput):
        _plan(_skill(), "run.py", files=(InputFile(name, b""),))


def test_two_files_of_one_name_are_refused() -> None:
    with pytest.raises(InvalidInput, match="same name"):
        _plan(_skill(), "run.py", files=(InputFile("a", b"1"), InputFile("a", b"2")))


@pytest.mark.parametrize("args", [("a\0b",), ("x",) * 2000, ("x" * (200 << 10),)])
def test_arguments_that_can_not_be_passed_are_refused(args: tuple[str, ...]) -> None:
    with pytest.raises(InvalidInput):
        _plan(_skill(), "run.py", args=args)


def test_a_plan_does_not_show_arguments_or_input_when_printed() -> None:
    plan = _plan(_skill(), "run.py", args=("canary",), input={"n": "canary"})
    assert "canary" not in repr(plan) + plan.label
    assert "canary" not in repr(
        RunRequest("counter", "agent", args=("canary",), input="canary", stdin=b"canary")
    )


@pytest.mark.parametrize("text", [b"", b"plain", b"{", b"NaN", b"[" * 100_000, b"\xff"])
def test_output_that_is_not_json_is_none(text: bytes) -> None:
    assert parsed_output(Captured(head=text, total=len(text))) is None


def test_truncated_output_is_not_parsed() -> None:
    assert parsed_output(Captured(head=b"[1]", total=99)) is None


def test_output_is_held_to_its_schema() -> None:
    assert output_problem(SCHEMA, {"n": 1}) == ""
    assert "$.n" in output_problem(SCHEMA, {"n": "x"})
    assert output_problem(SCHEMA, None) == "stdout is not JSON"
