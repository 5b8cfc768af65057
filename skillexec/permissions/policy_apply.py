"""Bring the state to what a policy declares. A plan is this very change, taken back instead of committed.

A file is the whole truth about the teams that it names: their systems, envelopes and grants. Teams that it does
not name stay as they are, unless `prune` says that the file is the truth about everything.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager

from sqlalchemy import Connection

from skillexec.errors import SkillexecError
from skillexec.model import Source
from skillexec.permissions.change import Changes
from skillexec.permissions.grants import Wish, held_by, set_envelope, set_grants
from skillexec.permissions.policy_file import DeclaredGrant, DeclaredSystem, DeclaredTeam, Policy
from skillexec.permissions.snapshot import Snapshot, load_snapshot
from skillexec.permissions.teams import (
    add_system,
    add_team,
    detach,
    recurse,
    remove_system,
    remove_team,
    set_root,
    set_system_disabled,
    set_team_disabled,
    unlink,
)

# Where a skill comes from, by its name; None where it is not found.
Finder = Callable[[str], Source | None]


@contextmanager
def _at(policy: Policy, line: int) -> Iterator[None]:
    """Whatever is refused inside is the fault of this line."""
    try:
        yield
    except SkillexecError as error:
        raise type(error)(f"{policy.where}:{line}: {error.message}", hint=error.hint) from error


def _loosen(
    connection: Connection, team: DeclaredTeam, snapshot: Snapshot, *, leavers: Collection[str]
) -> Changes:
    """Give up what the file no longer says about a team, before anything new is tied to it."""
    known = snapshot.teams.get(team.name)
    if known is None:
        return ()
    changes = set_root(connection, team.name, False) if known.root and not team.root else ()
    if team.origin is None:
        return changes + detach(connection, team.name)
    if known.origin != team.origin or known.origin in leavers:
        unlink(connection, team.name)  # so that the old origin may go; _bound ties the new one
    return changes


def _leavers(policy: Policy, snapshot: Snapshot) -> dict[str, int]:
    """Systems of named teams that the file puts elsewhere or nowhere, and the line of the team that they leave."""
    found: dict[str, int] = {}
    for team in policy.teams:
        declared = {system.name for system in team.systems}
        known = snapshot.teams.get(team.name)
        found |= {one.name: team.line for one in (known.systems if known else ()) if one.name not in declared}
    return found


def _make(connection: Connection, team: DeclaredTeam) -> Changes:
    changes = add_team(connection, team.name)
    if team.root:
        changes += set_root(connection, team.name, True)
    return changes + set_team_disabled(connection, team.name, team.disabled)


def _populate(connection: Connection, team: DeclaredTeam, system: DeclaredSystem) -> Changes:
    return add_system(connection, system.name, team=team.name) + set_system_disabled(
        connection, system.name, system.disabled
    )


def _bound(connection: Connection, team: DeclaredTeam) -> Changes:
    if team.origin is not None:
        return recurse(connection, team.name, origin=team.origin, inherit=team.inherit)
    return () if team.root else set_envelope(connection, team.name, team.envelope)


def _wish(grant: DeclaredGrant, *, held: bool, find: Finder) -> Wish:
    """A grant that is there keeps its source where the file says none: a file must not approve a new one."""
    source = grant.source if grant.source or held else find(grant.skill)
    return Wish(grant.skill, source=source, pin=grant.pin, unpin=grant.pin is None)


def _grant(connection: Connection, system: DeclaredSystem, find: Finder) -> Changes:
    held = held_by(connection, system.name)
    wishes = [_wish(grant, held=grant.skill in held, find=find) for grant in system.grants]
    return set_grants(connection, system.name, wishes)


def _top_down(teams: tuple[DeclaredTeam, ...]) -> list[DeclaredTeam]:
    """Origins before the teams spawned from them, so that a grant below finds the one above."""
    home = {system.name: team for team in teams for system in team.systems}

    def depth(team: DeclaredTeam) -> int:
        above = home.get(team.origin or "")
        return 0 if above is None else depth(above) + 1

    return sorted(teams, key=depth)


def apply_policy(connection: Connection, policy: Policy, *, find: Finder, prune: bool = False) -> Changes:
    """Make the state what the policy says, inside the caller's transaction, and return what changed."""
    snapshot = load_snapshot(connection)
    leavers = _leavers(policy, snapshot)
    changes: Changes = ()
    for team in policy.teams:
        with _at(policy, team.line):
            changes += _loosen(connection, team, snapshot, leavers=leavers)
    for name in sorted(set(snapshot.teams) - {team.name for team in policy.teams}) if prune else ():
        changes += remove_team(connection, name, cascade=True)
    for name, line in leavers.items():
        with _at(policy, line):
            changes += remove_system(connection, name)
    for team in policy.teams:
        with _at(policy, team.line):
            changes += _make(connection, team)
    for team in policy.teams:
        for system in team.systems:
            with _at(policy, system.line):
                changes += _populate(connection, team, system)
    for team in _top_down(policy.teams):
        with _at(policy, team.line):
            changes += _bound(connection, team)
    for team in _top_down(policy.teams):
        for system in team.systems:
            with _at(policy, system.line):
                changes += _grant(connection, system, find)
    return changes
