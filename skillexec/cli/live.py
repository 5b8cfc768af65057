"""A run's output while it runs: its streams to ours, and on a terminal how long it has been going."""

from __future__ import annotations

import sys
import threading
import time
from typing import Any

from skillexec.cli.table import printable

_TICK = 0.2
_QUIET = 1.0  # seconds without output after which the clock is shown
_CLEAR = "\r\x1b[K"


class Live:
    """Passes bytes on as they are; to a terminal without what could move its cursor or change its state."""

    def __init__(self) -> None:
        self._began = self._last = time.monotonic()
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._shown = False
        self._clock = threading.Thread(target=self._tick, daemon=True) if sys.stderr.isatty() else None

    def __enter__(self) -> Live:
        if self._clock:
            self._clock.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        if self._clock:
            self._clock.join()
        with self._lock:
            self._hide()

    def show(self, stream: str, data: bytes) -> None:
        """One chunk of "stdout" or "stderr"."""
        target = sys.stdout if stream == "stdout" else sys.stderr
        with self._lock:
            self._hide()
            self._write(target, data)
            self._last = time.monotonic()

    def _write(self, target: Any, data: bytes) -> None:
        if target.isatty():
            target.write(printable(data.decode("utf-8", "replace")))
        else:
            target.flush()
            target.buffer.write(data)
        target.flush()

    def _tick(self) -> None:
        while not self._over.wait(_TICK):
            with self._lock:
                if time.monotonic() - self._last >= _QUIET:
                    sys.stderr.write(
                        f"{_CLEAR}running, {time.monotonic() - self._began:.1f} s (Ctrl-C ends it)"
                    )
                    sys.stderr.flush()
                    self._shown = True

    def _hide(self) -> None:
        if self._shown:
            sys.stderr.write(_CLEAR)
            sys.stderr.flush()
            self._shown = False
