"""The one boundary: whatever happens inside becomes an exit status and a message that says what to do."""

from __future__ import annotations

import errno
import os
import sys
import time
from typing import TYPE_CHECKING

import click

from skillexec.cli import cli
from skillexec.cli.context import JSON_VERSION, App
from skillexec.cli.table import printable
from skillexec.errors import Bug, InfraError, SkillexecError, Usage

if TYPE_CHECKING:
    from pathlib import Path

MAX_WIDTH = 100
INTERRUPTED = 130  # what shells expect after Ctrl-C


class _Unwritable(InfraError):
    """Standard output takes no more, and so no JSON about it either."""


def _width() -> int:
    """The columns for help texts. Click would ask shutil, which loads three compressors for it."""
    try:
        columns = int(os.environ.get("COLUMNS", "0")) or os.get_terminal_size(1).columns
    except (ValueError, OSError):  # no number, or no terminal
        columns = 0
    return min(columns or 80, MAX_WIDTH) - 2


def _report(app: App, error: SkillexecError) -> int:
    if app.json and not isinstance(error, _Unwritable):
        import json

        problem = {"code": error.code, "message": error.message, "hint": error.hint}
        click.echo(json.dumps({"version": JSON_VERSION, "error": problem}))
    else:
        click.echo(f"{click.style('error:', fg='red', bold=True)} {printable(error.message)}", err=True)
        if error.hint:
            click.echo(f"{click.style(' next:', bold=True)} {printable(error.hint)}", err=True)
    return error.exit_status


def _asks_for_json(arguments: list[str] | None) -> bool:
    """Whether --json was given where click had not come to it. What follows `--` is a script's own."""
    given = sys.argv[1:] if arguments is None else arguments
    return "--json" in given[: given.index("--") if "--" in given else None]


def _interrupted(app: App) -> int:
    if app.json:
        import json

        problem = {"code": "cancelled", "message": "interrupted", "hint": ""}
        click.echo(json.dumps({"version": JSON_VERSION, "error": problem}))
    else:
        click.echo("interrupted", err=True)
    return INTERRUPTED


def _as_usage(error: click.ClickException) -> Usage:
    context = error.ctx if isinstance(error, click.UsageError) else None
    return Usage(error.format_message(), hint=f"`{context.command_path} --help`" if context else "")


def _logs(app: App) -> Path | None:
    """The home's folder for logs, unless the very bug is about the home."""
    try:
        logs = app.home.logs
        return logs if logs.is_dir() else None
    except Exception:  # noqa: BLE001 - whatever is wrong, the first error is the one to report
        return None


def _write_traceback(app: App) -> Path:
    """Where nobody but this user can read it. The traceback holds no local values."""
    import tempfile
    import traceback
    from pathlib import Path

    name = f"bug-{time.strftime('%Y%m%dT%H%M%S')}-{os.getpid()}.txt"
    path = (_logs(app) or Path(tempfile.mkdtemp(prefix="skillexec-"))) / name
    path.touch(mode=0o600)
    path.write_text(traceback.format_exc())
    return path


def _bug(app: App, error: Exception) -> Bug:
    path = _write_traceback(app)
    return Bug(
        f"a bug in skillexec ({type(error).__name__})", hint=f"the traceback is in {path}: please report it"
    )


def _open_closed_streams() -> None:
    """A caller may start us without them (>&-): what is printed is lost then, and nothing else takes their place."""
    for number, (name, mode) in enumerate((("stdin", "r"), ("stdout", "w"), ("stderr", "w"))):
        if getattr(sys, name) is None:
            os.dup2(os.open(os.devnull, os.O_RDWR), number)
            setattr(sys, name, os.fdopen(number, mode))


def main(arguments: list[str] | None = None) -> None:
    """Run the command line and exit with its status."""
    app = App()
    _open_closed_streams()
    try:
        status = cli.main(
            args=arguments, prog_name="skillexec", obj=app, standalone_mode=False, terminal_width=_width()
        )
        sys.stdout.flush()
    except SkillexecError as error:
        status = _report(app, error)
    except click.ClickException as error:
        app.json = app.json or _asks_for_json(arguments)
        status = _report(app, _as_usage(error))
    except (KeyboardInterrupt, click.Abort):
        status = _interrupted(app)
    except BrokenPipeError:
        # The reader (head, a pager) has what it wanted. Python would complain once more while it shuts down.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        status = 0
    except OSError as error:
        full = error.errno == errno.ENOSPC
        status = _report(
            app, _Unwritable("no space left", hint="free disk space") if full else _bug(app, error)
        )
    except Exception as error:  # noqa: BLE001 - the boundary: everything unexpected is our bug, and says so
        status = _report(app, _bug(app, error))
    sys.exit(status if isinstance(status, int) else 0)
