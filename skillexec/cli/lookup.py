"""What a grant has to know about a skill: where it comes from, and, for a pin, its digest."""

from __future__ import annotations

from typing import TYPE_CHECKING

from skillexec.cli.context import App, working_directory
from skillexec.errors import SkillUnknown

if TYPE_CHECKING:
    from skillexec.model import Skill, Source


def find_skills(app: App, names: tuple[str, ...]) -> list[Skill]:
    """The skills of these names as they are found from here, or an error that says what there is."""
    from skillexec.catalog import library_for

    return library_for(app.config(), app.home, project=working_directory()).find(names)


def find_source(app: App, name: str) -> Source | None:
    """The source of the skill, or None where there is no such skill."""
    try:
        return find_skills(app, (name,))[0].source
    except SkillUnknown:
        return None


def digest_of(skill: Skill) -> str:
    """The digest of the skill's bytes as they are now."""
    from skillexec.skills.bundle import take_bundle

    return take_bundle(skill.directory).digest
