"""Random operations against a plain model of DESIGN 5, written apart from the code: every decision agrees.

At the end of each history a stock Casbin enforcer, with the shipped model and our export, agrees too.
"""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import casbin
import hypothesis.strategies as st
from hypothesis import HealthCheck, settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from sqlalchemy import Connection

from skillexec.errors import Refused, Usage
from skillexec.model import Rule, Source
from skillexec.permissions import grants, teams
from skillexec.permissions.decision import Decider, model_file
from skillexec.permissions.grants import Wish
from skillexec.permissions.policy_apply import apply_policy
from skillexec.permissions.policy_export import as_casbin, as_yaml, casbin_lines
from skillexec.permissions.policy_file import parse_policy
from skillexec.permissions.snapshot import load_snapshot
from skillexec.state import State

TEAMS = ["red", "green", "blue"]
SYSTEMS = ["one", "two", "three", "four"]
SKILLS = ["a", "b", "c", "d", "e", "f"]
DIGESTS = ["sha256:" + digit * 64 for digit in "01"]
SOURCES = [Source.BUILTIN, Source.USER]

a_team, a_system = st.sampled_from(TEAMS), st.sampled_from(SYSTEMS)
some_skills = st.lists(st.sampled_from(SKILLS), min_size=1, max_size=6, unique=True)
a_pin = st.sampled_from([None, None, *DIGESTS])
a_source = st.sampled_from(SOURCES)


@dataclass
class TeamModel:
    root: bool = False
    disabled: bool = False
    origin: str | None = None
    inherit: bool = True
    envelope: set[str] = field(default_factory=set)


@dataclass
class SystemModel:
    team: str
    disabled: bool = False
    grants: dict[str, tuple[Source, str | None]] = field(default_factory=dict)


class Model:
    """Section 5 as one would say it, with no thought for speed."""

    def __init__(self) -> None:
        self.teams: dict[str, TeamModel] = {}
        self.systems: dict[str, SystemModel] = {}

    def denial(self, name: str, skill: str, digest: str | None, source: Source | None) -> Rule | None:
        """Why not; None: allowed."""
        if name not in self.systems:
            return Rule.UNKNOWN_SYSTEM
        system = self.systems[name]
        team = self.teams[system.team]
        if team.origin is not None:
            above = self.denial(team.origin, skill, digest, source)
            if above is not None:
                return Rule.RECURSION if above in (Rule.TEAM_ENVELOPE, Rule.SYSTEM_GRANT) else above
        if team.disabled or system.disabled:
            return Rule.DISABLED
        if team.origin is None and not team.root and skill not in team.envelope:
            return Rule.TEAM_ENVELOPE
        if skill not in system.grants:
            return None if team.origin is not None and team.inherit else Rule.SYSTEM_GRANT
        covered, pin = system.grants[skill]
        if source is not None and source.rank > covered.rank:
            return Rule.SOURCE_CHANGED
        return Rule.DIGEST_CHANGED if digest is not None and pin not in (None, digest) else None

    def grantable(self, name: str, skill: str) -> bool:
        """Whether the bounds above hold the skill, were everything enabled."""
        team = self.teams[self.systems[name].team]
        if team.origin is None:
            return team.root or skill in team.envelope
        origin = self.systems[team.origin]
        held = skill in origin.grants or (
            self.teams[origin.team].origin is not None and self.teams[origin.team].inherit
        )
        return held and self.grantable(team.origin, skill)

    def descent(self, name: str) -> list[str]:
        """The teams from a system's own up to the top."""
        team = self.systems[name].team
        origin = self.teams[team].origin
        return [team] + (self.descent(origin) if origin else [])

    def remove_system(self, name: str) -> None:
        for team in [key for key, value in self.teams.items() if value.origin == name]:
            self.remove_team(team)
        del self.systems[name]

    def remove_team(self, name: str) -> None:
        for system in [key for key, value in self.systems.items() if value.team == name]:
            if system in self.systems:
                self.remove_system(system)
        del self.teams[name]


class Permissions(RuleBasedStateMachine):
    """Both sides of one history. One transaction carries it, and is taken back at the end."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.state = State.open(Path(self.folder.name) / "state.db", create=True)
        self.writing = self.state.write()
        self.connection: Connection = self.writing.__enter__()
        self.decider = Decider()
        self.model = Model()

    def teardown(self) -> None:
        try:
            self.check_a_stock_enforcer()
            self.check_the_export_applies_to_nothing()
        finally:
            self.connection.exec_driver_sql("ROLLBACK")
            self.connection.exec_driver_sql("BEGIN")
            self.writing.__exit__(None, None, None)
            self.state.close()
            self.folder.cleanup()

    def attempt(self, expected: bool, operation: Callable[..., Any], *args: Any, **named: Any) -> None:
        """Do it for real, in a savepoint as it would be in a transaction; it must be refused as the model says."""
        self.connection.exec_driver_sql("SAVEPOINT attempt")
        try:
            operation(self.connection, *args, **named)
        except (Refused, Usage) as error:
            self.connection.exec_driver_sql("ROLLBACK TO attempt")
            assert not expected, error.message
        else:
            assert expected, f"{operation.__name__}{args} {named} was not refused"

    @initialize(populated=st.booleans())
    def begin(self, populated: bool) -> None:
        """Half of the histories start from nothing, half from a chain of three teams with grants."""
        if not populated:
            return
        self.add_team("red", root=False)
        self.add_to_envelope("red", SKILLS)
        self.add_system("one", "red")
        self.add_grants("one", SKILLS[:3], Source.USER, None)
        self.recurse("green", "one", inherit=True)
        self.add_system("two", "green")
        self.recurse("blue", "two", inherit=False)
        self.add_system("three", "blue")
        self.add_grants("three", SKILLS[:2], Source.USER, DIGESTS[0])

    @rule(name=a_team, root=st.booleans())
    def add_team(self, name: str, root: bool) -> None:
        known = self.model.teams.get(name)
        fine = not root or (known.root if known else not any(team.root for team in self.model.teams.values()))
        self.attempt(fine, teams.add_team, name, root=root)
        if fine:
            self.model.teams.setdefault(name, TeamModel(root=root))

    @rule(name=a_system, team=a_team)
    def add_system(self, name: str, team: str) -> None:
        known = self.model.systems.get(name)
        fine = team in self.model.teams and (known is None or known.team == team)
        self.attempt(fine, teams.add_system, name, team=team)
        if fine:
            self.model.systems.setdefault(name, SystemModel(team))

    @rule(team=a_team, origin=a_system, inherit=st.booleans())
    def recurse(self, team: str, origin: str, inherit: bool) -> None:
        known = self.model.teams.get(team)
        fine = origin in self.model.systems and not (known and known.root)
        same = known is not None and (known.origin, known.inherit) == (origin, inherit)
        fine = fine and (same or team not in self.model.descent(origin))
        self.attempt(fine, teams.recurse, team, origin=origin, inherit=inherit)
        if fine:
            made = self.model.teams.setdefault(team, TeamModel())
            made.origin, made.inherit, made.envelope = origin, inherit, set()

    @rule(team=a_team)
    def detach(self, team: str) -> None:
        fine = team in self.model.teams
        self.attempt(fine, teams.detach, team)
        if fine:
            found = self.model.teams[team]
            members = [each for each in self.model.systems.values() if each.team == team]
            for member in members if found.origin is not None else ():
                member.grants.clear()
            found.origin, found.inherit = None, True

    @rule(team=a_team, skills=some_skills)
    def add_to_envelope(self, team: str, skills: list[str]) -> None:
        known = self.model.teams.get(team)
        fine = known is not None and not known.root and known.origin is None
        self.attempt(fine, grants.add_to_envelope, team, skills)
        if known is not None and fine:
            known.envelope.update(skills)

    @rule(team=a_team, skills=some_skills)
    def remove_from_envelope(self, team: str, skills: list[str]) -> None:
        known = self.model.teams.get(team)
        fine = known is not None and not known.root and known.origin is None
        self.attempt(fine, grants.remove_from_envelope, team, skills)
        if known is None or not fine:
            return
        gone = known.envelope & set(skills)
        known.envelope -= gone
        for system in self.model.systems.values():
            if system.team == team:
                system.grants = {skill: grant for skill, grant in system.grants.items() if skill not in gone}

    @rule(system=a_system, skills=some_skills, source=a_source, pin=a_pin)
    def add_grants(self, system: str, skills: list[str], source: Source, pin: str | None) -> None:
        known = self.model.systems.get(system)
        held = known.grants if known else {}
        new = [skill for skill in skills if skill not in held]
        fine = known is not None and len(held) + len(new) <= 5
        fine = fine and all(self.model.grantable(system, skill) for skill in new)
        self.attempt(
            fine, grants.add_grants, system, [Wish(skill, source=source, pin=pin) for skill in skills]
        )
        if fine:
            held.update({skill: (source, pin or held.get(skill, (source, None))[1]) for skill in skills})

    @rule(system=a_system, skills=some_skills)
    def remove_grants(self, system: str, skills: list[str]) -> None:
        known = self.model.systems.get(system)
        self.attempt(known is not None, grants.remove_grants, system, skills)
        for skill in skills if known else ():
            known.grants.pop(skill, None)  # type: ignore[union-attr]

    @rule(team=a_team, system=a_system, off=st.booleans(), whole=st.booleans())
    def disable(self, team: str, system: str, off: bool, whole: bool) -> None:
        found = self.model.teams.get(team) if whole else self.model.systems.get(system)
        operation = teams.set_team_disabled if whole else teams.set_system_disabled
        self.attempt(found is not None, operation, team if whole else system, off)
        if found is not None:
            found.disabled = off

    @rule(system=a_system, cascade=st.booleans())
    def remove_system(self, system: str, cascade: bool) -> None:
        spawned = any(team.origin == system for team in self.model.teams.values())
        self.attempt(cascade or not spawned, teams.remove_system, system, cascade=cascade)
        if system in self.model.systems and (cascade or not spawned):
            self.model.remove_system(system)

    @rule(team=a_team, cascade=st.booleans())
    def remove_team(self, team: str, cascade: bool) -> None:
        peopled = any(system.team == team for system in self.model.systems.values())
        self.attempt(cascade or not peopled, teams.remove_team, team, cascade=cascade)
        if team in self.model.teams and (cascade or not peopled):
            self.model.remove_team(team)

    def questions(self) -> list[tuple[str, str, str, Source]]:
        return list(itertools.product(SYSTEMS, SKILLS, DIGESTS, SOURCES))

    @invariant()
    def every_decision_agrees(self) -> None:
        # Four of the ninety-six at a time cover digests and sources; every system and skill each time.
        for number, (system, skill) in enumerate(itertools.product(SYSTEMS, SKILLS)):
            digest, source = DIGESTS[number % 2], SOURCES[number // 2 % 2]
            decision = self.decider.decide(
                self.connection, system=system, skill=skill, digest=digest, source=source
            )
            expected = self.model.denial(system, skill, digest, source)
            assert decision.allowed is (expected is None), decision
            assert decision.allowed or decision.rule == expected, decision

    @invariant()
    def every_listing_agrees(self) -> None:
        for system in SYSTEMS:
            allowed = tuple(skill for skill in SKILLS if self.model.denial(system, skill, None, None) is None)
            assert self.decider.permitted(self.connection, system) == allowed
            assert len(self.model.systems[system].grants if system in self.model.systems else ()) <= 5

    def check_a_stock_enforcer(self) -> None:
        policy = Path(self.folder.name) / "policy.csv"
        policy.write_text(as_casbin(casbin_lines(load_snapshot(self.connection))))
        stock = casbin.Enforcer(str(model_file()), str(policy))
        for system, skill, digest, source in self.questions():
            expected = self.model.denial(system, skill, digest, source) is None
            assert stock.enforce(system, skill, digest, str(source)) is expected, (
                system,
                skill,
                digest,
                source,
            )

    def check_the_export_applies_to_nothing(self) -> None:
        """What is exported is what is there: applied to itself it changes nothing, applied to none it makes all."""
        before = load_snapshot(self.connection)
        text = as_yaml(before)
        if not before.teams:
            return
        policy = parse_policy(text, where="export.yaml")
        assert apply_policy(self.connection, policy, find=lambda _: None, prune=True) == ()
        if not all(
            self.model.grantable(name, skill)
            for name, each in self.model.systems.items()
            for skill in each.grants
        ):
            return  # grants that a revocation above holds back: they are there, and could not be made anew
        for team in list(before.teams):
            teams.remove_team(self.connection, team, cascade=True)
        apply_policy(self.connection, policy, find=lambda _: None)
        assert as_yaml(load_snapshot(self.connection)) == text


Permissions.TestCase.settings = settings(
    max_examples=60, stateful_step_count=30, deadline=None, suppress_health_check=list(HealthCheck)
)
TestPermissions = Permissions.TestCase
