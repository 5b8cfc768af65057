"""`skillexec root` and `skillexec trust`: where skills are found, and whose word counts."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any

import click

from skillexec.cli.context import App, Command, Group, pass_app, working_directory
from skillexec.cli.source import SourceType
from skillexec.cli.table import print_table, printable
from skillexec.errors import Usage
from skillexec.model import Source

if TYPE_CHECKING:
    from skillexec.config import Root

_LONGEST = 1024  # characters of a folder that a record has room for


@click.group(cls=Group)
def root() -> None:
    """Say in which folders skills are found, and in which order.

    The most trusted come first, whatever their position, and the first skill of a name wins.
    """


def _absolute(path: str) -> Path:
    if not path:  # an unset variable must not mean the working directory
        raise Usage("an empty path names no folder", hint="name it; `.` is the one that you are in")
    try:
        return Path(path).expanduser().absolute()
    except (RuntimeError, OSError) as error:  # ~somebody who is not there; a working directory that is gone
        raise Usage(f"{path}: {error}", hint="give an absolute path") from error


def _resolved(path: str) -> Path:
    """Without links. A path that leads nowhere, or round in a circle, is as good as another."""
    return Path(os.path.realpath(_absolute(path)))


def _is_folder(path: Path) -> bool:
    try:
        return stat.S_ISDIR(path.stat().st_mode)
    except FileNotFoundError:
        raise Usage(f"{path} does not exist", hint=f"make it first: mkdir -p {quote(str(path))}") from None
    except OSError as error:
        raise Usage(f"{path}: {error.strerror}", hint="name a folder that you may read") from error


def _folder(path: str) -> Path:
    found = _absolute(path)
    if not _is_folder(found):
        raise Usage(f"{found} is not a folder", hint="name the folder whose subfolders are skills")
    folder = _resolved(path)
    if not (str(folder).isprintable() and len(str(folder)) <= _LONGEST):
        raise Usage(
            f"{str(folder)[:80]!r} can't be put on the record", hint="rename it, in printable characters"
        )
    return folder


def _roots(app: App) -> tuple[Root, ...]:
    """The operator's roots in the order in which they count. Needs a home, which they are kept in."""
    app.home.check()
    return app.config().ordered_roots()


def _unless_changed(before: object, now: object) -> None:
    """Under the write lock: what somebody else saved since we looked must not be undone by us."""
    if before != now:
        raise Usage("the config was changed meanwhile by another command", hint="try again")


def _save(app: App, roots: tuple[Root, ...], event: str, changed: Root, *, before: tuple[Root, ...]) -> None:
    """Write the roots, on the record: which skills there are decides what a grant means."""
    from skillexec.admin import Admin
    from skillexec.config import save_roots

    ordered = tuple(sorted(roots, key=lambda one: one.source.rank))
    place = {"position": ordered.index(changed) + 1} if changed in ordered else {}
    with (
        app.state() as state,
        Admin(state, actor=app.actor).recorded(
            event, folder=str(changed.path), source=str(changed.source), **place
        ),
    ):
        _unless_changed(before, _roots(app))
        save_roots(app.home.config_file, ordered)


def _find(roots: tuple[Root, ...], path: str) -> Root:
    """The root of this path, which need not exist any more."""
    wanted = {_absolute(path), _resolved(path)}
    for one in roots:
        if one.path in wanted:
            return one
    raise Usage(f"no root {_absolute(path)}", hint="`skillexec root list` shows them")


def _say(app: App, changed: bool, message: str, **more: Any) -> None:
    app.answer({"changed": changed, **more}, lambda: click.echo(printable(message)))


@root.command()
@click.argument("path")
@click.option("--source", type=SourceType(), required=True, help="How far it is trusted.")
@click.option("--first", is_flag=True, help="Before the other roots of this source, instead of after them.")
@pass_app
def add(app: App, path: str, source: Source, first: bool) -> None:
    """Look for skills in the subfolders of PATH, too. Adding it again changes its source."""
    from skillexec.config import Root

    roots = _roots(app)
    new = Root(_folder(path), source)
    if new in roots and not first:
        _say(app, False, f"{new.path} is a root already", path=new.path, source=new.source)
        return
    rest = tuple(one for one in roots if one.path != new.path)
    _save(app, (new, *rest) if first else (*rest, new), "root.added", new, before=roots)
    _say(app, True, f"added {new.path} ({new.source})", path=new.path, source=new.source)


def _shown(app: App) -> list[dict[str, Any]]:
    """Every root that counts here, in order; those of the operator with their position."""
    from skillexec.catalog import library_for

    config = app.config()
    positions = {one.path: position for position, one in enumerate(config.ordered_roots(), 1)}
    library = library_for(config, app.home, project=working_directory())
    exists = os.path.isdir  # pathlib's own raises where it may not look
    return [
        {"position": positions.get(path), "path": str(path), "source": str(source), "exists": exists(path)}
        for path, source in library.roots
    ]


@root.command("list")
@pass_app
def list_(app: App) -> None:
    """List the roots in the order in which they count; those without a position are built in or the project's."""
    shown = _shown(app)
    rows = [
        (one["position"], one["source"], one["path"], "" if one["exists"] else "missing") for one in shown
    ]
    app.answer({"roots": shown}, lambda: print_table(("position", "source", "path", ""), rows))


@root.command()
@click.argument("path")
@pass_app
def remove(app: App, path: str) -> None:
    """Look for skills in PATH no more. The folder itself stays."""
    roots = _roots(app)
    gone = _find(roots, path)
    _save(app, tuple(one for one in roots if one != gone), "root.removed", gone, before=roots)
    _say(app, True, f"removed {gone.path}", path=gone.path)


@root.command()
@click.argument("path")
@click.argument("position", type=click.IntRange(min=1))
@pass_app
def move(app: App, path: str, position: int) -> None:
    """Put a root at POSITION, as `root list` counts. A more trusted source still comes first."""
    from skillexec.config import moved

    roots = _roots(app)
    wanted = _find(roots, path)
    _save(app, moved(roots, wanted.path, position), "root.moved", wanted, before=roots)
    after = _roots(app)
    place = after.index(wanted) + 1
    kept = "" if place == min(position, len(after)) else ": roots of a more trusted source come first"
    _say(app, after != roots, f"{wanted.path} is at position {place}{kept}", path=wanted.path, position=place)


@click.command(cls=Command)
@click.argument("path")
@click.option("--remove", "withdraw", is_flag=True, help="Trust it no more.")
@pass_app
def trust(app: App, path: str, withdraw: bool) -> None:
    """Trust the skills of the project folder PATH as your own (source `user` instead of `third_party`)."""
    from skillexec.admin import Admin
    from skillexec.config import save_trusted

    app.home.check()
    project = _resolved(path) if withdraw else _folder(path)
    trusted = app.config().trusted
    if (project in trusted) is not withdraw:
        words = "is trusted already" if project in trusted else "was not trusted"
        _say(app, False, f"{project} {words}", path=project, trusted=project in trusted)
        return
    rest = tuple(one for one in trusted if one != project)
    event = "project.untrusted" if withdraw else "project.trusted"
    with app.state() as state, Admin(state, actor=app.actor).recorded(event, folder=str(project)):
        _unless_changed(trusted, app.config().trusted)
        save_trusted(app.home.config_file, rest if withdraw else (*trusted, project))
    _say(
        app,
        True,
        f"{'no longer trusted' if withdraw else 'trusted'}: {project}",
        path=project,
        trusted=not withdraw,
    )
