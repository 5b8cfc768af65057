"""The command line: parsing and printing, nothing else. One file per noun, loaded when it is named."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import click

from skillexec import __version__
from skillexec.cli.context import Group

# noun -> where it is, and one line of help, so that `skillexec --help` imports none of them.
COMMANDS = {
    "init": ("skillexec.cli.home:init", "Make the home: state, config and keys."),
    "doctor": ("skillexec.cli.doctor:doctor", "Say what works here, and what to do about the rest."),
    "skill": ("skillexec.cli.skill:skill", "Find, read and check skills."),
    "root": ("skillexec.cli.root:root", "Say in which folders skills are found, and in which order."),
    "trust": ("skillexec.cli.root:trust", "Trust the skills of a project folder as your own."),
    "image": ("skillexec.cli.image:image", "Build and check the shared CLI tools image."),
    "team": ("skillexec.cli.team:team", "Teams, and which system a team was spawned from."),
    "system": ("skillexec.cli.system:system", "Systems: the agents of a team."),
    "envelope": ("skillexec.cli.envelope:envelope", "Say which skills a team may use at all."),
    "grant": ("skillexec.cli.grant:grant", "Grant skills to systems, five at most each."),
    "why": ("skillexec.cli.why:why", "Explain, step by step, why a system may or may not run a skill."),
    "policy": ("skillexec.cli.policy:policy", "Teams, systems and grants as a reviewed file."),
    "audit": ("skillexec.cli.audit:audit", "Review who was granted what, who ran what, and what was denied."),
    "secret": ("skillexec.cli.secret:secret", "Say where secrets come from, and check that they do."),
    "approve": ("skillexec.cli.approve:approve", "Approve the exact bytes of a skill for a system."),
    "run": ("skillexec.cli.run:run", "Run a skill's script as a system, in a fresh sandbox."),
}


class _Lazy(Group):
    """The top: knows its commands by name and imports the one that is used."""

    def list_commands(self, _context: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, _context: click.Context, name: str) -> click.Command | None:
        if name not in COMMANDS:
            return None
        module, _, attribute = COMMANDS[name][0].partition(":")
        command: click.Command = getattr(import_module(module), attribute)
        return command

    def format_commands(self, _context: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in COMMANDS.items()])


@click.group(cls=_Lazy, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, message="%(prog)s %(version)s")
def cli(**_: Any) -> None:
    """Run the scripts of Agent Skills: only what was granted, in a locked-down container, on the record."""
