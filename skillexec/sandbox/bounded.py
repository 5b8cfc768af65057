"""Calls to an engine that may hang: the caller waits so long and no longer."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

from skillexec.errors import InfraError

T = TypeVar("T")


def within(seconds: float, call: Callable[[], T]) -> T | None:
    """What the call returns; None where it failed or took longer. It then ends in its own time."""
    results: list[T] = []

    def attempt() -> None:
        try:
            results.append(call())
        except InfraError:
            pass  # no answer: that is what None says

    thread = threading.Thread(target=attempt, name="skillexec-call", daemon=True)
    thread.start()
    thread.join(max(0.0, seconds))
    return results[0] if results else None
