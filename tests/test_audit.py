"""The log itself: what may be on it, that it is gapless, and that what can't be recorded can't happen."""

from __future__ import annotations

import itertools
import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest
from audit_log import DIGEST, ended, put, started
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from skillexec import audit
from skillexec.audit import EVENTS, Event
from skillexec.audit.events import FIELDS
from skillexec.audit.verify import verify
from skillexec.errors import AuditUnusable, Bug, StateUnusable, Usage
from skillexec.state import State

CANARY = "canary-5d1f"


@pytest.fixture
def state(tmp_path: Path) -> Iterator[State]:
    with State.open(tmp_path / "state.db", create=True) as opened:
        yield opened


def sound(state: State) -> int:
    """The number of records, all of which verify."""
    with state.read() as connection:
        report = verify(connection)
    assert report.findings == ()
    return report.records


# What may be on it.


def test_each_record_names_the_hash_of_the_one_before(state: State) -> None:
    first, second = put(
        state, Event("team.added", "ann", team="red"), Event("team.removed", "ann", team="red")
    )
    assert (first.seq, first.prev) == (1, "0" * 64)
    assert (second.seq, second.prev) == (2, first.hash)


def test_an_event_that_is_not_in_the_vocabulary_is_a_bug() -> None:
    with pytest.raises(Bug, match="no audit event"):
        Event("team.painted", "ann")


def test_an_outcome_that_is_not_in_the_vocabulary_is_a_bug() -> None:
    with pytest.raises(Bug, match="no outcome"):
        Event("run.ended", "ann", run="r", outcome="splendid")


def test_a_field_that_the_event_does_not_have_is_a_bug() -> None:
    with pytest.raises(Bug, match="no field 'password'"):
        Event("run.started", "ann", run="r1", data={"password": "hunter2"})


def test_a_fraction_is_refused_as_languages_write_them_differently() -> None:
    with pytest.raises(Bug, match="duration_us"):
        Event("run.ended", "ann", run="r", data={"duration_us": 0.5})  # type: ignore[dict-item]


@pytest.mark.parametrize("actor", ["", "a\nb", "a\x1b[31m", "x" * 129, "\ud800"])
def test_an_actor_that_would_break_a_line_is_refused(actor: str) -> None:
    with pytest.raises(Usage):
        Event("team.added", actor)


@pytest.mark.parametrize("name", ["", "two words", "line\nbreak", "x" * 65])
def test_nonsense_that_an_agent_asks_for_is_recorded_as_a_digest(name: str) -> None:
    with pytest.raises(Usage):
        Event("decision.denied", "ann", skill=name)
    assert Event("decision.denied", "ann", skill=audit.named(name)).skill != name
    assert audit.named("web-search") == "web-search"


# No secret, no input, no output: there is no field that takes them.

_hostile = st.one_of(
    st.just(CANARY),
    st.just(f"sha256:{CANARY}"),
    st.just([CANARY]),
    st.just({CANARY: 1}),
    st.just({"execute": CANARY}),
    st.just(CANARY.encode()),
    st.builds(lambda before, after: before + CANARY + after, st.text(max_size=9), st.text(max_size=9)),
)
_documented_as_names = {name for name, kind in FIELDS.items() if kind.endswith(("name", "names"))}


def test_the_fields_that_hold_names_are_the_documented_ones() -> None:
    documented = (Path(__file__).parent.parent / "docs" / "audit.md").read_text()
    assert _documented_as_names == {"command", "file", "folder", "names", "origin", "secret", "tag"}
    for name in _documented_as_names:
        assert f"`{name}`" in documented


@settings(max_examples=400, deadline=None)
@given(event=st.sampled_from(sorted(EVENTS)), extra=st.text(max_size=5), value=_hostile, data=st.data())
def test_a_canary_in_any_field_that_is_not_a_name_is_refused_and_not_repeated(
    event: str, extra: str, value: Any, data: st.DataObject
) -> None:
    fields = sorted(FIELDS.keys() - _documented_as_names)
    key = data.draw(st.sampled_from([*fields, extra, CANARY]))
    with pytest.raises(Bug) as caught:
        Event(event, "ann", run="r", data={key: value})
    assert CANARY not in str(caught.value).replace(repr(key), "")


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(secret=st.text(st.characters(codec="utf-8", exclude_categories=["C", "Z"]), min_size=8, max_size=40))
def test_a_request_leaves_only_digests_and_names_in_the_file(tmp_path: Path, secret: str) -> None:
    """As the runner records one: the input and the arguments as digests, a malformed name as a digest."""
    path = tmp_path / "state.db"
    marked = f"{CANARY} {secret}"
    with State.open(path, create=True) as state:
        event = started(
            f"run-{os.urandom(6).hex()}", skill=audit.named(marked), system=audit.named(marked * 3)
        )
        put(state, event)
    written = b"".join(file.read_bytes() for file in tmp_path.iterdir())
    assert CANARY.encode() not in written
    assert audit.named(marked).encode() in written


# Runs.


def test_a_run_id_serves_one_run(state: State) -> None:
    put(state, started("r1"), ended("r1"))
    with pytest.raises(Usage, match="r1 was started before"):
        put(state, started("r1"))
    assert sound(state) == 2


def test_a_runs_event_without_a_run_is_a_bug(state: State) -> None:
    with pytest.raises(Bug, match="about no run"):
        put(state, Event("run.started", "ann"))


def test_open_runs_are_those_without_an_end(state: State) -> None:
    put(state, started("r1"), started("r2"), ended("r1"))
    with state.read() as connection:
        assert [run.run for run in audit.open_runs(connection)] == ["r2"]


def _start_and_die(path: Path) -> None:
    with State.open(path) as state:
        put(state, started("dead"))
    os.kill(os.getpid(), signal.SIGKILL)


def test_a_run_whose_process_was_killed_is_recorded_as_abandoned_once(state: State) -> None:
    process = get_context("spawn").Process(target=_start_and_die, args=(state.path,))
    process.start()
    process.join()
    put(state, started("mine"))
    with state.write() as connection:
        found = audit.record_abandoned(connection, actor="sweeper")
    assert [(record.event, record.run, record.outcome) for record in found] == [
        ("run.abandoned", "dead", "abandoned")
    ]
    with state.write() as connection:
        assert audit.record_abandoned(connection, actor="sweeper") == ()
    assert sound(state) == 3


# Several writers, and their deaths.


def _append_many(path: Path, writer: int, count: int) -> list[int]:
    with State.open(path) as state:
        return [put(state, started(f"w{writer}-{number}"))[0].seq for number in range(count)]


def test_writers_in_several_processes_share_one_gapless_sequence(state: State) -> None:
    with ProcessPoolExecutor(6, mp_context=get_context("spawn")) as pool:
        numbers = pool.map(_append_many, itertools.repeat(state.path), range(6), itertools.repeat(50))
    assert sorted(itertools.chain(*numbers)) == list(range(1, 301))
    assert sound(state) == 300


_ENDLESS = """
import sys
from pathlib import Path
from skillexec.state import State
from audit_log import put, started
with State.open(Path(sys.argv[1])) as state:
    for number in range(10**9):
        print(put(state, started(f"{sys.argv[2]}-{number}"))[0].seq, flush=True)
"""


def test_a_writer_killed_at_any_moment_leaves_a_valid_chain_with_all_it_was_promised(state: State) -> None:
    chance = random.Random(9)
    promised = 0
    for turn in range(8):
        writer = subprocess.Popen(
            [sys.executable, "-c", _ENDLESS, str(state.path), f"t{turn}"],
            stdout=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).parent,
        )
        assert writer.stdout is not None
        writer.stdout.readline()
        time.sleep(chance.uniform(0, 0.05))
        writer.kill()
        lines = writer.stdout.read().split()
        writer.wait()
        promised = int(lines[-1]) if lines else promised + 1
        assert sound(state) >= promised
    put(state, started("afterwards"))


def test_a_change_that_fails_takes_its_record_with_it(state: State) -> None:
    with pytest.raises(ZeroDivisionError), state.write() as connection:
        audit.append(connection, started("r1"))
        raise ZeroDivisionError
    with state.read() as connection:
        assert audit.head(connection).seq == 0


# What can't be recorded does not happen.


def _grant(state: State, connection: Any) -> None:
    connection.exec_driver_sql("INSERT INTO teams (name) VALUES ('red')")
    audit.append(connection, Event("team.added", "ann", team="red"))


def _teams(path: Path) -> int:
    with sqlite3.connect(path) as connection:
        return int(connection.execute("SELECT count(*) FROM teams").fetchone()[0])


def test_a_full_disk_means_that_nothing_is_changed(state: State) -> None:
    with state.write() as connection:
        pages = connection.exec_driver_sql("PRAGMA page_count").scalar_one()
        connection.exec_driver_sql(f"PRAGMA max_page_count = {pages}")
    with pytest.raises(StateUnusable, match="full") as caught:
        for number in range(2000):  # what is free in the last pages may take some
            put(state, started(f"r{number}"))
    assert caught.value.exit_status == 40
    before = sound(state)
    with pytest.raises(StateUnusable), state.write() as connection:
        for number in range(2000):
            connection.exec_driver_sql(f"INSERT INTO teams (name) VALUES ('t{number}')")
            audit.append(connection, Event("team.added", "ann", team=f"t{number}"))
    assert (_teams(state.path), sound(state)) == (0, before)


_UNTIL_FULL = """
import resource, signal, sys
from pathlib import Path
from audit_log import put, started
from skillexec.errors import StateUnusable
from skillexec.state import State
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # a write past the limit then fails, as on a full disk
resource.setrlimit(resource.RLIMIT_FSIZE, (400_000, 400_000))
with State.open(Path(sys.argv[1])) as state:
    for number in range(5000):
        try:
            put(state, started(f"r{number}"))
        except StateUnusable as error:
            print(number, error.exit_status)
            break
"""


def test_writes_that_the_system_refuses_end_with_status_40_and_a_log_that_verifies(state: State) -> None:
    program = [sys.executable, "-c", _UNTIL_FULL, str(state.path)]
    done = subprocess.run(program, capture_output=True, text=True, cwd=Path(__file__).parent, check=True)
    number, status = map(int, done.stdout.split())
    assert number > 10
    assert status == 40
    assert sound(state) == number


def test_a_read_only_log_means_that_nothing_is_changed(state: State) -> None:
    put(state, started("r1"))
    with state.write() as connection:
        connection.exec_driver_sql("PRAGMA query_only = ON")
    with pytest.raises(StateUnusable, match="readonly") as caught, state.write() as connection:
        _grant(state, connection)
    assert (caught.value.exit_status, _teams(state.path)) == (40, 0)


def test_a_log_locked_for_longer_than_we_wait_means_that_nothing_is_changed(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    State.open(path, create=True).close()
    holder = sqlite3.connect(path, isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    began = time.monotonic()
    with (
        State.open(path, busy_seconds=0.3) as state,
        pytest.raises(StateUnusable, match="locked") as caught,
        state.write() as connection,
    ):
        _grant(state, connection)
    assert time.monotonic() - began < 5
    assert caught.value.exit_status == 40
    holder.execute("ROLLBACK")
    holder.close()
    assert _teams(path) == 0


def test_an_append_outside_the_writer_can_not_fork_the_chain(state: State) -> None:
    put(state, started("r1"))
    with state.read() as reader:
        audit.head(reader)  # the snapshot is taken
        put(state, started("r2"))
        with pytest.raises(AuditUnusable, match="locked"):
            audit.append(reader, started("r3"))
    assert sound(state) == 2


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE audit SET body = '{}' WHERE seq = 1",
        "DELETE FROM audit WHERE seq = 2",
        "INSERT OR REPLACE INTO audit SELECT * FROM audit WHERE seq = 1",
        "INSERT INTO audit (seq, hash, body, kind, time) VALUES (9, '', '', 1, '')",
        "UPDATE audit_kinds SET actor = 'bob'",
        "DELETE FROM audit_kinds",
    ],
)
def test_the_database_itself_refuses_to_change_the_log(state: State, statement: str) -> None:
    put(state, started("r1"), ended("r1"))
    with (
        sqlite3.connect(state.path) as connection,
        pytest.raises(sqlite3.IntegrityError, match="append-only"),
    ):
        connection.execute(statement)
    assert sound(state) == 2


def test_importing_the_audit_package_does_not_import_sqlalchemy() -> None:
    program = (
        "import sys, skillexec.audit; from skillexec.audit import Event; print('sqlalchemy' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_a_digest_is_all_there_is_of_an_input(state: State) -> None:
    [record] = put(state, Event("run.started", "ann", run="r", data={"input": DIGEST}))
    assert record.data == {"input": DIGEST}
