"""The state as a policy file, and as Casbin lines that a stock enforcer decides alike with."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from skillexec.permissions.facts import Link
from skillexec.permissions.lines import Line, lines_for, source_lines
from skillexec.permissions.policy_file import VERSION
from skillexec.permissions.snapshot import Grant, Snapshot, System, Team


def _grant(grant: Grant) -> dict[str, str]:
    pin = {"pin": grant.pin} if grant.pin else {}
    return {"skill": grant.skill, "source": grant.source, **pin}


def _system(system: System) -> dict[str, Any]:
    disabled = {"disabled": True} if system.disabled else {}
    return {**disabled, "grants": [_grant(grant) for grant in system.grants]}


def _team(team: Team) -> dict[str, Any]:
    document: dict[str, Any] = {"root": True} if team.root else {}
    if team.disabled:
        document["disabled"] = True
    if team.origin is not None:
        document["recursed"] = {"origin": team.origin, "inherit": team.inherit}
    elif not team.root:
        document["envelope"] = list(team.envelope)
    document["systems"] = {system.name: _system(system) for system in team.systems}
    return document


def as_yaml(snapshot: Snapshot) -> str:
    """A policy file that declares exactly this state."""
    import yaml

    document = {"version": VERSION, "teams": {team.name: _team(team) for team in snapshot.teams.values()}}
    return str(yaml.safe_dump(document, sort_keys=False, default_flow_style=False, width=110))


def _link(snapshot: Snapshot, system: System, skill: str) -> Link:
    team = snapshot.teams[system.team]
    grant = next((grant for grant in system.grants if grant.skill == skill), None)
    return Link(
        system=system.name,
        system_disabled=system.disabled,
        team=team.name,
        team_disabled=team.disabled,
        is_root=team.root,
        origin=team.origin,
        inherit=team.inherit,
        in_envelope=skill in team.envelope,
        source=grant.source if grant else None,
        pin=grant.pin if grant else None,
    )


def _concerned(snapshot: Snapshot, system: System) -> Iterator[str]:
    """The skills that a decision about the system can turn on: its own grants, and those that it may inherit."""
    team = snapshot.teams[system.team]
    yield from (grant.skill for grant in system.grants)
    if team.origin is not None and team.inherit:
        yield from _concerned(snapshot, snapshot.systems[team.origin])


def casbin_lines(snapshot: Snapshot) -> list[Line]:
    """Every line that any decision is taken from, each once."""
    lines = dict.fromkeys(source_lines())
    for system in snapshot.systems.values():
        for skill in _concerned(snapshot, system):
            lines.update(dict.fromkeys(lines_for(_link(snapshot, system, skill), skill)))
    return list(lines)


def as_casbin(lines: Iterable[Line]) -> str:
    """The lines as a Casbin policy file. No value can hold a comma, a quote or a line end (names.py)."""
    return "".join(f"{', '.join((key, *values))}\n" for key, values in sorted(lines))
