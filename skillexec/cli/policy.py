"""skillexec policy."""

from __future__ import annotations

import hashlib
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING

import click

from skillexec.cli.changes import answer_changes, operating
from skillexec.cli.context import App, Group, pass_app
from skillexec.errors import Usage

if TYPE_CHECKING:
    from skillexec.model import Source
    from skillexec.permissions.policy_file import Policy

_PRUNE = click.option("--prune", is_flag=True, help="Also remove the teams that the file does not name.")


@click.group(cls=Group)
def policy() -> None:
    """Teams, systems and grants as a reviewed file.

    A file is the whole truth about the teams that it names, and says nothing about others, unless --prune.
    """


def _read(file: str) -> tuple[Policy, str]:
    from skillexec.permissions.policy_file import MAX_BYTES, parse_policy

    try:
        with Path(file).open("rb") as stream:
            data = stream.read(MAX_BYTES + 1)
        if len(data) > MAX_BYTES:  # before decoding: what was read is not the whole file
            raise Usage(f"{file}:1: larger than {MAX_BYTES} bytes", hint="split it by teams")
        text = data.decode("utf-8-sig")
    except OSError as error:
        raise Usage(f"can't read {file}: {error.strerror}", hint="check the path") from error
    except UnicodeDecodeError as error:
        raise Usage(f"{file} is not UTF-8", hint="nothing was applied") from error
    return parse_policy(text, where=file), "sha256:" + hashlib.sha256(data).hexdigest()


def _finder(app: App, name: str) -> Source | None:
    from skillexec.cli.lookup import find_source

    return find_source(app, name)


@policy.command()
@click.argument("file")
@_PRUNE
@pass_app
def plan(app: App, file: str, prune: bool) -> None:
    """Show what applying FILE would change. Changes nothing."""
    declared, digest = _read(file)
    with operating(app) as admin:
        changes = admin.plan(declared, find=lambda name: _finder(app, name), prune=prune)
    answer_changes(app, changes, nothing="nothing to change", policy=digest)
    if changes and not app.json:
        pruned = " --prune" if prune else ""
        click.echo(
            f"nothing was changed yet: `skillexec policy apply {quote(file)}{pruned}` does it", err=True
        )


@policy.command()
@click.argument("file")
@_PRUNE
@pass_app
def apply(app: App, file: str, prune: bool) -> None:
    """Make the state what FILE says, in one transaction, and show what changed."""
    declared, digest = _read(file)
    with operating(app) as admin:
        changes = admin.apply(declared, digest=digest, find=lambda name: _finder(app, name), prune=prune)
    answer_changes(app, changes, nothing="nothing to change", policy=digest)


@policy.command()
@click.argument("file", required=False, default="-")
@click.option(
    "--casbin", is_flag=True, help="As lines for a Casbin enforcer with the shipped policies/model.conf."
)
@pass_app
def export(app: App, file: str, casbin: bool) -> None:
    """Write the present state to FILE (default: standard output), as a policy or as Casbin lines."""
    with operating(app) as admin:
        text = admin.export_casbin() if casbin else admin.export_yaml()
    if file != "-":
        try:
            Path(file).write_text(text)
        except OSError as error:
            raise Usage(f"can't write {file}: {error.strerror}", hint="check the path") from error
        app.answer({"file": file, "bytes": len(text)}, lambda: click.echo(f"wrote {file}"))
        return
    app.answer({"format": "casbin" if casbin else "yaml", "text": text}, lambda: click.echo(text, nl=False))
