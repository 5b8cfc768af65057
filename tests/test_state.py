"""The state database: opened safely, upgraded in one transaction, and refused with a reason where it can't be used."""

from __future__ import annotations

import os
import sqlite3
import threading
from pathlib import Path

import pytest
from sqlalchemy import Connection, insert, select, text

from skillexec import schema
from skillexec.admin import Admin
from skillexec.errors import StateUnusable
from skillexec.model import Source
from skillexec.permissions.grants import Wish
from skillexec.state import State
from skillexec.statements import sqlite


@pytest.fixture
def path(tmp_path: Path) -> Path:
    found = tmp_path / "state.db"
    with State.open(found, create=True) as state:
        admin = Admin(state, actor="operator")
        admin.add_team("ops", root=True)
        admin.add_system("chief", team="ops")
    return found


def grant(path: Path, *, busy_seconds: float = 5.0) -> None:
    with State.open(path, busy_seconds=busy_seconds) as state:
        Admin(state, actor="operator").add_grants("chief", [Wish("alpha", source=Source.BUILTIN)])


def granted(path: Path) -> int:
    with sqlite3.connect(path) as connection:
        return int(connection.execute("SELECT count(*) FROM grants").fetchone()[0])


def test_a_missing_state_is_refused_and_not_made(tmp_path: Path) -> None:
    with pytest.raises(StateUnusable) as problem:
        State.open(tmp_path / "state.db")
    assert problem.value.hint == "run `skillexec init`" and not (tmp_path / "state.db").exists()


def test_what_commits_is_durable_and_foreign_keys_hold_on_every_connection(path: Path) -> None:
    with State.open(path) as state:
        for _ in range(3):
            with state.read() as connection:
                pragmas = [
                    connection.exec_driver_sql(f"PRAGMA {name}").scalar_one()
                    for name in ("foreign_keys", "journal_mode", "synchronous")
                ]
                assert pragmas == [1, "wal", 2]
        with pytest.raises(StateUnusable, match="FOREIGN KEY"), state.write() as connection:
            connection.execute(insert(schema.systems).values(name="lost", team="nowhere"))


def test_an_error_inside_takes_everything_back(path: Path) -> None:
    with State.open(path) as state:
        with pytest.raises(RuntimeError), state.write() as connection:
            connection.execute(insert(schema.teams).values(name="half"))
            raise RuntimeError
        with state.read() as connection:
            assert connection.execute(select(schema.teams.c.name)).scalars().all() == ["ops"]


def test_an_error_inside_gives_the_lock_back_though_its_traceback_holds_a_cursor(path: Path) -> None:
    def fail(state: State) -> None:
        with state.quick_write() as connection:
            connection.execute("UPDATE teams SET disabled = 1")
            found = connection.execute("SELECT name FROM teams UNION ALL SELECT name FROM teams")
            raise RuntimeError(found.fetchone())

    with State.open(path, busy_seconds=0.1) as state:
        with pytest.raises(RuntimeError) as problem:
            fail(state)
        with state.quick_write() as connection:
            assert connection.execute("SELECT disabled FROM teams").fetchall() == [(0,)]
        assert problem.value.args == (("ops",),)


@pytest.mark.parametrize("own", [False, True], ids=["the parent's state", "a state of its own"])
def test_what_a_forked_child_commits_is_durable_though_the_parent_closes(path: Path, own: bool) -> None:
    state = State.open(path)
    with state.read() as connection:
        connection.execute(select(schema.teams.c.name)).all()
    begun, begin = os.pipe()
    closed, close = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            mine = State.open(path) if own else state
            for name in ("before", "after"):
                with mine.quick_write() as writer:
                    writer.execute("INSERT INTO teams (name, disabled, inherit) VALUES (?, 0, 1)", (name,))
                os.write(begin, b"!")
                os.read(closed, 1)
            os._exit(0)
        finally:
            os._exit(1)
    os.read(begun, 1)
    state.close()
    os.write(close, b"!!")
    assert os.waitpid(child, 0)[1] == 0
    for descriptor in (begun, begin, closed, close):
        os.close(descriptor)
    with State.open(path) as found, found.quick_read() as reader:
        names = {name for (name,) in reader.execute("SELECT name FROM teams")}
    assert names == {"ops", "before", "after"}


def test_a_burst_of_threads_takes_few_files_and_everyone_gets_a_turn(path: Path) -> None:
    written: list[str] = []

    def write(name: str) -> None:
        with state.quick_write() as connection:
            connection.execute("INSERT INTO teams (name) VALUES (?)", (name,))
        written.append(name)

    with State.open(path) as state:
        threads = [threading.Thread(target=write, args=(f"team{number}",)) for number in range(60)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        opened = [file for file in Path("/proc/self/fd").iterdir() if os.path.realpath(file) == str(path)]
    assert len(written) == 60 and 0 < len(opened) <= 16


def test_a_reader_sees_one_moment(path: Path) -> None:
    with State.open(path) as state, state.read() as reader:
        before = reader.execute(select(schema.teams.c.name)).scalars().all()
        with state.write() as writer:
            writer.execute(insert(schema.teams).values(name="later"))
        assert reader.execute(select(schema.teams.c.name)).scalars().all() == before
        with state.glance() as glance:
            assert "later" in glance.execute(select(schema.teams.c.name)).scalars().all()


def test_a_locked_state_is_refused_after_a_bounded_time_and_changes_nothing(path: Path) -> None:
    holder = sqlite3.connect(path, isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    with pytest.raises(StateUnusable, match="locked") as problem:
        grant(path, busy_seconds=0.1)
    assert problem.value.exit_status == 40 and "another process" in problem.value.hint
    holder.execute("ROLLBACK")
    holder.close()
    assert granted(path) == 0
    grant(path, busy_seconds=0.1)
    assert granted(path) == 1


@pytest.mark.parametrize("damage", ["header", "middle", "empty-schema"])
def test_a_damaged_state_is_refused(path: Path, damage: str) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        pages = connection.execute("PRAGMA page_count").fetchone()[0]
        size = connection.execute("PRAGMA page_size").fetchone()[0]
    connection.close()
    data = bytearray(path.read_bytes())
    if damage == "header":
        data[:100] = b"not a database at all".ljust(100, b"!")
    elif damage == "middle":
        data[size:] = b"\xff" * (len(data) - size)
        assert pages > 1
    else:
        data[100:size] = bytes(size - 100)
    path.write_bytes(bytes(data))
    with pytest.raises(StateUnusable) as problem:
        grant(path)
    assert problem.value.exit_status == 40 and problem.value.hint


def _in_child_without_privileges(path: Path) -> str:
    """What a user who may read the home, and not write it, is told."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            if os.geteuid() == 0:
                os.setgroups([])
                os.setgid(65534)
                os.setuid(65534)
            try:
                grant(path)
                said = "granted"
            except StateUnusable as error:
                said = f"{error.exit_status} {error.hint}"
            os.write(writer, said.encode())
        finally:
            os._exit(0)
    os.close(writer)
    os.waitpid(child, 0)
    with os.fdopen(reader) as answer:
        return answer.read()


def test_a_read_only_state_is_refused_and_unchanged(path: Path) -> None:
    folders = [path.parent, path.parents[1], path.parents[2]]  # pytest makes these for its own user alone
    modes = [folder.stat().st_mode for folder in folders]
    path.chmod(0o444)
    for folder in folders:
        folder.chmod(0o555)
    try:
        said = _in_child_without_privileges(path)
    finally:
        for folder, mode in zip(folders, modes, strict=True):
            folder.chmod(mode)
    assert said == "40 make the home writable for this user"
    path.chmod(0o644)
    assert granted(path) == 0


@pytest.mark.parametrize("content", [b"", b"\n"])
def test_a_state_that_was_emptied_is_refused_and_not_made_anew(path: Path, content: bytes) -> None:
    for file in path.parent.glob(f"{path.name}*"):
        file.unlink()
    path.write_bytes(content)
    for _ in range(2):
        with pytest.raises(StateUnusable) as problem:
            State.open(path)
        assert "backup" in problem.value.hint


def test_a_state_of_no_version_of_ours_is_refused(path: Path) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA user_version = -1")
    for create in (False, True):
        with pytest.raises(StateUnusable, match="not a state of skillexec"):
            State.open(path, create=create)


def test_a_state_of_a_newer_version_is_refused_and_left_alone(path: Path) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute(f"PRAGMA user_version = {schema.VERSION + 1}")
    with pytest.raises(StateUnusable, match="newer skillexec") as problem:
        State.open(path)
    assert "upgrade skillexec" in problem.value.hint
    with sqlite3.connect(path) as connection:
        assert connection.execute("PRAGMA user_version").fetchone()[0] == schema.VERSION + 1


def _add_column(connection: Connection) -> None:
    connection.execute(text("ALTER TABLE teams ADD COLUMN motto TEXT"))


def _use_column(connection: Connection) -> None:
    connection.execute(text("UPDATE teams SET motto = 'onward'"))


def _fail(_connection: Connection) -> None:
    raise RuntimeError("power cut")


@pytest.fixture
def later_version(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once the state is made, there are two more steps than it has seen."""
    assert path.exists()
    later = [*schema.STEPS, _add_column, _use_column]
    monkeypatch.setattr(schema, "STEPS", later)
    monkeypatch.setattr(schema, "VERSION", len(later))
    monkeypatch.setattr(sqlite, "VERSION", len(later))  # as if it were rendered again


@pytest.mark.usefixtures("later_version")
def test_an_older_state_is_upgraded_with_what_it_holds(path: Path) -> None:
    grant_before = granted(path)
    with State.open(path) as state:
        assert state.version() == schema.VERSION
        with state.read() as connection:
            assert connection.execute(text("SELECT name, motto FROM teams")).all() == [("ops", "onward")]
    grant(path)
    assert granted(path) == grant_before + 1


@pytest.mark.usefixtures("later_version")
def test_an_upgrade_that_fails_half_way_leaves_the_old_state(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schema, "STEPS", [*schema.STEPS[:-1], _fail])
    with pytest.raises(RuntimeError):
        State.open(path)
    with sqlite3.connect(path) as connection:
        assert connection.execute("PRAGMA user_version").fetchone()[0] == schema.VERSION - 2
        assert "motto" not in {row[1] for row in connection.execute("PRAGMA table_info(teams)")}


@pytest.mark.usefixtures("later_version")
def test_threads_that_open_an_older_state_at_once_upgrade_it_once(path: Path) -> None:
    problems: list[BaseException] = []

    def open_it() -> None:
        try:
            State.open(path).close()
        except BaseException as error:
            problems.append(error)

    threads = [threading.Thread(target=open_it) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert problems == []


def test_a_full_disk_is_refused_and_leaves_the_state_usable(path: Path) -> None:
    with State.open(path) as state:
        admin = Admin(state, actor="operator")
        with state.read() as connection:
            pages = connection.exec_driver_sql("PRAGMA page_count").scalar_one()
        with pytest.raises(StateUnusable, match="full") as problem, state.write() as connection:
            connection.exec_driver_sql(f"PRAGMA max_page_count = {pages}")
            for number in range(5000):
                connection.execute(insert(schema.teams).values(name=f"team{number}"))
        assert problem.value.hint == "free disk space"
        assert list(admin.snapshot().teams) == ["ops"]
