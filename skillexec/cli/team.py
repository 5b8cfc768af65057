"""skillexec team."""

from __future__ import annotations

import click

from skillexec.cli.changes import answer_changes, operating
from skillexec.cli.context import App, Group, pass_app
from skillexec.cli.table import print_table


@click.group(cls=Group)
def team() -> None:
    """Teams, and which system a team was spawned from."""


@team.command()
@click.argument("name")
@click.option("--root", is_flag=True, help="Make it the root team: its systems need grants, but no envelope.")
@pass_app
def add(app: App, name: str, root: bool) -> None:
    """Make the team NAME."""
    with operating(app) as admin:
        answer_changes(app, admin.add_team(name, root=root), nothing=f"there is a team {name} already")


@team.command()
@click.argument("name")
@click.option("--cascade", is_flag=True, help="Also remove its systems, what they spawned, and its secrets.")
@pass_app
def remove(app: App, name: str, cascade: bool) -> None:
    """Remove the team NAME and its envelope."""
    with operating(app) as admin:
        answer_changes(app, admin.remove_team(name, cascade=cascade), nothing=f"there is no team {name}")


@team.command()
@click.argument("subteam")
@click.option("--origin", required=True, metavar="SYSTEM", help="The system that it is spawned from.")
@click.option(
    "--inherit/--no-inherit",
    default=True,
    show_default=True,
    help="Whether its systems hold the origin's grants.",
)
@pass_app
def recurse(app: App, subteam: str, origin: str, inherit: bool) -> None:
    """Let SUBTEAM be spawned from a system: it may then run at most what that one may.

    The team is made where there is none. Its envelope is from then on what the origin may run.
    """
    with operating(app) as admin:
        changes = admin.recurse(subteam, origin=origin, inherit=inherit)
        answer_changes(app, changes, nothing=f"team {subteam} is spawned from {origin} already")


@team.command()
@click.argument("subteam")
@pass_app
def detach(app: App, subteam: str) -> None:
    """Make a spawned team an ordinary one, with an empty envelope."""
    with operating(app) as admin:
        answer_changes(app, admin.detach(subteam), nothing=f"team {subteam} was not spawned from a system")


@team.command()
@click.argument("name")
@pass_app
def disable(app: App, name: str) -> None:
    """Stop every system of the team, and every team spawned from one. Grants stay."""
    with operating(app) as admin:
        answer_changes(app, admin.set_team_disabled(name, True), nothing=f"team {name} is disabled already")


@team.command()
@click.argument("name")
@pass_app
def enable(app: App, name: str) -> None:
    """Let a disabled team run again."""
    with operating(app) as admin:
        answer_changes(app, admin.set_team_disabled(name, False), nothing=f"team {name} is enabled already")


@team.command("list")
@pass_app
def list_(app: App) -> None:
    """List the teams."""
    with operating(app) as admin:
        teams = admin.snapshot().teams.values()
    rows = [
        (
            each.name,
            each.kind,
            each.origin,
            len(each.systems),
            len(each.envelope) if each.kind == "ordinary" else None,  # the others have none of their own
            "disabled" if each.disabled else "",
        )
        for each in teams
    ]
    keys = ("name", "kind", "origin", "systems", "envelope")
    documents = [dict(zip(keys, row, strict=False)) | {"disabled": bool(row[-1])} for row in rows]
    empty = "no teams yet: `skillexec team add NAME`"
    app.answer({"teams": documents}, lambda: print_table((*keys, "state"), rows, empty=empty))


@team.command()
@click.argument("name")
@pass_app
def show(app: App, name: str) -> None:
    """Draw the team: its envelope, its systems, their grants, and the teams spawned from them."""
    from skillexec.cli.picture import Picture
    from skillexec.cli.tree import print_tree

    with operating(app) as admin:
        picture = Picture(admin)
        found = picture.team(name)
        app.answer({"team": picture.team_document(found)}, lambda: print_tree(picture.draw_team(found)))
