"""skillexec init."""

from __future__ import annotations

import click

from skillexec.cli.context import App, Command, pass_app

_CONFIG = """\
# skillexec's settings. Every one of them can be left out, and be given as an environment variable instead:
# [sandbox] memory is SKILLEXEC_SANDBOX_MEMORY. `skillexec root` and `skillexec trust` edit this file and keep
# your comments.

# [timeouts]            # seconds of each timeout class
# short = 30
# standard = 60
# long = 180

# [sandbox]
# memory = "512m"       # per run, writable space included
# cpus = 1.0
# pids = 128
# concurrent = 8        # runs at once; more wait their turn
# warm = 2              # containers kept waiting
# runtime = "runsc"     # gVisor, where the engine has it

# [secrets]
# deadline = 10         # seconds that 1Password has to answer
# account = "my.1password.com"  # use the desktop app where there is no OP_SERVICE_ACCOUNT_TOKEN
"""


@click.command(cls=Command)
@pass_app
def init(app: App) -> None:
    """Make the home: the state database, the config and the key that signs audit checkpoints.

    Run it again as often as you like: what is there stays as it is.
    """
    from skillexec.init import create_home

    home = app.home
    made = create_home(home, actor=app.actor, config=_CONFIG)
    if made:
        app.answer(
            {"home": str(home.path), "created": True}, lambda: click.echo(f"made the home {home.path}")
        )
    else:
        app.answer(
            {"home": str(home.path), "created": False}, lambda: click.echo(f"{home.path} is a home already")
        )
