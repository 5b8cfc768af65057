"""What the run used and how often memory ran out, from the container's own cgroup, version 1 or 2."""

from __future__ import annotations

import resource
from typing import NamedTuple


class Usage(NamedTuple):
    oom_kills: int
    cpu_us: int
    peak_memory: int


def _read(path: str) -> str:
    try:
        with open(path, encoding="ascii") as file:
            return file.read()
    except OSError:
        return ""


def _number(path: str) -> int:
    text = _read(path).strip()
    return int(text) if text.isdigit() else 0


def _keyed(path: str, key: str) -> int:
    for line in _read(path).splitlines():
        name, _, value = line.partition(" ")
        if name == key and value.isdigit():
            return int(value)
    return 0


class Meter:
    """Reads the counters; CPU counts from `begin`."""

    def __init__(self, cgroup: str = "/sys/fs/cgroup") -> None:
        self._cgroup = cgroup
        self._unified = bool(_read(f"{cgroup}/cgroup.controllers"))
        self._cpu_before = 0

    def begin(self) -> None:
        self._cpu_before = self._cpu_us()

    def _cpu_us(self) -> int:
        if self._unified:
            return _keyed(f"{self._cgroup}/cpu.stat", "usage_usec")
        return _number(f"{self._cgroup}/cpuacct/cpuacct.usage") // 1000

    def _peak(self) -> int:
        name = "memory.peak" if self._unified else "memory/memory.max_usage_in_bytes"
        return _number(f"{self._cgroup}/{name}")

    def _oom_kills(self) -> int:
        name = "memory.events" if self._unified else "memory/memory.oom_control"
        return _keyed(f"{self._cgroup}/{name}", "oom_kill")

    def read(self) -> Usage:
        """Call when every child is reaped: only then does the fallback know all of them."""
        children = resource.getrusage(resource.RUSAGE_CHILDREN)
        reaped = int((children.ru_utime + children.ru_stime) * 1e6)
        return Usage(
            oom_kills=self._oom_kills(),
            cpu_us=max(self._cpu_us() - self._cpu_before, reaped),
            peak_memory=self._peak() or children.ru_maxrss * 1024,
        )
