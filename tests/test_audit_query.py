"""Reading the log: pages, stories, figures, exports, and the worked example of docs/audit.md."""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, tzinfo
from pathlib import Path

import pytest
from audit_log import a_day, denied, ended, put, started
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from skillexec.audit import EVENTS, Event, Record
from skillexec.audit.events import FIELDS
from skillexec.audit.export import cloudevent, jsonl, source_of
from skillexec.audit.query import Filter, moment, one, page, story, stream
from skillexec.audit.stats import Line, stats
from skillexec.errors import Usage
from skillexec.state import State

DOCUMENT = (Path(__file__).parent.parent / "docs" / "audit.md").read_text()


@pytest.fixture
def state(tmp_path: Path) -> Iterator[State]:
    with State.open(tmp_path / "state.db", create=True) as opened:
        yield opened


@pytest.fixture
def day(state: State) -> tuple[Record, ...]:
    return a_day(state)


def numbers(state: State, wanted: Filter, *, limit: int = 50, before: int | None = None) -> list[int]:
    with state.read() as connection:
        return [record.seq for record in page(connection, wanted, limit=limit, before=before).records]


@pytest.mark.usefixtures("day")
@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        (Filter(), [9, 8, 7, 6, 5, 4, 3, 2, 1]),
        (Filter(actor="ann", team="red"), [9, 8, 5, 4, 2, 1]),
        (Filter(actor="bob"), []),
        (Filter(system="researcher", outcome="denied"), [6]),
        (Filter(skill="web-search", outcome="denied"), []),
        (Filter(event="run.*"), [9, 8, 5, 4]),
        (Filter(event="run.ended", outcome="failed"), [9]),
        (Filter(run="r1"), [5, 4, 3]),
        (Filter(run="r1", event="run.*"), [5, 4]),
        (Filter(since="9999"), []),
        (Filter(until="0001"), []),
    ],
)
def test_filters_add_up_and_the_newest_comes_first(state: State, wanted: Filter, found: list[int]) -> None:
    assert numbers(state, wanted) == found


def test_times_are_bounds_that_belong_to_the_range(state: State, day: tuple[Record, ...]) -> None:
    assert numbers(state, Filter(since=day[2].time, until=day[4].time)) == [5, 4, 3]
    assert numbers(state, Filter(system="researcher", since=day[2].time, until=day[4].time)) == [5, 4, 3]


def test_a_page_before_a_record_that_does_not_exist_is_refused(state: State) -> None:
    with pytest.raises(Usage, match="no record 4"):
        numbers(state, Filter(), before=4)


_systems = st.sampled_from(["s1", "s2", "s3"])
_events = st.one_of(
    st.builds(denied, st.uuids().map(str), system=_systems, skill=st.sampled_from(["k1", "k2"])),
    st.builds(
        lambda team, actor: Event("team.added", actor, team=team), _systems, st.sampled_from(["ann", "bob"])
    ),
)
_filters = st.builds(
    Filter,
    system=st.none() | _systems,
    skill=st.none() | st.just("k1"),
    team=st.none() | _systems,
    actor=st.none() | st.sampled_from(["ann", "bob"]),
    event=st.none() | st.sampled_from(["team.added", "decision.*"]),
    outcome=st.none() | st.just("denied"),
)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(events=st.lists(_events, min_size=1, max_size=30), wanted=_filters, limit=st.integers(1, 7))
def test_pages_together_are_all_that_matches_each_once(
    tmp_path: Path, events: list[Event], wanted: Filter, limit: int
) -> None:
    (tmp_path / "state.db").unlink(missing_ok=True)
    with State.open(tmp_path / "state.db", create=True) as state:
        records = put(state, *events)
        found: list[int] = []
        before: int | None = None
        with state.read() as connection:
            while True:
                one_page = page(connection, wanted, limit=limit, before=before)
                found += [record.seq for record in one_page.records]
                before = one_page.before
                if before is None:
                    break
            streamed = [record.seq for record in stream(connection, wanted)]
    expected = [record.seq for record in records if _matches(record, wanted)]
    assert streamed == expected
    assert found == expected[::-1]


def _matches(record: Record, wanted: Filter) -> bool:
    """The filter, said as plainly as can be."""
    noun = wanted.event is not None and wanted.event.endswith(".*")
    if noun and not record.event.startswith(str(wanted.event).removesuffix("*")):
        return False
    names = ["system", "skill", "team", "actor", "outcome", *([] if noun else ["event"])]
    return all(getattr(wanted, name) in (None, getattr(record, name)) for name in names)


def test_a_clock_that_was_set_back_hides_nothing(state: State) -> None:
    from skillexec.audit import log

    class Clock:
        hours = iter([10, 12, 11])

        @classmethod
        def now(cls, zone: tzinfo) -> datetime:
            return datetime(2026, 7, 28, next(cls.hours), tzinfo=zone)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(log, "datetime", Clock)
        put(state, started("a"), started("b"), started("c"))
    assert numbers(state, Filter()) == [2, 3, 1]
    assert numbers(state, Filter(event="run.started"), limit=1, before=2) == [3]
    assert numbers(state, Filter(since="2026-07-28T11:30:00.000000Z")) == [2]


# Times as people write them.

NOW = datetime(2026, 7, 28, 12, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "end", "means"),
    [
        ("90s", False, "2026-07-28T11:58:30.000000Z"),
        ("2h", False, "2026-07-28T10:00:00.000000Z"),
        ("7d", False, "2026-07-21T12:00:00.000000Z"),
        ("1w", False, "2026-07-21T12:00:00.000000Z"),
        ("999999w", False, ""),
        ("2026-07-28", False, "2026-07-28T00:00:00.000000Z"),
        ("2026-07-28", True, "2026-07-28T23:59:59.999999Z"),
        ("2026-07-28 10:30", True, "2026-07-28T10:30:00.000000Z"),
        ("2026-07-28T10:30:00+02:00", False, "2026-07-28T08:30:00.000000Z"),
    ],
)
def test_times_are_relative_or_iso(text: str, end: bool, means: str) -> None:
    assert moment(text, end=end, now=NOW) == means


@pytest.mark.parametrize("text", ["yesterday", "2h30m", "-2h", "2026-13-01", "", "٣h"])
def test_what_is_no_time_is_refused_with_examples(text: str) -> None:
    with pytest.raises(Usage) as caught:
        moment(text)
    assert "7d" in caught.value.hint


# Stories, figures.


@pytest.mark.usefixtures("day")
def test_a_story_goes_from_the_decision_to_the_end(state: State) -> None:
    with state.read() as connection:
        assert [record.event for record in story(connection, "r3")] == [
            "decision.allowed",
            "run.started",
            "run.ended",
        ]
        with pytest.raises(Usage, match="no run is called"):
            story(connection, "r99")
        with pytest.raises(Usage, match="no record 99"):
            one(connection, 99)


def test_figures_count_runs_failures_and_denials_with_durations_by_nearest_rank(state: State) -> None:
    for number in range(1, 21):
        outcome = "failed" if number > 18 else "ok"
        put(state, started(f"r{number}"), ended(f"r{number}", outcome=outcome, duration=number * 1000))
    put(state, started("open"), denied("x"), Event("run.abandoned", "ann", system="w", skill="k", run="y"))
    with state.read() as connection:
        assert stats(connection, Filter()) == (
            Line("web-search", "researcher", 21, 2, 0, 10_000, 19_000),
            Line("k", "w", 1, 1, 0, None, None),
            Line("git-push", "researcher", 0, 0, 1, None, None),
        )
        assert stats(connection, Filter(since="9999")) == ()
        [only] = stats(connection, Filter(outcome="failed"))
        assert (only.runs, only.failures) == (2, 2)
        assert stats(connection, Filter(run="r7")) == (
            Line("web-search", "researcher", 1, 0, 0, 7_000, 7_000),
        )
        assert stats(connection, Filter(run="nobody")) == ()
        [only] = stats(connection, Filter(event="decision.*"))
        assert (only.skill, only.denials, only.p50_us) == ("git-push", 1, None)


def test_a_run_that_was_refused_before_it_started_does_not_make_durations_look_short(state: State) -> None:
    put(state, started("r1"), ended("r1", duration=7_000))
    for number in range(3):
        put(state, ended(f"bad{number}", outcome="invalid_input", duration=0))
    with state.read() as connection:
        assert stats(connection, Filter()) == (Line("web-search", "researcher", 4, 3, 0, 7_000, 7_000),)


# Exports.


@pytest.mark.usefixtures("day")
def test_an_exported_line_hashes_to_what_the_next_calls_prev(state: State) -> None:
    with state.read() as connection:
        lines = [jsonl(record, "") for record in stream(connection, Filter())]
    hashes = [hashlib.sha256(line.encode()).hexdigest() for line in lines]
    assert [json.loads(line)["prev"] for line in lines] == ["0" * 64, *hashes[:-1]]


@pytest.mark.usefixtures("day")
def test_a_cloudevent_has_what_the_specification_requires(state: State) -> None:
    with state.read() as connection:
        source = source_of(connection)
        events = [json.loads(cloudevent(record, source)) for record in stream(connection, Filter())]
    for number, event in enumerate(events, start=1):
        assert {"id", "source", "specversion", "type"} <= event.keys()
        assert all(re.fullmatch("[a-z0-9]{1,20}", name) for name in event)  # the rule for attribute names
        assert event["specversion"] == "1.0"
        assert datetime.fromisoformat(event["time"]) - datetime.now(UTC) < timedelta(seconds=5)
        assert (event["data"]["seq"], int(event["sequence"])) == (number, number)
        assert event.get("subject", "x")
    assert len({event["id"] for event in events}) == len(events)


# The documentation is true.


def _blocks(kind: str) -> list[str]:
    return re.findall(rf"^```{kind}\n(.*?)^```$", DOCUMENT, re.MULTILINE | re.DOTALL)


def test_the_worked_example_verifies_as_written(tmp_path: Path) -> None:
    (tmp_path / "log.jsonl").write_text(_blocks("json")[0])
    shell = subprocess.run(
        ["sh", "-c", _blocks("sh")[0]], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    python = subprocess.run(
        [sys.executable, "-c", _blocks("python")[0]], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert [shell.stdout, python.stdout] == _blocks("text")


def test_the_worked_example_notices_an_edit(tmp_path: Path) -> None:
    (tmp_path / "log.jsonl").write_text(_blocks("json")[0].replace("ann", "bob", 1))
    program = [sys.executable, "-c", _blocks("python")[0]]
    assert subprocess.run(program, cwd=tmp_path, capture_output=True, check=False).returncode != 0


def test_the_worked_example_is_what_this_version_writes() -> None:
    from skillexec.audit.record import GENESIS, make

    first, second = _blocks("json")[0].splitlines()
    event = Event("system.added", "ann", team="red", system="researcher")
    record = make(event, seq=1, prev=GENESIS, moment=datetime(2026, 7, 28, 10, 30, 0, 125000, tzinfo=UTC))
    assert record.body == first
    assert json.loads(second)["prev"] == record.hash


def test_the_worked_program_verifies_a_real_export(
    state: State, day: tuple[Record, ...], tmp_path: Path
) -> None:
    put(state, Event("team.added", "Ωμέγα 🦉", team="größe"))
    with state.read() as connection:
        lines = [record.body + "\n" for record in stream(connection, Filter())]
        newest = one(connection, 10)
    (tmp_path / "log.jsonl").write_text("".join(lines))
    program = [sys.executable, "-c", _blocks("python")[0]]
    done = subprocess.run(program, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout == f"{len(day) + 1} {newest.hash}\n"


def test_every_event_and_field_is_documented() -> None:
    for event, fields in EVENTS.items():
        assert f"| `{event}` | {', '.join(f'`{field}`' for field in sorted(fields))} |" in DOCUMENT
    for field, kind in FIELDS.items():
        assert f"| `{field}` | {kind.replace('_', ' ')} |" in DOCUMENT
