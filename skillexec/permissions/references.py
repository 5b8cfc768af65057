"""Where secrets come from: the operator's mapping of names to references. No value is ever here (DESIGN 6)."""

from __future__ import annotations

import hashlib

from sqlalchemy import ColumnElement, Connection, and_, delete, insert, select, true

from skillexec.errors import Usage
from skillexec.model import ENV_NAME, RESERVED_ENV
from skillexec.permissions.change import Change, Changes
from skillexec.permissions.facts import EVERY, Mapped
from skillexec.permissions.names import check_identifier, check_skills
from skillexec.schema import secrets, teams


def _check(name: str, team: str, skill: str) -> None:
    if ENV_NAME.fullmatch(name) is None:
        raise Usage(
            f"{name!r} can't be the name of a secret", hint="letters, digits and underscores, no digit first"
        )
    if RESERVED_ENV.fullmatch(name) is not None:
        raise Usage(
            f"{name} can't be the name of a secret: programs read it for themselves",
            hint="give the secret a name of its own, like SERVICE_TOKEN",
        )
    if team:
        check_identifier("team", team)
    if skill:
        check_skills([skill])


def _exactly(name: str, team: str, skill: str) -> ColumnElement[bool]:
    return and_(secrets.c.name == name, secrets.c.team == team, secrets.c.skill == skill)


def _change(event: str, line: Mapped) -> Change:
    digest = "sha256:" + hashlib.sha256(line.reference.encode()).hexdigest()
    data = {"secret": line.name, "reference": digest}
    return Change(event, team=line.team or None, skill=line.skill or None, data=data)


def _take_out(connection: Connection, *chosen: ColumnElement[bool]) -> Changes:
    query = select(secrets).where(*chosen).order_by(secrets.c.name, secrets.c.skill)
    found = [Mapped(row.name, row.reference, row.team, row.skill) for row in connection.execute(query)]
    connection.execute(delete(secrets).where(*chosen))
    return tuple(_change("secret.unmapped", line) for line in found)


def check_team(connection: Connection, team: str) -> None:
    """Raise Usage where there is no such team."""
    if connection.execute(select(teams.c.name).where(teams.c.name == team)).one_or_none() is None:
        raise Usage(f"no team {team}", hint=f"`skillexec team add {team}`")


def map_secret(
    connection: Connection, *, name: str, reference: str, team: str = EVERY, skill: str = EVERY
) -> Changes:
    """Say where a name comes from, for everyone, for a team, for a skill, or for both together."""
    _check(name, team, skill)
    if team:
        check_team(connection, team)
    known = select(secrets.c.reference).where(_exactly(name, team, skill))
    if connection.execute(known).scalar_one_or_none() == reference:
        return ()
    connection.execute(delete(secrets).where(_exactly(name, team, skill)))
    connection.execute(insert(secrets).values(name=name, team=team, skill=skill, reference=reference))
    return (_change("secret.mapped", Mapped(name, reference, team, skill)),)


def unmap_secret(connection: Connection, *, name: str, team: str = EVERY, skill: str = EVERY) -> Changes:
    """Take one line out of the mapping."""
    _check(name, team, skill)
    return _take_out(connection, _exactly(name, team, skill))


def unmap_team(connection: Connection, team: str) -> Changes:
    """Take every line of a team out of the mapping."""
    return _take_out(connection, secrets.c.team == team)


def secret_mappings(
    connection: Connection, *, team: str | None = None, skill: str | None = None
) -> tuple[Mapped, ...]:
    """The mapping, or the lines of it that concern a team or a skill."""
    of_team = true() if team is None else secrets.c.team.in_([team, EVERY])
    of_skill = true() if skill is None else secrets.c.skill.in_([skill, EVERY])
    query = select(secrets).where(of_team, of_skill).order_by(secrets.c.name, secrets.c.team, secrets.c.skill)
    return tuple(Mapped(row.name, row.reference, row.team, row.skill) for row in connection.execute(query))
