"""The statements on the path of a run: written in SQLAlchemy Core, and shipped as the SQL that Core makes of them.

Loading SQLAlchemy takes 180 ms, three quarters of what `docker run` takes in all, and running a statement through it
takes longer than SQLite does. So a run needs neither: `core.py` is the truth, `sqlite.py` is made from it by
`python -m skillexec.statements.render`, and a test compares the two. For a database server the same Core statements
are rendered for its dialect.
"""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from sqlalchemy import Connection

    AnyConnection: TypeAlias = Connection | sqlite3.Connection

__all__ = ["KIND_FIELDS", "driver"]

# What the kind of an audit record consists of: columns of its table, and fields of an event of the same names.
KIND_FIELDS = ("actor", "event", "system", "team", "skill", "outcome")


def driver(connection: AnyConnection) -> sqlite3.Connection:
    """The driver's own connection: it sees and does everything in the transaction of the given one."""
    if isinstance(connection, sqlite3.Connection):
        return connection
    beneath = connection.connection.driver_connection
    assert isinstance(beneath, sqlite3.Connection)
    return beneath
