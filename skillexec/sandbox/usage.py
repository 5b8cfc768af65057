"""What the run used and how often memory ran out, from the container's own cgroup, version 1 or 2."""

from __future__ import annotations

import os
import resource
from typing import NamedTuple

_READ = 8 << 10  # more than any of these files holds


class Usage(NamedTuple):
    oom_kills: int
    cpu_us: int
    peak_memory: int


class Counter:
    """A file of the cgroup, opened once: reading it again takes one call."""

    def __init__(self, path: str) -> None:
        try:
            self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            self._fd = -1

    def _text(self) -> bytes:
        try:
            return os.pread(self._fd, _READ, 0) if self._fd >= 0 else b""
        except OSError:
            return b""

    @property
    def there(self) -> bool:
        return bool(self._text())

    def number(self) -> int:
        text = self._text().strip()
        return int(text) if text.isdigit() else 0

    def keyed(self, key: bytes) -> int:
        for line in self._text().splitlines():
            name, _, value = line.partition(b" ")
            if name == key and value.isdigit():
                return int(value)
        return 0


class Meter:
    """Reads the counters; CPU counts from `begin`."""

    def __init__(self, cgroup: str = "/sys/fs/cgroup") -> None:
        self._unified = Counter(f"{cgroup}/cgroup.controllers").there
        names = ("cpu.stat", "memory.peak", "memory.events")
        if not self._unified:
            names = ("cpuacct/cpuacct.usage", "memory/memory.max_usage_in_bytes", "memory/memory.oom_control")
        self._cpu, self._peak, self._events = (Counter(f"{cgroup}/{name}") for name in names)
        self._cpu_before = 0

    def begin(self) -> None:
        self._cpu_before = self._cpu_us()

    def _cpu_us(self) -> int:
        return self._cpu.keyed(b"usage_usec") if self._unified else self._cpu.number() // 1000

    def read(self) -> Usage:
        """Call when every child is reaped: only then does the fallback know all of them."""
        children = resource.getrusage(resource.RUSAGE_CHILDREN)
        reaped = int((children.ru_utime + children.ru_stime) * 1e6)
        return Usage(
            oom_kills=self._events.keyed(b"oom_kill"),
            cpu_us=max(self._cpu_us() - self._cpu_before, reaped),
            peak_memory=self._peak.number() or children.ru_maxrss * 1024,
        )
