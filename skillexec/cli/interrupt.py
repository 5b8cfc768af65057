"""Ctrl-C while a script runs: the run ends, and what came of it is still told."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def interrupt_calls(action: Callable[[], None]) -> Iterator[Callable[[], None]]:
    """Gives what to call when it should begin: from then on the first Ctrl-C calls `action`, and the next ends us."""
    before = signal.getsignal(signal.SIGINT)

    def once(*_: object) -> None:
        signal.signal(signal.SIGINT, before)
        # In a thread of its own: what we have interrupted may hold the very lock that the action needs.
        threading.Thread(target=action, daemon=True).start()

    def begin() -> None:
        if before is not signal.SIG_IGN:  # as it is for what a shell starts in the background
            signal.signal(signal.SIGINT, once)

    try:
        yield begin
    finally:
        signal.signal(signal.SIGINT, before)
