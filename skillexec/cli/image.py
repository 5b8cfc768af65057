"""`skillexec image`: build, show and check the shared CLI tools image."""

from __future__ import annotations

import dataclasses
import os
import re
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from skillexec.cli.context import App, Group, pass_app
from skillexec.cli.table import print_table

if TYPE_CHECKING:
    from skillexec.images import Built, Facts, Progress, Step, Verdict

_NAMED_RUN = re.compile(r'RUN : "([^"]+)"')
_WIDEST = 100
_TAG_HELP = "The image's name and tag (default: the setting sandbox.image)."


@click.group(cls=Group)
def image() -> None:
    """Build and check the shared CLI tools image, in which every skill runs."""


# --- progress


def _title(step: Step) -> str:
    """What a step does, in words; empty for a line of the Dockerfile that takes no time."""
    if not step.number:
        return step.text
    if named := _NAMED_RUN.match(step.text):
        return named[1]
    verb, _, rest = step.text.partition(" ")
    return {"COPY": f"copying {rest}", "RUN": f"running {rest}", "FROM": "starting from the base"}.get(
        verb, ""
    )


def _print_step(step: Step) -> None:
    title = "" if step.detail else _title(step)
    if not title:
        return
    place = f"[{step.number}/{step.total}] " if step.number else ""
    click.echo(f"{place}{title[:_WIDEST] if place else title}", err=True)


@contextmanager
def _drawn() -> Iterator[Progress]:
    """A line that moves: what is being done, how far, for how long. Notes stay above it."""
    from rich import progress
    from rich.console import Console
    from rich.markup import escape

    console = Console(stderr=True)
    columns = (
        progress.SpinnerColumn(),
        progress.TextColumn("{task.description}"),
        progress.BarColumn(bar_width=20),
        progress.MofNCompleteColumn(),
        progress.TimeElapsedColumn(),
        progress.TextColumn("[dim]{task.fields[detail]}"),
    )
    with progress.Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("asking the engine", total=None, detail="")

        def show(step: Step) -> None:
            title = escape(_title(step)[:_WIDEST])
            if step.note:
                bar.console.print(title, style="yellow")
            elif step.detail:
                bar.update(task, detail=title)
            elif title:
                bar.update(task, description=title, detail="")
            if step.number:
                bar.update(task, total=step.total, completed=step.number - 1)

        yield show


@contextmanager
def _progress(app: App) -> Iterator[Progress]:
    if app.json:
        yield lambda _step: None
    elif sys.stderr.isatty():
        with _drawn() as show:
            yield show
    else:
        yield _print_step


# --- build


def _log_file(app: App) -> Path:
    folder = app.home.logs if app.home.logs.is_dir() else Path(tempfile.mkdtemp(prefix="skillexec-"))
    return folder / f"image-build-{time.strftime('%Y%m%dT%H%M%S')}-{os.getpid()}.log"


def _megabytes(size: int) -> str:
    return f"{size / 1e6:.0f} MB"


def _print_built(built: Built) -> None:
    if not built.built:
        click.echo(f"{built.tag} is up to date ({built.image[:19]})")
        return
    click.echo(f"built {built.tag} in {built.seconds:.0f} s: {built.image[:19]}, {_megabytes(built.size)}")
    click.echo(f"  base  {built.base}")
    click.echo(f"  log   {built.log}")


@image.command()
@click.option(
    "--if-needed", is_flag=True, help="Do nothing where the image is made of the same files already."
)
@click.option(
    "--from", "from_image", metavar="IMAGE", help="Stand the tools on this local image, like Debian's."
)
@click.option(
    "--base",
    metavar="REF",
    default="auto",
    show_default=True,
    help="A registry's NAME@sha256:..., which is pulled; mmdebstrap; or auto: Debian's official image by digest, "
    "and mmdebstrap where no registry answers.",
)
@click.option("--tag", metavar="NAME:TAG", help=_TAG_HELP)
@click.option(
    "--no-cache", "fresh", is_flag=True, help="Use nothing from earlier builds: takes in Debian's updates."
)
@pass_app
def build(
    app: App, *, if_needed: bool, from_image: str | None, base: str, tag: str | None, fresh: bool
) -> None:
    """Build the image: Debian, its packages, our tools and the launcher.

    Takes about a minute and reaches Debian's archive; a registry is asked for the base and nothing else.
    """
    from skillexec import images
    from skillexec.errors import Usage

    if from_image and base != images.AUTO:
        raise Usage("--from and --base both say what to build on", hint="give one of them")
    wanted = tag or app.config().sandbox.image
    with _progress(app) as progress:
        built = images.build(
            tag=wanted,
            log=_log_file(app),
            progress=progress,
            base=base,
            from_image=from_image,
            if_needed=if_needed,
            fresh=fresh,
        )
    _record(app, built)
    app.answer({"image": dataclasses.asdict(built)}, lambda: _print_built(built))


def _record(app: App, built: Built) -> None:
    """On the record, where there is a home to keep one; `make setup` builds before there is."""
    if not built.built or not app.home.state_file.is_file():
        return
    from skillexec.admin import Admin

    duration = round(built.seconds * 1e6)
    with (
        app.state() as state,
        Admin(state, actor=app.actor).recorded(
            "image.built", image=built.image, tag=built.tag, bytes=built.size, duration_us=duration
        ),
    ):
        pass


# --- show


def _age(days: float) -> str:
    if days < 1:
        return f"{days * 24:.0f} hours"
    return f"{days:.0f} days"


def _print_facts(facts: Facts, packages: bool) -> None:
    rows = [
        ("image", facts.tag),
        ("digest", facts.digest),
        ("age", f"{_age(facts.age_days)} (made {facts.created:%Y-%m-%d %H:%M} UTC)"),
        ("size", f"{_megabytes(facts.size)}, {len(facts.packages)} packages, {facts.architecture}"),
        ("base", facts.base or "unknown"),
        ("protocol", facts.protocol or "unknown"),
        ("up to date", "yes" if facts.current else "no: run `skillexec image build`"),
    ]
    width = max(len(name) for name, _ in rows)
    for name, value in rows:
        click.echo(f"{name.ljust(width)}  {value}")
    click.echo()
    print_table(("program", "version"), [(program.name, program.version) for program in facts.programs])
    if packages:
        click.echo()
        listed = [
            (package.name, package.version, f"{package.size / 1e6:.1f} MB") for package in facts.packages
        ]
        print_table(("package", "version", "size"), listed)


@image.command()
@click.option("--tag", metavar="NAME:TAG", help=_TAG_HELP)
@click.option("--packages", is_flag=True, help="List every Debian package, too.")
@pass_app
def show(app: App, *, tag: str | None, packages: bool) -> None:
    """Say what the image is and what is in it.

    Digest, age, size and base; the versions of its programs; with --packages, every package.
    """
    from skillexec import images

    facts = images.show(tag or app.config().sandbox.image)
    document = {**dataclasses.asdict(facts), "created": facts.created.isoformat(), "age_days": facts.age_days}
    app.answer({"image": document}, lambda: _print_facts(facts, packages))


# --- check


def _print_verdict(verdict: Verdict) -> None:
    width = max(len(finding.name) for finding in verdict.findings)
    for finding in verdict.findings:
        mark = click.style("ok    ", fg="green") if finding.ok else click.style("not ok", fg="red", bold=True)
        click.echo(f"{mark}  {finding.name.ljust(width)}  {finding.detail}")
        if finding.fix:
            click.echo(f"{' ' * (width + 10)}{finding.fix}")
    if not verdict.fit:
        click.echo(f"{verdict.tag} is not fit to run skills in", err=True)


@image.command()
@click.option("--tag", metavar="NAME:TAG", help=_TAG_HELP)
@click.pass_context
@pass_app
def check(app: App, context: click.Context, *, tag: str | None) -> None:
    """Check that runs may rely on the image.

    Labels, launcher, user, setuid files and tools, as they are inside. Exits with 30 where the image is missing or
    not fit.
    """
    from skillexec import images
    from skillexec.errors import ImageUnavailable

    verdict = images.check(tag or app.config().sandbox.image)
    document = {"fit": verdict.fit, **dataclasses.asdict(verdict)}
    app.answer({"image": document}, lambda: _print_verdict(verdict))
    context.exit(0 if verdict.fit else ImageUnavailable.exit_status)
