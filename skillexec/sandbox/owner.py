"""Whose container it is: the process that made it, named so that others can tell whether it lives."""

from __future__ import annotations

import os
import secrets
from dataclasses import dataclass
from pathlib import Path

_SEPARATOR = "/"


def _read(path: str) -> str:
    try:
        return Path(path).read_text().strip()
    except OSError:
        return "?"


def _started(pid: int) -> str:
    """When a process started, in clock ticks since boot: a pid alone may be someone else's by now."""
    text = _read(f"/proc/{pid}/stat")
    return text.rpartition(")")[2].split()[19] if ")" in text else ""


@dataclass(frozen=True, slots=True)
class Owner:
    """A process: its machine, boot and PID namespace, its number there, and when it started."""

    machine: str
    boot: str
    namespace: str
    pid: int
    started: str
    token: str  # tells two sandboxes of one process apart

    @classmethod
    def current(cls) -> Owner:
        return cls(
            machine=_read("/etc/machine-id"),
            boot=_read("/proc/sys/kernel/random/boot_id"),
            namespace=str(os.stat("/proc/self/ns/pid").st_ino),
            pid=os.getpid(),
            started=_started(os.getpid()),
            token=secrets.token_hex(6),
        )

    @classmethod
    def parse(cls, label: str) -> Owner | None:
        """The owner that a label names; None where we did not write it."""
        parts = label.split(_SEPARATOR)
        if len(parts) != 6 or not parts[3].isdigit():
            return None
        return cls(parts[0], parts[1], parts[2], int(parts[3]), parts[4], parts[5])

    def __str__(self) -> str:
        parts = (self.machine, self.boot, self.namespace, self.pid, self.started, self.token)
        return _SEPARATOR.join(str(part) for part in parts)

    def gone(self, viewer: Owner) -> bool:
        """Whether the process is known to be dead, as seen from another's place. In doubt it lives."""
        if self.machine != viewer.machine:
            return False
        if self.boot != viewer.boot:
            return "?" not in (self.machine, self.boot, viewer.boot)
        return self.namespace == viewer.namespace and _started(self.pid) != self.started
