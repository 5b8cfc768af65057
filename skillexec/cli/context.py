"""What every command shares: the three options that work everywhere, the home, and how to answer."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from pathlib import Path

    from skillexec.config import Config
    from skillexec.home import Home
    from skillexec.state import State

JSON_VERSION = 1


def working_directory() -> Path | None:
    """Where one is, which makes it the project; None where somebody removed it."""
    from pathlib import Path

    try:
        return Path.cwd()
    except FileNotFoundError:
        return None


class App:
    """One invocation of the command line. Opens things when a command asks for them, and not before."""

    def __init__(self) -> None:
        self.home_option: str | None = None
        self.actor_option: str | None = None
        self.json = False

    @property
    def home(self) -> Home:
        from skillexec.home import find_home

        return find_home(self.home_option)

    @property
    def actor(self) -> str:
        """Who is acting, for the audit log: --actor, else $SKILLEXEC_ACTOR, else the login name."""
        named = self.actor_option or os.environ.get("SKILLEXEC_ACTOR")
        if named:
            return named
        import getpass

        try:
            return getpass.getuser()
        except (KeyError, OSError):  # a user without a name, as in many containers
            return f"uid-{os.getuid()}"

    def config(self) -> Config:
        """The settings; defaults where no home was made yet. A home that others may write is refused."""
        from skillexec.config import load_config

        if self.home.exists:
            self.home.check()
        return load_config(self.home.config_file)

    def state(self) -> State:
        """The database, to be used with `with`. Needs a home."""
        from skillexec.state import State

        self.home.check()
        return State.open(self.home.state_file)

    def answer(self, document: Mapping[str, Any], human: Callable[[], None]) -> None:
        """Print the answer once: as one versioned JSON object, or for a person."""
        if self.json:
            import json

            click.echo(json.dumps({"version": JSON_VERSION, **document}, ensure_ascii=True, default=str))
        else:
            human()


def _remember(context: click.Context, parameter: click.Parameter, value: Any) -> None:
    app = context.find_root().ensure_object(App)
    if parameter.name == "as_json":
        app.json = app.json or bool(value)
    elif parameter.name == "home" and value:
        app.home_option = value
    elif parameter.name == "actor" and value:
        app.actor_option = value


def _everywhere() -> list[click.Parameter]:
    return [
        click.Option(
            ["--home"],
            metavar="DIR",
            expose_value=False,
            is_eager=True,
            callback=_remember,
            help="Use this home instead of $SKILLEXEC_HOME or your data folder.",
        ),
        click.Option(
            ["--actor"],
            metavar="NAME",
            expose_value=False,
            is_eager=True,
            callback=_remember,
            help="Who acts, for the audit log (default: your login name).",
        ),
        click.Option(
            ["--json", "as_json"],
            is_flag=True,
            expose_value=False,
            is_eager=True,
            callback=_remember,
            help="Print one JSON object and nothing else.",
        ),
    ]


class Command(click.Command):
    """A command that takes --home, --actor and --json, as all of them do."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.params.extend(_everywhere())


class Group(click.Group):
    """A noun and its verbs; it and they take --home, --actor and --json."""

    command_class = Command
    group_class = type  # a group inside a group is a Group too

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.params.extend(_everywhere())


pass_app = click.make_pass_decorator(App, ensure=True)


def stdout_is_terminal() -> bool:
    return sys.stdout.isatty()
