"""Everything at once, as values: for pictures, listings and exports. Decisions never read this."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from sqlalchemy import Connection, select

from skillexec.schema import envelopes, grants, systems, teams


@dataclass(frozen=True, slots=True)
class Grant:
    slot: int
    skill: str
    source: str
    pin: str | None


@dataclass(frozen=True, slots=True)
class System:
    name: str
    team: str
    disabled: bool
    grants: tuple[Grant, ...]


@dataclass(frozen=True, slots=True)
class Team:
    """A team with its systems. `origin` is None where it was not spawned; `envelope` is its own."""

    name: str
    root: bool
    disabled: bool
    origin: str | None
    inherit: bool
    envelope: tuple[str, ...]
    systems: tuple[System, ...]

    @property
    def kind(self) -> str:
        return "root" if self.root else "recursed" if self.origin else "ordinary"


@dataclass(frozen=True)
class Snapshot:
    """All teams, by name."""

    teams: Mapping[str, Team]

    @cached_property
    def systems(self) -> Mapping[str, System]:
        return {system.name: system for team in self.teams.values() for system in team.systems}

    @cached_property
    def spawned(self) -> Mapping[str, tuple[Team, ...]]:
        """System -> the teams that were spawned from it."""
        found: dict[str, list[Team]] = defaultdict(list)
        for team in self.teams.values():
            if team.origin is not None:
                found[team.origin].append(team)
        return {origin: tuple(members) for origin, members in found.items()}


def _grants(connection: Connection) -> Mapping[str, list[Grant]]:
    found: dict[str, list[Grant]] = defaultdict(list)
    for row in connection.execute(select(grants).order_by(grants.c.system, grants.c.slot)):
        found[row.system].append(Grant(row.slot, row.skill, row.source, row.pin))
    return found


def _systems(connection: Connection) -> Mapping[str, list[System]]:
    held = _grants(connection)
    found: dict[str, list[System]] = defaultdict(list)
    for row in connection.execute(select(systems).order_by(systems.c.name)):
        found[row.team].append(System(row.name, row.team, bool(row.disabled), tuple(held.get(row.name, ()))))
    return found


def _envelopes(connection: Connection) -> Mapping[str, list[str]]:
    found: dict[str, list[str]] = defaultdict(list)
    for row in connection.execute(select(envelopes).order_by(envelopes.c.team, envelopes.c.skill)):
        found[row.team].append(row.skill)
    return found


def load_snapshot(connection: Connection) -> Snapshot:
    """The whole of the permissions, consistent where the connection is in a transaction."""
    members, bounds = _systems(connection), _envelopes(connection)
    return Snapshot(
        {
            row.name: Team(
                name=row.name,
                root=bool(row.is_root),
                disabled=bool(row.disabled),
                origin=row.origin,
                inherit=bool(row.inherit),
                envelope=tuple(bounds.get(row.name, ())),
                systems=tuple(members.get(row.name, ())),
            )
            for row in connection.execute(select(teams).order_by(teams.c.name))
        }
    )
