"""The audit log: appends by several processes, verification, and the first page of filtered lists."""

from __future__ import annotations

import multiprocessing
import random
import sqlite3
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import count
from pathlib import Path

from sqlalchemy import insert

from benchmarks.measure import Row, Times, at_least, in_turns, print_rows, ratio_row, ratio_text
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
LEAST_APPENDS, LEAST_OF_PLAIN, LEAST_VERIFIED, MOST_GROWTH = 1_000, 0.5, 100_000, 2
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


def _appends(folder: Path) -> Row:
    plain = folder / "plain.db"
    with sqlite3.connect(plain) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("CREATE TABLE plain (seq INTEGER PRIMARY KEY, body TEXT)")
    rounds = [
        (_writers_together("append", _new_log(folder / f"log-{turn}.db")), _writers_together("plain", plain))
        for turn in range(3)
    ]
    appended, inserted = (statistics.median(column) for column in zip(*rounds, strict=True))
    return appends_row(appended, inserted)


def appends_row(appended: float, inserted: float) -> Row:
    """So many records a second, or half of what this disk lets anybody commit: either will do."""
    ratio = appended / inserted
    return Row(
        f"durable appends, {WRITERS} processes",
        f"{appended:,.0f}/s, {ratio:.2f}x of plain INSERT and commit ({inserted:,.0f}/s)",
        f">= {LEAST_APPENDS:,}/s or {LEAST_OF_PLAIN:g}x",
        appended >= LEAST_APPENDS or ratio >= LEAST_OF_PLAIN,
    )


def _new_log(path: Path) -> Path:
    State.open(path, create=True).close()
    return path


def _latency(folder: Path) -> Row:
    append, insert_plain = (
        _appender(_new_log(folder / "latency.db"), "one"),
        _inserter(folder / "plain.db", ""),
    )
    numbers = count()
    times = in_turns(
        {"ours": lambda: append(next(numbers)), "plain": lambda: insert_plain(next(numbers))}, rounds=500
    )
    return Row("one append to a plain INSERT and commit", ratio_text(times["ours"], times["plain"]))


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


def _verification(state: State, size: int) -> Row:
    def check() -> None:
        with state.read() as connection:
            report = verify(connection)
        assert report.records == size and not report.findings, report.findings

    rate = size / in_turns({"verify": check}, rounds=3, warm_up=0)["verify"].p50
    return at_least(
        f"verification of {size:,} records", rate, LEAST_VERIFIED, figure=f"{rate:,.0f}/s", unit="/s"
    )


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


def _first_page(state: State, wanted: Filter) -> int:
    with state.read() as connection:
        return len(page(connection, wanted, limit=50).records)


def page_row(name: str, *, small: Times, large: Times, rows: tuple[int, int]) -> Row:
    """Only pages of the same length compare: a longer one takes longer at any size."""
    what = f"first page, {name}: {LARGE:,} records to {SMALL:,}"
    if rows[0] != rows[1]:
        return Row(what, f"{ratio_text(large, small)}, {rows[1]} rows vs {rows[0]}")
    row = ratio_row(what, large, small, most=MOST_GROWTH)
    return replace(row, figure=f"{row.figure}, {rows[0]} rows")


def _lists(small: State, large: State) -> Iterator[Row]:
    for name, wanted in _FILTERS.items():
        works = {
            "small": partial(_first_page, small, wanted),
            "large": partial(_first_page, large, wanted),
        }
        rows = (works["small"](), works["large"]())
        times = in_turns(works, rounds=31)
        yield page_row(name, small=times["small"], large=times["large"], rows=rows)


def main() -> list[Row]:
    with tempfile.TemporaryDirectory(prefix="skillexec-bench-") as name:
        folder = Path(name)
        rows = [_appends(folder), _latency(folder)]
        with (
            State.open(folder / "small.db", create=True) as small,
            State.open(folder / "large.db", create=True) as large,
        ):
            fill(small, SMALL)
            fill(large, LARGE)
            rows += [_verification(large, LARGE), *_lists(small, large)]
    print_rows("Audit", rows)
    return rows


if __name__ == "__main__":
    main()
