"""Work in threads of their own: calls to an engine that may hang, for which the caller waits so long and no longer."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

from skillexec.errors import InfraError

T = TypeVar("T")


def begun(work: Callable[[], None], name: str) -> threading.Thread | None:
    """A thread at work; None where the machine gives this process no more of them."""
    thread = threading.Thread(target=work, name=name, daemon=True)
    try:
        thread.start()
    except RuntimeError:
        return None
    return thread


def within(seconds: float, call: Callable[[], T]) -> T | None:
    """What the call returns; None where it failed or took longer. It then ends in its own time."""
    results: list[T] = []

    def attempt() -> None:
        try:
            results.append(call())
        except InfraError:
            pass  # no answer: that is what None says

    thread = begun(attempt, "skillexec-call")
    if thread is not None:
        thread.join(max(0.0, seconds))
    return results[0] if results else None
