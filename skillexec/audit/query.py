"""Reading the log: a page of it, newest first; all of it, in order; one run's story.

A filter selects *kinds* (who, what, how it came out), of which there are few, and one index holds each kind's
records by time. So a page takes a few seeks per kind, whatever is combined and however long the log is: of a
million records that match every filter but one, none is read.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

from sqlalchemy import ColumnElement, Connection, bindparam, func, select, tuple_

from skillexec.audit.record import Record, parse, stamp
from skillexec.errors import Usage
from skillexec.schema import audit, audit_kinds

BATCH = 1000
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
_AGO = re.compile(r"([0-9]{1,6})([smhdw])")
_DAY = re.compile(r"\d{4}-\d\d-\d\d")
_END_OF_TIME = "9999-12-31T23:59:59.999999Z"
_KIND_FIELDS = ("actor", "event", "system", "team", "skill", "outcome")


@dataclass(frozen=True, slots=True)
class Filter:
    """Which records are wanted. `event` may be all of a noun: `grant.*`. Times are as records write them."""

    since: str | None = None
    until: str | None = None
    actor: str | None = None
    system: str | None = None
    team: str | None = None
    skill: str | None = None
    event: str | None = None
    outcome: str | None = None
    run: str | None = None

    @property
    def by_kind(self) -> bool:
        return any(getattr(self, name) is not None for name in _KIND_FIELDS)


@dataclass(frozen=True, slots=True)
class Page:
    """Some records, newest first, and the number to ask for the next page `before`, if there is one."""

    records: tuple[Record, ...]
    before: int | None


@dataclass(frozen=True, slots=True, order=True)
class _Place:
    """Where a record stands when the newest comes first: by its time, then its number."""

    time: str
    seq: int


_END = _Place(_END_OF_TIME, 0)
_place = tuple_(audit.c.time, audit.c.seq)
_range = (
    _place < tuple_(bindparam("before_time"), bindparam("before_seq")),
    audit.c.time >= bindparam("since"),
    audit.c.time <= bindparam("until"),
)
_newest_first = (audit.c.time.desc(), audit.c.seq.desc())
_of_all = select(audit.c.time, audit.c.seq).where(*_range).order_by(*_newest_first).limit(bindparam("most"))
_of_kind = _of_all.where(audit.c.kind == bindparam("kind"))
_of_run = _of_all.where(audit.c.run == bindparam("run"))


def kind_conditions(wanted: Filter) -> Iterator[ColumnElement[bool]]:
    """What the filter asks of audit_kinds."""
    for name in _KIND_FIELDS:
        value, column = getattr(wanted, name), audit_kinds.c[name]
        if value is None:
            continue
        if name == "event" and value.endswith(".*"):
            yield column.startswith(value.removesuffix("*"), autoescape=True)
        else:
            yield column == value


def _kinds(connection: Connection, wanted: Filter) -> frozenset[int]:
    query = select(audit_kinds.c.id).where(*kind_conditions(wanted))
    return frozenset(connection.execute(query).scalars())


def _kinds_by_newest(connection: Connection, wanted: Filter, before: _Place) -> list[tuple[str, int]]:
    """The kinds that match, each with the time of its newest record in range; the newest kind first."""
    until = min(wanted.until or _END_OF_TIME, before.time)
    newest = (
        select(func.max(audit.c.time))
        .where(audit.c.kind == audit_kinds.c.id, audit.c.time >= (wanted.since or ""), audit.c.time <= until)
        .scalar_subquery()
    )
    query = select(newest, audit_kinds.c.id).where(*kind_conditions(wanted))
    return sorted(((row[0], row[1]) for row in connection.execute(query) if row[0] is not None), reverse=True)


def _arguments(wanted: Filter, before: _Place, most: int) -> dict[str, str | int]:
    return {
        "before_time": before.time,
        "before_seq": before.seq,
        "since": wanted.since or "",
        "until": wanted.until or _END_OF_TIME,
        "most": most,
    }


def _places_of_kinds(connection: Connection, wanted: Filter, before: _Place, most: int) -> list[_Place]:
    arguments = _arguments(wanted, before, most)
    found: list[_Place] = []
    for newest, kind in _kinds_by_newest(connection, wanted, before):
        if len(found) == most:
            if newest < found[-1].time:
                break  # this kind and all that follow are older than what we have
            arguments["since"] = found[-1].time
        rows = connection.execute(_of_kind, {**arguments, "kind": kind})
        found = sorted([*found, *(_Place(*row) for row in rows)], reverse=True)[:most]
    return found


def _places(connection: Connection, wanted: Filter, before: _Place, most: int) -> list[_Place]:
    if wanted.run is None and wanted.by_kind:
        return _places_of_kinds(connection, wanted, before, most)
    arguments = _arguments(wanted, before, most)
    if wanted.run is None:
        return [_Place(*row) for row in connection.execute(_of_all, arguments)]
    query = _of_run
    if wanted.by_kind:  # the records of one run are few: look at each
        query = query.where(audit.c.kind.in_(_kinds(connection, wanted)))
    return [_Place(*row) for row in connection.execute(query, {**arguments, "run": wanted.run})]


def _place_of(connection: Connection, seq: int) -> _Place:
    time = connection.execute(select(audit.c.time).where(audit.c.seq == seq)).scalar()
    if time is None:
        raise Usage(f"no record {seq}", hint="`skillexec audit list` shows the newest")
    return _Place(time, seq)


def _records(connection: Connection, seqs: Sequence[int]) -> tuple[Record, ...]:
    rows = connection.execute(select(audit.c.seq, audit.c.body, audit.c.hash).where(audit.c.seq.in_(seqs)))
    found = {row.seq: parse(row.body, row.hash) for row in rows}
    return tuple(found[seq] for seq in seqs)


def page(connection: Connection, wanted: Filter, *, limit: int, before: int | None = None) -> Page:
    """The newest records that match; with `before`, those older than that record."""
    start = _END if before is None else _place_of(connection, before)
    places = _places(connection, wanted, start, limit + 1)
    records = _records(connection, [place.seq for place in places[:limit]])
    return Page(records, records[-1].seq if len(places) > limit else None)


def _predicate(connection: Connection, wanted: Filter) -> Callable[[int, str, str | None], bool]:
    kinds = _kinds(connection, wanted) if wanted.by_kind else None
    since, until = wanted.since or "", wanted.until or _END_OF_TIME

    def matches(kind: int, time: str, run: str | None) -> bool:
        if not since <= time <= until or (wanted.run is not None and run != wanted.run):
            return False
        return kinds is None or kind in kinds

    return matches


def stream(connection: Connection, wanted: Filter, *, after: int = 0) -> Iterator[Record]:
    """Every record that matches, in the order of the log, without holding more than a batch of them."""
    matches = _predicate(connection, wanted)
    query = select(audit.c.kind, audit.c.time, audit.c.run, audit.c.body, audit.c.hash)
    query = query.where(audit.c.seq > after).order_by(audit.c.seq)
    for kind, time, run, body, digest in connection.execution_options(yield_per=BATCH).execute(query):
        if matches(kind, time, run):
            yield parse(body, digest)


def one(connection: Connection, seq: int) -> Record:
    """The record of this number."""
    _place_of(connection, seq)
    return _records(connection, [seq])[0]


def story(connection: Connection, run: str) -> tuple[Record, ...]:
    """Everything on the record about a run, in order."""
    query = select(audit.c.body, audit.c.hash).where(audit.c.run == run).order_by(audit.c.seq)
    found = tuple(parse(row.body, row.hash) for row in connection.execute(query))
    if not found:
        raise Usage(
            f"no record and no run is called {run!r}",
            hint="`skillexec audit list --event 'run.*'` shows the runs",
        )
    return found


def moment(text: str, *, end: bool = False, now: datetime | None = None) -> str:
    """A point in time as records write it: `2h` ago, or ISO 8601 (UTC unless it says otherwise).

    With `end`, a day without a time of day means the end of that day.
    """
    if ago := _AGO.fullmatch(text.strip()):
        return _ago(now or datetime.now(UTC), timedelta(**{_UNITS[ago[2]]: int(ago[1])}))
    try:
        found = datetime.fromisoformat(text.strip())
        found = found.replace(tzinfo=UTC) if found.tzinfo is None else found
        if end and _DAY.fullmatch(text.strip()):
            found = _end_of_day(found)
        return stamp(found)
    except (ValueError, OverflowError) as error:
        raise Usage(f"{text!r} is not a time", hint="write 2h, 7d, 2026-07-28 or 2026-07-28T10:30") from error


def _ago(now: datetime, span: timedelta) -> str:
    try:
        return stamp(now - span)
    except OverflowError:
        return ""  # before all records


def _end_of_day(day: datetime) -> datetime:
    return day.replace(hour=23, minute=59, second=59, microsecond=999999)


def with_times(wanted: Filter, *, since: str | None, until: str | None) -> Filter:
    """The filter with times as a person writes them."""
    return replace(
        wanted,
        since=None if since is None else moment(since),
        until=None if until is None else moment(until, end=True),
    )
