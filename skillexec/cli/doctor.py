"""skillexec doctor."""

from __future__ import annotations

import click

from skillexec.cli.context import App, Command, pass_app
from skillexec.cli.table import one_line


@click.command(cls=Command)
@click.option(
    "--deep", is_flag=True, help="Also run the conformance skill in the sandbox: proves the installation."
)
@pass_app
def doctor(app: App, deep: bool) -> int:
    """Say of engine, image, state, skills and secrets what works, and what to do about the rest.

    Exits 0 when nothing is wrong, 30 when a run would fail for the engine's or the image's sake, 40 when the state
    can't be used.
    """
    from skillexec.health import Check, Mark, checks, deep_checks, verdict

    shown: list[Check] = []
    marks = {Mark.OK: ("ok", "green"), Mark.WARNING: ("warn", "yellow"), Mark.FAILED: ("FAIL", "red")}

    def show(check: Check) -> None:
        shown.append(check)
        if app.json:
            return
        word, colour = marks[check.mark]
        click.echo(
            f"{click.style(word.rjust(4), fg=colour)}  {check.subject.ljust(8)} {one_line(check.finding)}"
        )
        if check.hint:
            click.echo(f"               next: {one_line(check.hint)}")

    for check in checks(app.home):
        show(check)
    if deep:
        for check in deep_checks(app.home):
            show(check)
    status = verdict(shown)
    app.answer({"ok": status == 0, "checks": [check.as_json() for check in shown]}, lambda: None)
    return status
