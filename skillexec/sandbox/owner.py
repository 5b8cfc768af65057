"""Whose container it is: the process that made it, named so that others can tell whether it lives."""

from __future__ import annotations

import re
import secrets
from dataclasses import dataclass
from pathlib import Path

from skillexec.process import ProcessIdentity, is_alive, process_identity

_SEPARATOR = "/"
_UNKNOWN = "?"
_NUMBER = re.compile(r"[0-9]{1,18}")
_MACHINE_ID = Path("/etc/machine-id")


def _machine() -> str:
    try:
        return _MACHINE_ID.read_text().strip() or _UNKNOWN
    except OSError:
        return _UNKNOWN


@dataclass(frozen=True, slots=True)
class Owner:
    """A process of a machine. The token tells two sandboxes of one process apart."""

    machine: str
    process: ProcessIdentity
    token: str

    @classmethod
    def current(cls) -> Owner:
        return cls(_machine(), process_identity(), secrets.token_hex(6))

    @classmethod
    def parse(cls, label: str) -> Owner | None:
        """The owner that a label names; None where we did not write it."""
        parts = label.split(_SEPARATOR)
        if len(parts) != 6 or not all(map(_NUMBER.fullmatch, parts[2:5])):
            return None
        namespace, pid, start = (int(part) for part in parts[2:5])
        return cls(parts[0], ProcessIdentity(parts[1], namespace, pid, start), parts[5])

    def __str__(self) -> str:
        process = self.process
        parts = (
            self.machine,
            process.boot,
            process.pid_namespace,
            process.pid,
            process.pid_start,
            self.token,
        )
        return _SEPARATOR.join(str(part) for part in parts)

    def gone(self, viewer: Owner) -> bool:
        """Whether the process is known to be dead, as seen from another's place. In doubt it lives."""
        if self.machine != viewer.machine:
            return False
        if self.machine == _UNKNOWN and self.process.boot != viewer.process.boot:
            return False  # another boot, or another machine that shares the engine
        return not is_alive(self.process)
