"""Envelopes, which bound what a team may use, and grants, which give a system up to five skills of it.

Every function makes its change inside the caller's transaction and says what really changed. Several skills
are one change: all of them, or none.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Row, delete, insert, select, update

from skillexec.errors import Refused, Usage
from skillexec.model import Source
from skillexec.permissions.change import Change, Changes, Value
from skillexec.permissions.explain import Question, examine
from skillexec.permissions.facts import chain_of
from skillexec.permissions.names import check_digest, check_skills
from skillexec.permissions.teams import need_system, need_team
from skillexec.schema import MAX_GRANTS, envelopes, grants, systems


@dataclass(frozen=True, slots=True)
class Wish:
    """A grant as it is asked for. What is left open stays as it is where the skill is granted already."""

    skill: str
    source: Source | None = None
    pin: str | None = None
    unpin: bool = False


# -- envelopes ---------------------------------------------------------------------------------------------


def _bounded_team(connection: Connection, name: str) -> Row[Any]:
    row = need_team(connection, name)
    if row.is_root:
        raise Refused(
            f"{name} is the root team: its systems need grants, no envelope",
            hint="`skillexec grant add SYSTEM SKILL`",
        )
    if row.origin is not None:
        raise Refused(
            f"the envelope of team {name} is what {row.origin} may run: it has none of its own",
            hint=f"`skillexec grant add {row.origin} SKILL`",
        )
    return row


def envelope_of(connection: Connection, team: str) -> tuple[str, ...]:
    query = select(envelopes.c.skill).where(envelopes.c.team == team).order_by(envelopes.c.skill)
    return tuple(connection.execute(query).scalars())


def add_to_envelope(connection: Connection, team: str, skills: Iterable[str]) -> Changes:
    """Let a team use these skills, which grants nothing yet."""
    wanted = check_skills(skills)
    _bounded_team(connection, team)
    known = set(envelope_of(connection, team))
    new = [skill for skill in wanted if skill not in known]
    if new:
        connection.execute(insert(envelopes), [{"team": team, "skill": skill} for skill in new])
    return tuple(Change("envelope.added", team=team, skill=skill) for skill in new)


def _revoke_in_team(connection: Connection, team: str, skill: str) -> Changes:
    members = select(systems.c.name).where(systems.c.team == team)
    chosen = (grants.c.skill == skill, grants.c.system.in_(members))
    held = connection.execute(select(grants).where(*chosen).order_by(grants.c.system)).all()
    connection.execute(delete(grants).where(*chosen))
    return tuple(_revoked(row, team).because("envelope.removed") for row in held)


def remove_from_envelope(connection: Connection, team: str, skills: Iterable[str]) -> Changes:
    """Take skills out of an envelope, and with them every grant of them in the team."""
    wanted = check_skills(skills)
    _bounded_team(connection, team)
    changes: Changes = ()
    for skill in [known for known in envelope_of(connection, team) if known in wanted]:
        connection.execute(delete(envelopes).where(envelopes.c.team == team, envelopes.c.skill == skill))
        changes += (
            Change("envelope.removed", team=team, skill=skill),
            *_revoke_in_team(connection, team, skill),
        )
    return changes


def set_envelope(connection: Connection, team: str, skills: Iterable[str]) -> Changes:
    """Let the envelope be exactly these skills."""
    wanted = check_skills(skills)
    gone = [known for known in envelope_of(connection, team) if known not in wanted]
    return remove_from_envelope(connection, team, gone) + add_to_envelope(connection, team, wanted)


# -- grants ------------------------------------------------------------------------------------------------


def _revoked(row: Row[Any], team: str) -> Change:
    data = {"slot": row.slot, "source": row.source, "pin": row.pin}
    return Change("grant.revoked", team=team, system=row.system, skill=row.skill, data=data)


def held_by(connection: Connection, system: str) -> dict[str, Row[Any]]:
    """The rows of a system's grants, by skill, in the order of their slots."""
    query = select(grants).where(grants.c.system == system).order_by(grants.c.slot)
    return {row.skill: row for row in connection.execute(query)}


def _refuse_out_of_bounds(connection: Connection, system: str, skill: str) -> None:
    """Granting what the envelope, or the origin, does not hold would promise what no decision keeps."""
    chain = [
        link._replace(system_disabled=False, team_disabled=False)
        for link in chain_of(connection, system=system, skill=skill)
    ]
    chain[0] = chain[0]._replace(source=str(Source.THIRD_PARTY), pin=None)
    last = examine(tuple(chain), Question(system, skill))[-1]
    if not last.ok:
        raise Refused(f"{skill} can't be granted to {system}: {last.fact}", hint=last.hint)


def _refuse_sixth(system: str, held: Iterable[str], new: Sequence[str]) -> None:
    """Say it in words. What holds under concurrency is the table: five slots, each of them once."""
    names = sorted(held)
    if len(names) + len(new) <= MAX_GRANTS:
        return
    count = f"{len(names)} of {MAX_GRANTS}"
    raise Refused(
        f"{system} holds {count} skills ({', '.join(names) or 'none'}): no room for {', '.join(new)}",
        hint=f"`skillexec grant remove {system} {names[0]}` frees a slot" if names else "grant fewer",
    )


def _insert(connection: Connection, system: Row[Any], wish: Wish, slot: int) -> Change:
    _refuse_out_of_bounds(connection, system.name, wish.skill)
    if wish.source is None:
        raise Usage(
            f"where does {wish.skill} come from? A grant remembers the source of its skill",
            hint=f"--source, one of {', '.join(Source)}",
        )
    values: dict[str, Value] = {"slot": slot, "source": str(wish.source), "pin": wish.pin}
    connection.execute(insert(grants).values(system=system.name, skill=wish.skill, **values))
    return Change("grant.added", team=system.team, system=system.name, skill=wish.skill, data=values)


def _update(connection: Connection, system: Row[Any], row: Row[Any], wish: Wish) -> Changes:
    source = str(wish.source) if wish.source is not None else row.source
    pin = None if wish.unpin else wish.pin or row.pin
    values = {"slot": row.slot, "source": source, "pin": pin}
    events = ["grant.sourced"] if source != row.source else []
    if pin != row.pin:
        events.append("grant.pinned" if pin else "grant.unpinned")
    if events:
        chosen = (grants.c.system == system.name, grants.c.slot == row.slot)
        connection.execute(update(grants).where(*chosen).values(source=source, pin=pin))
    return tuple(
        Change(event, team=system.team, system=system.name, skill=row.skill, data=values) for event in events
    )


def add_grants(connection: Connection, system: str, wishes: Sequence[Wish]) -> Changes:
    """Grant skills to a system. One that is granted already gets the source and pin that are asked for now."""
    check_skills(wish.skill for wish in wishes)
    owner, held = need_system(connection, system), held_by(connection, system)
    distinct = {wish.skill: wish for wish in wishes}
    _refuse_sixth(system, held, [skill for skill in distinct if skill not in held])
    free = iter(sorted(set(range(1, MAX_GRANTS + 1)) - {row.slot for row in held.values()}))
    changes: Changes = ()
    for wish in distinct.values():
        if wish.pin is not None:
            check_digest(wish.pin)
        if wish.skill in held:
            changes += _update(connection, owner, held[wish.skill], wish)
        else:
            changes += (_insert(connection, owner, wish, next(free)),)
    return changes


def remove_grants(connection: Connection, system: str, skills: Iterable[str]) -> Changes:
    """Revoke grants. What was not granted stays so."""
    wanted = check_skills(skills)
    owner, held = need_system(connection, system), held_by(connection, system)
    rows = [held[skill] for skill in wanted if skill in held]
    for row in rows:
        connection.execute(delete(grants).where(grants.c.system == system, grants.c.slot == row.slot))
    return tuple(_revoked(row, owner.team) for row in rows)


def set_grants(connection: Connection, system: str, wishes: Sequence[Wish]) -> Changes:
    """Let the system hold exactly these skills: all or nothing."""
    wanted = check_skills(wish.skill for wish in wishes)
    if len(wanted) > MAX_GRANTS:
        raise Refused(
            f"{len(wanted)} skills for {system}, and a system may hold {MAX_GRANTS}",
            hint=f"leave out {len(wanted) - MAX_GRANTS} of {', '.join(wanted)}",
        )
    gone = [skill for skill in held_by(connection, system) if skill not in wanted]
    return remove_grants(connection, system, gone) + add_grants(connection, system, wishes)
