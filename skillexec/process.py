"""Which process owns a run or a container, said so that another one can find out whether it still lives.

A process number alone is reused. With the time at which the process started, counted from a boot of known id,
and the namespace in which the number counts, it is not.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_STATE, _THREADS, _START = 0, 17, 19  # fields of /proc/PID/stat, counted after the program's name
_GONE = frozenset("ZX")  # ended, though its parent has not looked yet


@dataclass(frozen=True, slots=True)
class ProcessIdentity:
    """One process of one boot of this host."""

    boot: str
    pid_namespace: int
    pid: int
    pid_start: int

    @property
    def data(self) -> dict[str, str | int]:
        """As fields of a run's records."""
        return {
            "boot": self.boot,
            "pid": self.pid,
            "pid_namespace": self.pid_namespace,
            "pid_start": self.pid_start,
        }


def _boot() -> str:
    return _BOOT_ID.read_text().strip()


def _namespace() -> int:
    return os.stat("/proc/self/ns/pid").st_ino


def _stat(pid: int) -> list[str]:
    # The program's name stands in brackets and may hold anything, brackets too.
    return Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()


def process_identity() -> ProcessIdentity:
    """Who we are."""
    pid = os.getpid()
    return ProcessIdentity(_boot(), _namespace(), pid, int(_stat(pid)[_START]))


def identity_in(data: Mapping[str, Any]) -> ProcessIdentity | None:
    """The identity that a record's data holds, if it does."""
    try:
        return ProcessIdentity(data["boot"], data["pid_namespace"], data["pid"], data["pid_start"])
    except KeyError:
        return None


def _is_there(pid: int) -> bool:
    """Needs no descriptor, and no file system hides a process from it."""
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        pass  # somebody else's
    return True


def _is_dead(stat: list[str]) -> bool:
    # A first thread may end before the others: the process lives on.
    return stat[_STATE] in _GONE and stat[_THREADS] == "1"


def is_alive(identity: ProcessIdentity) -> bool:
    """Whether that very process runs. Yes where that can't be told: another container's number, no descriptor left."""
    try:
        if identity.boot != _boot():
            return False
        if identity.pid_namespace != _namespace():
            return True
        if not _is_there(identity.pid):
            return False
        stat = _stat(identity.pid)
    except OSError:
        return True
    return not _is_dead(stat) and int(stat[_START]) == identity.pid_start
