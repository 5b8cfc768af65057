"""The engine's attached stream: two streams in one, each piece behind an eight-byte header."""

from __future__ import annotations

import math
import select
import socket

from skillexec.sandbox.session import ProtocolError

_HEADER = 8
_STDOUT, _STDERR = 1, 2
_CRASH_BYTES = 4 << 10  # what is kept of the launcher's own last words


class Demultiplexer:
    """Takes bytes as they come. Pieces pass through at once: nothing is held until it is complete."""

    def __init__(self) -> None:
        self._header = bytearray()
        self._stream = 0
        self._left = 0
        self._crash = bytearray()

    @property
    def crash(self) -> str:
        """What the launcher wrote to its own stderr: only ever a crash, never the script's output."""
        return self._crash.decode("utf-8", "backslashreplace").strip()

    def feed(self, data: bytes) -> bytes:
        """The part of `data` that the container wrote to its stdout."""
        view, stdout = memoryview(data), []
        while view:
            if not self._left:
                view = self._take_header(view)
                continue
            piece, view = view[: self._left], view[self._left :]
            self._left -= len(piece)
            if self._stream == _STDOUT:
                stdout.append(piece)
            else:
                self._crash += piece[: _CRASH_BYTES - len(self._crash)]
        return b"".join(stdout)

    def _take_header(self, view: memoryview) -> memoryview:
        missing = _HEADER - len(self._header)
        self._header += view[:missing]
        if len(self._header) == _HEADER:
            self._stream = self._header[0]
            self._left = int.from_bytes(self._header[4:], "big")
            if self._stream not in (_STDOUT, _STDERR) or any(self._header[1:4]):
                raise ProtocolError("the engine sent a stream that can't be understood")
            self._header.clear()
        return view[missing:]


def readable(stream: socket.socket, seconds: float) -> bool:
    """Wait until there is something to read, or the end of it. Not select(): that stops at descriptor 1023."""
    poll = select.poll()
    poll.register(stream, select.POLLIN)
    return bool(poll.poll(math.ceil(max(0.0, seconds) * 1000)))
