"""How long each step of a run took."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager


class Stopwatch:
    """Times named steps, by a clock that nobody can set."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self.steps: dict[str, float] = {}

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        began = time.monotonic()
        try:
            yield
        finally:
            self.steps[name] = self.steps.get(name, 0.0) + time.monotonic() - began

    @property
    def elapsed(self) -> float:
        return time.monotonic() - self._began
