"""The audit log: appends by several processes, verification, and the first page of filtered lists."""

from __future__ import annotations

import multiprocessing
import random
import sqlite3
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

from sqlalchemy import insert

from skillexec import audit
from skillexec.audit.query import Filter, page
from skillexec.audit.record import GENESIS, make
from skillexec.audit.verify import verify
from skillexec.process import process_identity
from skillexec.schema import audit as records
from skillexec.schema import audit_kinds, audit_open_runs
from skillexec.state import State

WRITERS = 4
SECONDS = 2.0
SMALL, LARGE = 10_000, 1_000_000
_DIGEST = "sha256:" + "ab" * 32
_PROCESS = process_identity().data


def _started(run: str, *, system: str, skill: str) -> audit.Event:
    data = {"rule": "system_grant", "digest": _DIGEST, "image": _DIGEST, "input": _DIGEST, **_PROCESS}
    return audit.Event("run.started", "bench", system=system, team="red", skill=skill, run=run, data=data)


def _ended(run: str, *, system: str, skill: str, outcome: str, duration: int) -> audit.Event:
    data = {"duration_us": duration, "exit_code": 0, "stdout_bytes": 120, "stderr_bytes": 0, "warm": True}
    return audit.Event(
        "run.ended", "bench", system=system, team="red", skill=skill, outcome=outcome, run=run, data=data
    )


def _append(state: State, number: int, name: str) -> None:
    with state.write() as connection:
        audit.append(connection, _started(f"{name}-{number}", system="researcher", skill="web-search"))


def _appender(path: Path, name: str) -> Callable[[int], None]:
    state = State.open(path)
    return lambda number: _append(state, number, name)


def _inserter(path: Path, _name: str) -> Callable[[int], None]:
    """A plain INSERT and commit of a row of the same size, as durably."""
    connection = sqlite3.connect(path, isolation_level=None, timeout=10)
    connection.execute("PRAGMA synchronous = FULL")

    def one(_number: int) -> None:
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("INSERT INTO plain (body) VALUES (?)", ("x" * 900,))
        connection.execute("COMMIT")

    return one


def _write(kind: str, path: Path, name: str, barrier: object, counts: object) -> None:
    one = _appender(path, name) if kind == "append" else _inserter(path, name)
    barrier.wait()  # type: ignore[attr-defined]
    end, done = time.perf_counter() + SECONDS, 0
    while time.perf_counter() < end:
        one(done)
        done += 1
    counts.put(done)  # type: ignore[attr-defined]


def _writers_together(kind: str, path: Path) -> float:
    context = multiprocessing.get_context("spawn")
    barrier, counts = context.Barrier(WRITERS), context.Queue()
    writers = [
        context.Process(target=_write, args=(kind, path, f"{kind}{number}", barrier, counts))
        for number in range(WRITERS)
    ]
    for writer in writers:
        writer.start()
    done = sum(counts.get() for _ in writers)
    for writer in writers:
        writer.join()
    return float(done / SECONDS)


def _appends(folder: Path) -> None:
    log, plain = folder / "log.db", folder / "plain.db"
    State.open(log, create=True).close()
    with sqlite3.connect(plain) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("CREATE TABLE plain (seq INTEGER PRIMARY KEY, body TEXT)")
    rounds = [
        (_writers_together("append", _copy(log, turn)), _writers_together("plain", plain)) for turn in "abc"
    ]
    appended = statistics.median(one for one, _ in rounds)
    inserted = statistics.median(one for _, one in rounds)
    print(
        f"appends, {WRITERS} processes       {appended:8.0f}/s   "
        f"{appended / inserted:.2f}x of plain INSERT ({inserted:.0f}/s)"
    )


def _copy(log: Path, turn: str) -> Path:
    path = log.with_suffix(f".{turn}")
    State.open(path, create=True).close()
    return path


def _latency(folder: Path) -> None:
    one, plain = _appender(_copy(folder / "latency.db", "x"), "one"), _inserter(folder / "plain.db", "")
    pairs = [(_timed(one, number), _timed(plain, number)) for number in range(500)]
    mine, theirs = (statistics.median(column) * 1e6 for column in zip(*pairs, strict=True))
    print(
        f"one append, p50            {mine:8.0f} us  {mine / theirs:.2f}x of plain INSERT ({theirs:.0f} us)"
    )


def _timed(work: Callable[[int], None], number: int) -> float:
    start = time.perf_counter()
    work(number)
    return time.perf_counter() - start


def _history(size: int) -> Iterator[audit.Event]:
    """A year of runs by 40 systems with five skills each; `quiet` is never denied, `rare` seldom runs."""
    chance = random.Random(4)
    for number in range(size // 2):
        run, system = f"run-{number}", f"system-{chance.randrange(40)}"
        skill = f"skill-{chance.randrange(5)}"
        if number % 60 == 7:
            system, skill = "rare", "web-search"
        if chance.random() < 0.2:
            yield audit.Event(
                "decision.denied", "bench", system=system, skill=skill, outcome="denied", run=run,
                data={"rule": "system_grant", "digest": _DIGEST},
            )  # fmt: skip
            yield _started(run + "b", system="quiet", skill=skill)
            continue
        yield _started(run, system=system, skill=skill)
        outcome = "failed" if chance.random() < 0.05 else "ok"
        yield _ended(run, system=system, skill=skill, outcome=outcome, duration=chance.randrange(5_000_000))


class _Bulk:
    """Fills a log in one transaction, as `append` would have over a year."""

    def __init__(self, size: int) -> None:
        self.kinds: dict[tuple[str, ...], int] = {}
        self.prev = GENESIS
        self.moment = datetime.now(UTC) - size * timedelta(seconds=30)

    def row(self, seq: int, event: audit.Event) -> dict[str, object]:
        self.moment += timedelta(seconds=30)
        record = make(event, seq=seq, prev=self.prev, moment=self.moment)
        self.prev = record.hash
        fields = (event.actor, event.event, event.system, event.team, event.skill, event.outcome)
        kind = self.kinds.setdefault(tuple(value or "" for value in fields), len(self.kinds) + 1)
        body, run = record.body, record.run
        return {"seq": seq, "hash": record.hash, "body": body, "kind": kind, "time": record.time, "run": run}

    def kind_rows(self) -> list[dict[str, object]]:
        names = ("actor", "event", "system", "team", "skill", "outcome")
        return [{"id": number, **dict(zip(names, kind, strict=True))} for kind, number in self.kinds.items()]


def fill(state: State, size: int) -> None:
    """A log of this size, fast."""
    bulk, rows = _Bulk(size), []
    open_runs: dict[str, int] = {}
    with state.write() as connection:
        connection.exec_driver_sql("PRAGMA defer_foreign_keys = ON")
        for seq, event in enumerate(_history(size), start=1):
            rows.append(bulk.row(seq, event))
            if event.event == "run.started":
                open_runs[str(event.run)] = seq
            elif event.event == "run.ended":
                open_runs.pop(str(event.run))
            if len(rows) == 10_000:
                connection.execute(insert(records), rows)
                rows.clear()
        if rows:
            connection.execute(insert(records), rows)
        connection.execute(insert(audit_kinds), bulk.kind_rows())
        connection.execute(
            insert(audit_open_runs), [{"run": run, "seq": seq} for run, seq in open_runs.items()]
        )


def _verification(state: State, size: int) -> None:
    start = time.perf_counter()
    with state.read() as connection:
        report = verify(connection)
    seconds = time.perf_counter() - start
    assert report.records == size and not report.findings, report.findings
    print(f"verify {size:>9,} records   {size / seconds:8.0f}/s")


_DAY = (datetime.now(UTC) - timedelta(days=1)).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
_FILTERS = {
    "no filter": Filter(),
    "system": Filter(system="system-7"),
    "system, rare": Filter(system="rare"),
    "outcome": Filter(outcome="failed"),
    "system + outcome": Filter(system="system-7", outcome="denied"),
    "system + outcome, none match": Filter(system="quiet", outcome="denied"),
    "rare system + rare outcome": Filter(system="rare", outcome="failed"),
    "skill + event + since": Filter(skill="skill-1", event="run.*", since=_DAY),
    "actor + outcome + until": Filter(actor="bench", outcome="failed", until=_DAY),
    "run": Filter(run="run-77"),
}


def _first_page(state: State, wanted: Filter) -> float:
    start = time.perf_counter()
    with state.read() as connection:
        page(connection, wanted, limit=50)
    return time.perf_counter() - start


def _rows(state: State, wanted: Filter) -> int:
    with state.read() as connection:
        return len(page(connection, wanted, limit=50).records)


def _lists(small: State, large: State) -> None:
    print(f"first page of 50: p50 at {SMALL:,} and at {LARGE:,} records")
    for name, wanted in _FILTERS.items():
        rows = f"{_rows(small, wanted)} and {_rows(large, wanted)} rows"
        pairs = [(_first_page(small, wanted), _first_page(large, wanted)) for _ in range(31)]
        few, many = (statistics.median(column) * 1e3 for column in zip(*pairs, strict=True))
        print(f"  {name:<30} {few:6.2f} ms  {many:6.2f} ms  {many / few:.2f}x  {rows}")


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="skillexec-bench-") as name:
        folder = Path(name)
        _appends(folder)
        _latency(folder)
        with (
            State.open(folder / "small.db", create=True) as small,
            State.open(folder / "large.db", create=True) as large,
        ):
            fill(small, SMALL)
            fill(large, LARGE)
            _verification(large, LARGE)
            _lists(small, large)


if __name__ == "__main__":
    main()
