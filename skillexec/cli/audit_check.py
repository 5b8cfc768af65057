"""skillexec audit verify and checkpoint."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from skillexec.cli.audit_text import counted
from skillexec.cli.context import App, Command, pass_app
from skillexec.errors import AuditUnusable, Usage

if TYPE_CHECKING:
    from collections.abc import Sequence

    from skillexec.audit.events import Json
    from skillexec.audit.verify import Finding, Report


@contextmanager
def _progress(app: App, total: Callable[[], int]) -> Iterator[Callable[[int], None]]:
    """A bar for a person who waits; nothing for anybody else."""
    if app.json or not sys.stderr.isatty():
        yield lambda _done: None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("verifying", total=total())
        yield lambda done: progress.update(task, completed=done)


def _refuse(findings: Sequence[Finding]) -> None:
    if findings:
        raise AuditUnusable(
            "the audit log does not verify: " + "; ".join(map(str, findings)),
            hint="keep a copy of the home as evidence, then restore the log from a backup",
        )


def _verdict(report: Report, checkpoints: int) -> str:
    words = f"all is as it was written: {counted(report.records, 'record')}, newest hash {report.head.hash}"
    if checkpoints:
        return f"{words}\nagrees with {counted(checkpoints, 'checkpoint')}"
    return f"{words}\na cut-off end would show only against a checkpoint: --checkpoint FILE"


@click.command(cls=Command)
@click.option(
    "--checkpoint",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Compare with the checkpoints in this file: shows a cut-off end, too.",
)
@click.option(
    "--key",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Check their signatures with this public key instead of the home's.",
)
@pass_app
def verify(app: App, checkpoint: Path | None, key: Path | None) -> None:
    """Check every record, every link between them and the guards of the log; name the first bad record."""
    from skillexec.audit import verify as checks
    from skillexec.audit.checkpoint import check, load_public_key, public_path, read_checkpoints

    if key and not checkpoint:
        raise Usage("--key is for checkpoints, and none are named", hint="add --checkpoint FILE")
    if checkpoint and not checkpoint.exists():
        raise Usage(
            f"there is no {checkpoint}", hint="`skillexec audit checkpoint --to FILE` makes such a file"
        )
    # Read before the log: the log may grow meanwhile, the checkpoints then never are ahead of it.
    checkpoints = read_checkpoints(checkpoint) if checkpoint else ()
    public = load_public_key(key or public_path(app.home.audit_key)) if checkpoint else None
    with app.state() as state, state.read() as connection:
        with _progress(app, lambda: checks.count(connection)) as progress:
            report = checks.verify(connection, progress=progress)
        findings = report.findings
        if public and not any(finding.seq for finding in findings):
            findings += tuple(check(connection, checkpoints, public, newest=report.records))
    _refuse(findings)
    document = {
        "ok": True,
        "records": report.records,
        "head": report.head.hash,
        "checkpoints": len(checkpoints),
    }
    app.answer(document, lambda: click.echo(_verdict(report, len(checkpoints))))


@click.command(cls=Command)
@click.option(
    "--to",
    "target",
    required=True,
    type=click.Path(dir_okay=False, path_type=Path),
    help="The file to add it to: on another disk, or wherever this user can only append.",
)
@pass_app
def checkpoint(app: App, target: Path) -> None:
    """Verify the log and add a signed note of its length and newest hash to a file.

    Whoever cuts off the log's end later, or writes it anew, contradicts the note.
    """
    from skillexec.audit import Event, append
    from skillexec.audit import verify as checks
    from skillexec.audit.checkpoint import load_key, take

    key = load_key(app.home.audit_key)
    with app.state() as state:
        with state.read() as connection, _progress(app, lambda: checks.count(connection)) as progress:
            made = take(connection, key, target, progress=progress)
        data: dict[str, Json] = {"count": made.count, "head": made.head, "key": made.key}
        with state.write() as connection:
            append(connection, Event("checkpoint.made", app.actor, data=data))
    document = {
        "count": made.count,
        "head": made.head,
        "time": made.time,
        "key": made.key,
        "file": str(target),
    }
    words = f"a checkpoint of {counted(made.count, 'record')} was added to {target}, signed with the key {made.key}"
    app.answer({"checkpoint": document}, lambda: click.echo(words))
