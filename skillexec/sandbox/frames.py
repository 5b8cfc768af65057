"""The frames that host and launcher exchange: one byte of kind, four of length, the payload.

Used on both sides, and copied into the image as it is: standard library only, Python 3.9 and later.
docs/protocol.md has the whole protocol.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

PROTOCOL = 1
# What the image holds under /usr/lib/skillexec/, copied from this folder byte for byte.
LAUNCHER_FILES: tuple[str, ...] = (
    "artifacts.py",
    "confinement.py",
    "delivery.py",
    "frames.py",
    "interpreter.py",
    "launcher.py",
    "program.py",
    "standby.py",
    "supervision.py",
    "task.py",
    "unpack.py",
    "usage.py",
    "wire.py",
)

HEADER = 5
PAYLOAD_MAX = 1 << 20
CHUNK = 64 << 10  # what data is cut into: one pipe's worth, so that a cancel never waits long behind it

# Launcher to host.
READY, STDOUT, STDERR, EXIT, ARTIFACT, DATA, END = b"R", b"O", b"E", b"X", b"A", b"D", b"Z"
# Host to launcher.
JOB, BUNDLE, FILE, STDIN, GO, CANCEL = b"J", b"B", b"F", b"I", b"G", b"K"

# The longest payload of each kind: the header alone is enough to refuse a frame before holding it.
FROM_LAUNCHER: Mapping[bytes, int] = {
    READY: 4 << 10,
    STDOUT: PAYLOAD_MAX,
    STDERR: PAYLOAD_MAX,
    EXIT: 64 << 10,
    ARTIFACT: 16 << 10,
    DATA: PAYLOAD_MAX,
    END: 64 << 10,
}
FROM_HOST: Mapping[bytes, int] = {
    JOB: PAYLOAD_MAX,
    BUNDLE: PAYLOAD_MAX,
    FILE: PAYLOAD_MAX,
    STDIN: PAYLOAD_MAX,
    GO: 0,
    CANCEL: 0,
}


NAME_MAX = 1024  # bytes of an artifact's name


class FrameError(Exception):
    """Bytes that are no frame, or not one that this side accepts."""


class Frame(NamedTuple):
    kind: bytes
    payload: bytes


def encode(kind: bytes, payload: bytes = b"") -> bytes:
    """One frame as bytes."""
    if len(kind) != 1 or len(payload) > PAYLOAD_MAX:
        raise FrameError(f"a frame {kind!r} of {len(payload)} bytes can't be sent")
    return kind + len(payload).to_bytes(4, "big") + payload


def acceptable_name(name: str) -> bool:
    """Whether a collected file may bear this name: relative, without tricks, within bounds.

    The launcher leaves other files out and says so; the host checks again.
    """
    try:
        encoded = name.encode("utf-8")
    except UnicodeEncodeError:
        return False
    plain = all(byte >= 0x20 and byte != 0x7F for byte in encoded)
    return plain and len(encoded) <= NAME_MAX and not {"", ".", ".."}.intersection(name.split("/"))


class Decoder:
    """Takes bytes as they come and gives frames. Holds at most one unfinished frame and one feed."""

    def __init__(self, accepted: Mapping[bytes, int]) -> None:
        self._accepted = accepted
        self._buffer = bytearray()

    @property
    def pending(self) -> int:
        """Bytes of an unfinished frame."""
        return len(self._buffer)

    def feed(self, data: bytes) -> Iterator[Frame]:
        """The frames that `data` completes; FrameError in their midst where the bytes turn bad."""
        self._buffer += data
        return self._frames()

    def _frames(self) -> Iterator[Frame]:
        while len(self._buffer) >= HEADER:
            end = HEADER + self._length()
            if len(self._buffer) < end:
                return
            kind = bytes(self._buffer[:1])
            with memoryview(self._buffer) as view:
                payload = bytes(view[HEADER:end])
            del self._buffer[:end]
            yield Frame(kind, payload)

    def _length(self) -> int:
        kind = bytes(self._buffer[:1])
        length = int.from_bytes(self._buffer[1:HEADER], "big")
        if kind not in self._accepted:
            raise FrameError(f"a frame of kind {kind!r} has no place here")
        if length > self._accepted[kind]:
            raise FrameError(f"a frame {kind!r} of {length} bytes is longer than {self._accepted[kind]}")
        return length
