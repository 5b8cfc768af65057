"""Whether the log is what was written: every hash, every link, every copy, and the guards themselves."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from json.encoder import encode_basestring_ascii as _quote
from typing import Any

from sqlalchemy import Connection, RowMapping, func, select, text

from skillexec.audit.log import Head
from skillexec.audit.record import FORMAT, GENESIS
from skillexec.schema import AUDIT_TRIGGERS, audit, audit_kinds, audit_open_runs
from skillexec.statements import KIND_FIELDS

BATCH = 5000
START = Head(0, GENESIS)

_Row = tuple[int, str, str, int, str, str | None]  # seq, hash, body, kind, time, run
_MOST_CONTRADICTIONS = 10
_decoder = json.JSONDecoder()


@dataclass(frozen=True, slots=True)
class Finding:
    """What is wrong, and with which record, where it is one."""

    problem: str
    seq: int | None = None

    def __str__(self) -> str:
        return self.problem if self.seq is None else f"record {self.seq}: {self.problem}"


@dataclass(frozen=True, slots=True)
class Report:
    """What was looked at, and what was found. No findings: the log is what was written."""

    records: int
    head: Head
    findings: tuple[Finding, ...]


@dataclass(frozen=True, slots=True)
class _Kind:
    """One row of audit_kinds, and the text that surrounds `data` in the body of a record of this kind."""

    copies: Mapping[str, str | None]
    start: str
    middle: str
    end: str
    follow: Callable[[dict[str, int], str, int], object] | None  # what it does to the open runs

    def rest(self, prev: str, run: str | None, seq: int, time: str) -> str:
        """What must follow `data`."""
        return f'{self.middle}{prev}","run":{_json(run)},"seq":{seq}{self.end}{_json(time)},"v":{FORMAT}}}'


def _json(value: str | None) -> str:
    return "null" if value is None else _quote(value)


def _opens(runs: dict[str, int], run: str, seq: int) -> None:
    runs[run] = seq


def _closes(runs: dict[str, int], run: str, _seq: int) -> None:
    runs.pop(run, None)


_FOLLOW = {"run.started": _opens, "run.ended": _closes, "run.abandoned": _closes}


def _kind(row: RowMapping) -> _Kind:
    said = {name: row[name] or None for name in KIND_FIELDS}
    return _Kind(
        copies=said,
        start=f'{{"actor":{_json(said["actor"])},"data":{{',
        middle=f'}},"event":{_json(said["event"])},"outcome":{_json(said["outcome"])},"prev":"',
        end=f',"skill":{_json(said["skill"])},"system":{_json(said["system"])},"team":{_json(said["team"])},"time":',
        follow=_FOLLOW.get(row["event"]),
    )


def _is_text(row: RowMapping) -> bool:
    """SQLite keeps whatever type it is given, and no filter would find a name that is not text."""
    return all(isinstance(row[name], str) for name in KIND_FIELDS)


def _kinds(connection: Connection) -> dict[int, _Kind]:
    rows = connection.execute(select(audit_kinds)).mappings()
    return {row["id"]: _kind(row) for row in rows if _is_text(row)}


def _end_of_data(body: str, start: int) -> int:
    """Where the object that begins there ends; 0 where it is none. What comes after it then means what it says."""
    try:
        return int(_decoder.raw_decode(body, start)[1])
    except (ValueError, RecursionError):
        return 0


class _Chain:
    """The walk along the log: what the next record must be, given the ones before."""

    def __init__(self, kinds: Mapping[int, _Kind], start: Head) -> None:
        self.kinds = kinds
        self.head = start
        self.open: dict[str, int] = {}

    def advance(self, rows: Sequence[_Row]) -> Finding | None:
        """Walk on. This reads no JSON but `data`: it compares the rest with what the columns say it must be."""
        seq, prev = self.head.seq, self.head.hash
        kinds, sha256 = self.kinds, hashlib.sha256
        try:
            for row in rows:
                number, digest, body, kind_id, time, run = row
                kind = kinds.get(kind_id)
                if (
                    kind is None
                    or number != seq + 1
                    or not body.startswith(kind.start)
                    or not body.endswith(rest := kind.rest(prev, run, number, time))
                    or _end_of_data(body, len(kind.start) - 1) != len(body) - len(rest) + 1
                    or sha256(body.encode()).hexdigest() != digest
                ):
                    self.head = Head(seq, prev)
                    return self._explain(row)
                seq, prev = number, digest
                if kind.follow is not None and run is not None:
                    kind.follow(self.open, run, seq)
        finally:  # whatever type a column holds: the record before it is known
            self.head = Head(seq, prev)
        return None

    def _explain(self, row: _Row) -> Finding:
        seq, digest, body, _, _, _ = row
        if seq < 1:
            return Finding("it was put there later: the first record is number 1", seq)
        if seq != self.head.seq + 1:
            return Finding("is missing: it was deleted or never written", self.head.seq + 1)
        if hashlib.sha256(body.encode()).hexdigest() != digest:
            return Finding("its content is not what was written: the hash differs", seq)
        try:
            said = json.loads(body)
        except (ValueError, RecursionError):
            return Finding("it can't be read", seq)
        return Finding(self._contradiction(row, said), seq)

    def _contradiction(self, row: _Row, said: Any) -> str:
        if not isinstance(said, dict) or said.get("v") != FORMAT:
            return f"it is not of format {FORMAT}"
        if said.get("prev") != self.head.hash:
            return (
                f"it does not follow record {self.head.seq}: one of the two was put there later"
                f" (it names {said.get('prev')} as its predecessor's hash, which is {self.head.hash})"
            )
        seq, _, _, kind_id, time, run = row
        kind = self.kinds.get(kind_id)
        if kind is None:
            return f"its kind {kind_id} is gone, or is not text"
        copies = {**kind.copies, "seq": seq, "time": time, "run": run}
        for name, copy in copies.items():
            if said.get(name) != copy:
                return f"the column {name} says {copy!r}, and the record {said.get(name)!r}"
        return "it is not canonical JSON"


def _batches(connection: Connection, after: int) -> Iterator[Sequence[_Row]]:
    columns = (audit.c.seq, audit.c.hash, audit.c.body, audit.c.kind, audit.c.time, audit.c.run)
    query = select(*columns).order_by(audit.c.seq)
    if after:  # a walk from the start begins with the lowest number there is: below 1 there must be none
        query = query.where(audit.c.seq > after)
    # The driver's own cursor: wrapping each row in an object would take half of the time.
    cursor = connection.execute(query).cursor
    while rows := cursor.fetchmany(BATCH):
        yield rows


def _walk(chain: _Chain, connection: Connection, progress: Callable[[int], None]) -> Finding | None:
    for rows in _batches(connection, chain.head.seq):
        try:
            finding = chain.advance(rows)
        except (AttributeError, TypeError, UnicodeError):  # SQLite keeps whatever type it is given
            finding = Finding("it holds something other than text", chain.head.seq + 1)
        if finding:
            return finding
        progress(chain.head.seq)
    return None


def _guards(connection: Connection) -> Iterator[Finding]:
    """The triggers that keep the log append-only: all of them, as we made them, and no others on any table: one
    on the grants could change them behind the record's back."""
    query = text("SELECT name, sql FROM sqlite_master WHERE type = 'trigger'")
    found = {row.name: row.sql for row in connection.execute(query)}
    for name, statement in AUDIT_TRIGGERS.items():
        if found.pop(name, None) != statement:
            yield Finding(f"the trigger {name} that keeps the log append-only is gone or changed")
    for name in sorted(found):
        yield Finding(f"a trigger that is not ours is in the database: {name}")


def _integrity(connection: Connection) -> Iterator[Finding]:
    """What SQLite finds. Lists and decisions go by indexes, which the walk does not: one that lacks a row hides it."""
    query = text(f"PRAGMA integrity_check({_MOST_CONTRADICTIONS})")
    for problem in connection.execute(query).scalars():
        if problem != "ok":
            yield Finding(f"the database contradicts itself: {problem}")


def _open_runs(connection: Connection, chain: _Chain) -> Iterator[Finding]:
    listed = {row.run: row.seq for row in connection.execute(select(audit_open_runs))}
    for run, seq in sorted(listed.items() ^ chain.open.items()):
        if run not in chain.open:
            yield Finding(f"the run {run} is over, and listed as open", seq)
        elif chain.open[run] == seq:
            yield Finding(f"the run {run} is open, and the list of open runs lacks it", seq)


def count(connection: Connection) -> int:
    """How many records there are to look at."""
    return int(connection.execute(select(func.count()).select_from(audit)).scalar_one())


def verify(
    connection: Connection, *, start: Head = START, progress: Callable[[int], None] = lambda _: None
) -> Report:
    """Check every record after `start`, in one snapshot. The first finding is the first bad record."""
    chain = _Chain(_kinds(connection), start)
    broken = _walk(chain, connection, progress)
    findings = [broken] if broken else []
    if connection.dialect.name == "sqlite":
        findings.extend(_guards(connection))
    if start == START and not broken:
        findings.extend(_open_runs(connection, chain))
    if chain.head == START and not broken:
        findings.append(
            Finding("is missing: the log is empty, and `skillexec init` begins it with a record", 1)
        )
    if start == START and connection.dialect.name == "sqlite":
        findings.extend(_integrity(connection))
    return Report(chain.head.seq, chain.head, tuple(findings))
