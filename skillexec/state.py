"""The state database: opened safely, upgraded in one transaction, written by one writer at a time."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import URL, Connection, Engine, create_engine, event, text
from sqlalchemy.exc import DatabaseError, SQLAlchemyError

from skillexec import schema
from skillexec.errors import StateUnusable

__all__ = ["BUSY_SECONDS", "Connection", "State"]

BUSY_SECONDS = 10.0


def _connect(path: Path, *, busy_seconds: float) -> Engine:
    # Not as text: `?` and `%` in a path would be read as parts of a URL, and another file would be opened.
    url = URL.create("sqlite", database=str(path))
    engine = create_engine(url, connect_args={"timeout": busy_seconds})

    @event.listens_for(engine, "connect")
    def _configure(connection: sqlite3.Connection, _record: Any) -> None:
        connection.isolation_level = None  # we say BEGIN ourselves; the driver would begin too late
        connection.execute("PRAGMA foreign_keys = ON")
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")  # a commit that returned survives a power cut

    return engine


class State:
    """The database of one home. Safe to share between threads; each transaction has its own connection."""

    def __init__(self, path: Path, *, busy_seconds: float = BUSY_SECONDS) -> None:
        self.path = path
        self._engine = _connect(path, busy_seconds=busy_seconds)

    @classmethod
    def open(cls, path: Path, *, create: bool = False, busy_seconds: float = BUSY_SECONDS) -> State:
        """Open the database and bring it to this version, or say why that can't be."""
        if not create and not path.is_file():
            raise StateUnusable(f"no state at {path}", hint="run `skillexec init`")
        state = cls(path, busy_seconds=busy_seconds)
        try:
            state._upgrade()
        except BaseException:
            state.close()
            raise
        return state

    def close(self) -> None:
        self._engine.dispose()

    def __enter__(self) -> State:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """One consistent snapshot."""
        with self._transaction("BEGIN") as connection:
            yield connection

    @contextmanager
    def glance(self) -> Iterator[Connection]:
        """For one SELECT, which is a snapshot of its own: a third cheaper than read(), as it needs no BEGIN."""
        try:
            with self._engine.connect() as connection:
                yield connection
        except (SQLAlchemyError, sqlite3.Error) as error:
            raise self._unusable(error) from error

    @contextmanager
    def write(self) -> Iterator[Connection]:
        """The one writer: everything inside commits together, durably, or not at all."""
        with self._transaction("BEGIN IMMEDIATE") as connection:
            yield connection

    @contextmanager
    def _transaction(self, begin: str) -> Iterator[Connection]:
        try:
            with self._engine.connect() as connection:
                connection.exec_driver_sql(begin)
                try:
                    yield connection
                except BaseException:
                    # The driver's own: SQLite may have rolled back by itself (a full disk), and a second
                    # ROLLBACK would fail and hide why.
                    connection.connection.rollback()
                    raise
                connection.exec_driver_sql("COMMIT")
        except (SQLAlchemyError, sqlite3.Error) as error:
            raise self._unusable(error) from error

    def version(self) -> int:
        with self.read() as connection:
            return int(connection.execute(text("PRAGMA user_version")).scalar_one())

    def _upgrade(self) -> None:
        found = self.version()
        if found > schema.VERSION:
            raise StateUnusable(
                f"{self.path} was written by a newer skillexec (state {found}, this one knows {schema.VERSION})",
                hint="upgrade skillexec, or use another --home",
            )
        if found == schema.VERSION:
            return
        with self.write() as connection:
            # Read again under the lock: another process may have upgraded while we waited.
            found = int(connection.execute(text("PRAGMA user_version")).scalar_one())
            for step in schema.STEPS[found:]:
                step(connection)
            connection.exec_driver_sql(f"PRAGMA user_version = {schema.VERSION}")

    def _unusable(self, error: SQLAlchemyError | sqlite3.Error) -> StateUnusable:
        cause = str(error.orig) if isinstance(error, DatabaseError) and error.orig else str(error)
        if "locked" in cause:
            hint = "another process holds it: try again, or end that process"
        elif "readonly" in cause or "unable to open" in cause:
            hint = "make the home writable for this user"
        elif "full" in cause or "disk I/O" in cause:
            hint = "free disk space"
        elif "malformed" in cause or "not a database" in cause:
            hint = "restore it from a backup: nothing runs on a damaged state"
        else:
            hint = "run `skillexec doctor`"
        return StateUnusable(f"the state at {self.path} can't be used: {cause}", hint=hint)
