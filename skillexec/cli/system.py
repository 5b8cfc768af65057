"""skillexec system."""

from __future__ import annotations

import click

from skillexec.cli.changes import answer_changes, operating
from skillexec.cli.context import App, Group, pass_app
from skillexec.cli.table import print_table


@click.group(cls=Group)
def system() -> None:
    """Systems: the agents of a team."""


@system.command()
@click.argument("name")
@click.option("--team", required=True, help="The team that it belongs to, for good.")
@pass_app
def add(app: App, name: str, team: str) -> None:
    """Make the system NAME in a team."""
    with operating(app) as admin:
        answer_changes(
            app, admin.add_system(name, team=team), nothing=f"there is a system {name} in {team} already"
        )


@system.command()
@click.argument("name")
@click.option("--cascade", is_flag=True, help="Also remove the teams that were spawned from it.")
@pass_app
def remove(app: App, name: str, cascade: bool) -> None:
    """Remove the system NAME with its grants and approvals."""
    with operating(app) as admin:
        answer_changes(app, admin.remove_system(name, cascade=cascade), nothing=f"there is no system {name}")


@system.command()
@click.argument("name")
@pass_app
def disable(app: App, name: str) -> None:
    """Stop the system, and every team spawned from it. Grants stay."""
    with operating(app) as admin:
        answer_changes(
            app, admin.set_system_disabled(name, True), nothing=f"system {name} is disabled already"
        )


@system.command()
@click.argument("name")
@pass_app
def enable(app: App, name: str) -> None:
    """Let a disabled system run again."""
    with operating(app) as admin:
        answer_changes(
            app, admin.set_system_disabled(name, False), nothing=f"system {name} is enabled already"
        )


@system.command("list")
@click.option("--team", help="Only the systems of this team.")
@pass_app
def list_(app: App, team: str | None) -> None:
    """List the systems."""
    with operating(app) as admin:
        found = [each for each in admin.snapshot().systems.values() if team in (None, each.team)]
    documents = [
        {"name": each.name, "team": each.team, "grants": len(each.grants), "disabled": each.disabled}
        for each in found
    ]
    rows = [
        (each.name, each.team, f"{len(each.grants)}/5", "disabled" if each.disabled else "") for each in found
    ]
    empty = "no systems yet: `skillexec system add NAME --team TEAM`"
    app.answer(
        {"systems": documents}, lambda: print_table(("name", "team", "grants", "state"), rows, empty=empty)
    )


@system.command()
@click.argument("name")
@pass_app
def show(app: App, name: str) -> None:
    """Draw the system: its grants, what it inherits, and the teams spawned from it."""
    from skillexec.cli.picture import Picture
    from skillexec.cli.tree import print_tree

    with operating(app) as admin:
        picture = Picture(admin)
        found = picture.system(name)
        app.answer({"system": picture.system_document(found)}, lambda: print_tree(picture.draw_system(found)))
