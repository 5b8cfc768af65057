"""A run's output while it runs: its streams to ours, and on a terminal how long it has been going."""

from __future__ import annotations

import codecs
import io
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from skillexec.cli.table import printable
from skillexec.model import Limits

_TICK = 0.2
_QUIET = 1.0  # seconds without output after which the clock is shown
_CLEAR = "\r\x1b[K"
_SPINNER = "|/-\\"


def _decoder() -> io.IncrementalNewlineDecoder:
    """Text in pieces: a character may be cut in two, and a return alone would overwrite what stands in its line."""
    return io.IncrementalNewlineDecoder(codecs.getincrementaldecoder("utf-8")("replace"), translate=True)


class Live:
    """Passes bytes on as they are; to a terminal without what could move its cursor or change its state."""

    def __init__(self) -> None:
        self._began = self._last = time.monotonic()
        self._limit = 0.0  # seconds; 0 until the script starts
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._shown = self._paused = False
        self._line_begun = False  # by the script, and not ended
        self._decoders = {"stdout": _decoder(), "stderr": _decoder()}
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
            for stream in self._decoders:
                self._write_text(stream, b"", final=True)
            self._end_line()

    def start(self, limits: Limits) -> None:
        """The script starts: from now on its time counts."""
        with self._lock:
            self._began, self._limit = time.monotonic(), limits.seconds

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Without a clock, which would write over what a person is asked."""
        with self._lock:
            self._hide()
            self._paused = True
        try:
            yield
        finally:
            with self._lock:
                self._paused, self._last = False, time.monotonic()

    def show(self, stream: str, data: bytes) -> None:
        """One chunk of "stdout" or "stderr"."""
        target = _target(stream)
        with self._lock:
            self._hide()
            if target.isatty():
                self._write_text(stream, data)
            else:
                target.flush()
                target.buffer.write(data)
                target.flush()
            self._last = time.monotonic()

    def _write_text(self, stream: str, data: bytes, *, final: bool = False) -> None:
        text = printable(self._decoders[stream].decode(data, final=final))
        if text:
            target = _target(stream)
            target.write(text)
            target.flush()
            self._line_begun = not text.endswith("\n")

    def _end_line(self) -> None:
        """What we say has lines of its own."""
        if self._line_begun and sys.stderr.isatty():
            sys.stderr.write("\n")
            sys.stderr.flush()
            self._line_begun = False

    def _tick(self) -> None:
        turn = 0
        while not self._over.wait(_TICK):
            turn += 1
            with self._lock:
                if not self._paused and time.monotonic() - self._last >= _QUIET:
                    self._end_line()
                    sys.stderr.write(
                        f"{_CLEAR}{_SPINNER[turn % len(_SPINNER)]} {self._words()} (Ctrl-C ends it)"
                    )
                    sys.stderr.flush()
                    self._shown = True

    def _words(self) -> str:
        elapsed = time.monotonic() - self._began
        return (
            f"running {elapsed:.1f} s of {self._limit:g} s" if self._limit else f"preparing {elapsed:.1f} s"
        )

    def _hide(self) -> None:
        if self._shown:
            sys.stderr.write(_CLEAR)
            sys.stderr.flush()
            self._shown = False


def _target(stream: str) -> Any:
    return sys.stdout if stream == "stdout" else sys.stderr
