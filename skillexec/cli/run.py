"""skillexec run."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from skillexec.cli.context import App, Command, pass_app, working_directory
from skillexec.cli.interrupt import interrupt_calls
from skillexec.cli.live import Live
from skillexec.cli.table import printable
from skillexec.errors import InvalidInput, Usage
from skillexec.model import Artifact, Confirmation, InputFile, Limits, RunRequest, RunResult, Status

if TYPE_CHECKING:
    from skillexec.runner import Confirm

_SWITCH_SECONDS = 0.0005
_READ_MAX = 64 << 20  # bytes of one file: as much as a run takes in all
_MARKS = {Status.OK: ("ok", "green"), Status.DENIED: ("denied", "red")}


def _read(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            data = file.read(_READ_MAX + 1)
    except OSError as error:
        raise InvalidInput(f"can't read {path}: {error.strerror}", hint="check the path") from error
    if len(data) > _READ_MAX:  # /dev/zero has no end
        raise InvalidInput(f"{path} is larger than {_READ_MAX >> 20} MiB", hint="hand in less")
    return data


def _parse_input(text: str | None) -> Any:
    """JSON itself, @FILE, or - for standard input."""
    if text is None:
        return None
    raw = text
    if text == "-":
        raw = sys.stdin.read()
    elif text.startswith("@"):
        raw = _read(Path(text[1:])).decode("utf-8", "surrogateescape")
    try:
        return json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise InvalidInput(
            f"--input is not JSON: {error}", hint="give JSON, @FILE or - for standard input"
        ) from error


def _parse_file(text: str) -> InputFile:
    """PATH or PATH:NAME; a path with a colon in it works where such a file exists."""
    path, colon, name = text.rpartition(":")
    if not colon or Path(text).exists():
        path, name = text, Path(text).name
    return InputFile(name, _read(Path(path)))


def _enter(parent: int, name: str) -> int:
    """A folder inside a folder, made where it is missing; never through a link that lies there."""
    with contextlib.suppress(FileExistsError):
        os.mkdir(name, dir_fd=parent)
    return os.open(name, os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent)


def _write(folder: Path, artifact: Artifact) -> Path:
    """The name comes from the script, and what lies in the folder may, too: neither leads out of it."""
    *parents, name = Path(artifact.name).parts
    with contextlib.ExitStack() as opened:
        inside = os.open(folder, os.O_DIRECTORY | os.O_CLOEXEC)
        opened.callback(os.close, inside)
        for parent in parents:
            inside = _enter(inside, parent)
            opened.callback(os.close, inside)
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        mode = 0o755 if artifact.executable else 0o644
        with os.fdopen(os.open(name, flags, mode, dir_fd=inside), "wb") as file:
            file.write(artifact.data)
    return folder / artifact.name


@contextlib.contextmanager
def _writing_to(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise Usage(
            f"can't write artifacts to {folder}: {error.strerror}", hint="choose another --out"
        ) from error


def _make_folder(folder: Path) -> None:
    """Before the run: what can't be kept should not have been made."""
    with _writing_to(folder):
        folder.mkdir(parents=True, exist_ok=True)


def _save(result: RunResult, folder: Path) -> tuple[list[Path], Usage | None]:
    """What was written, and what came in the way: the run is over, and its result has to be told all the same."""
    saved: list[Path] = []
    try:
        with _writing_to(folder):
            for artifact in result.artifacts:
                saved.append(_write(folder, artifact))
    except Usage as problem:
        return saved, problem
    return saved, None


def _say(text: str) -> None:
    """To the person. What a script or a skill put into it can't move the cursor."""
    click.echo(printable(text), err=True)


def _ask(question: Confirmation) -> bool:
    _say(f"{question.skill} is a skill of source {question.source}: nobody vouches for it.")
    _say(f"  digest   {question.digest}")
    _say(f"  runs     {question.command}, for {question.seconds:g} s at most")
    _say(f"  secrets  {', '.join(question.secrets) or 'none'}")
    asked = f"asks for {', '.join(question.network)}; gets none" if question.network else "none"
    _say(f"  network  {asked}")
    try:
        return click.confirm(f"Run it as {question.system}?", err=True)
    except click.Abort:
        raise KeyboardInterrupt from None


def _confirmation(yes: bool, live: Live | None) -> Confirm | None:
    if yes:
        return lambda _question: True
    if live is None or not sys.stdin.isatty():
        return None

    def ask(question: Confirmation) -> bool:
        with live.paused():
            return _ask(question)

    return ask


def _size(count: int) -> str:
    return f"{count / (1 << 20):.1f} MiB" if count >= 1 << 20 else f"{count / 1024:.1f} KiB"


def _closing(result: RunResult) -> None:
    """One line that says how it went; what to do, where it did not."""
    word, colour = _MARKS.get(result.status, (str(result.status), "yellow"))
    used = (
        [f"{result.usage.wall_seconds * 1000:.0f} ms", _size(result.usage.peak_memory)]
        if result.image
        else []
    )
    parts = [click.style(word, fg=colour, bold=True), *used, f"run {result.run_id}"]
    click.echo(" · ".join(parts), err=True)
    if result.error:
        _say(f"error: {result.error.message}")
        if result.error.hint:
            _say(f" next: {result.error.hint}")
    for note in result.notes:
        _say(f"note: {note}")


def _kept(result: RunResult, saved: list[Path], out: Path | None) -> None:
    for path in saved:
        _say(f"wrote {path}")
    if result.artifacts and out is None:
        names = ", ".join(artifact.name for artifact in result.artifacts)
        _say(f"artifacts not kept: {names} (keep them with --out DIR)")


def _tell(app: App, result: RunResult, out: Path | None) -> int:
    """Print the result; the exit status to it."""
    from skillexec.result import as_document, exit_status

    saved, problem = _save(result, out) if out else ([], None)
    if problem:
        result = replace(result, notes=(*result.notes, problem.message))
    if app.json:
        document = as_document(result, with_artifacts=out is None or problem is not None)
        click.echo(json.dumps(document | {"saved": [str(path) for path in saved]}))
    else:
        _closing(result)
        _kept(result, saved, out)
    return problem.exit_status if problem and result.ok else exit_status(result)


@contextlib.contextmanager
def _live(app: App) -> Iterator[Live | None]:
    if app.json:
        yield None
        return
    with Live() as live:
        yield live


@click.command(cls=Command)
@click.argument("skill")
@click.option("--as", "system", metavar="SYSTEM", required=True, help="The system that runs it.")
@click.option(
    "--script", metavar="PATH", help="Which file of the skill (default: its tool, or its only script)."
)
@click.option("--module", metavar="NAME", help="Run a Python module of the skill instead: python -m NAME.")
@click.option("--input", "input_text", metavar="JSON|@FILE|-", help="The input, held to the skill's schema.")
@click.option(
    "--file", "files", metavar="PATH[:NAME]", multiple=True, help="Hand in a file; found in $SKILLEXEC_IN."
)
@click.option(
    "--out",
    metavar="DIR",
    type=click.Path(path_type=Path),
    help="Keep what the script leaves in $SKILLEXEC_OUT.",
)
@click.option("--timeout", metavar="S", type=float, help="Seconds; can only lower the skill's own limit.")
@click.option(
    "--run-id", metavar="ID", default="", help="Name the run yourself; each name once (default: made up)."
)
@click.option(
    "--yes", is_flag=True, help="Confirm a skill that nobody vouches for, this once; it is recorded."
)
@click.argument("args", nargs=-1, type=click.UNPROCESSED)
@pass_app
def run(
    app: App,
    /,
    *,
    input_text: str | None,
    files: tuple[str, ...],
    out: Path | None,
    yes: bool,
    **named: Any,
) -> int:
    """Run SKILL as a system: only if it was granted, in a fresh container without network, on the record.

    ARGS go to the script as they are; put them behind --.

    Exits 0 when the script did, 10 when it failed, 11 after a time-out, 20 when denied; docs/run.md lists them all.
    """
    from skillexec.runner import Runner
    from skillexec.sandbox import Cancel

    cancel = Cancel()
    # The thread that starts the container asks for the interpreter some fifty times, briefly, while this one imports.
    sys.setswitchinterval(_SWITCH_SECONDS)
    if out:
        _make_folder(out)
    handed_in = tuple(_parse_file(file) for file in files)
    request = RunRequest(input=_parse_input(input_text), files=handed_in, **named)
    with (
        Runner.open(app.home_option, once=True, actor=app.actor, project=working_directory()) as runner,
        _live(app) as live,
        interrupt_calls(cancel.cancel) as take_interrupts,
    ):

        def started(limits: Limits) -> None:
            take_interrupts()
            if live:
                live.start(limits)

        result = runner.run(
            request,
            confirm=_confirmation(yes, live),
            on_start=started,
            on_output=live.show if live else None,
            cancel=cancel,
        )
    return _tell(app, result, out)
