"""The launcher's stream to its host: never blocks, so that a deadline, a cancel or the host's going
are noticed even while the host does not read."""

from __future__ import annotations

import json
import math
import os
import select
import time
from collections import deque
from collections.abc import Mapping

from .frames import CHUNK, FROM_HOST, Decoder, Frame, encode

FULL = 4 * CHUNK  # unsent bytes past which nothing more is read from the script
_READ = 2 * CHUNK


class HostGone(Exception):
    """The host closed its end: nobody is left to run anything for."""


class Wire:
    """Frames from `source`, frames to `sink`, and other descriptors watched beside them."""

    def __init__(self, source: int, sink: int) -> None:
        self._source, self._sink = source, sink
        self._decoder = Decoder(FROM_HOST)
        self._unsent = bytearray()
        self._poll = select.poll()
        self.received: deque[Frame] = deque()
        for fd in (source, sink):
            os.set_blocking(fd, False)
        self._poll.register(source, select.POLLIN)

    @property
    def full(self) -> bool:
        """Whether the host is behind."""
        return len(self._unsent) >= FULL

    def watch(self, fd: int, events: int = select.POLLIN) -> None:
        self._poll.register(fd, events)

    def unwatch(self, fd: int) -> None:
        self._poll.unregister(fd)

    def queue(self, kind: bytes, payload: bytes) -> None:
        """Goes with the next frame that is sent: one waking of the host for both."""
        self._unsent += encode(kind, payload)

    def queue_json(self, kind: bytes, value: Mapping[str, object]) -> None:
        self.queue(kind, json.dumps(value).encode("ascii"))

    def send(self, kind: bytes, payload: bytes) -> None:
        """Sends as much as goes at once; the rest goes with the next turns."""
        self.queue(kind, payload)
        self.push()

    def send_json(self, kind: bytes, value: Mapping[str, object]) -> None:
        self.queue_json(kind, value)
        self.push()

    def turn(self, seconds: float | None) -> list[int]:
        """Waits for something to happen, moves bytes either way, and names the other ready descriptors."""
        if self._unsent:
            self._poll.register(self._sink, select.POLLOUT)
        ready = []
        for fd, _ in self._poll.poll(None if seconds is None else math.ceil(max(0.0, seconds) * 1000)):
            if fd == self._source:
                self._pull()
            elif fd == self._sink:
                self.push()
            else:
                ready.append(fd)
        return ready

    def drain(self, most: int = 0) -> None:
        """Waits until no more than `most` bytes are unsent."""
        while len(self._unsent) > most:
            self.turn(None)

    def await_end(self, seconds: float) -> None:
        """Waits until the host has closed its end, but not longer."""
        until = time.monotonic() + seconds
        try:
            while (left := until - time.monotonic()) > 0:
                self.turn(left)
        except HostGone:
            pass

    def next(self, seconds: float | None = None) -> Frame | None:
        """The next frame, or None where none came in time."""
        if not self.received:
            self.turn(seconds)
        return self.received.popleft() if self.received else None

    def _pull(self) -> None:
        data = os.read(self._source, _READ)
        if not data:
            raise HostGone
        self.received.extend(self._decoder.feed(data))

    def push(self) -> None:
        """Sends what goes at once."""
        try:
            while self._unsent:
                with memoryview(self._unsent) as view:
                    sent = os.write(self._sink, view[:_READ])
                del self._unsent[:sent]
        except BlockingIOError:
            return
        except BrokenPipeError:
            raise HostGone from None
        self._stop_waiting_to_send()

    def _stop_waiting_to_send(self) -> None:
        try:
            self._poll.unregister(self._sink)
        except KeyError:
            pass  # everything went at once: nobody had to wait
