"""Which secrets a skill gets from where, and whether they can be had: for `skillexec secret check` and the runner."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from skillexec.errors import SecretsMissing
from skillexec.model import Skill
from skillexec.permissions.facts import mapped_for, strongest

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from skillexec.statements import AnyConnection
    from skillexec.vault import Vault


@dataclass(frozen=True, slots=True)
class SecretAnswer:
    """Whether one secret can be had; the problem in words where not. Never a value."""

    name: str
    scope: str
    problem: str


def needed(connection: AnyConnection, skill: Skill, *, team: str) -> dict[str, str | None]:
    """Name -> reference, or none where it is not mapped: what the skill declares and what is bound to it."""
    lines = mapped_for(connection, team=team, skill=skill.name)
    mapped = strongest(lines)
    bound = (line.name for line in lines if line.skill)
    return {name: mapped.get(name) for name in sorted({*skill.required_env, *bound})}


def references(connection: AnyConnection, skill: Skill, *, team: str) -> dict[str, str]:
    """Name -> reference for a run, or SecretsMissing with every name that is not mapped."""
    found = needed(connection, skill, team=team)
    unmapped = tuple(name for name, reference in found.items() if reference is None)
    if unmapped:
        raise SecretsMissing(
            f"{skill.name} needs secrets that are not mapped: {', '.join(unmapped)}",
            hint=f"`skillexec secret map {unmapped[0]} op://VAULT/ITEM/FIELD`",
            names=unmapped,
        )
    return {name: reference for name, reference in found.items() if reference is not None}


def _scope(team: str, skill: str) -> str:
    parts = (f"team {team}" if team else "", f"skill {skill}" if skill else "")
    return ", ".join(part for part in parts if part) or "all"


def check_skill(connection: Connection, vault: Vault, skill: Skill, *, team: str) -> list[SecretAnswer]:
    """Whether each secret of a skill can be had, for a team."""
    found = needed(connection, skill, team=team)
    mapped: Mapping[str, str] = {name: ref for name, ref in found.items() if ref is not None}
    problems = vault.problems(mapped) if mapped else {}
    scope = _scope(team, skill.name)
    return [SecretAnswer(name, scope, problems.get(name, "it is not mapped")) for name in found]


def check_all(connection: Connection, vault: Vault, *, team: str) -> list[SecretAnswer]:
    """Whether each mapping leads to a value; of a team's and everybody's only, where one is named."""
    from skillexec.permissions.references import secret_mappings

    lines = secret_mappings(connection, team=team or None)
    problems = vault.problems({line.reference: line.reference for line in lines}) if lines else {}
    return [
        SecretAnswer(line.name, _scope(line.team, line.skill), problems[line.reference]) for line in lines
    ]
