"""A fair bound: so many at work at once, and the rest in the order in which they came."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable


class Turn:
    """A place at work, or in the line for one."""

    def __init__(self, begin: Callable[[], None]) -> None:
        self.begin = begin


class Turns:
    """At most `limit` turns at once. Nobody waits in here: `begin` is called when a turn comes."""

    def __init__(self, limit: int) -> None:
        self._lock = threading.Lock()
        self._free = limit
        self._line: deque[Turn] = deque()

    def enter(self, begin: Callable[[], None]) -> Turn:
        """Take a turn: `begin` is called now, or in the thread whose leaving makes room."""
        turn = Turn(begin)
        with self._lock:
            if not self._free:
                self._line.append(turn)
                return turn
            self._free -= 1
        begin()
        return turn

    def leave(self, turn: Turn) -> None:
        """Give the turn up, at work or still in the line. Call it once."""
        with self._lock:
            if turn in self._line:
                self._line.remove(turn)
                return
            successor = self._line.popleft() if self._line else None
            if successor is None:
                self._free += 1
        if successor is not None:
            successor.begin()
