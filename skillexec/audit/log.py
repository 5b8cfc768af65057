"""Appending: the next number and the link to the last record are taken under the database's one write lock."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from sqlalchemy import Connection, bindparam, delete, exists, insert, select
from sqlalchemy.exc import SQLAlchemyError

from skillexec.audit.events import NAME_MAX, Event, is_name
from skillexec.audit.record import GENESIS, Record, make, parse
from skillexec.errors import AuditUnusable, Bug, Usage
from skillexec.process import ProcessIdentity, identity_in, is_alive
from skillexec.schema import audit, audit_kinds, audit_open_runs

_KIND_FIELDS = ("actor", "event", "system", "team", "skill", "outcome")
_RUN_OVER = frozenset({"run.ended", "run.abandoned"})

_NEWEST = audit.c.seq.desc()
_HEAD = select(audit.c.seq, audit.c.hash).order_by(_NEWEST).limit(1)
_KIND = select(audit_kinds.c.id).where(*(audit_kinds.c[name] == bindparam(name) for name in _KIND_FIELDS))
_STARTED = (
    select(audit.c.seq)
    .join(audit_kinds, audit_kinds.c.id == audit.c.kind)
    .where(audit.c.run == bindparam("run"), audit_kinds.c.event == "run.started")
)
# All that an append has to know, in one question: the write lock is held meanwhile.
_BEFORE = select(
    select(audit.c.seq).order_by(_NEWEST).limit(1).scalar_subquery().label("seq"),
    select(audit.c.hash).order_by(_NEWEST).limit(1).scalar_subquery().label("hash"),
    _KIND.scalar_subquery().label("kind"),
    exists(_STARTED).label("started"),
    exists(select(audit.c.seq).where(audit.c.run == bindparam("run"))).label("known"),
)
_NEW_KIND = insert(audit_kinds)
_NEW_RECORD = insert(audit)
_NEW_OPEN_RUN = insert(audit_open_runs)
_CLOSE_RUN = delete(audit_open_runs).where(audit_open_runs.c.run == bindparam("ended"))


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


def head(connection: Connection) -> Head:
    found = connection.execute(_HEAD).first()
    return Head(found.seq, found.hash) if found else Head(0, GENESIS)


def _new_kind(connection: Connection, values: Mapping[str, str]) -> int:
    connection.execute(_NEW_KIND, values)
    return int(connection.execute(_KIND, values).scalar_one())


def _check_run(event: Event, *, started: bool, known: bool) -> None:
    """One id, one story: whoever could add to the records of another's run could end it there, too."""
    if event.run is None and event.event.startswith("run."):
        raise Bug(f"the audit event {event.event} is about no run")
    if (event.event == "run.started" and started) or (event.event.startswith("decision.") and known):
        raise Usage(f"the run {event.run} was started before", hint="give each run an id of its own")


def check_new_run(connection: Connection, run: str) -> None:
    """Raise Usage where this can't be the id of a new run: no name, or on the record already. `append` checks again."""
    if not is_name(run):
        raise Usage(f"a run's id is 1 to {NAME_MAX} printable characters without spaces")
    known = connection.execute(select(exists(select(audit.c.seq).where(audit.c.run == run)))).scalar_one()
    _check_run(Event("decision.allowed", "-", run=run), started=False, known=known)


def _follow_run(connection: Connection, record: Record) -> None:
    """Keep the list of open runs, so that finding the abandoned ones does not read the whole log."""
    if record.event == "run.started":
        connection.execute(_NEW_OPEN_RUN, {"run": record.run, "seq": record.seq})
    elif record.event in _RUN_OVER:
        connection.execute(_CLOSE_RUN, {"ended": record.run})


def _append(connection: Connection, event: Event) -> Record:
    values = {name: getattr(event, name) or "" for name in _KIND_FIELDS}
    before = connection.execute(_BEFORE, {**values, "run": event.run}).one()
    _check_run(event, started=before.started, known=before.known)
    record = make(event, seq=(before.seq or 0) + 1, prev=before.hash or GENESIS, moment=datetime.now(UTC))
    row = {
        "seq": record.seq,
        "hash": record.hash,
        "body": record.body,
        "kind": before.kind or _new_kind(connection, values),
        "time": record.time,
        "run": record.run,
    }
    connection.execute(_NEW_RECORD, row)
    _follow_run(connection, record)
    return record


def append(connection: Connection, event: Event) -> Record:
    """Put an event on the record. Only inside `State.write()`: it is durable when that returns, or it never was."""
    try:
        return _append(connection, event)
    except SQLAlchemyError as error:
        cause = getattr(error, "orig", None) or error
        raise AuditUnusable(
            f"the audit log can't be written: {cause}", hint="nothing was changed; run `skillexec doctor`"
        ) from error


def open_runs(connection: Connection) -> tuple[OpenRun, ...]:
    """The runs without a recorded end, oldest first."""
    query = (
        select(audit.c.body, audit.c.hash)
        .join(audit_open_runs, audit_open_runs.c.seq == audit.c.seq)
        .order_by(audit.c.seq)
    )
    records = (parse(row.body, row.hash) for row in connection.execute(query))
    return tuple(OpenRun(record, identity_in(record.data)) for record in records)


def record_abandoned(connection: Connection, *, actor: str) -> tuple[Record, ...]:
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
