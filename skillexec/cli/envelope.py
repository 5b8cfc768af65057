"""skillexec envelope."""

from __future__ import annotations

import click

from skillexec.cli.changes import answer_changes, operating
from skillexec.cli.context import App, Group, pass_app
from skillexec.cli.table import print_table


@click.group(cls=Group)
def envelope() -> None:
    """Say which skills a team may use at all."""


@envelope.command()
@click.argument("team")
@click.argument("skills", metavar="SKILL...", nargs=-1, required=True)
@pass_app
def add(app: App, team: str, skills: tuple[str, ...]) -> None:
    """Let TEAM use these skills. Its systems still need grants."""
    with operating(app) as admin:
        answer_changes(
            app, admin.add_to_envelope(team, skills), nothing=f"the envelope of {team} has them already"
        )


@envelope.command()
@click.argument("team")
@click.argument("skills", metavar="SKILL...", nargs=-1, required=True)
@pass_app
def remove(app: App, team: str, skills: tuple[str, ...]) -> None:
    """Take skills out of the envelope, and revoke every grant of them in TEAM."""
    with operating(app) as admin:
        answer_changes(
            app, admin.remove_from_envelope(team, skills), nothing=f"the envelope of {team} has none of them"
        )


@envelope.command("set")
@click.argument("team")
@click.argument("skills", metavar="[SKILL...]", nargs=-1)
@pass_app
def set_(app: App, team: str, skills: tuple[str, ...]) -> None:
    """Let the envelope be exactly these skills; grants of all others in TEAM are revoked."""
    with operating(app) as admin:
        answer_changes(app, admin.set_envelope(team, skills), nothing=f"the envelope of {team} is so already")


@envelope.command("list")
@click.argument("team")
@pass_app
def list_(app: App, team: str) -> None:
    """List the skills that TEAM may use, and who holds them."""
    from skillexec.cli.picture import Picture

    with operating(app) as admin:
        picture = Picture(admin)
        found = picture.team(team)
        skills = picture.envelope(found)
    holders = {
        skill: [each.name for each in found.systems if skill in {grant.skill for grant in each.grants}]
        for skill in skills
    }
    rows = [(skill, ", ".join(names)) for skill, names in holders.items()]
    empty = f"{team} is the root team: no envelope" if found.root else f"the envelope of {team} is empty"
    app.answer(
        {"team": team, "envelope": holders}, lambda: print_table(("skill", "granted to"), rows, empty=empty)
    )
