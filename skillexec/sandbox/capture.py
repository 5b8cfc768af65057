"""Keeps the head and the tail of a stream in bounded memory, and counts the rest."""

from __future__ import annotations

from collections import deque

from skillexec.model import Captured


class Capture:
    """At most `limit` bytes are kept (while more arrive, one chunk beyond), half of them head."""

    def __init__(self, limit: int) -> None:
        self._head_limit = limit - limit // 2
        self._tail_limit = limit // 2
        self._head = bytearray()
        self._tail: deque[bytes] = deque()
        self._tail_size = 0
        self.total = 0

    def add(self, data: bytes) -> None:
        self.total += len(data)
        room = self._head_limit - len(self._head)
        if room > 0:
            self._head += data[:room]
            data = data[room:]
        if data and self._tail_limit:
            self._tail.append(data)
            self._tail_size += len(data)
            self._drop()

    def _drop(self) -> None:
        while self._tail_size - len(self._tail[0]) >= self._tail_limit:
            self._tail_size -= len(self._tail.popleft())

    def captured(self) -> Captured:
        tail = b"".join(self._tail)
        return Captured(bytes(self._head), tail[max(0, len(tail) - self._tail_limit) :], self.total)
