"""Makes a home: folders, config, state database, and the key that signs audit checkpoints."""

from __future__ import annotations

from skillexec import __version__
from skillexec.errors import StateUnusable
from skillexec.home import Home


def _write_config(home: Home, text: str) -> None:
    try:
        with home.config_file.open("x") as file:
            file.write(text)
        home.config_file.chmod(0o600)
    except FileExistsError:
        pass  # the operator's own stays as it is


def create_home(home: Home, *, actor: str, config: str) -> bool:
    """Make what is missing, on the record; say whether there was no home before. Safe to repeat."""
    from skillexec.audit import Event, append, head
    from skillexec.audit.checkpoint import create_key, key_id
    from skillexec.state import State

    home.create()
    home.check()
    before = home.state_file.exists()
    _write_config(home, config)
    if not home.audit_key.exists():
        if before:
            raise StateUnusable(
                f"the key {home.audit_key} is gone, and checkpoints were signed with it",
                hint="restore it from a backup",
            )
        create_key(home.audit_key)
    with State.open(home.state_file, create=True) as state:
        home.state_file.chmod(0o600)
        with state.write() as connection:
            if not head(connection).seq:  # not `before`: an earlier attempt may have ended here
                data = {"version": __version__, "key": key_id(home.audit_key)}
                append(connection, Event("home.created", actor, data=data))
    return not before
