"""`skillexec skill`: find, read and check skills."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from skillexec.cli.context import App, Group, pass_app, working_directory
from skillexec.errors import SkillError, Usage

if TYPE_CHECKING:
    from collections.abc import Iterator

    from skillexec.disclosure import Disclosure
    from skillexec.model import Skill
    from skillexec.skills.discovery import Library

_ORDER = ("list", "show", "load", "read", "prompt", "tools", "validate")


class _Skill(Group):
    """Knows `validate` too, which is loaded when it is named: the others need not pay for it."""

    def list_commands(self, _context: click.Context) -> list[str]:
        return list(_ORDER)

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        if name == "validate":
            from skillexec.cli.validate import validate

            return validate
        return super().get_command(context, name)


@click.group(cls=_Skill)
def skill() -> None:
    """Find, read and check skills."""


def _library(app: App) -> Library:
    from skillexec.catalog import library_for

    return library_for(app.config(), app.home, project=working_directory())


def _limit(function: Any) -> Any:
    return click.option(
        "--limit",
        type=click.IntRange(1, 16 << 20),
        default=64 << 10,
        show_default=True,
        metavar="BYTES",
        help="How much text to return.",
    )(function)


def _as_system(function: Any) -> Any:
    return click.option(
        "--as",
        "system",
        metavar="SYSTEM",
        help="As this system: only if it may run the skill, and on the record.",
    )(function)


@contextmanager
def _disclosure(app: App) -> Iterator[Disclosure]:
    from skillexec.disclosure import Disclosure
    from skillexec.permissions.decision import Decider

    with app.state() as state:
        yield Disclosure(state, _library(app), Decider(), actor=app.actor)


@skill.command("list")
@click.option("--all", "everything", is_flag=True, help="Also those that are shadowed or can't be granted.")
@click.option("--broken", is_flag=True, help="Only what can't be used, and why.")
@pass_app
def list_(app: App, everything: bool, broken: bool) -> None:
    """List the skills that can be granted and run, from every root and from the project you are in."""
    from skillexec.cli import skill_view

    found = _library(app).scan()
    show = skill_view.print_list
    if broken:
        show = skill_view.print_broken
    elif everything:
        show = skill_view.print_all
    app.answer(skill_view.catalogue(found) if app.json else {}, lambda: show(found))


@skill.command()
@click.argument("name")
@pass_app
def show(app: App, name: str) -> None:
    """Show one skill: metadata, files, digest, what its scripts depend on, and what is odd about it."""
    from skillexec.cli.skill_view import details, print_details
    from skillexec.skills.bundle import take_bundle
    from skillexec.skills.dependencies import find_dependencies

    found = _library(app).get(name)
    try:
        bundle = take_bundle(found.directory)
    except SkillError as error:
        shown = details(found, None, (), f"{error.message} {error.hint}".strip())
    else:
        shown = details(found, bundle, find_dependencies(bundle), "")
    app.answer({"skill": shown}, lambda: print_details(shown))


@skill.command()
@click.argument("name")
@_limit
@_as_system
@pass_app
def load(app: App, name: str, limit: int, system: str | None) -> None:
    """Print a skill's instructions: the body of its SKILL.md."""
    from skillexec.cli.skill_view import print_text
    from skillexec.skills.resources import load_body

    if system:
        with _disclosure(app) as disclosure:
            body = disclosure.activate(system, name, limit=limit)
    else:
        body = load_body(_library(app).get(name), limit=limit)
    document = {"name": name, "text": body.text, "truncated": body.truncated, "notice": body.notice}
    app.answer(document, lambda: print_text(body.text, body.notice))


@skill.command()
@click.argument("name")
@click.argument("path")
@_limit
@_as_system
@pass_app
def read(app: App, name: str, path: str, limit: int, system: str | None) -> None:
    """Print one file of a skill; PATH is relative to its folder. A binary file is only described."""
    from dataclasses import asdict

    from skillexec.cli.skill_view import print_text
    from skillexec.skills.resources import read_resource

    if system:
        with _disclosure(app) as disclosure:
            found = disclosure.read(system, name, path, limit=limit)
    else:
        found = read_resource(_library(app).get(name), path, limit=limit)
    text = found.text
    if text is None:
        text = f"[binary: {found.mime}, {found.size} bytes]"
    app.answer(
        {"name": name, **asdict(found), "binary": found.binary}, lambda: print_text(text, found.notice)
    )


def _chosen(library: Library, names: tuple[str, ...]) -> list[Skill]:
    """The skills that an operator names, or all of them where they are few."""
    from skillexec.skills.prompt import MAX_SKILLS

    if names:
        return library.find(dict.fromkeys(names))
    found = [one.skill for one in library.scan().listed]
    runnable = [one for one in found if one.runnable]
    if len(runnable) > MAX_SKILLS:
        raise Usage(
            f"there are {len(runnable)} skills, and a prompt has room for {MAX_SKILLS}",
            hint="name them: `skillexec skill prompt NAME...`, or say --as SYSTEM",
        )
    return runnable


@skill.command()
@click.argument("names", metavar="[NAME]...", nargs=-1)
@click.option("--format", "form", type=click.Choice(["xml", "json"]), default="xml", show_default=True)
@click.option("--location", is_flag=True, help="Say where each SKILL.md is.")
@click.option("--as", "system", metavar="SYSTEM", help="Only the skills that this system may run.")
@pass_app
def prompt(app: App, names: tuple[str, ...], form: str, location: bool, system: str | None) -> None:
    """Print what an agent is told of its skills: <available_skills>, five at most, nothing where there are none."""
    from skillexec.cli.skill_view import print_text
    from skillexec.skills.prompt import render_prompt

    if names and system:
        raise Usage(
            "names and --as don't go together", hint="a system's skills are those that it was granted"
        )
    if system:
        with _disclosure(app) as disclosure:
            skills = disclosure.offered(system)
    else:
        skills = _chosen(_library(app), names)
    text = render_prompt(skills, format="json" if form == "json" else "xml", location=location)
    document = {"format": form, "skills": [one.name for one in skills], "prompt": text}
    app.answer(document, lambda: print_text(text, "") if text else None)


@skill.command()
@click.argument("name")
@click.argument("available", metavar="TOOL...", nargs=-1, required=True)
@pass_app
def tools(app: App, name: str, available: tuple[str, ...]) -> None:
    """Say which of its tools an agent may use while the skill is active.

    All of them, unless trust.allowed_tools is "enforce": then what the skill's allowed-tools names, and the baseline.
    """
    from skillexec.skills.tools import permitted_tools

    trust = app.config().trust
    kept = permitted_tools(
        _library(app).get(name),
        available,
        mode=trust.allowed_tools,
        unmatched=trust.unmatched,
        baseline=trust.baseline_tools,
    )
    app.answer({"name": name, "permitted": list(kept)}, lambda: click.echo("\n".join(kept)))
