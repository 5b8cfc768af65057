"""skillexec secret: where secrets come from. Values are never shown, never stored."""

from __future__ import annotations

import click

from skillexec.cli.context import App, Group, pass_app, working_directory
from skillexec.cli.table import print_table


@click.group(cls=Group)
def secret() -> None:
    """Say where secrets come from, and check that they do.

    A skill gets a secret only when it declares the name (required_env), or you bind it with --skill, and you map it.
    """


def _scope(team: str, skill: str) -> str:
    parts = [f"team {team}" if team else "", f"skill {skill}" if skill else ""]
    return ", ".join(part for part in parts if part) or "all"


@secret.command("map")
@click.argument("name")
@click.argument("reference", metavar="op://VAULT/ITEM/FIELD")
@click.option("--team", default="", help="Only for this team.")
@click.option(
    "--skill", default="", help="Only for this skill, which then gets it even if it does not declare it."
)
@pass_app
def map_(app: App, name: str, reference: str, team: str, skill: str) -> None:
    """Map NAME to a 1Password reference. The reference is checked offline; nothing is read."""
    from skillexec.admin import Admin
    from skillexec.vault import validate_reference

    validate_reference(reference)
    with app.state() as state:
        changes = Admin(state, actor=app.actor).map_secret(
            name=name, reference=reference, team=team, skill=skill
        )
    words = (
        f"{name} comes from {reference} ({_scope(team, skill)})"
        if changes
        else f"{name} was mapped so already"
    )
    app.answer({"name": name, "changed": bool(changes)}, lambda: click.echo(words))


@secret.command()
@click.argument("name")
@click.option("--team", default="", help="The mapping of this team.")
@click.option("--skill", default="", help="The mapping for this skill.")
@pass_app
def unmap(app: App, name: str, team: str, skill: str) -> None:
    """Take a mapping away. Skills that need the name are refused from then on."""
    from skillexec.admin import Admin

    with app.state() as state:
        changes = Admin(state, actor=app.actor).unmap_secret(name=name, team=team, skill=skill)
    words = (
        f"{name} is no longer mapped ({_scope(team, skill)})"
        if changes
        else f"{name} was not mapped ({_scope(team, skill)})"
    )
    app.answer({"name": name, "changed": bool(changes)}, lambda: click.echo(words))


@secret.command("list")
@pass_app
def list_(app: App) -> None:
    """Show the mappings: names and references, no values."""
    from skillexec.permissions.references import secret_mappings

    with app.state() as state, state.read() as connection:
        mapped = secret_mappings(connection)
    rows = [(line.name, line.reference, line.team or "all", line.skill or "all") for line in mapped]
    document = [line._asdict() for line in mapped]
    app.answer(
        {"secrets": document},
        lambda: print_table(
            ("name", "reference", "team", "skill"),
            rows,
            empty="no secrets mapped: `skillexec secret map NAME op://...`",
        ),
    )


@secret.command()
@click.argument("skill", required=False)
@click.option("--team", default="", help="As this team would get them.")
@pass_app
def check(app: App, skill: str | None, team: str) -> int:
    """Ask 1Password for every mapped secret, or for those of SKILL, and say yes or no for each."""
    from skillexec.catalog import library_for
    from skillexec.errors import SecretsMissing
    from skillexec.permissions.references import check_team
    from skillexec.secrets import check_all, check_skill
    from skillexec.vault import OnePassword, Vault

    config = app.config()
    vault = Vault(OnePassword(account=config.secrets.account), deadline=config.secrets.deadline)
    with app.state() as state, state.read() as connection, vault:
        if team:
            check_team(connection, team)
        if skill is None:
            answers = check_all(connection, vault, team=team)
        else:
            found = library_for(config, app.home, project=working_directory()).get(skill)
            answers = check_skill(connection, vault, found, team=team)
    rows = [
        (answer.name, answer.scope, "no" if answer.problem else "yes", answer.problem) for answer in answers
    ]
    failed = any(answer.problem for answer in answers)
    empty = f"{skill} needs no secrets" if skill else "nothing to check: no secrets mapped"
    document = [
        {"name": a.name, "scope": a.scope, "ok": not a.problem, "problem": a.problem} for a in answers
    ]
    app.answer(
        {"ok": not failed, "secrets": document},
        lambda: print_table(("name", "for", "there", "problem"), rows, empty=empty),
    )
    return SecretsMissing.exit_status if failed else 0
