"""A job on its way in: its frames in their order, its files put in place as they come."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

from . import task
from .frames import BUNDLE, CANCEL, FILE, GO, JOB, STDIN, Frame, FrameError
from .unpack import Inputs, Tree, Unpacker

_CONTENT = (BUNDLE, FILE, STDIN)


class Delivery:
    """Takes frames until the go.

    A job that can't be run is noted in `refusal`, and the rest of it taken in and dropped, so that the
    host always gets its answer after its go. Bytes that are no job at all are a FrameError.
    """

    def __init__(self, *, skill: str, inputs: str) -> None:
        self._skill = Tree(os.fsencode(skill))
        self._unpacker = Unpacker(self._skill)
        self._input_folder = Tree(os.fsencode(inputs))
        self._inputs = Inputs(self._input_folder, ())
        self._begun = False
        self._left: dict[bytes, int] = {}
        self.task: task.Task | None = None
        self.stdin = bytearray()
        self.refusal = ""
        self.deadline: float | None = None

    def take(self, frame: Frame) -> bool:
        """True when the go came."""
        kind, payload = frame
        if (kind == JOB) == self._begun or kind == CANCEL:
            raise FrameError(f"a frame {kind!r} has no place here")
        if kind == JOB:
            self._begun = True
            self._guard(lambda: self._begin(payload))
        elif not self.refusal:
            self._count(kind, len(payload))
            self._guard(self._finish if kind == GO else lambda: self._content(kind, payload))
        return kind == GO

    def _guard(self, step: Callable[[], None]) -> None:
        try:
            step()
        except task.Refused as error:
            self.refusal = str(error)
        except OSError as error:
            self.refusal = f"the job's files can't be put in place: {error.strerror}"

    def _begin(self, payload: bytes) -> None:
        self.task = task.parse(payload)
        self.deadline = time.monotonic() + self.task.seconds
        sizes = (self.task.bundle, sum(file.size for file in self.task.files), self.task.stdin or 0)
        self._left = dict(zip(_CONTENT, sizes))  # noqa: B905 - strict= is not in Python 3.9
        self._inputs = Inputs(self._input_folder, self.task.files)

    def _count(self, kind: bytes, length: int) -> None:
        """Holds the host to the sizes and the order that it announced."""
        kinds = _CONTENT if kind == GO else _CONTENT[: _CONTENT.index(kind)]
        if any(self._left[earlier] for earlier in kinds):
            raise FrameError(f"a frame {kind!r} came before all that was announced")
        if kind == GO:
            return
        self._left[kind] -= length
        if self._left[kind] < 0 or not length:
            raise FrameError(f"more than was announced, or nothing, in a frame {kind!r}")

    def _content(self, kind: bytes, payload: bytes) -> None:
        if kind == BUNDLE:
            self._unpacker.feed(payload)
        elif kind == FILE:
            self._inputs.feed(payload)
        else:
            self.stdin += payload

    def _finish(self) -> None:
        self._unpacker.finish()
        self._skill.seal()
