"""Every rule of DESIGN 5, and its denial. Real SQLite, real Casbin."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from sqlalchemy import delete, insert, text, update

from skillexec import schema
from skillexec.admin import Admin
from skillexec.model import MAX_ORIGINS, Decision, Rule, Source
from skillexec.permissions.decision import Decider, model_file
from skillexec.permissions.explain import Question
from skillexec.permissions.grants import Wish
from skillexec.state import State

OLD = "sha256:" + "0" * 64
NEW = "sha256:" + "1" * 64


@dataclass
class World:
    """team research { planner }, which spawned team scouts { scout }, which spawned team cubs { cub }."""

    state: State
    admin: Admin
    decider: Decider

    def decide(
        self, system: str, skill: str, *, digest: str = OLD, source: Source = Source.BUILTIN
    ) -> Decision:
        with self.state.glance() as connection:
            return self.decider.decide(connection, system=system, skill=skill, digest=digest, source=source)

    def grant(
        self, system: str, skill: str, *, source: Source = Source.BUILTIN, pin: str | None = None
    ) -> None:
        self.admin.add_grants(system, [Wish(skill, source=source, pin=pin)])


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with State.open(tmp_path / "state.db", create=True) as state:
        admin = Admin(state, actor="operator")
        admin.add_team("research")
        admin.add_system("planner", team="research")
        admin.add_to_envelope("research", ["search", "fetch"])
        admin.recurse("scouts", origin="planner")
        admin.add_system("scout", team="scouts")
        admin.recurse("cubs", origin="scout", inherit=False)
        admin.add_system("cub", team="cubs")
        yield World(state, admin, Decider())


def outcome(decision: Decision) -> tuple[bool, Rule]:
    return decision.allowed, decision.rule


def test_a_grant_within_the_envelope_allows(world: World) -> None:
    world.grant("planner", "search")
    decision = world.decide("planner", "search")
    assert outcome(decision) == (True, Rule.SYSTEM_GRANT)
    assert decision.team == "research" and decision.policy.startswith("sha256:")


def test_what_is_in_the_envelope_and_not_granted_is_denied(world: World) -> None:
    decision = world.decide("planner", "search")
    assert outcome(decision) == (False, Rule.SYSTEM_GRANT)
    assert decision.hint == "`skillexec grant add planner search`"


def test_a_grant_outside_the_envelope_is_denied(world: World) -> None:
    """No operation of ours makes such a row; the decision does not rely on that."""
    with world.state.write() as connection:
        connection.execute(
            insert(schema.grants).values(system="planner", slot=1, skill="other", source="builtin")
        )
    decision = world.decide("planner", "other")
    assert outcome(decision) == (False, Rule.TEAM_ENVELOPE)
    assert decision.hint == "`skillexec envelope add research other`"


def test_the_root_team_needs_grants_and_no_envelope(world: World) -> None:
    world.admin.add_team("ops", root=True)
    world.admin.add_system("chief", team="ops")
    assert outcome(world.decide("chief", "anything")) == (False, Rule.SYSTEM_GRANT)
    world.grant("chief", "anything")
    assert outcome(world.decide("chief", "anything")) == (True, Rule.SYSTEM_GRANT)


def test_a_recursed_team_inherits_and_never_exceeds_its_origin(world: World) -> None:
    assert outcome(world.decide("scout", "search")) == (False, Rule.RECURSION)
    world.grant("planner", "search")
    assert outcome(world.decide("scout", "search")) == (True, Rule.RECURSION)
    assert outcome(world.decide("scout", "fetch")) == (False, Rule.RECURSION)


def test_without_inherit_a_recursed_system_needs_its_own_grant_too(world: World) -> None:
    world.grant("planner", "search")
    assert outcome(world.decide("cub", "search")) == (False, Rule.SYSTEM_GRANT)
    world.grant("cub", "search")
    assert outcome(world.decide("cub", "search")) == (True, Rule.RECURSION)


def test_a_revocation_at_the_top_holds_two_teams_below_at_the_next_decision(world: World) -> None:
    world.grant("planner", "search")
    world.grant("cub", "search")
    assert world.decide("cub", "search").allowed
    world.admin.remove_grants("planner", ["search"])
    assert outcome(world.decide("cub", "search")) == (False, Rule.RECURSION)
    world.grant("planner", "search")
    world.admin.remove_from_envelope("research", ["search"])
    assert outcome(world.decide("cub", "search")) == (False, Rule.RECURSION)


@pytest.mark.parametrize("system", ["planner", "scout"])
def test_a_pin_denies_other_bytes_also_below(world: World, system: str) -> None:
    world.grant("planner", "search", pin=OLD)
    assert world.decide(system, "search", digest=OLD).allowed
    decision = world.decide(system, "search", digest=NEW)
    assert outcome(decision) == (False, Rule.DIGEST_CHANGED)
    assert decision.hint.endswith("`skillexec grant add planner search --pin`")


def test_every_pin_on_the_way_down_must_fit(world: World) -> None:
    world.grant("planner", "search", pin=OLD)
    world.grant("cub", "search", pin=NEW)
    assert outcome(world.decide("cub", "search", digest=OLD)) == (False, Rule.DIGEST_CHANGED)
    assert outcome(world.decide("cub", "search", digest=NEW)) == (False, Rule.DIGEST_CHANGED)
    world.grant("cub", "search", pin=OLD)
    assert world.decide("cub", "search", digest=OLD).allowed


def test_a_pin_of_an_inheriting_system_narrows_what_it_inherits(world: World) -> None:
    world.grant("planner", "search")
    world.grant("scout", "search", pin=NEW)
    assert outcome(world.decide("scout", "search", digest=OLD)) == (False, Rule.DIGEST_CHANGED)


@pytest.mark.parametrize("granted", Source)
@pytest.mark.parametrize("found", Source)
def test_a_grant_covers_its_source_and_more_trusted_ones_only(
    world: World, granted: Source, found: Source
) -> None:
    world.grant("planner", "search", source=granted)
    for system, rule in (("planner", Rule.SYSTEM_GRANT), ("scout", Rule.RECURSION)):
        expected = (True, rule) if found.rank <= granted.rank else (False, Rule.SOURCE_CHANGED)
        assert outcome(world.decide(system, "search", source=found)) == expected


def test_disabled_teams_and_systems_are_denied_with_all_below_them(world: World) -> None:
    world.grant("planner", "search")
    switches: list[Callable[[bool], object]] = [
        lambda off: world.admin.set_system_disabled("planner", off),
        lambda off: world.admin.set_team_disabled("research", off),
    ]
    for disable in switches:
        disable(True)
        for system in ("planner", "scout"):
            assert outcome(world.decide(system, "search")) == (False, Rule.DISABLED)
        disable(False)
        assert world.decide("scout", "search").allowed
    world.admin.set_system_disabled("scout", True)
    assert outcome(world.decide("scout", "search")) == (False, Rule.DISABLED)
    assert world.decide("planner", "search").allowed


NAMES = [
    "",
    "a b",
    "planner,x",
    "planner\n",
    'pl"anner',
    "Planner",
    "plаnner",
    "-x",
    "*",
    "x" * 65,
    "планер",
    "a'b",
    "a\0",
]


@pytest.mark.parametrize("name", NAMES)
def test_a_name_that_nothing_can_have_is_denied_and_never_normalised(world: World, name: str) -> None:
    world.grant("planner", "search")
    assert outcome(world.decide(name, "search")) == (False, Rule.UNKNOWN_SYSTEM)
    assert outcome(world.decide("planner", name)) == (False, Rule.UNKNOWN_SKILL)


def test_an_unknown_system_is_denied(world: World) -> None:
    assert outcome(world.decide("nobody", "search")) == (False, Rule.UNKNOWN_SYSTEM)


@pytest.mark.parametrize("digest", ["", "*", "-", "sha256:", OLD.upper(), OLD + "\n", "md5:" + "0" * 32])
def test_a_malformed_digest_is_a_denial_also_where_nothing_is_pinned(world: World, digest: str) -> None:
    world.grant("planner", "search")
    assert outcome(world.decide("planner", "search", digest=digest)) == (False, Rule.ERROR)


def test_a_chain_that_is_cut_off_is_denied(world: World) -> None:
    """A cycle can't be made by our operations; made by hand, it must not be followed for ever, nor allow."""
    world.grant("planner", "search")
    with world.state.write() as connection:
        connection.execute(update(schema.teams).where(schema.teams.c.name == "research").values(origin="cub"))
    decision = world.decide("planner", "search")
    assert outcome(decision) == (False, Rule.RECURSION)
    assert str(MAX_ORIGINS) in decision.reason


def test_the_deepest_chain_that_can_be_made_still_decides(world: World) -> None:
    world.grant("planner", "search")
    origin = "scout"
    for depth in range(MAX_ORIGINS - 1):
        world.admin.recurse(f"deep{depth}", origin=origin)
        origin = f"diver{depth}"
        world.admin.add_system(origin, team=f"deep{depth}")
    assert outcome(world.decide(origin, "search")) == (True, Rule.RECURSION)
    world.admin.remove_grants("planner", ["search"])
    assert outcome(world.decide(origin, "search")) == (False, Rule.RECURSION)


def test_any_failure_while_deciding_is_a_denial_with_its_reason(world: World, tmp_path: Path) -> None:
    world.grant("planner", "search")
    broken = tmp_path / "model.conf"
    for words in (
        "",
        "[request_definition]\nr = a\n",
        model_file().read_text().replace("r.skill ==", "r.nothing =="),
    ):
        broken.write_text(words)
        world.decider = Decider(broken)
        decision = world.decide("planner", "search")
        assert outcome(decision) == (False, Rule.ERROR) and "failed" in decision.reason
    world.decider = Decider(tmp_path / "missing.conf")
    assert outcome(world.decide("planner", "search")) == (False, Rule.ERROR)


def test_a_missing_table_is_a_denial(world: World) -> None:
    world.grant("planner", "search")
    with world.state.write() as connection:
        connection.execute(text("ALTER TABLE grants RENAME TO elsewhere"))
    assert outcome(world.decide("planner", "search")) == (False, Rule.ERROR)


def test_a_model_that_allows_everything_allows_nothing_more(world: World, tmp_path: Path) -> None:
    open_model = tmp_path / "model.conf"
    before, _, _ = model_file().read_text().partition("[matchers]")
    open_model.write_text(before + "[matchers]\nm = r.skill == r.skill\n")
    world.decider = Decider(open_model)
    world.grant("planner", "search", pin=OLD)
    assert world.decide("planner", "search", digest=OLD).allowed
    assert outcome(world.decide("planner", "search", digest=NEW)) == (False, Rule.ERROR)
    assert not world.decide("planner", "fetch").allowed


def test_the_digest_of_the_policy_tells_what_was_decided_from(world: World) -> None:
    world.grant("planner", "search")
    first, again = world.decide("planner", "search"), world.decide("planner", "search")
    assert first.policy == again.policy
    world.grant("planner", "search", pin=OLD)
    assert world.decide("planner", "search").policy != first.policy


def test_the_steps_say_what_holds_and_end_at_what_does_not(world: World) -> None:
    world.grant("planner", "search", pin=OLD)
    explanation = world.admin.explain(Question("scout", "search", NEW, Source.BUILTIN))
    assert [step.ok for step in explanation.steps] == [True] * (len(explanation.steps) - 1) + [False]
    assert explanation.steps[-1].rule == explanation.decision.rule == Rule.DIGEST_CHANGED
    allowed = world.admin.explain(Question("scout", "search", OLD, Source.BUILTIN))
    assert all(step.ok for step in allowed.steps) and allowed.decision.allowed
    assert {step.rule for step in allowed.steps} >= {Rule.TEAM_ENVELOPE, Rule.SYSTEM_GRANT, Rule.RECURSION}


def test_a_listing_names_what_may_run_and_nothing_else(world: World) -> None:
    world.grant("planner", "search", pin=OLD)
    world.grant("planner", "fetch", source=Source.ORG)
    world.grant("cub", "search")
    assert world.admin.permitted("planner") == ("fetch", "search")
    assert world.admin.permitted("scout") == ("fetch", "search")
    assert world.admin.permitted("cub") == ("search",)
    assert world.admin.permitted("nobody") == () == world.admin.permitted("no body")


def test_threads_that_share_a_decider_get_their_own_answers(world: World) -> None:
    """FastEnforcer gave wrong answers here: an enforcer belongs to one thread."""
    world.grant("planner", "search")
    wrong: list[Decision] = []

    def ask(skill: str, expected: bool) -> None:
        decisions = [world.decide("planner", skill) for _ in range(300)]
        wrong.extend(decision for decision in decisions if decision.allowed is not expected)

    threads = [
        threading.Thread(target=ask, args=("search", True) if n % 2 else ("fetch", False)) for n in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_a_decision_sees_the_transaction_that_it_is_made_in(world: World) -> None:
    world.grant("planner", "search")
    with world.state.write() as connection:
        connection.execute(delete(schema.grants))
        assert not world.decider.decide(connection, system="planner", skill="search").allowed
        connection.exec_driver_sql("ROLLBACK")
        connection.exec_driver_sql("BEGIN")
    assert world.decide("planner", "search").allowed
