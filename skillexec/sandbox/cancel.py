"""A way to end a run from another thread."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class Cancel:
    """Hand it to a run, keep it, and call `cancel()` from anywhere. Safe between threads; once only."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._requested = False
        self._listeners: list[Callable[[], None]] = []

    @property
    def requested(self) -> bool:
        return self._requested

    def cancel(self) -> None:
        """End every run that holds this, now. Does nothing the second time."""
        with self._lock:
            self._requested = True
            listeners, self._listeners = self._listeners, []
        for listener in listeners:
            listener()

    @contextmanager
    def told(self, listener: Callable[[], None]) -> Iterator[None]:
        """Call `listener` when it happens, or at once where it has; not after the block."""
        with self._lock:
            if not self._requested:
                self._listeners.append(listener)
        if self._requested:
            listener()
        try:
            yield
        finally:
            with self._lock:
                if listener in self._listeners:
                    self._listeners.remove(listener)
