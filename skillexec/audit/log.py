"""Appending: the next number and the link to the last record are taken under the database's one write lock."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from skillexec.audit.events import NAME_MAX, Event, is_name
from skillexec.audit.record import GENESIS, Record, make, parse
from skillexec.errors import AuditUnusable, Bug, Usage
from skillexec.process import ProcessIdentity, identity_in, is_alive
from skillexec.statements import KIND_FIELDS, driver, sqlite

if TYPE_CHECKING:
    from skillexec.statements import AnyConnection

_RUN_OVER = frozenset({"run.ended", "run.abandoned"})


@dataclass(frozen=True, slots=True)
class Head:
    """The newest record, which the next one names as its predecessor; of an empty log: number 0."""

    seq: int
    hash: str


@dataclass(frozen=True, slots=True)
class OpenRun:
    """A run that started and of which no end is recorded."""

    started: Record
    process: ProcessIdentity | None

    @property
    def run(self) -> str:
        assert self.started.run is not None  # the table's key
        return self.started.run


def head(connection: AnyConnection) -> Head:
    found = driver(connection).execute(sqlite.HEAD).fetchone()
    return Head(*found) if found else Head(0, GENESIS)


def _new_kind(connection: sqlite3.Connection, values: Mapping[str, str]) -> int:
    connection.execute(sqlite.NEW_KIND, values)
    return int(connection.execute(sqlite.KIND, values).fetchone()[0])


def _check_run(event: Event, *, started: bool, known: bool) -> None:
    """One id, one story: whoever could add to the records of another's run could end it there, too."""
    if event.run is None and event.event.startswith("run."):
        raise Bug(f"the audit event {event.event} is about no run")
    if (event.event == "run.started" and started) or (event.event.startswith("decision.") and known):
        raise Usage(f"the run {event.run} was started before", hint="give each run an id of its own")


def check_new_run(connection: AnyConnection, run: str) -> None:
    """Raise Usage where this can't be the id of a new run: no name, or on the record already. `append` checks again."""
    if not is_name(run):
        raise Usage(f"a run's id is 1 to {NAME_MAX} printable characters without spaces")
    known = driver(connection).execute(sqlite.KNOWN_RUN, {"run": run}).fetchone()[0]
    _check_run(Event("decision.allowed", "-", run=run), started=False, known=known)


def _follow_run(connection: sqlite3.Connection, record: Record) -> None:
    """Keep the list of open runs, so that finding the abandoned ones does not read the whole log."""
    if record.event == "run.started":
        connection.execute(sqlite.OPEN_RUN, {"run": record.run, "seq": record.seq})
    elif record.event in _RUN_OVER:
        connection.execute(sqlite.CLOSE_RUN, {"run": record.run})


def _append(connection: sqlite3.Connection, event: Event) -> Record:
    values = {name: getattr(event, name) or "" for name in KIND_FIELDS}
    asked: dict[str, Any] = {**values, "run": event.run}
    seq, hash_, kind, started, known = connection.execute(sqlite.BEFORE, asked).fetchone()
    _check_run(event, started=bool(started), known=bool(known))
    record = make(event, seq=(seq or 0) + 1, prev=hash_ or GENESIS, moment=datetime.now(UTC))
    row = {
        "seq": record.seq,
        "hash": record.hash,
        "body": record.body,
        "kind": kind or _new_kind(connection, values),
        "time": record.time,
        "run": record.run,
    }
    connection.execute(sqlite.NEW_RECORD, row)
    _follow_run(connection, record)
    return record


def append(connection: AnyConnection, event: Event) -> Record:
    """Put an event on the record. Only inside `State.write()`: it is durable when that returns, or it never was."""
    try:
        return _append(driver(connection), event)
    except sqlite3.Error as error:
        raise AuditUnusable(
            f"the audit log can't be written: {error}", hint="nothing was changed; run `skillexec doctor`"
        ) from error


def open_runs(connection: AnyConnection) -> tuple[OpenRun, ...]:
    """The runs without a recorded end, oldest first."""
    records = (parse(*row) for row in driver(connection).execute(sqlite.OPEN_RUNS))
    return tuple(OpenRun(record, identity_in(record.data)) for record in records)


def record_abandoned(connection: AnyConnection, *, actor: str) -> tuple[Record, ...]:
    """Record as abandoned every open run whose process is dead. Only inside `State.write()`."""
    return tuple(
        append(connection, _abandonment(run, actor))
        for run in open_runs(connection)
        if run.process is None or not is_alive(run.process)
    )


def _abandonment(run: OpenRun, actor: str) -> Event:
    started = run.started
    return Event(
        "run.abandoned",
        actor,
        system=started.system,
        team=started.team,
        skill=started.skill,
        outcome="abandoned",
        run=run.run,
        data=run.process.data if run.process else {},
    )
