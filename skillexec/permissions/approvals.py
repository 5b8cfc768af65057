"""Approvals: an operator confirmed these exact bytes of a skill for this system (DESIGN 5, trust)."""

from __future__ import annotations

from datetime import UTC, datetime

from sqlalchemy import ColumnElement, Connection, and_, delete, insert, select

from skillexec.errors import Usage
from skillexec.permissions.change import Change, Changes, Value
from skillexec.permissions.facts import Approval
from skillexec.permissions.names import check_digest, check_identifier, check_skills
from skillexec.schema import approvals, systems


def _text(time: datetime) -> str:
    """UTC in one spelling; a time without a zone is refused rather than guessed."""
    if time.tzinfo is None:
        raise Usage(f"{time.isoformat()} names no time zone", hint="end it with Z or +00:00")
    return time.astimezone(UTC).isoformat(timespec="seconds")


def _exactly(system: str, skill: str, digest: str) -> ColumnElement[bool]:
    return and_(approvals.c.system == system, approvals.c.skill == skill, approvals.c.digest == digest)


def list_approvals(connection: Connection, *, system: str | None = None) -> tuple[Approval, ...]:
    query = select(approvals).order_by(approvals.c.system, approvals.c.skill, approvals.c.approved_at)
    if system is not None:
        query = query.where(approvals.c.system == system)
    return tuple(Approval.of(row) for row in connection.execute(query))


def approve(
    connection: Connection,
    *,
    system: str,
    skill: str,
    digest: str,
    network: bool = False,
    expires: datetime | None = None,
    actor: str,
    now: datetime,
) -> Changes:
    """Approve these bytes for this system. The same approval again changes nothing; another replaces it."""
    check_skills([skill])
    check_digest(digest)
    known = select(systems.c.team).where(systems.c.name == check_identifier("system", system))
    team = connection.execute(known).scalar_one_or_none()
    if team is None:
        raise Usage(f"no system {system}", hint=f"`skillexec system add {system} --team TEAM`")
    until = _text(expires) if expires else None
    found = connection.execute(select(approvals).where(_exactly(system, skill, digest))).one_or_none()
    if found is not None and (bool(found.network), found.expires) == (network, until):
        return ()
    values = {"network": network, "expires": until, "approved_by": actor, "approved_at": _text(now)}
    connection.execute(delete(approvals).where(_exactly(system, skill, digest)))
    connection.execute(insert(approvals).values(system=system, skill=skill, digest=digest, **values))
    data: dict[str, Value] = {"digest": digest, "network": network, "expires": until}
    return (Change("approval.added", team=team, system=system, skill=skill, data=data),)


def revoke_approvals(
    connection: Connection, *, system: str, skill: str | None = None, digest: str | None = None
) -> Changes:
    """Revoke a system's approvals: all, those of one skill, or that of exact bytes."""
    chosen = [approvals.c.system == system]
    chosen += [approvals.c.skill == skill] if skill is not None else []
    chosen += [approvals.c.digest == digest] if digest is not None else []
    query = select(approvals, systems.c.team).join_from(
        approvals, systems, systems.c.name == approvals.c.system
    )
    found = connection.execute(query.where(*chosen).order_by(approvals.c.skill, approvals.c.digest)).all()
    connection.execute(delete(approvals).where(*chosen))
    return tuple(
        Change(
            "approval.revoked", team=row.team, system=row.system, skill=row.skill, data={"digest": row.digest}
        )
        for row in found
    )
