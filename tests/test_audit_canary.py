"""No secret, no input value and no output gets into the log, whatever a request or a script holds."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from skillexec.audit import Record, named
from skillexec.audit.query import Filter, page
from skillexec.journal import Journal
from skillexec.model import (
    Artifact,
    Bundle,
    BundleFile,
    Captured,
    Decision,
    InputFile,
    Limits,
    Problem,
    Rule,
    RunRequest,
    RunResult,
    Skill,
    Source,
    Status,
)
from skillexec.plan import make_plan
from skillexec.state import State

CANARY = "canary-7e2c"
BUNDLE = Bundle(b"tar", "sha256:" + "cd" * 32, (BundleFile("scripts/run.py", 3, False),))
SKILL = Skill(
    "web-search", "Searches.", Source.BUILTIN, Path("/skills/web-search"), required_env=("API_KEY",)
)
TOOL = replace(SKILL, tool="web-search", subcommand="find")

_around = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=6)
_marked = st.builds(lambda before, after: before + CANARY + after, _around, _around)
_input = st.one_of(
    st.none(),
    st.dictionaries(st.sampled_from(["query", "depth", CANARY]), _marked | st.integers(), max_size=3),
)
_requests = st.builds(
    RunRequest,
    skill=st.just("web-search"),
    system=st.just("researcher"),
    script=st.none() | st.just("scripts/run.py"),
    args=st.lists(_marked, max_size=3).map(tuple),
    input=_input,
    files=st.lists(st.builds(InputFile, st.just(CANARY), _marked.map(str.encode)), max_size=1).map(tuple),
)
_captured = st.builds(lambda text: Captured(text.encode(), b"", len(text.encode())), _marked)


_one_log = settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture
def state(tmp_path: Path) -> Iterator[State]:
    with State.open(tmp_path / "state.db", create=True) as opened:
        yield opened


def written(state: State) -> bytes:
    """Every byte of the database and of its journal."""
    return b"".join(file.read_bytes() for file in state.path.parent.iterdir())


def newest(state: State, count: int) -> tuple[Record, ...]:
    """The last records, oldest first."""
    with state.read() as connection:
        return page(connection, Filter(), limit=count).records[::-1]


def _result(run: str, request: RunRequest, decision: Decision, said: Captured, text: str) -> RunResult:
    return RunResult(
        run,
        Status.FAILED,
        request.skill,
        request.system,
        digest=BUNDLE.digest,
        decision=decision,
        exit_code=1,
        stdout=said,
        stderr=said,
        output={CANARY: text},
        artifacts=(Artifact(CANARY, text.encode()),),
        timings={"execute": 0.25},
        notes=(text,),
        error=Problem("failed", text, text),
    )


def record(state: State, request: RunRequest, skill: Skill, said: Captured, text: str) -> None:
    """What the runner records of a run that failed."""
    run = uuid.uuid4().hex
    decision = Decision(True, Rule.SYSTEM_GRANT, text, request.system, request.skill, team="red", hint=text)
    plan = make_plan(skill, BUNDLE, request, limits=Limits())
    journal = Journal(state, actor="ann")
    secrets, consent = ("API_KEY",), "once"
    journal.intend(
        run, skill=skill, bundle=BUNDLE, decision=decision, plan=plan, secrets=secrets, confirmation=consent
    )
    journal.conclude(run, _result(run, request, decision, said, text))


@settings(_one_log, max_examples=100)
@given(
    request=_requests,
    skill=st.sampled_from([SKILL, TOOL, replace(SKILL, tool="web-search")]),
    said=_captured,
    text=_marked,
)
def test_a_canary_in_any_part_of_a_request_or_its_result_is_not_in_the_file(
    state: State, request: RunRequest, skill: Skill, said: Captured, text: str
) -> None:
    record(state, request, skill, said, text)
    assert [each.event for each in newest(state, 3)] == ["decision.allowed", "run.started", "run.ended"]
    assert CANARY.encode() not in written(state)


@settings(_one_log, max_examples=30)
@given(name=st.builds(lambda before: f"{before} {CANARY}", _around))
def test_a_denied_request_for_nonsense_leaves_a_digest_of_it(state: State, name: str) -> None:
    decision = Decision(False, Rule.UNKNOWN_SKILL, "no such skill", "researcher", name)
    run = uuid.uuid4().hex
    result = RunResult(run, Status.DENIED, name, "researcher", decision=decision)
    Journal(state, actor="ann").refuse(run, result, skill=None, bundle=None, names=())
    assert newest(state, 1)[0].skill == named(name)
    assert CANARY.encode() not in written(state)


def test_names_are_the_exception_and_are_recorded(state: State) -> None:
    record(state, RunRequest("web-search", "researcher"), TOOL, Captured(), "")
    begun = newest(state, 2)[0]
    assert (begun.system, begun.skill, begun.data["names"]) == ("researcher", "web-search", ["API_KEY"])
    assert "web-search" in begun.data["command"]
