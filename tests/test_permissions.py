"""Teams, systems, envelopes and grants: what each operation changes, refuses, and puts on the record."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from sqlalchemy import insert, update
from sqlalchemy.exc import IntegrityError

from skillexec import schema
from skillexec.admin import Admin
from skillexec.audit.query import Filter, stream
from skillexec.errors import AuditUnusable, Refused, StateUnusable, Usage
from skillexec.model import MAX_ORIGINS, Source
from skillexec.permissions.facts import mapped_for, strongest
from skillexec.permissions.grants import Wish
from skillexec.state import State

SKILLS = ["alpha", "beta", "gamma", "delta", "epsilon", "zeta"]
DIGEST = "sha256:" + "a" * 64
OTHER = "sha256:" + "b" * 64


@pytest.fixture
def state(tmp_path: Path) -> Iterator[State]:
    with State.open(tmp_path / "state.db", create=True) as opened:
        yield opened


@pytest.fixture
def admin(state: State) -> Admin:
    """team research { planner } with an envelope of all SKILLS."""
    made = Admin(state, actor="olga")
    made.add_team("research")
    made.add_system("planner", team="research")
    made.set_envelope("research", SKILLS)
    return made


def wishes(*skills: str) -> list[Wish]:
    return [Wish(skill, source=Source.BUILTIN) for skill in skills]


def held(admin: Admin, system: str = "planner") -> list[str]:
    return [grant.skill for grant in admin.snapshot().systems[system].grants]


def events(state: State) -> list[tuple[str, str, str | None, str | None, str | None]]:
    with state.read() as connection:
        return [(r.event, r.actor, r.team, r.system, r.skill) for r in stream(connection, Filter())]


def test_a_sixth_grant_is_refused_and_names_the_five(admin: Admin) -> None:
    admin.add_grants("planner", wishes(*SKILLS[:5]))
    with pytest.raises(Refused) as refusal:
        admin.add_grants("planner", wishes("zeta"))
    assert all(skill in refusal.value.message for skill in SKILLS)
    assert refusal.value.hint == "`skillexec grant remove planner alpha` frees a slot"
    assert held(admin) == SKILLS[:5]


def test_the_table_itself_has_room_for_five(admin: Admin, state: State) -> None:
    admin.add_grants("planner", wishes(*SKILLS[:5]))
    for slot in (0, 6, 5):
        with pytest.raises((IntegrityError, StateUnusable)), state.write() as connection:
            connection.execute(
                insert(schema.grants).values(system="planner", slot=slot, skill="zeta", source="builtin")
            )
    assert held(admin) == SKILLS[:5]


def test_several_skills_are_granted_together_or_not_at_all(admin: Admin, state: State) -> None:
    before = events(state)
    for wanted in (["alpha", "unheard-of"], SKILLS, ["alpha", "Not A Name"]):
        with pytest.raises(Usage):
            admin.add_grants("planner", wishes(*wanted))
        assert held(admin) == [] and events(state) == before


def test_set_is_all_or_nothing_and_keeps_what_stays(admin: Admin) -> None:
    admin.add_grants("planner", [Wish("alpha", source=Source.ORG, pin=DIGEST), *wishes("beta")])
    with pytest.raises(Refused, match="6 skills"):
        admin.set_grants("planner", wishes(*SKILLS))
    changes = admin.set_grants("planner", [Wish("alpha"), *wishes("gamma")])
    assert [str(change) for change in changes] == ["- grant to planner: beta", "+ grant to planner: gamma"]
    kept = admin.snapshot().systems["planner"].grants[0]
    assert (kept.skill, kept.source, kept.pin) == ("alpha", "org", DIGEST)
    assert admin.set_grants("planner", [])[0].event == "grant.revoked"
    assert held(admin) == []


def test_a_freed_slot_is_used_again(admin: Admin) -> None:
    admin.add_grants("planner", wishes(*SKILLS[:5]))
    admin.remove_grants("planner", ["beta"])
    admin.add_grants("planner", wishes("zeta"))
    assert sorted(held(admin)) == sorted(["alpha", "gamma", "delta", "epsilon", "zeta"])


def test_granting_outside_the_envelope_is_refused_with_the_command_that_helps(admin: Admin) -> None:
    with pytest.raises(Refused, match="not in the envelope") as refusal:
        admin.add_grants("planner", wishes("unheard-of"))
    assert refusal.value.hint == "`skillexec envelope add research unheard-of`"


def test_granting_below_what_the_origin_may_not_run_is_refused(admin: Admin) -> None:
    admin.recurse("scouts", origin="planner", inherit=False)
    admin.add_system("scout", team="scouts")
    with pytest.raises(Refused, match="not granted to planner"):
        admin.add_grants("scout", wishes("alpha"))
    admin.add_grants("planner", wishes("alpha"))
    assert admin.add_grants("scout", wishes("alpha"))


def test_a_grant_without_a_source_is_refused(admin: Admin) -> None:
    with pytest.raises(Usage, match="where does alpha come from"):
        admin.add_grants("planner", [Wish("alpha")])


def test_pins_are_set_kept_changed_and_lifted(admin: Admin) -> None:
    def pin() -> str | None:
        return admin.snapshot().systems["planner"].grants[0].pin

    admin.add_grants("planner", [Wish("alpha", source=Source.USER, pin=DIGEST)])
    assert admin.add_grants("planner", [Wish("alpha")]) == () and pin() == DIGEST
    changed = admin.add_grants("planner", [Wish("alpha", source=Source.ORG, pin=OTHER)])
    assert [change.event for change in changed] == ["grant.sourced", "grant.pinned"] and pin() == OTHER
    lifted = admin.add_grants("planner", [Wish("alpha", unpin=True)])
    assert [change.event for change in lifted] == ["grant.unpinned"] and pin() is None
    with pytest.raises(Usage, match="not a digest"):
        admin.add_grants("planner", [Wish("alpha", pin="sha256:short")])


def test_taking_a_skill_out_of_an_envelope_revokes_the_grants_under_it_on_the_record(
    admin: Admin, state: State
) -> None:
    admin.add_system("writer", team="research")
    admin.add_team("ops", root=True)
    admin.add_system("chief", team="ops")
    for system in ("planner", "writer", "chief"):
        admin.add_grants(system, wishes("alpha", "beta"))
    changes = admin.remove_from_envelope("research", ["alpha"])
    assert [(change.event, change.system) for change in changes] == [
        ("envelope.removed", None),
        ("grant.revoked", "planner"),
        ("grant.revoked", "writer"),
    ]
    assert held(admin) == held(admin, "writer") == ["beta"]
    assert held(admin, "chief") == ["alpha", "beta"]
    assert events(state)[-3:] == [
        ("envelope.removed", "olga", "research", None, "alpha"),
        ("grant.revoked", "olga", "research", "planner", "alpha"),
        ("grant.revoked", "olga", "research", "writer", "alpha"),
    ]


def test_set_envelope_is_exact(admin: Admin) -> None:
    admin.add_grants("planner", wishes("alpha", "beta"))
    admin.set_envelope("research", ["beta", "eta"])
    assert admin.snapshot().teams["research"].envelope == ("beta", "eta")
    assert held(admin) == ["beta"]


def test_a_second_root_team_is_refused_also_by_the_table(admin: Admin, state: State) -> None:
    admin.add_team("ops", root=True)
    with pytest.raises(Refused, match="ops is the root team"):
        admin.add_team("other", root=True)
    with pytest.raises(Refused, match="not the root team"):
        admin.add_team("research", root=True)
    for value in (True, False):
        with pytest.raises((IntegrityError, StateUnusable)), state.write() as connection:
            chosen = update(schema.teams).where(schema.teams.c.name == "research")
            connection.execute(chosen.values(is_root=value))


def test_root_and_recursed_teams_have_no_envelope_of_their_own(admin: Admin) -> None:
    admin.add_team("ops", root=True)
    admin.recurse("scouts", origin="planner")
    for team in ("ops", "scouts"):
        for operation in (admin.add_to_envelope, admin.set_envelope, admin.remove_from_envelope):
            with pytest.raises(Refused):
                operation(team, ["alpha"])
    with pytest.raises(Refused, match="root team, which has no origin"):
        admin.recurse("ops", origin="planner")


def test_recursing_a_team_replaces_its_envelope_and_detaching_leaves_it_empty(admin: Admin) -> None:
    admin.add_team("scouts")
    admin.add_to_envelope("scouts", ["alpha"])
    changes = admin.recurse("scouts", origin="planner")
    assert [change.event for change in changes] == ["envelope.removed", "team.recursed"]
    assert admin.recurse("scouts", origin="planner") == ()
    assert [change.event for change in admin.recurse("scouts", origin="planner", inherit=False)] == [
        "team.recursed"
    ]
    assert [change.event for change in admin.detach("scouts")] == ["team.detached"]
    assert admin.detach("scouts") == ()
    assert admin.snapshot().teams["scouts"].envelope == ()


def test_a_cycle_is_refused_when_the_link_is_made(admin: Admin) -> None:
    with pytest.raises(Refused, match="cycle"):
        admin.recurse("research", origin="planner")
    admin.recurse("scouts", origin="planner")
    admin.add_system("scout", team="scouts")
    with pytest.raises(Refused, match="cycle"):
        admin.recurse("research", origin="scout")
    assert admin.snapshot().teams["research"].origin is None


def test_depth_is_bounded_from_above_and_from_below(admin: Admin) -> None:
    origin = "planner"
    for depth in range(MAX_ORIGINS):
        admin.recurse(f"team{depth}", origin=origin)
        origin = f"system{depth}"
        admin.add_system(origin, team=f"team{depth}")
    with pytest.raises(Refused, match="deep"):
        admin.recurse("one-more", origin=origin)
    admin.add_team("above")
    admin.add_system("overseer", team="above")
    with pytest.raises(Refused, match="deep"):
        admin.recurse("research", origin="overseer")


def test_a_team_with_dependants_is_removed_only_with_cascade(admin: Admin) -> None:
    admin.map_secret("TOKEN", "op://vault/item/field", team="research")
    admin.recurse("scouts", origin="planner")
    admin.add_system("scout", team="scouts")
    with pytest.raises(Refused) as refusal:
        admin.remove_team("research")
    assert "system planner" in refusal.value.message and "secret TOKEN" in refusal.value.message
    with pytest.raises(Refused, match="scouts"):
        admin.remove_system("planner")
    changes = admin.remove_team("research", cascade=True)
    removed = [(change.event, change.team) for change in changes if change.event == "team.removed"]
    assert removed == [("team.removed", "scouts"), ("team.removed", "research")]
    assert admin.snapshot().teams == {} and admin.secret_mappings() == ()


def test_a_removed_system_leaves_no_grant_and_no_approval_for_the_next_of_its_name(admin: Admin) -> None:
    admin.add_grants("planner", wishes("alpha"))
    admin.approve("planner", "alpha", DIGEST)
    changes = admin.remove_system("planner")
    assert [change.event for change in changes] == ["grant.revoked", "approval.revoked", "system.removed"]
    admin.add_system("planner", team="research")
    assert held(admin) == [] and admin.approval_for("planner", "alpha", DIGEST) is None


def test_a_system_never_moves_to_another_team(admin: Admin) -> None:
    admin.add_team("ops", root=True)
    with pytest.raises(Refused, match="belongs to team research"):
        admin.add_system("planner", team="ops")


IDEMPOTENT: list[Callable[[Admin], object]] = [
    lambda admin: admin.add_team("research"),
    lambda admin: admin.add_system("planner", team="research"),
    lambda admin: admin.add_to_envelope("research", SKILLS),
    lambda admin: admin.set_envelope("research", reversed(SKILLS)),
    lambda admin: admin.remove_from_envelope("research", ["unheard-of"]),
    lambda admin: admin.add_grants("planner", wishes("alpha", "alpha")),
    lambda admin: admin.set_grants("planner", wishes("alpha")),
    lambda admin: admin.remove_grants("planner", ["beta"]),
    lambda admin: admin.remove_team("nobody"),
    lambda admin: admin.remove_system("nobody"),
    lambda admin: admin.set_team_disabled("research", False),
    lambda admin: admin.set_system_disabled("planner", False),
    lambda admin: admin.approve("planner", "alpha", DIGEST),
    lambda admin: admin.map_secret("TOKEN", "op://vault/item/field"),
    lambda admin: admin.unmap_secret("OTHER"),
]


@pytest.mark.parametrize("number", range(len(IDEMPOTENT)))
def test_doing_it_again_changes_nothing_and_records_nothing(admin: Admin, state: State, number: int) -> None:
    admin.add_grants("planner", wishes("alpha"))
    admin.approve("planner", "alpha", DIGEST)
    admin.map_secret("TOKEN", "op://vault/item/field")
    before = events(state)
    assert IDEMPOTENT[number](admin) == ()
    assert events(state) == before


BAD_NAMES = ["", "a,b", "a\nb", 'a"b', "A", "а", "a b", "../a", "x" * 65, "-a", "p, planner, *"]


@pytest.mark.parametrize("name", BAD_NAMES)
def test_names_that_could_mean_two_things_are_rejected(admin: Admin, state: State, name: str) -> None:
    before = events(state)
    operations: list[Callable[[], object]] = [
        lambda: admin.add_team(name),
        lambda: admin.add_system(name, team="research"),
        lambda: admin.add_system("fresh", team=name),
        lambda: admin.recurse(name, origin="planner"),
        lambda: admin.add_to_envelope("research", [name]),
        lambda: admin.add_grants("planner", wishes(name)),
        lambda: admin.remove_grants("planner", [name]),
        lambda: admin.approve("planner", name, DIGEST),
        lambda: admin.map_secret(name + "=", "op://vault/item/field"),
    ]
    for operation in operations:
        with pytest.raises(Usage):
            operation()
    assert events(state) == before


@pytest.mark.parametrize(
    "operation",
    [
        lambda admin: admin.add_system("new", team="nobody"),
        lambda admin: admin.add_to_envelope("nobody", ["alpha"]),
        lambda admin: admin.add_grants("nobody", wishes("alpha")),
        lambda admin: admin.remove_grants("nobody", ["alpha"]),
        lambda admin: admin.recurse("scouts", origin="nobody"),
        lambda admin: admin.set_team_disabled("nobody", True),
        lambda admin: admin.approve("nobody", "alpha", DIGEST),
        lambda admin: admin.map_secret("TOKEN", "op://vault/item/field", team="nobody"),
    ],
)
def test_what_is_not_there_is_named_with_the_command_that_makes_it(
    admin: Admin, operation: Callable[[Admin], object]
) -> None:
    with pytest.raises(Usage, match=r"no (team|system) nobody") as problem:
        operation(admin)
    assert "skillexec" in problem.value.hint
    assert "scouts" not in admin.snapshot().teams


def test_every_change_is_on_the_record_with_its_actor(admin: Admin, state: State) -> None:
    admin.add_grants("planner", wishes("alpha"))
    admin.set_system_disabled("planner", True)
    recorded = events(state)
    assert recorded[:2] == [
        ("team.added", "olga", "research", None, None),
        ("system.added", "olga", "research", "planner", None),
    ]
    assert recorded[-2:] == [
        ("grant.added", "olga", "research", "planner", "alpha"),
        ("system.disabled", "olga", "research", "planner", None),
    ]


def test_where_the_record_can_not_be_written_nothing_changes(admin: Admin, state: State) -> None:
    with state.write() as connection:
        connection.exec_driver_sql("ALTER TABLE audit RENAME TO gone")
    with pytest.raises((AuditUnusable, StateUnusable)) as problem:
        admin.add_grants("planner", wishes("alpha"))
    assert problem.value.exit_status == 40
    assert held(admin) == []


def test_an_approval_binds_to_bytes_and_system_and_expires(admin: Admin) -> None:
    admin.add_system("writer", team="research")
    now = datetime.now(UTC)
    admin.approve("planner", "alpha", DIGEST, network=True, expires=now + timedelta(hours=1))
    found = admin.approval_for("planner", "alpha", DIGEST)
    assert found is not None and found.network and found.approved_by == "olga"
    assert admin.approval_for("planner", "alpha", OTHER) is None
    assert admin.approval_for("writer", "alpha", DIGEST) is None
    assert admin.approval_for("planner", "beta", DIGEST) is None
    admin.approve("planner", "alpha", DIGEST, expires=now - timedelta(seconds=1))
    assert admin.approval_for("planner", "alpha", DIGEST) is None
    admin.approve("planner", "alpha", OTHER)
    assert len(admin.revoke_approvals("planner", "alpha")) == 2 and admin.approvals() == ()


def test_a_time_without_a_zone_is_refused_rather_than_guessed(admin: Admin) -> None:
    with pytest.raises(Usage, match="time zone"):
        admin.approve("planner", "alpha", DIGEST, expires=datetime(2030, 1, 1))


def test_the_closest_mapping_of_a_secret_wins(admin: Admin, state: State) -> None:
    for team in ("", "research"):
        for skill in ("", "alpha"):
            admin.map_secret("TOKEN", f"op://v/{team or 'any'}/{skill or 'any'}", team=team, skill=skill)

    def reference() -> str | None:
        with state.read() as connection:
            return strongest(mapped_for(connection, team="research", skill="alpha")).get("TOKEN")

    for team, skill in (("research", "alpha"), ("", "alpha"), ("research", ""), ("", "")):
        assert reference() == f"op://v/{team or 'any'}/{skill or 'any'}"
        admin.unmap_secret("TOKEN", team=team, skill=skill)
    assert reference() is None


def test_a_mapping_may_bind_a_name_to_a_skill_that_does_not_declare_it(admin: Admin, state: State) -> None:
    admin.map_secret("EXTRA", "op://v/i/f", skill="alpha")
    admin.map_secret("GLOBAL", "op://v/i/g")
    with state.read() as connection:
        of_alpha = mapped_for(connection, team="research", skill="alpha")
        of_beta = mapped_for(connection, team="research", skill="beta")
    assert [line.name for line in of_alpha if line.skill] == ["EXTRA"]
    assert [line.name for line in of_beta] == ["GLOBAL"]


def test_a_secret_of_another_team_is_not_given(admin: Admin, state: State) -> None:
    admin.add_team("ops")
    admin.map_secret("TOKEN", "op://v/ops/f", team="ops")
    with state.read() as connection:
        assert mapped_for(connection, team="research", skill="alpha") == ()


def test_the_reference_of_a_secret_is_recorded_as_a_digest_only(admin: Admin, state: State) -> None:
    admin.map_secret("TOKEN", "op://vault/canary-item/field")
    with state.read() as connection:
        bodies = connection.exec_driver_sql("SELECT body FROM audit").scalars().all()
    assert not any("canary-item" in str(body) for body in bodies) and "TOKEN" in str(bodies[-1])
