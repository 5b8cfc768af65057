"""What is known about one system and one skill: a chain of rows, fetched by one indexed query."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

from sqlalchemy import Connection, Dialect, Integer, Select, and_, bindparam, literal_column, select

from skillexec.schema import envelopes, grants, systems, teams

MAX_DEPTH = 8  # origins above a system; Casbin's role manager follows ten names at most


class Link(NamedTuple):
    """One system of the chain: the one that asks, then its team's origin, then that one's, up to the top."""

    system: str
    system_disabled: bool
    team: str
    team_disabled: bool
    is_root: bool
    origin: str | None
    inherit: bool
    in_envelope: bool
    source: str | None  # of the grant; None: no grant
    pin: str | None

    @property
    def granted(self) -> bool:
        return self.source is not None

    @property
    def disabled(self) -> bool:
        return self.system_disabled or self.team_disabled


def _columns() -> list[Any]:
    return [
        systems.c.name.label("system"),
        systems.c.disabled.label("system_disabled"),
        teams.c.name.label("team"),
        teams.c.disabled.label("team_disabled"),
        teams.c.is_root,
        teams.c.origin,
        teams.c.inherit,
    ]


def _chain_query() -> Select[Any]:
    depth = literal_column("0", Integer).label("depth")
    start = select(depth, *_columns()).join_from(systems, teams, teams.c.name == systems.c.team)
    chain = start.where(systems.c.name == bindparam("system")).cte("chain", recursive=True)
    above = chain.join(systems, systems.c.name == chain.c.origin).join(teams, teams.c.name == systems.c.team)
    deeper = select(chain.c.depth + literal_column("1"), *_columns()).select_from(above)
    chain = chain.union_all(deeper.where(chain.c.depth < literal_column(str(MAX_DEPTH))))
    held = and_(grants.c.system == chain.c.system, grants.c.skill == bindparam("skill"))
    enveloped = and_(envelopes.c.team == chain.c.team, envelopes.c.skill == bindparam("skill"))
    return (
        select(
            *list(chain.c)[1:],
            envelopes.c.skill.is_not(None).label("in_envelope"),
            grants.c.source,
            grants.c.pin,
        )
        .select_from(chain.outerjoin(envelopes, enveloped).outerjoin(grants, held))
        .order_by(chain.c.depth)
    )


@lru_cache(maxsize=4)
def _compiled(dialect: Dialect) -> tuple[str, Callable[[str, str], Any]]:
    """The query in this database's SQL, and how its driver wants the two parameters."""
    compiled = _chain_query().compile(dialect=dialect)
    names = compiled.positiontup
    if names is None:
        return str(compiled), lambda system, skill: {"system": system, "skill": skill}
    by_system = [name == "system" for name in names]
    return str(compiled), lambda system, skill: tuple(system if first else skill for first in by_system)


def fetch(connection: Connection, *, system: str, skill: str) -> tuple[Link, ...]:
    """The chain from the system to its top. Empty: no such system. One that is cut off still has an origin.

    Core compiles the statement once and the driver's own cursor runs it: that more than halves the time of
    a whole decision (measured in benchmarks/permissions.py), and this is the one query on the path of a run.
    """
    statement, parameters = _compiled(connection.dialect)
    cursor = connection.connection.cursor()
    try:
        cursor.execute(statement, parameters(system, skill))
        return tuple(map(Link._make, cursor.fetchall()))
    finally:
        cursor.close()
