"""Figures per skill and system: how often it ran, failed and was denied, and how long it took."""

from __future__ import annotations

import json
import math
from array import array
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from sqlalchemy import ColumnElement, Connection, func, select

from skillexec.audit.query import BATCH, Filter, kind_conditions
from skillexec.schema import audit, audit_kinds, audit_open_runs

_SUCCEEDED = "ok"


@dataclass(frozen=True, slots=True)
class Line:
    """One skill run by one system. Durations are microseconds; none where no script ran to an end."""

    skill: str
    system: str
    runs: int
    failures: int
    denials: int
    p50_us: int | None
    p95_us: int | None


@dataclass(slots=True)
class _Tally:
    runs: int = 0
    failures: int = 0
    denials: int = 0
    durations: array[int] = field(default_factory=lambda: array("q"))

    def add(self, event: str, outcome: str, number: int) -> None:
        if event == "decision.denied":
            self.denials += number
        elif event in ("run.ended", "run.abandoned"):
            self.runs += number
            self.failures += 0 if outcome == _SUCCEEDED else number


def _percentile(ordered: Sequence[int], share: float) -> int | None:
    """By nearest rank: a duration that really occurred."""
    return ordered[math.ceil(share * len(ordered)) - 1] if ordered else None


def _in_range(wanted: Filter) -> Iterator[ColumnElement[bool]]:
    if wanted.since:
        yield audit.c.time >= wanted.since
    if wanted.until:
        yield audit.c.time <= wanted.until
    if wanted.run is not None:
        yield audit.c.run == wanted.run
    yield from kind_conditions(wanted)


def _count(connection: Connection, wanted: Filter, tallies: dict[tuple[str, str], _Tally]) -> None:
    kinds = audit_kinds.c
    query = (
        select(kinds.skill, kinds.system, kinds.event, kinds.outcome, func.count())
        .join(audit, audit.c.kind == kinds.id)
        .where(kinds.skill != "", *_in_range(wanted))
        .group_by(kinds.id)
    )
    for skill, system, event, outcome, number in connection.execute(query):
        tallies[skill, system].add(event, outcome, number)


def _count_open(connection: Connection, wanted: Filter, tallies: dict[tuple[str, str], _Tally]) -> None:
    query = (
        select(audit_kinds.c.skill, audit_kinds.c.system)
        .join(audit, audit.c.kind == audit_kinds.c.id)
        .join(audit_open_runs, audit_open_runs.c.seq == audit.c.seq)
        .where(*_in_range(wanted))
    )
    for skill, system in connection.execute(query):
        tallies[skill, system].runs += 1


def _measure(connection: Connection, wanted: Filter, tallies: dict[tuple[str, str], _Tally]) -> None:
    query = (
        select(audit_kinds.c.skill, audit_kinds.c.system, audit.c.body)
        .join(audit, audit.c.kind == audit_kinds.c.id)
        .where(audit_kinds.c.event == "run.ended", *_in_range(wanted))
    )
    for skill, system, body in connection.execution_options(yield_per=BATCH).execute(query):
        duration = json.loads(body)["data"].get("duration_us")
        if duration:  # 0: refused before anything started, which says nothing about how long runs take
            tallies[skill, system].durations.append(duration)


def _line(skill: str, system: str, tally: _Tally) -> Line:
    ordered = sorted(tally.durations)
    middle, late = _percentile(ordered, 0.5), _percentile(ordered, 0.95)
    return Line(skill, system, tally.runs, tally.failures, tally.denials, middle, late)


def stats(connection: Connection, wanted: Filter) -> tuple[Line, ...]:
    """The figures of what matches, most runs first; skills that were only looked at are left out."""
    tallies: dict[tuple[str, str], _Tally] = defaultdict(_Tally)
    _count(connection, wanted, tallies)
    _count_open(connection, wanted, tallies)
    _measure(connection, wanted, tallies)
    lines = (_line(skill, system, tally) for (skill, system), tally in tallies.items())
    used = [line for line in lines if line.runs or line.denials or line.failures]
    return tuple(sorted(used, key=lambda line: (-line.runs, -line.denials, line.skill, line.system)))
