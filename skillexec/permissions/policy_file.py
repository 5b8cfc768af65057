"""Policies as a file: teams, systems, envelopes and grants in YAML, read strictly, each error with its line."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import yaml

from skillexec.errors import Usage
from skillexec.model import Source
from skillexec.permissions.names import is_digest, is_identifier, is_skill
from skillexec.schema import MAX_GRANTS

VERSION = 1
MAX_BYTES = 4 << 20  # of a file; whoever reads one must not read half of it
_MAX_DEPTH = 16
_MAX_ERRORS = 20
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

_TEAM_KEYS = ("root", "disabled", "recursed", "envelope", "systems")
_SYSTEM_KEYS = ("disabled", "grants")
_RECURSED_KEYS = ("origin", "inherit")
_GRANT_KEYS = ("skill", "source", "pin")


@dataclass(frozen=True, slots=True)
class DeclaredGrant:
    """`source` None: as it is granted now, or else where the skill is found when the file is applied."""

    skill: str
    source: Source | None
    pin: str | None
    line: int


@dataclass(frozen=True, slots=True)
class DeclaredSystem:
    name: str
    disabled: bool
    grants: tuple[DeclaredGrant, ...]
    line: int


@dataclass(frozen=True, slots=True)
class DeclaredTeam:
    name: str
    root: bool
    disabled: bool
    origin: str | None
    inherit: bool
    envelope: tuple[str, ...]
    systems: tuple[DeclaredSystem, ...]
    line: int


@dataclass(frozen=True, slots=True)
class Policy:
    """What a file declares. `where` is the file's name, for messages."""

    where: str
    teams: tuple[DeclaredTeam, ...]


def _line(node: Any) -> int:
    return int(node.start_mark.line) + 1


class _Reader:
    """Turns YAML nodes into values, and keeps every complaint with its line."""

    def __init__(self) -> None:
        self.errors: list[tuple[int, str]] = []

    def complain(self, node: Any, message: str) -> None:
        self.errors.append((_line(node), message))

    def mapping(self, node: Any, what: str) -> Iterator[tuple[str, Any, Any]]:
        """Key, key node and value node of each entry; nothing where it is no mapping."""
        if node.tag == "tag:yaml.org,2002:null":
            return
        if not isinstance(node, yaml.MappingNode):
            self.complain(node, f"{what} is not a mapping")
            return
        seen: set[str] = set()
        for key, value in node.value:
            name = key.value if isinstance(key, yaml.ScalarNode) else ""
            if name in seen:
                self.complain(key, f"{what} has {name!r} twice")
            seen.add(name)
            yield name, key, value

    def record(self, node: Any, what: str, keys: tuple[str, ...]) -> Mapping[str, Any]:
        """The value nodes of a mapping whose keys are known."""
        found: dict[str, Any] = {}
        for name, key, value in self.mapping(node, what):
            if name not in keys:
                self.complain(key, f"{what} has the unknown key {name!r} (known: {', '.join(keys)})")
            found.setdefault(name, value)
        return found

    def items(self, node: Any, what: str) -> list[Any]:
        if node is None or node.tag == "tag:yaml.org,2002:null":
            return []
        if not isinstance(node, yaml.SequenceNode):
            self.complain(node, f"{what} is not a list")
            return []
        return list(node.value)

    def text(self, node: Any, what: str, check: Callable[[str], bool]) -> str:
        value = node.value if isinstance(node, yaml.ScalarNode) else None
        if not isinstance(value, str) or not check(value):
            self.complain(
                node, f"{value!r} can't be {what}" if value is not None else f"{what} is not a text"
            )
            return ""
        return value

    def flag(self, node: Any, what: str, *, default: bool) -> bool:
        if node is None:
            return default
        if node.tag != "tag:yaml.org,2002:bool":
            self.complain(node, f"{what} is not true or false")
            return default
        return str(node.value).lower() in ("true", "yes", "on")

    def distinct(self, pairs: list[tuple[str, Any]], what: str) -> None:
        seen: set[str] = set()
        for name, node in pairs:
            if name and name in seen:
                self.complain(node, f"{what} names {name} twice")
            seen.add(name)


def _grant(reader: _Reader, node: Any, system: str) -> DeclaredGrant:
    if isinstance(node, yaml.ScalarNode):
        return DeclaredGrant(reader.text(node, "a skill", is_skill), None, None, _line(node))
    what = f"a grant of system {system}"
    found = reader.record(node, what, _GRANT_KEYS)
    if "skill" not in found:
        reader.complain(node, f"{what} names no skill")
        return DeclaredGrant("", None, None, _line(node))
    source = (
        reader.text(found["source"], "a source", lambda name: name in list(Source))
        if "source" in found
        else ""
    )
    pin = reader.text(found["pin"], "a pin (sha256: and 64 hex digits)", is_digest) if "pin" in found else ""
    skill = reader.text(found["skill"], "a skill", is_skill)
    return DeclaredGrant(skill, Source(source) if source else None, pin or None, _line(node))


def _system(reader: _Reader, name: str, key: Any, node: Any) -> DeclaredSystem:
    if not is_identifier(name):
        reader.complain(key, f"{name!r} can't be a system")
    found = reader.record(node, f"system {name}", _SYSTEM_KEYS)
    nodes = reader.items(found.get("grants"), f"grants of system {name}")
    grants = tuple(_grant(reader, each, name) for each in nodes)
    reader.distinct(
        [(grant.skill, each) for grant, each in zip(grants, nodes, strict=True)], f"system {name}"
    )
    if len(grants) > MAX_GRANTS:
        reader.complain(
            nodes[MAX_GRANTS], f"system {name} has {len(grants)} grants, and {MAX_GRANTS} is the most"
        )
    disabled = reader.flag(found.get("disabled"), f"disabled of system {name}", default=False)
    return DeclaredSystem(name, disabled, grants, _line(key))


def _recursion(reader: _Reader, node: Any, team: str) -> tuple[str | None, bool]:
    if node is None:
        return None, True
    found = reader.record(node, f"recursed of team {team}", _RECURSED_KEYS)
    if "origin" not in found:
        reader.complain(node, f"recursed of team {team} names no origin")
        return None, True
    origin = reader.text(found["origin"], "a system", is_identifier)
    return origin or None, reader.flag(found.get("inherit"), f"inherit of team {team}", default=True)


def _team(reader: _Reader, name: str, key: Any, node: Any) -> DeclaredTeam:
    if not is_identifier(name):
        reader.complain(key, f"{name!r} can't be a team")
    found = reader.record(node, f"team {name}", _TEAM_KEYS)
    nodes = reader.items(found.get("envelope"), f"envelope of team {name}")
    envelope = tuple(reader.text(each, "a skill", is_skill) for each in nodes)
    reader.distinct(list(zip(envelope, nodes, strict=True)), f"the envelope of team {name}")
    members = reader.mapping(found["systems"], f"systems of team {name}") if "systems" in found else iter(())
    systems = tuple(_system(reader, member, at, value) for member, at, value in members)
    origin, inherit = _recursion(reader, found.get("recursed"), name)
    root = reader.flag(found.get("root"), f"root of team {name}", default=False)
    if envelope and (root or origin):
        kind = "the root team" if root else "a recursed team"
        reader.complain(found["envelope"], f"team {name} is {kind}, which has no envelope of its own")
    if root and origin:
        reader.complain(found["recursed"], f"team {name} is the root team, which has no origin")
    disabled = reader.flag(found.get("disabled"), f"disabled of team {name}", default=False)
    return DeclaredTeam(name, root, disabled, origin, inherit, envelope, systems, _line(key))


def _document(reader: _Reader, node: Any) -> tuple[DeclaredTeam, ...]:
    found = reader.record(node, "the policy", ("version", "teams"))
    if "version" not in found or found["version"].value != str(VERSION):
        reader.complain(found.get("version", node), f"the policy does not say `version: {VERSION}`")
    if "teams" not in found:
        reader.complain(node, "the policy names no teams")
        return ()
    return tuple(
        _team(reader, name, key, value) for name, key, value in reader.mapping(found["teams"], "teams")
    )


def _origins(teams: tuple[DeclaredTeam, ...]) -> Mapping[str, DeclaredTeam]:
    return {system.name: team for team in teams for system in team.systems}


def _is_cyclic(team: DeclaredTeam, home: Mapping[str, DeclaredTeam]) -> bool:
    seen, current = {team.name}, team
    while current.origin is not None and current.origin in home:
        current = home[current.origin]
        if current.name in seen:
            return current.name == team.name
        seen.add(current.name)
    return False


def _conflicts(teams: tuple[DeclaredTeam, ...]) -> Iterator[tuple[int, str]]:
    """What is wrong between the parts, each of which may be right by itself."""
    home = _origins(teams)
    roots = [team for team in teams if team.root]
    yield from ((team.line, f"team {team.name} is a second root team") for team in roots[1:])
    for team in teams:
        if _is_cyclic(team, home):
            yield team.line, f"team {team.name} is spawned, in a cycle, from a system of its own descent"
        for system in team.systems:
            if home[system.name] is not team:
                yield system.line, f"system {system.name} is in team {home[system.name].name} too"
            bounded = not team.root and team.origin is None
            for grant in system.grants:
                if bounded and grant.skill not in team.envelope:
                    yield grant.line, f"{grant.skill} is not in the envelope of team {team.name}"


def _refuse_tricks(text: str, where: str) -> None:
    """Aliases and endless nesting have no place in a policy, and cost more to compose than to see."""
    depth = 0
    for event in yaml.parse(text, Loader=_LOADER):
        if isinstance(event, yaml.AliasEvent):
            raise Usage(f"{where}:{_line(event)}: aliases are refused", hint="nothing was applied")
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > _MAX_DEPTH:
            raise Usage(f"{where}:{_line(event)}: nested too deep", hint="nothing was applied")


def _compose(text: str, where: str) -> Any:
    try:
        _refuse_tricks(text, where)
        return yaml.compose(text, Loader=_LOADER)
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise Usage(f"{where}:{line}: {error.problem}", hint="nothing was applied") from error
    except yaml.YAMLError as error:
        raise Usage(f"{where}:1: {error}", hint="nothing was applied") from error


def parse_policy(text: str, *, where: str) -> Policy:
    """Read a policy, or say everything that is wrong with it, each with file and line."""
    node = _compose(text, where)
    if node is None:
        raise Usage(f"{where}:1: the policy is empty", hint="`skillexec policy export` shows how one looks")
    reader = _Reader()
    teams = _document(reader, node)
    errors = sorted([*reader.errors, *(() if reader.errors else _conflicts(teams))])
    if errors:
        lines = [f"{where}:{line}: {message}" for line, message in errors[:_MAX_ERRORS]]
        raise Usage("\n".join(lines), hint="nothing was applied")
    return Policy(where, teams)
