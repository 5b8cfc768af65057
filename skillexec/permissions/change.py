"""What a change of permissions really changed: said once to the operator and once to the audit log."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

Value = str | int | bool | None

_WORDS = {
    "team.added": "+ team {team}",
    "team.removed": "- team {team}",
    "team.recursed": "~ team {team} spawned from {origin}",
    "team.detached": "~ team {team} no longer spawned from {origin}",
    "team.rooted": "~ team {team} is the root team",
    "team.unrooted": "~ team {team} is no longer the root team",
    "team.disabled": "~ team {team} disabled",
    "team.enabled": "~ team {team} enabled",
    "system.added": "+ system {system} of team {team}",
    "system.removed": "- system {system} of team {team}",
    "system.disabled": "~ system {system} disabled",
    "system.enabled": "~ system {system} enabled",
    "envelope.added": "+ envelope of {team}: {skill}",
    "envelope.removed": "- envelope of {team}: {skill}",
    "grant.added": "+ grant to {system}: {skill}",
    "grant.revoked": "- grant to {system}: {skill}",
    "grant.pinned": "~ grant to {system}: {skill} pinned to {pin}",
    "grant.unpinned": "~ grant to {system}: {skill} no longer pinned",
    "grant.sourced": "~ grant to {system}: {skill} now covers {source}",
    "approval.added": "+ approval for {system}: {skill} as {digest}",
    "approval.revoked": "- approval for {system}: {skill} as {digest}",
    "secret.mapped": "+ secret {secret}{scope}",
    "secret.unmapped": "- secret {secret}{scope}",
}


@dataclass(frozen=True, slots=True)
class Change:
    """One change: its event name, whom it concerns, and details. `data` holds names and digests, never values."""

    event: str
    team: str | None = None
    system: str | None = None
    skill: str | None = None
    data: Mapping[str, Value] = field(default_factory=dict)

    def __str__(self) -> str:
        """One line of a diff."""
        scope = "".join(
            f" for {kind} {name}" for kind, name in (("team", self.team), ("skill", self.skill)) if name
        )
        words = {"team": self.team, "system": self.system, "skill": self.skill, "scope": scope, **self.data}
        return _WORDS[self.event].format_map(words)

    def because(self, event: str) -> Change:
        """The same change, brought about by another."""
        return replace(self, data={**self.data, "cause": event})

    def as_json(self) -> dict[str, object]:
        subject = {"team": self.team, "system": self.system, "skill": self.skill}
        return {
            "event": self.event,
            **{key: value for key, value in subject.items() if value},
            "data": dict(self.data),
        }


Changes = tuple[Change, ...]
