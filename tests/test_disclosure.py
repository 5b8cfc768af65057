"""A system sees only what it may run, and what it was shown is on the record."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from running import SYSTEM, TEAM, Place

from skillexec.catalog import library_for
from skillexec.config import load_config
from skillexec.disclosure import Disclosure
from skillexec.errors import Denied, PathRefused, SkillUnknown
from skillexec.model import Source
from skillexec.permissions.decision import Decider
from skillexec.permissions.grants import Wish
from skillexec.skills.bundle import take_bundle
from skillexec.state import State


@pytest.fixture
def place(tmp_path: Path) -> Place:
    made = Place(tmp_path)
    made.skill("open-one", {"run.py": "print(1)\n", "references/notes.md": "Notes.\n"})
    made.skill("closed-one", {"run.py": "print(2)\n"}, grant=False)
    return made


@pytest.fixture
def disclosure(place: Place) -> Iterator[Disclosure]:
    library = library_for(load_config(place.home.config_file), place.home)
    with State.open(place.home.state_file) as state:
        yield Disclosure(state, library, Decider(), actor="tester")


def test_only_what_a_system_may_run_is_offered_to_it(disclosure: Disclosure) -> None:
    assert [skill.name for skill in disclosure.offered(SYSTEM)] == ["open-one"]


def test_a_pinned_skill_that_changed_is_no_longer_offered(place: Place, disclosure: Disclosure) -> None:
    folder = place.folder / Source.ORG / "open-one"
    with place.admin() as admin:
        admin.add_grants(SYSTEM, [Wish("open-one", Source.ORG, pin=take_bundle(folder).digest)])
    assert disclosure.offered(SYSTEM)
    (folder / "run.py").write_text("print('changed')\n")
    assert disclosure.offered(SYSTEM) == []


def test_a_granted_skill_that_vanished_is_not_offered(place: Place, disclosure: Disclosure) -> None:
    (place.folder / Source.ORG / "open-one" / "SKILL.md").unlink()
    assert disclosure.offered(SYSTEM) == []


def test_an_unknown_system_is_denied(disclosure: Disclosure) -> None:
    with pytest.raises(Denied):
        disclosure.offered("nobody")


def test_instructions_and_files_are_shown_on_the_record(place: Place, disclosure: Disclosure) -> None:
    assert disclosure.activate(SYSTEM, "open-one").text == "Body."
    assert disclosure.read(SYSTEM, "open-one", "references/notes.md").text == "Notes.\n"
    activated, read = place.records(system=SYSTEM)[-2:]
    assert (activated.event, activated.skill, activated.team) == ("skill.activated", "open-one", TEAM)
    assert (read.event, read.data["file"]) == ("resource.read", "references/notes.md")


def test_what_may_not_be_run_may_not_be_read_either(place: Place, disclosure: Disclosure) -> None:
    with pytest.raises(Denied):
        disclosure.activate(SYSTEM, "closed-one")
    with pytest.raises(Denied):
        disclosure.read(SYSTEM, "closed-one", "run.py")
    denials = place.records(event="decision.denied")
    assert [record.data["operation"] for record in denials] == ["activate", "read"]


def test_a_path_that_leaves_the_skill_is_refused(disclosure: Disclosure) -> None:
    with pytest.raises(PathRefused):
        disclosure.read(SYSTEM, "open-one", "../closed-one/run.py")


def test_a_granted_skill_that_is_gone_says_so(place: Place, disclosure: Disclosure) -> None:
    (place.folder / Source.ORG / "open-one" / "SKILL.md").unlink()
    with pytest.raises(SkillUnknown):
        disclosure.activate(SYSTEM, "open-one")
