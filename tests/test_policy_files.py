"""Policies as files: read strictly, planned exactly, applied once, exported for Casbin."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import casbin
import pytest

from skillexec.admin import Admin
from skillexec.audit.query import Filter, stream
from skillexec.errors import Refused, Usage
from skillexec.model import Source
from skillexec.permissions.change import Changes
from skillexec.permissions.decision import model_file
from skillexec.permissions.explain import Question
from skillexec.permissions.grants import Wish
from skillexec.permissions.policy_file import parse_policy
from skillexec.shipped import shipped
from skillexec.state import State

DIGEST = "sha256:" + "c" * 64
EXAMPLES = sorted(shipped("policies").glob("*.yaml"))
BASE = """\
version: 1
teams:
  research:
    envelope: [alpha, beta, gamma]
    systems:
      planner:
        grants: [alpha, {skill: beta, source: org}]
      writer: {}
  scouts:
    recursed: {origin: planner, inherit: false}
    systems:
      scout:
        grants: [alpha]
"""


@pytest.fixture
def state(tmp_path: Path) -> Iterator[State]:
    with State.open(tmp_path / "state.db", create=True) as opened:
        yield opened


@pytest.fixture
def admin(state: State) -> Admin:
    return Admin(state, actor="olga")


def builtin(_name: str) -> Source | None:
    return Source.BUILTIN


def apply(admin: Admin, text: str, *, prune: bool = False) -> Changes:
    return admin.apply(parse_policy(text, where="p.yaml"), digest=DIGEST, find=builtin, prune=prune)


def plan(admin: Admin, text: str, *, prune: bool = False) -> Changes:
    return admin.plan(parse_policy(text, where="p.yaml"), find=builtin, prune=prune)


def records(state: State) -> int:
    with state.read() as connection:
        return sum(1 for _ in stream(connection, Filter()))


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.name)
def test_the_shipped_examples_apply_once_and_decide(admin: Admin, example: Path) -> None:
    text = example.read_text()
    assert apply(admin, text)
    assert apply(admin, text) == ()
    snapshot = admin.snapshot()
    enabled = [each for each in snapshot.systems.values() if each.grants and not each.disabled]
    assert enabled
    for system in enabled:
        assert set(admin.permitted(system.name)) >= {grant.skill for grant in system.grants}


def test_there_are_examples() -> None:
    assert {example.name for example in EXAMPLES} >= {"research.yaml", "recursion.yaml", "pinned.yaml"}


def test_a_plan_is_what_apply_then_does_and_changes_nothing_itself(admin: Admin, state: State) -> None:
    before = records(state)
    planned = plan(admin, BASE)
    assert admin.snapshot().teams == {} and records(state) == before
    assert apply(admin, BASE) == planned
    assert [str(change) for change in planned][:2] == ["+ team research", "+ team scouts"]
    assert plan(admin, BASE) == ()


def test_applying_twice_changes_and_records_nothing(admin: Admin, state: State) -> None:
    changes = apply(admin, BASE)
    recorded = records(state)
    assert recorded == len(changes) + 1  # and one that names the policy
    assert apply(admin, BASE) == () and records(state) == recorded
    with state.read() as connection:
        last = list(stream(connection, Filter()))[-1]
    assert (last.event, last.actor, last.data["policy"], last.data["added"]) == (
        "policy.applied",
        "olga",
        DIGEST,
        sum(str(change).startswith("+") for change in changes),
    )


def test_a_file_is_the_whole_truth_about_the_teams_that_it_names_and_only_those(admin: Admin) -> None:
    admin.add_team("other")
    admin.add_system("bystander", team="other")
    apply(admin, BASE)
    admin.add_system("stray", team="research")
    admin.add_to_envelope("research", ["delta"])
    admin.add_grants("planner", [Wish("gamma", source=Source.USER)])
    admin.add_grants("planner", [Wish("alpha", pin=DIGEST)])
    undone = {str(change) for change in apply(admin, BASE)}
    assert undone == {
        "- system stray of team research",
        "- envelope of research: delta",
        "- grant to planner: gamma",
        "~ grant to planner: alpha no longer pinned",
    }
    assert "other" in admin.snapshot().teams


def test_prune_removes_the_teams_that_the_file_does_not_name(admin: Admin) -> None:
    apply(admin, BASE)
    admin.add_team("other")
    admin.add_system("bystander", team="other")
    assert [str(change) for change in plan(admin, BASE, prune=True)] == [
        "- system bystander of team other",
        "- team other",
    ]
    apply(admin, BASE, prune=True)
    assert sorted(admin.snapshot().teams) == ["research", "scouts"]


def test_a_source_that_the_file_leaves_open_is_looked_up_once_and_then_kept(admin: Admin) -> None:
    """Otherwise applying a reviewed file again would approve whatever the skill has become."""
    apply(admin, BASE)
    policy = parse_policy(BASE, where="p.yaml")
    assert admin.apply(policy, digest=DIGEST, find=lambda _: Source.THIRD_PARTY) == ()
    assert admin.snapshot().systems["planner"].grants[0].source == "builtin"


def test_a_skill_that_is_not_found_and_names_no_source_is_refused_with_its_line(admin: Admin) -> None:
    with pytest.raises(Usage, match=r"p.yaml:6: where does alpha come from") as problem:
        admin.apply(parse_policy(BASE, where="p.yaml"), digest=DIGEST, find=lambda _: None)
    assert "--source" in problem.value.hint and admin.snapshot().teams == {}


def test_teams_can_be_turned_upside_down_in_one_file(admin: Admin) -> None:
    """scouts becomes ordinary and the origin of research: on the way there must be no cycle, no refusal."""
    apply(admin, BASE)
    turned = """\
version: 1
teams:
  research:
    recursed: {origin: scout}
    systems: {planner: {}, writer: {}}
  scouts:
    envelope: [alpha]
    systems: {scout: {grants: [alpha]}}
"""
    apply(admin, turned)
    assert admin.permitted("planner") == ("alpha",)
    assert apply(admin, turned) == ()
    apply(admin, BASE)
    assert admin.permitted("planner") == ("alpha", "beta") and apply(admin, BASE) == ()


def test_a_system_may_move_and_the_root_team_may_change_by_file(admin: Admin) -> None:
    first = "version: 1\nteams: {one: {root: true, systems: {a: {grants: [alpha]}}}, two: {systems: {b: }}}\n"
    second = (
        "version: 1\nteams: {one: {systems: {b: }}, two: {root: true, systems: {a: {grants: [alpha]}}}}\n"
    )
    apply(admin, first)
    apply(admin, second)
    assert admin.snapshot().systems["a"].team == "two" and admin.permitted("a") == ("alpha",)
    assert apply(admin, second) == ()


def test_an_origin_that_leaves_while_another_takes_its_place_is_no_problem(admin: Admin) -> None:
    apply(admin, BASE)
    moved = BASE.replace("      planner:\n", "      lead:\n").replace("origin: planner", "origin: lead")
    apply(admin, moved)
    assert sorted(admin.snapshot().systems) == ["lead", "scout", "writer"]


def test_an_origin_may_move_to_another_team_and_what_it_spawned_follows(admin: Admin) -> None:
    apply(admin, BASE)
    there = "  command:\n    envelope: [alpha]\n    systems:\n      planner: {grants: [alpha]}\n"
    planner = "      planner:\n        grants: [alpha, {skill: beta, source: org}]\n"
    moved = BASE.replace(planner, "") + there
    changes = [str(change) for change in apply(admin, moved)]
    assert "- system planner of team research" in changes and "+ system planner of team command" in changes
    assert "~ team scouts spawned from planner" in changes
    assert admin.permitted("scout") == ("alpha",)
    assert apply(admin, moved) == ()


def test_a_system_that_other_teams_depend_on_is_not_removed_by_omission(admin: Admin) -> None:
    apply(admin, BASE)
    admin.recurse("apart", origin="writer")
    with pytest.raises(Refused, match=r"p.yaml:3: .*apart"):
        apply(admin, BASE.replace("      writer: {}\n", ""))
    assert "writer" in admin.snapshot().systems


BAD = [
    ("version: 2\nteams: {}\n", 1, "version: 1"),
    ("teams: {}\n", 1, "version: 1"),
    ("version: 1\n", 1, "names no teams"),
    ("version: 1\nteams: {}\nextra: 1\n", 3, "unknown key 'extra'"),
    (BASE.replace("envelope:", "envelop:", 1), 4, "unknown key 'envelop'"),
    (BASE.replace("      writer: {}", "      planner: {}"), 8, "'planner' twice"),
    (BASE.replace("  scouts:", "  research:"), 9, "'research' twice"),
    (BASE.replace("      scout:", "      planner:"), 6, "system planner is in team scouts too"),
    (BASE.replace("[alpha, beta, gamma]", "[alpha, beta, alpha]"), 4, "names alpha twice"),
    (BASE.replace("[alpha, {skill: beta, source: org}]", "[alpha, alpha]"), 7, "names alpha twice"),
    (BASE.replace("[alpha, {skill: beta, source: org}]", "[alpha, delta]"), 7, "not in the envelope"),
    (BASE.replace("source: org", "source: friend"), 7, "'friend' can't be a source"),
    (BASE.replace("source: org", "pin: md5"), 7, "'md5' can't be a pin"),
    (BASE.replace("source: org", "colour: red"), 7, "unknown key 'colour'"),
    (BASE.replace("inherit: false", "inherit: maybe"), 10, "not true or false"),
    (BASE.replace("{origin: planner, inherit: false}", "{inherit: false}"), 10, "names no origin"),
    (BASE.replace("{origin: planner, inherit: false}", "{origin: scout}"), 9, "cycle"),
    (BASE.replace("envelope: [alpha, beta, gamma]", "recursed: {origin: scout}"), 3, "cycle"),
    (BASE.replace("    recursed:", "    envelope: [alpha]\n    recursed:"), 10, "no envelope of its own"),
    (BASE.replace("    recursed:", "    root: true\n    recursed:"), 11, "has no origin"),
    ("version: 1\nteams:\n  one: {root: true}\n  two: {root: true}\n", 4, "second root"),
    ("version: 1\nteams:\n  'a,b': {}\n", 3, "'a,b' can't be a team"),
    ("version: 1\nteams:\n  a:\n    systems: {'b\\nc': {}}\n", 4, "can't be a system"),
    ("version: 1\nteams:\n  a:\n    systems: [b]\n", 4, "not a mapping"),
    ("version: 1\nteams:\n  a:\n    envelope: b\n", 4, "not a list"),
    ("version: 1\nteams:\n  a:\n    envelope: [[b]]\n", 4, "not a text"),
    ("version: 1\nteams:\n  a: &x {}\n  b: *x\n", 4, "aliases"),
    ("version: 1\nteams: " + "[" * 40 + "]" * 40 + "\n", 2, "nested too deep"),
    ("version: 1\nteams: {\n", 3, "expected"),
    ("", 1, "empty"),
    (
        "version: 1\nteams:\n  a: {systems: {b: {grants: [a, b, c, d, e, f]}}, root: true}\n",
        3,
        "has 6 grants",
    ),
]


@pytest.mark.parametrize(("text", "line", "words"), BAD, ids=[words for _, _, words in BAD])
def test_what_is_wrong_is_named_with_file_and_line_and_nothing_is_applied(
    admin: Admin, text: str, line: int, words: str
) -> None:
    with pytest.raises(Usage) as problem:
        apply(admin, text)
    found = [each for each in problem.value.message.splitlines() if each.startswith(f"p.yaml:{line}: ")]
    assert any(words in each for each in found), problem.value.message
    assert admin.snapshot().teams == {}


def test_every_mistake_is_told_at_once() -> None:
    with pytest.raises(Usage) as problem:
        parse_policy(
            BASE.replace("envelope:", "envelop:").replace("inherit: false", "inherit: 7"), where="p.yaml"
        )
    assert [line.split(": ")[0] for line in problem.value.message.splitlines()] == ["p.yaml:4", "p.yaml:10"]


def test_what_only_the_state_can_refuse_is_refused_with_file_and_line(admin: Admin) -> None:
    admin.add_team("elsewhere")
    admin.add_system("planner", team="elsewhere")
    with pytest.raises(Refused, match=r"p.yaml:6: system planner belongs to team elsewhere"):
        apply(admin, BASE)
    assert list(admin.snapshot().teams) == ["elsewhere"]
    with pytest.raises(Usage, match=r"p.yaml:3: no system ghost"):
        apply(admin, "version: 1\nteams:\n  late:\n    recursed: {origin: ghost}\n")


def test_an_export_is_a_policy_that_changes_nothing(admin: Admin) -> None:
    apply(admin, BASE)
    admin.set_system_disabled("writer", True)
    admin.set_team_disabled("scouts", True)
    admin.add_grants("planner", [Wish("gamma", source=Source.USER, pin=DIGEST)])
    text = admin.export_yaml()
    assert apply(admin, text, prune=True) == ()
    apply(admin, "version: 1\nteams: {}\n", prune=True)
    apply(admin, text)
    assert admin.export_yaml() == text


def test_names_that_yaml_would_read_as_something_else_survive_an_export(admin: Admin) -> None:
    admin.add_team("1.0", root=True)
    admin.add_system("null", team="1.0")
    admin.add_grants("null", [Wish(name, source=Source.ORG) for name in ("true", "0x10", "1e3", "off")])
    text = admin.export_yaml()
    assert apply(admin, text, prune=True) == ()


def test_a_stock_casbin_enforcer_with_the_shipped_model_decides_alike(admin: Admin, tmp_path: Path) -> None:
    for example in EXAMPLES:
        apply(admin, example.read_text())
    apply(admin, BASE)
    rules = tmp_path / "rules.csv"
    rules.write_text(admin.export_casbin())
    stock = casbin.Enforcer(str(model_file()), str(rules))
    pin = "sha256:2c26b46b68ffc68ff99b453c1d30413413422d706483bfa0f98a5e886266e7ae"
    skills = sorted({grant.skill for each in admin.snapshot().systems.values() for grant in each.grants})
    verdicts = set()
    for system in [*admin.snapshot().systems, "nobody"]:
        for skill in [*skills, "unheard-of"]:
            for digest in (pin, DIGEST):
                for source in Source:
                    ours = admin.explain(Question(system, skill, digest, source)).decision
                    assert stock.enforce(system, skill, digest, str(source)) is ours.allowed, ours
                    verdicts.add(ours.rule)
    assert len(verdicts) >= 6  # the comparison saw allowed and denied ones, for many reasons


def test_an_export_of_nothing_allows_nothing_in_a_stock_enforcer(admin: Admin, tmp_path: Path) -> None:
    rules = tmp_path / "rules.csv"
    rules.write_text(admin.export_casbin())
    stock = casbin.Enforcer(str(model_file()), str(rules))
    for values in (("", "", "", ""), ("*", "*", "*", "*"), ("a", "b", DIGEST, "builtin")):
        assert stock.enforce(*values) is False
