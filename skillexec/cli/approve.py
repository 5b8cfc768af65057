"""skillexec approve."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import click

from skillexec.cli.context import App, Command, pass_app, working_directory
from skillexec.errors import Usage

_UNITS = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


def _until(text: str | None) -> datetime | None:
    """A time (2027-01-31, 2027-01-31T12:00Z), or a span from now (12h, 30d)."""
    if text is None:
        return None
    try:
        if text[:-1].isdecimal() and text[-1:] in _UNITS:
            moment = datetime.now(UTC) + timedelta(**{_UNITS[text[-1]]: int(text[:-1])})
        else:
            moment = datetime.fromisoformat(text)
        moment = moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC)
    except (ValueError, OverflowError) as error:
        raise Usage(f"{text!r} is no time", hint="give 12h, 30d, 2027-01-31 or 2027-01-31T12:00Z") from error
    if moment <= datetime.now(UTC):
        raise Usage(f"{text} is over", hint="give a time to come")
    return moment


@click.command(cls=Command)
@click.argument("skill")
@click.option("--as", "system", metavar="SYSTEM", required=True, help="For which system.")
@click.option(
    "--until", metavar="WHEN", help="When the approval ends: 12h, 30d, 2027-01-31 (default: when revoked)."
)
@click.option("--revoke", is_flag=True, help="Take the approvals of this skill for the system away.")
@pass_app
def approve(app: App, skill: str, system: str, until: str | None, revoke: bool) -> None:
    """Approve the exact bytes that SKILL has now, for one system.

    Skills of users and third parties need this, or a confirmation at each run. When a byte of the skill changes, the
    approval no longer covers it.
    """
    from skillexec.admin import Admin
    from skillexec.catalog import library_for
    from skillexec.skills.bundle import take_bundle

    expires = _until(until)
    with app.state() as state:
        admin = Admin(state, actor=app.actor)
        if revoke:
            changes = admin.revoke_approvals(system=system, skill=skill)
            words = f"revoked {len(changes)}" if changes else "there was no approval"
            app.answer({"revoked": len(changes)}, lambda: click.echo(f"{skill} as {system}: {words}"))
            return
        found = library_for(app.config(), app.home, project=working_directory()).get(skill)
        digest = take_bundle(found.directory).digest
        changes = admin.approve(system=system, skill=skill, digest=digest, expires=expires)
    ends = f" until {expires:%Y-%m-%d %H:%M} UTC" if expires else ""
    words = "approved" if changes else "was approved already"
    document = {
        "skill": skill,
        "system": system,
        "digest": digest,
        "expires": expires.isoformat(timespec="seconds") if expires else None,
        "changed": bool(changes),
    }
    app.answer(document, lambda: click.echo(f"{skill} {words} for {system}{ends}: {digest}"))
