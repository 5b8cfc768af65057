"""One job handed to one container: bytes in, events out, and an end to it from outside."""

from __future__ import annotations

import contextlib
import math
import select
import socket
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Protocol

from skillexec.errors import InfraError
from skillexec.model import Artifact, Captured
from skillexec.sandbox import session
from skillexec.sandbox.cancel import Cancel
from skillexec.sandbox.capture import Capture
from skillexec.sandbox.container import Container

# The launcher ends everything at the deadline. If nothing has come of that so much later, we do.
GRACE_SECONDS = 0.4
_RECEIVE = 256 << 10
_SEND = 128 << 10

OnOutput = Callable[[str, bytes], None]


class Sieve(Protocol):
    """Changes a stream before anybody sees or keeps it. How secrets are masked, of which we know nothing."""

    def feed(self, data: bytes, /) -> bytes: ...

    def finish(self) -> bytes: ...


class Lost(Exception):
    """The stream ended before the launcher had said that it was done."""


class Overdue(Exception):
    """The launcher did not come to an end in time."""


@dataclass(frozen=True, slots=True)
class Heard:
    """All that came out of a container until its end, or until the stream broke."""

    exit: session.Exit | None
    stdout: Captured
    stderr: Captured
    artifacts: tuple[Artifact, ...]
    notes: tuple[str, ...]


@dataclass(slots=True)
class _Outgoing:
    """The job's bytes, made as they are needed, sent as far as the stream takes them."""

    pieces: Iterator[bytes]
    current: memoryview = field(default_factory=lambda: memoryview(b""))
    done: bool = False

    def push(self, stream: socket.socket) -> None:
        try:
            while self._refill():
                self.current = self.current[stream.send(self.current) :]
        except BlockingIOError:
            return
        except OSError:
            self.done = True  # nobody reads any more; what the launcher said before is still to be read

    def _refill(self) -> bool:
        if not self.current:
            batch = bytearray()
            for piece in self.pieces:
                batch += piece
                if len(batch) >= _SEND:
                    break
            self.current = memoryview(bytes(batch))
        self.done = not self.current
        return not self.done

    def append(self, data: bytes) -> None:
        def chained(before: Iterator[bytes]) -> Iterator[bytes]:
            yield from before
            yield data

        self.pieces, self.done = chained(self.pieces), False


class Execution:
    """Use it once: `converse`, then `finish`, whatever `converse` raised."""

    def __init__(
        self,
        container: Container,
        job: session.Job,
        *,
        deadline: float,
        on_output: OnOutput | None,
        sieve: Callable[[], Sieve] | None = None,
    ) -> None:
        self._stream = container.stream
        self._demultiplexer = container.demultiplexer
        self._outgoing = _Outgoing(session.encode_job(job))
        self._reply = session.Reply(job.limits)
        self._on_output = on_output
        self._sieves = {name: sieve() for name in ("stdout", "stderr")} if sieve else {}
        self._captures = {"stdout": Capture(job.limits.output), "stderr": Capture(job.limits.output)}
        self._artifacts: list[Artifact] = []
        self._notes: tuple[str, ...] = ()
        self._end = deadline + GRACE_SECONDS
        self.callers_error: BaseException | None = None
        self._take(container.greeting)

    @property
    def exit(self) -> session.Exit | None:
        """The script's end, where it is known."""
        return self._reply.exit

    def finish(self) -> Heard:
        """All that came. What a sieve still holds back goes to `on_output` now."""
        for stream, sieve in self._sieves.items():
            self._pass_on(stream, sieve.finish())
        return Heard(
            exit=self._reply.exit,
            stdout=self._captures["stdout"].captured(),
            stderr=self._captures["stderr"].captured(),
            artifacts=tuple(self._artifacts),
            notes=self._notes,
        )

    def converse(self, cancel: Cancel | None) -> None:
        """Returns when the launcher is done. Raises Lost, Overdue or ProtocolError; InvalidInput or InfraError
        where the job was not even sent; and whatever `on_output` raises, noted in `callers_error`."""
        if cancel is None:
            self._turn_until_ended(None)
            return
        try:
            wake, waker = socket.socketpair()
        except OSError as error:
            raise InfraError("this process has too many open files", hint="raise `ulimit -n`") from error
        with wake, waker, cancel.told(lambda: _nudge(waker)):
            self._turn_until_ended(wake)

    def _turn_until_ended(self, wake: socket.socket | None) -> None:
        poll = select.poll()
        stream = self._stream.fileno()
        if wake is not None:
            poll.register(wake, select.POLLIN)
        self._outgoing.push(self._stream)
        while not self._reply.ended:
            poll.register(stream, select.POLLIN | (0 if self._outgoing.done else select.POLLOUT))
            left = self._end - time.monotonic()
            if left <= 0:
                raise Overdue
            for descriptor, event in poll.poll(math.ceil(left * 1000)):
                if descriptor != stream:
                    poll.unregister(descriptor)
                    self._cancel()
                elif event & ~select.POLLOUT:
                    self._receive()
                else:
                    self._outgoing.push(self._stream)

    def _cancel(self) -> None:
        """Ask the launcher to end it all; from outside soon after."""
        self._end = min(self._end, time.monotonic() + GRACE_SECONDS)
        self._outgoing.append(session.CANCEL)
        self._outgoing.push(self._stream)

    def _receive(self) -> None:
        try:
            data = self._stream.recv(_RECEIVE)
        except BlockingIOError:
            return
        except OSError as error:
            raise Lost(f"the stream broke: {error.strerror}") from error
        if not data:
            raise Lost(self._demultiplexer.crash or "the stream ended")
        self._take(self._demultiplexer.feed(data))

    def _pass_on(self, stream: str, piece: bytes) -> None:
        if piece:
            self._captures[stream].add(piece)
            if self._on_output is not None:
                self._call_out(self._on_output, stream, piece)

    def _call_out(self, on_output: OnOutput, stream: str, piece: bytes) -> None:
        began = time.monotonic()
        try:
            on_output(stream, piece)
        except BaseException as error:
            self.callers_error = error
            raise
        # The launcher's grace does not run out while the caller holds us up: what came in time is still read.
        self._end += max(0.0, time.monotonic() - max(began, self._end - GRACE_SECONDS))

    def _take(self, data: bytes) -> None:
        for event in self._reply.feed(data):
            match event:
                case session.Output(stream, piece):
                    self._pass_on(stream, self._sieves[stream].feed(piece) if self._sieves else piece)
                case session.ArtifactDone(artifact):
                    self._artifacts.append(artifact)
                case session.End(notes):
                    self._notes = notes


def _nudge(waker: socket.socket) -> None:
    with contextlib.suppress(OSError):  # the run ended in this very moment
        waker.send(b"!")
