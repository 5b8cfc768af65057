"""Every statement on the path of a run, in SQLAlchemy Core. After a change: `python -m skillexec.statements.render`.

Constants are literals, so that the parameters of a statement are exactly those that its caller gives.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Executable,
    Integer,
    Select,
    and_,
    bindparam,
    delete,
    exists,
    func,
    insert,
    literal_column,
    or_,
    select,
)

from skillexec.model import MAX_ORIGINS
from skillexec.schema import (
    approvals,
    audit,
    audit_kinds,
    audit_open_runs,
    envelopes,
    grants,
    secrets,
    systems,
    teams,
)
from skillexec.statements import KIND_FIELDS

_ONE: ColumnElement[int] = literal_column("1", Integer)


# --- decisions ----------------------------------------------------------------------------------------


def _link_columns() -> list[Any]:
    return [
        systems.c.name.label("system"),
        systems.c.disabled.label("system_disabled"),
        teams.c.name.label("team"),
        teams.c.disabled.label("team_disabled"),
        teams.c.is_root,
        teams.c.origin,
        teams.c.inherit,
    ]


def _chain() -> Select[Any]:
    """One system and one skill: the system that asks, then its team's origin, then that one's, up to the top."""
    depth = literal_column("0", Integer).label("depth")
    start = select(depth, *_link_columns()).join_from(systems, teams, teams.c.name == systems.c.team)
    chain = start.where(systems.c.name == bindparam("system")).cte("chain", recursive=True)
    above = chain.join(systems, systems.c.name == chain.c.origin).join(teams, teams.c.name == systems.c.team)
    deeper = select(chain.c.depth + _ONE, *_link_columns()).select_from(above)
    chain = chain.union_all(deeper.where(chain.c.depth < literal_column(str(MAX_ORIGINS))))
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


def _approval() -> Select[Any]:
    return select(approvals).where(
        approvals.c.system == bindparam("system"),
        approvals.c.skill == bindparam("skill"),
        approvals.c.digest == bindparam("digest"),
    )


def _secrets() -> Select[Any]:
    """The lines of the mapping that concern a run; "" stands for every team and every skill."""
    every: ColumnElement[str] = literal_column("''")
    return select(secrets.c.name, secrets.c.reference, secrets.c.team, secrets.c.skill).where(
        or_(secrets.c.team == bindparam("team"), secrets.c.team == every),
        or_(secrets.c.skill == bindparam("skill"), secrets.c.skill == every),
    )


# --- the record ---------------------------------------------------------------------------------------


def _kind() -> Select[Any]:
    return select(audit_kinds.c.id).where(*(audit_kinds.c[name] == bindparam(name) for name in KIND_FIELDS))


def _known_run() -> ColumnElement[bool]:
    return exists(select(audit.c.seq).where(audit.c.run == bindparam("run")))


def _head(column: ColumnElement[Any], *more: ColumnElement[Any]) -> Select[Any]:
    """The newest record; no LIMIT, which SQLite's dialect renders with a parameter of its own."""
    newest = select(func.max(audit.c.seq)).scalar_subquery()
    return select(column, *more).where(audit.c.seq == newest)


def _before() -> Select[Any]:
    """All that an append has to know, in one question: the write lock is held meanwhile."""
    started = (
        select(audit.c.seq)
        .join(audit_kinds, audit_kinds.c.id == audit.c.kind)
        .where(audit.c.run == bindparam("run"), audit_kinds.c.event == literal_column("'run.started'"))
    )
    return select(
        select(func.max(audit.c.seq)).scalar_subquery().label("seq"),
        _head(audit.c.hash).scalar_subquery().label("hash"),
        _kind().scalar_subquery().label("kind"),
        exists(started).label("started"),
        _known_run().label("known"),
    )


def _open_runs() -> Select[Any]:
    return (
        select(audit.c.body, audit.c.hash)
        .join(audit_open_runs, audit_open_runs.c.seq == audit.c.seq)
        .order_by(audit.c.seq)
    )


def statements() -> Mapping[str, Executable]:
    """By the name that they have in `sqlite.py`."""
    return {
        "CHAIN": _chain(),
        "APPROVAL": _approval(),
        "SECRETS": _secrets(),
        "HEAD": _head(audit.c.seq, audit.c.hash),
        "BEFORE": _before(),
        "KIND": _kind(),
        "KNOWN_RUN": select(_known_run().label("known")),
        "NEW_KIND": insert(audit_kinds).values({name: bindparam(name) for name in KIND_FIELDS}),
        "NEW_RECORD": insert(audit),
        "OPEN_RUNS": _open_runs(),
        "OPEN_RUN": insert(audit_open_runs),
        "CLOSE_RUN": delete(audit_open_runs).where(audit_open_runs.c.run == bindparam("run")),
    }
