"""The picture of a team: its envelope, its systems, their grants, and the teams spawned from them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from skillexec.cli.tree import Node
from skillexec.errors import Usage

if TYPE_CHECKING:
    from skillexec.admin import Admin
    from skillexec.permissions.snapshot import Snapshot, System, Team

MAX_GRANTS = 5  # schema.MAX_GRANTS, whose import would load SQLAlchemy; a test holds them together


def _names(skills: tuple[str, ...]) -> str:
    return ", ".join(skills) or "nothing"


class Picture:
    """Looks at everything once, and asks the decider what each system really may run."""

    def __init__(self, admin: Admin) -> None:
        self._admin = admin
        self.snapshot: Snapshot = admin.snapshot()

    def team(self, name: str) -> Team:
        if name not in self.snapshot.teams:
            raise Usage(f"no team {name}", hint="`skillexec team list` shows them")
        return self.snapshot.teams[name]

    def system(self, name: str) -> System:
        if name not in self.snapshot.systems:
            raise Usage(f"no system {name}", hint="`skillexec system list` shows them")
        return self.snapshot.systems[name]

    def envelope(self, team: Team) -> tuple[str, ...]:
        """What the team may use at all: its own envelope, or what its origin may run."""
        return team.envelope if team.origin is None else self._admin.permitted(team.origin)

    def permitted(self, system: System) -> tuple[str, ...]:
        return self._admin.permitted(system.name)

    def draw_team(self, team: Team) -> Node:
        kind = {
            "root": "the root team",
            "ordinary": "",
            "recursed": f"spawned from {team.origin}, {'inherits' if team.inherit else 'own grants only'}",
        }
        notes = [note for note in (kind[team.kind], "disabled" if team.disabled else "") if note]
        systems = tuple(self.draw_system(system) for system in team.systems)
        label = f"team {team.name}" + (f" ({'; '.join(notes)})" if notes else "")
        return Node(label, (Node(self._bounds(team)), *(systems or (Node("no systems"),))))

    def _bounds(self, team: Team) -> str:
        if team.root:
            return "envelope: not needed"
        inherited = f" (what {team.origin} may run)" if team.origin else ""
        return f"envelope{inherited}: {_names(self.envelope(team))}"

    def draw_system(self, system: System) -> Node:
        held = tuple(grant.skill + (" (pinned)" if grant.pin else "") for grant in system.grants)
        own = {grant.skill for grant in system.grants}
        allowed = self.permitted(system)
        lines = [Node(f"inherits: {_names(brought)}")] if (brought := self._brought(allowed, own)) else []
        blocked = tuple(sorted(own - set(allowed)))
        if blocked:
            lines.append(Node(f"granted, but may not run now: {_names(blocked)}"))
        spawned = (self.draw_team(team) for team in self.snapshot.spawned.get(system.name, ()))
        state = " (disabled)" if system.disabled else ""
        label = f"system {system.name}{state} {len(held)}/{MAX_GRANTS}: {_names(held)}"
        return Node(label, (*lines, *spawned))

    @staticmethod
    def _brought(allowed: tuple[str, ...], own: set[str]) -> tuple[str, ...]:
        return tuple(skill for skill in allowed if skill not in own)

    def team_document(self, team: Team) -> dict[str, Any]:
        return {
            "name": team.name,
            "kind": team.kind,
            "disabled": team.disabled,
            "origin": team.origin,
            "inherit": team.inherit if team.origin else None,
            "envelope": None if team.root else list(self.envelope(team)),
            "systems": [self.system_document(system) for system in team.systems],
        }

    def system_document(self, system: System) -> dict[str, Any]:
        grants = [
            {"slot": grant.slot, "skill": grant.skill, "source": grant.source, "pin": grant.pin}
            for grant in system.grants
        ]
        return {
            "name": system.name,
            "team": system.team,
            "disabled": system.disabled,
            "grants": grants,
            "permitted": list(self.permitted(system)),
            "spawned": [self.team_document(team) for team in self.snapshot.spawned.get(system.name, ())],
        }
