"""skillexec grant."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from skillexec.cli.changes import answer_changes, operating
from skillexec.cli.context import App, Group, pass_app
from skillexec.cli.source import SourceType
from skillexec.cli.table import print_table
from skillexec.errors import SkillUnknown, Usage
from skillexec.model import Source

if TYPE_CHECKING:
    from skillexec.cli.picture import Picture
    from skillexec.permissions.grants import Wish
    from skillexec.permissions.snapshot import System


@click.group(cls=Group)
def grant() -> None:
    """Grant skills to systems, five at most each."""


def _about_skills(function: Callable[..., Any]) -> Callable[..., Any]:
    pin = click.option(
        "--pin/--no-pin",
        default=None,
        help="Bind the grant to the skill's present bytes, or to none. Default: as it is.",
    )
    source = click.option(
        "--source",
        type=SourceType(),
        help="The least trusted source that the grant covers (default: where the skill is found now).",
    )
    return pin(source(function))


def _wishes(app: App, skills: tuple[str, ...], pin: bool | None, source: Source | None) -> list[Wish]:
    from skillexec.cli.lookup import digest_of, find_skills
    from skillexec.permissions.grants import Wish
    from skillexec.permissions.names import check_skills

    names = check_skills(skills)
    if source is not None and not pin:
        return [Wish(name, source=source, unpin=pin is False) for name in names]
    try:
        found = find_skills(app, names)
    except SkillUnknown as error:
        link = " Or" if error.hint.endswith("?") else "; or"
        hint = f"{error.hint}{link} say --source, for a skill that is not here yet"
        raise SkillUnknown(error.message, hint=hint) from error
    return [
        Wish(
            skill.name,
            source=source or skill.source,
            pin=digest_of(skill) if pin else None,
            unpin=pin is False,
        )
        for skill in found
    ]


@grant.command()
@click.argument("system")
@click.argument("skills", metavar="SKILL...", nargs=-1, required=True)
@_about_skills
@pass_app
def add(app: App, system: str, skills: tuple[str, ...], pin: bool | None, source: Source | None) -> None:
    """Grant skills to SYSTEM: all of them, or none.

    Granting one again covers the source that it has now, and with --pin the bytes that it has now.
    """
    wishes = _wishes(app, skills, pin, source)
    with operating(app) as admin:
        answer_changes(app, admin.add_grants(system, wishes), nothing=f"{system} holds that already")


@grant.command()
@click.argument("system")
@click.argument("skills", metavar="SKILL...", nargs=-1, required=True)
@pass_app
def remove(app: App, system: str, skills: tuple[str, ...]) -> None:
    """Revoke grants of SYSTEM. Holds from the next decision on."""
    with operating(app) as admin:
        answer_changes(app, admin.remove_grants(system, skills), nothing=f"{system} holds none of them")


@grant.command("set")
@click.argument("system")
@click.argument("skills", metavar="[SKILL...]", nargs=-1)
@_about_skills
@pass_app
def set_(app: App, system: str, skills: tuple[str, ...], pin: bool | None, source: Source | None) -> None:
    """Let SYSTEM hold exactly these skills: all or nothing."""
    wishes = _wishes(app, skills, pin, source)
    with operating(app) as admin:
        answer_changes(app, admin.set_grants(system, wishes), nothing=f"{system} holds exactly that already")


def _cell(system: System, skill: str, permitted: tuple[str, ...]) -> str:
    held = {grant.skill: grant for grant in system.grants}
    if skill in held and skill not in permitted:
        return "blocked"
    if skill in held:
        return "pinned" if held[skill].pin else "granted"
    return "inherited" if skill in permitted else "-"


def _list_all(app: App, picture: Picture) -> None:
    systems = list(picture.snapshot.systems.values())
    permitted = {each.name: picture.permitted(each) for each in systems}
    skills = sorted(
        {skill for each in systems for skill in (*permitted[each.name], *(g.skill for g in each.grants))}
    )
    rows = [
        (
            each.name,
            each.team,
            f"{len(each.grants)}/5",
            *(_cell(each, skill, permitted[each.name]) for skill in skills),
        )
        for each in systems
    ]
    document = {
        "skills": skills,
        "systems": {row[0]: dict(zip(skills, row[3:], strict=True)) for row in rows},
    }
    empty = "no systems yet: `skillexec system add NAME --team TEAM`"
    columns = ("system", "team", "grants", *skills)
    app.answer(document, lambda: print_table(columns, rows, empty=empty, repeat=1))


def _list_one(app: App, picture: Picture, name: str) -> None:
    found = picture.system(name)
    permitted = picture.permitted(found)
    held = {each.skill: each for each in found.grants}
    names = [*held, *(skill for skill in permitted if skill not in held)]
    rows = [
        (
            held[skill].slot if skill in held else "",
            skill,
            _cell(found, skill, permitted),
            held[skill].source if skill in held else "",
            (held[skill].pin or "") if skill in held else "",
        )
        for skill in names
    ]
    empty = f"no grants yet: `skillexec grant add {name} SKILL`"
    document = picture.system_document(found)
    app.answer(document, lambda: print_table(("slot", "skill", "state", "source", "pin"), rows, empty=empty))


@grant.command("list")
@click.argument("system", required=False)
@click.option("--all", "everyone", is_flag=True, help="A matrix of all systems and skills.")
@pass_app
def list_(app: App, system: str | None, everyone: bool) -> None:
    """List the grants of SYSTEM, and what it inherits; or everyone's."""
    from skillexec.cli.picture import Picture

    if (system is None) is not everyone:
        raise Usage("name a system, or say --all", hint="`skillexec grant list --all`")
    with operating(app) as admin:
        picture = Picture(admin)
        if system is None:
            _list_all(app, picture)
        else:
            _list_one(app, picture, system)
