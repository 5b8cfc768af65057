"""Teams, the systems in them, and which system a team was spawned from.

Every function makes its change inside the caller's transaction and says what really changed: nothing where it
was so already.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection, Row, delete, insert, select, update

from skillexec.errors import Refused, Usage
from skillexec.model import MAX_ORIGINS
from skillexec.permissions.approvals import revoke_approvals
from skillexec.permissions.change import Change, Changes
from skillexec.permissions.names import check_identifier
from skillexec.permissions.references import unmap_team
from skillexec.schema import envelopes, grants, secrets, systems, teams


def find_team(connection: Connection, name: str) -> Row[Any] | None:
    return connection.execute(select(teams).where(teams.c.name == name)).one_or_none()


def find_system(connection: Connection, name: str) -> Row[Any] | None:
    return connection.execute(select(systems).where(systems.c.name == name)).one_or_none()


def need_team(connection: Connection, name: str) -> Row[Any]:
    """The team's row, or an error that says how to make one."""
    row = find_team(connection, check_identifier("team", name))
    if row is None:
        raise Usage(f"no team {name}", hint=f"`skillexec team add {name}`")
    return row


def need_system(connection: Connection, name: str) -> Row[Any]:
    """The system's row, or an error that says how to make one."""
    row = find_system(connection, check_identifier("system", name))
    if row is None:
        raise Usage(f"no system {name}", hint=f"`skillexec system add {name} --team TEAM`")
    return row


def _systems_of(connection: Connection, team: str) -> list[str]:
    query = select(systems.c.name).where(systems.c.team == team).order_by(systems.c.name)
    return list(connection.execute(query).scalars())


def _spawned_from(connection: Connection, system: str) -> list[str]:
    query = select(teams.c.name).where(teams.c.origin == system).order_by(teams.c.name)
    return list(connection.execute(query).scalars())


def _root(connection: Connection) -> str | None:
    return connection.execute(select(teams.c.name).where(teams.c.is_root)).scalar_one_or_none()


def _refuse_second_root(connection: Connection) -> None:
    found = _root(connection)
    if found is not None:
        raise Refused(
            f"{found} is the root team, and there is one at most", hint=f"`skillexec team show {found}`"
        )


def add_team(connection: Connection, name: str, *, root: bool = False) -> Changes:
    """Make a team; the root team where asked for."""
    found = find_team(connection, check_identifier("team", name))
    if found is not None and root and not found.is_root:
        raise Refused(
            f"there is a team {name}, and it is not the root team", hint=f"`skillexec team show {name}`"
        )
    if found is not None:
        return ()
    if root:
        _refuse_second_root(connection)
    connection.execute(insert(teams).values(name=name, is_root=root or None))
    return (Change("team.added", team=name, data={"root": root}),)


def set_root(connection: Connection, name: str, root: bool) -> Changes:
    """Make a team the root team, which has no envelope and no origin; or an ordinary one, as `detach` does."""
    row = need_team(connection, name)
    if bool(row.is_root) == root:
        return ()
    chosen = update(teams).where(teams.c.name == name)
    if not root:
        connection.execute(chosen.values(is_root=None))
        return (Change("team.unrooted", team=name), *_revoke_team(connection, name, cause="team.unrooted"))
    _refuse_second_root(connection)
    changes = _drop_envelope(connection, name) + detach(connection, name)
    connection.execute(chosen.values(is_root=True))
    return (*changes, Change("team.rooted", team=name))


def set_team_disabled(connection: Connection, name: str, disabled: bool) -> Changes:
    """Stop or allow every system of the team, and every team spawned from one of them."""
    if bool(need_team(connection, name).disabled) == disabled:
        return ()
    connection.execute(update(teams).where(teams.c.name == name).values(disabled=disabled))
    return (Change("team.disabled" if disabled else "team.enabled", team=name),)


def add_system(connection: Connection, name: str, *, team: str) -> Changes:
    """Make a system in a team. A system never moves: its grants were given to a member of its team."""
    found = find_system(connection, check_identifier("system", name))
    need_team(connection, team)
    if found is not None and found.team != team:
        raise Refused(
            f"system {name} belongs to team {found.team}", hint=f"`skillexec system remove {name}` first"
        )
    if found is not None:
        return ()
    connection.execute(insert(systems).values(name=name, team=team))
    return (Change("system.added", team=team, system=name),)


def set_system_disabled(connection: Connection, name: str, disabled: bool) -> Changes:
    """Stop or allow one system, and every team spawned from it."""
    row = need_system(connection, name)
    if bool(row.disabled) == disabled:
        return ()
    connection.execute(update(systems).where(systems.c.name == name).values(disabled=disabled))
    return (Change("system.disabled" if disabled else "system.enabled", team=row.team, system=name),)


def _revoke_all(connection: Connection, system: str, team: str, *, cause: str) -> Changes:
    query = select(grants.c.skill).where(grants.c.system == system).order_by(grants.c.slot)
    held = connection.execute(query).scalars().all()
    connection.execute(delete(grants).where(grants.c.system == system))
    gone = (Change("grant.revoked", team=team, system=system, skill=skill) for skill in held)
    return tuple(change.because(cause) for change in gone)


def _revoke_team(connection: Connection, team: str, *, cause: str) -> Changes:
    """An ordinary team's grants lie within its envelope: one that starts with an empty envelope has none."""
    members = _systems_of(connection, team)
    return tuple(change for name in members for change in _revoke_all(connection, name, team, cause=cause))


def _below_system(connection: Connection, system: str) -> list[str]:
    """What goes with a system: the teams spawned from it, and all that goes with each of them."""
    teams_below = _spawned_from(connection, system)
    return [each for team in teams_below for each in (f"team {team}", *_below_team(connection, team))]


def _below_team(connection: Connection, team: str) -> list[str]:
    """What goes with a team besides its envelope: its systems, all that goes with them, and its secrets."""
    members = _systems_of(connection, team)
    found = [each for name in members for each in (f"system {name}", *_below_system(connection, name))]
    mapped = select(secrets.c.name).where(secrets.c.team == team).order_by(secrets.c.name)
    return found + [f"secret {name}" for name in dict.fromkeys(connection.execute(mapped).scalars())]


def remove_system(connection: Connection, name: str, *, cascade: bool = False) -> Changes:
    """Remove a system with its grants and approvals; with `cascade` also the teams spawned from it."""
    row = find_system(connection, check_identifier("system", name))
    if row is None:
        return ()
    dependants = _below_system(connection, name)
    if dependants and not cascade:
        raise Refused(
            f"teams were spawned from system {name}: {', '.join(dependants)}",
            hint=f"`skillexec system remove {name} --cascade` removes them too",
        )
    spawned = _spawned_from(connection, name)
    changes = tuple(change for team in spawned for change in remove_team(connection, team, cascade=True))
    changes += _revoke_all(connection, name, row.team, cause="system.removed")
    changes += revoke_approvals(connection, system=name)
    connection.execute(delete(systems).where(systems.c.name == name))
    return (*changes, Change("system.removed", team=row.team, system=name))


def _drop_envelope(connection: Connection, team: str) -> Changes:
    query = select(envelopes.c.skill).where(envelopes.c.team == team).order_by(envelopes.c.skill)
    held = connection.execute(query).scalars().all()
    connection.execute(delete(envelopes).where(envelopes.c.team == team))
    return tuple(Change("envelope.removed", team=team, skill=skill) for skill in held)


def remove_team(connection: Connection, name: str, *, cascade: bool = False) -> Changes:
    """Remove a team with its envelope; with `cascade` also its systems, what they spawned, and its secrets.

    Mapped secrets must not outlive the team: the next team of that name would be given them.
    """
    if find_team(connection, check_identifier("team", name)) is None:
        return ()
    dependants = _below_team(connection, name)
    if dependants and not cascade:
        raise Refused(
            f"team {name} still has {', '.join(dependants)}",
            hint=f"`skillexec team remove {name} --cascade` removes them too",
        )
    changes: Changes = ()
    for system in _systems_of(connection, name):
        changes += remove_system(connection, system, cascade=True)
    changes += unmap_team(connection, name) + _drop_envelope(connection, name)
    connection.execute(delete(teams).where(teams.c.name == name))
    return (*changes, Change("team.removed", team=name))


def _origins_above(connection: Connection, system: str) -> list[tuple[str, str]]:
    """The (system, team) pairs from this system up to the top of its chain."""
    chain: list[tuple[str, str]] = []
    current: str | None = system
    while current is not None and len(chain) <= MAX_ORIGINS:
        query = select(systems.c.team, teams.c.origin).join_from(
            systems, teams, teams.c.name == systems.c.team
        )
        team, origin = connection.execute(query.where(systems.c.name == current)).one()
        chain.append((current, team))
        current = origin
    return chain


def _levels_below(connection: Connection, team: str) -> int:
    """How many teams deep the spawning below this team goes."""
    below, level = [team], -1
    while below and level <= MAX_ORIGINS:
        query = select(teams.c.name).join_from(teams, systems, teams.c.origin == systems.c.name)
        below = list(connection.execute(query.where(systems.c.team.in_(below))).scalars())
        level += 1
    return level


def _refuse_bad_chain(connection: Connection, team: str, origin: str) -> None:
    above = _origins_above(connection, origin)
    if any(found == team for _, found in above):
        path = " <- ".join([origin, *(system for system, _ in above[1:])])
        raise Refused(
            f"team {team} can't be spawned from {path}: that would be a cycle", hint="`skillexec team list`"
        )
    if len(above) + _levels_below(connection, team) > MAX_ORIGINS:
        raise Refused(
            f"team {team} would be more than {MAX_ORIGINS} origins deep",
            hint="spawn it from a system nearer to the top",
        )


def recurse(connection: Connection, team: str, *, origin: str, inherit: bool = True) -> Changes:
    """Let a team be spawned from a system: it may then run at most what that one may. Made where missing.

    Its envelope is from now on what the origin may run, so one of its own goes.
    """
    need_system(connection, origin)
    changes = add_team(connection, team)
    row = need_team(connection, team)
    if row.is_root:
        raise Refused(f"{team} is the root team, which has no origin", hint="name another team")
    if (row.origin, bool(row.inherit)) == (origin, inherit):
        return changes
    _refuse_bad_chain(connection, team, origin)
    changes += _drop_envelope(connection, team)
    connection.execute(update(teams).where(teams.c.name == team).values(origin=origin, inherit=inherit))
    return (*changes, Change("team.recursed", team=team, data={"origin": origin, "inherit": inherit}))


def unlink(connection: Connection, team: str) -> None:
    """Cut a team from its origin, for a caller who ties it to another one in the same transaction."""
    connection.execute(update(teams).where(teams.c.name == team).values(origin=None, inherit=True))


def detach(connection: Connection, team: str) -> Changes:
    """Make a spawned team an ordinary one. Its envelope is then empty, so that its grants go."""
    row = need_team(connection, team)
    if row.origin is None:
        return ()
    unlink(connection, team)
    change = Change("team.detached", team=team, data={"origin": row.origin})
    return (change, *_revoke_team(connection, team, cause="team.detached"))
