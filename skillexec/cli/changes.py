"""How a change of permissions is told: as a diff for a person, as events for a program."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from skillexec.cli.context import App

if TYPE_CHECKING:
    from skillexec.admin import Admin
    from skillexec.permissions.change import Changes

_COLOURS = {"+": "green", "-": "red", "~": "yellow"}


@contextmanager
def operating(app: App) -> Iterator[Admin]:
    """The operator's façade over this home."""
    from skillexec.admin import Admin

    with app.state() as state:
        yield Admin(state, actor=app.actor)


def print_changes(changes: Changes, *, nothing: str) -> None:
    """One line for each change."""
    if not changes:
        click.echo(nothing)
    for change in changes:
        click.echo(click.style(str(change), fg=_COLOURS[str(change)[0]]))


def answer_changes(app: App, changes: Changes, *, nothing: str, **more: Any) -> None:
    """Tell what changed, or that nothing had to."""
    document: Mapping[str, Any] = {
        "changed": bool(changes),
        "changes": [change.as_json() for change in changes],
    }
    app.answer({**document, **more}, lambda: print_changes(changes, nothing=nothing))
