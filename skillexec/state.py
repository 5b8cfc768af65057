"""The state database: opened safely, upgraded in one transaction, written by one writer at a time.

Two ways to the same file. `quick_read` and `quick_write` give the driver's own connection, for the statements on the
path of a run (skillexec/statements), and load nothing else. `glance`, `read` and `write` give SQLAlchemy's, for
everything that people do.
"""

from __future__ import annotations

import os
import sqlite3
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from skillexec.errors import StateUnusable
from skillexec.statements import sqlite

if TYPE_CHECKING:
    from sqlalchemy import Connection, Engine

__all__ = ["BUSY_SECONDS", "State"]

BUSY_SECONDS = 10.0
# Of the quick ones at once, and so long in line for one: a burst of threads must not take all of a process's files.
_CONNECTIONS = 16
_LINE_SECONDS = 30.0
_HINTS = (
    (("locked",), "another process holds it: try again, or end that process"),
    (("readonly", "unable to open"), "make the home writable for this user"),
    (("full", "disk I/O"), "free disk space"),
    (("malformed", "not a database"), "restore it from a backup: nothing runs on a damaged state"),
)


class State:
    """The database of one home. Safe to share between threads; each transaction has its own connection."""

    def __init__(self, path: Path, *, busy_seconds: float = BUSY_SECONDS) -> None:
        self.path = path
        self._busy_seconds = busy_seconds
        self._renew()

    def _renew(self) -> None:
        self._spare: deque[sqlite3.Connection] = deque()  # open, and in nobody's hands
        self._places = threading.Semaphore(_CONNECTIONS)

    @classmethod
    def open(cls, path: Path, *, create: bool = False, busy_seconds: float = BUSY_SECONDS) -> State:
        """Open the database and bring it to this version, or say why that can't be."""
        if not create and not path.is_file():
            raise StateUnusable(f"no state at {path}", hint="run `skillexec init`")
        state = cls(path, busy_seconds=busy_seconds)
        try:
            state._upgrade(create=create)
        except BaseException:
            state.close()
            raise
        _close_before_fork(state)
        return state

    def close(self) -> None:
        while (spare := self._spare_one()) is not None:
            spare.close()
        if "_engine" in vars(self):
            self._engine.dispose()

    def __enter__(self) -> State:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @contextmanager
    def quick_read(self) -> Iterator[sqlite3.Connection]:
        """For one SELECT, which is a snapshot of its own."""
        with self._lent() as connection:
            yield connection

    @contextmanager
    def quick_write(self) -> Iterator[sqlite3.Connection]:
        """The one writer, as `write()` is."""
        with self._lent() as connection:
            connection.execute("BEGIN IMMEDIATE")
            yield connection
            connection.execute("COMMIT")

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """One consistent snapshot."""
        with self._transaction("BEGIN") as connection:
            yield connection

    @contextmanager
    def glance(self) -> Iterator[Connection]:
        """For one SELECT, which is a snapshot of its own: a third cheaper than read(), as it needs no BEGIN."""
        with self._connected() as connection:
            yield connection

    @contextmanager
    def write(self) -> Iterator[Connection]:
        """The one writer: everything inside commits together, durably, or not at all."""
        with self._transaction("BEGIN IMMEDIATE") as connection:
            yield connection

    @contextmanager
    def _transaction(self, begin: str) -> Iterator[Connection]:
        with self._connected() as connection:
            connection.exec_driver_sql(begin)
            try:
                yield connection
            except BaseException:
                # The driver's own: SQLite may have rolled back by itself (a full disk), and a second
                # ROLLBACK would fail and hide why.
                connection.connection.rollback()
                raise
            connection.exec_driver_sql("COMMIT")

    @cached_property
    def _engine(self) -> Engine:
        from sqlalchemy import QueuePool, create_engine

        return create_engine("sqlite://", creator=self._connect, poolclass=QueuePool)

    @contextmanager
    def _connected(self) -> Iterator[Connection]:
        from sqlalchemy.exc import SQLAlchemyError

        try:
            with self._engine.connect() as connection:
                yield connection
        except (SQLAlchemyError, sqlite3.Error) as error:
            raise self._unusable(getattr(error, "orig", None) or error) from error

    def _connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(
            self.path,
            timeout=self._busy_seconds,
            isolation_level=None,  # we say BEGIN ourselves; the driver would begin too late
            check_same_thread=False,  # one thread at a time has it, which one may change
        )
        try:
            connection.execute("PRAGMA foreign_keys = ON")
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = FULL")  # a commit that returned survives a power cut
        except BaseException:
            connection.close()
            raise
        return connection

    @contextmanager
    def _lent(self) -> Iterator[sqlite3.Connection]:
        """A connection that nobody else has meanwhile. Only one that is in order is kept for the next."""
        places = self._places
        if not places.acquire(timeout=_LINE_SECONDS):
            raise StateUnusable(
                f"the state at {self.path} can't be used: too many want it at once",
                hint="try again with fewer",
            )
        try:
            with self._kept() as connection:
                yield connection
        except sqlite3.Error as error:
            raise self._unusable(error) from error
        finally:
            places.release()

    @contextmanager
    def _kept(self) -> Iterator[sqlite3.Connection]:
        connection = self._spare_one() or self._connect()
        try:
            yield connection
        except BaseException:
            # Closing alone would roll back only when the last cursor is gone, and a traceback may hold one.
            with suppress(sqlite3.Error):
                connection.rollback()
            connection.close()
            raise
        self._spare.append(connection)

    def _spare_one(self) -> sqlite3.Connection | None:
        try:
            return self._spare.pop()
        except IndexError:
            return None

    def version(self) -> int:
        with self.quick_read() as connection:
            return _version(connection)

    def _upgrade(self, *, create: bool) -> None:
        found = self.version()
        # SQLite takes an empty file for an empty database: grants and record would be gone without a word.
        if found < (0 if create else 1):
            raise StateUnusable(
                f"{self.path} is empty, or not a state of skillexec",
                hint="restore it from a backup; where there never was one, run `skillexec init`",
            )
        if found > sqlite.VERSION:
            raise StateUnusable(
                f"{self.path} was written by a newer skillexec (state {found}, this one knows {sqlite.VERSION})",
                hint="upgrade skillexec, or use another --home",
            )
        if found < sqlite.VERSION:
            self._take_steps()

    def _take_steps(self) -> None:
        from skillexec import schema
        from skillexec.statements import driver

        with self.write() as connection:
            # Read again under the lock: another process may have upgraded while we waited.
            for step in schema.STEPS[_version(driver(connection)) :]:
                step(connection)
            connection.exec_driver_sql(f"PRAGMA user_version = {schema.VERSION}")

    def _unusable(self, cause: Exception) -> StateUnusable:
        fitting = (hint for words, hint in _HINTS if any(word in str(cause) for word in words))
        hint = next(fitting, "run `skillexec doctor`")
        return StateUnusable(f"the state at {self.path} can't be used: {cause}", hint=hint)


def _version(connection: sqlite3.Connection) -> int:
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


def _close_before_fork(state: State) -> None:
    """SQLite takes locks that a parent holds for the child's own: what the child commits could be lost without a word,
    even on connections that it opened itself. So none is open when a process forks; both open new ones."""
    reference = weakref.ref(state)

    def tell(step: Callable[[State], None]) -> None:
        found = reference()
        if found is not None:
            step(found)

    os.register_at_fork(before=lambda: tell(State.close), after_in_child=lambda: tell(State._renew))
