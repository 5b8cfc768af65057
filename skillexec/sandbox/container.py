"""A started container whose launcher waits for its one job."""

from __future__ import annotations

import contextlib
import secrets
import socket
import time
from dataclasses import dataclass, field

from skillexec.errors import ImageUnavailable, InfraError
from skillexec.model import Limits
from skillexec.sandbox import frames
from skillexec.sandbox.engine import Engine, Image
from skillexec.sandbox.session import Ready, Reply
from skillexec.sandbox.spec import LABEL_LAUNCHER, LABEL_PROTOCOL, ContainerSpec, Shape
from skillexec.sandbox.stream import Demultiplexer, readable

READY_SECONDS = 30.0
_READY_BYTES = 64 << 10
_DOCTOR = "run `skillexec doctor`"


class Exposed(InfraError):
    """The container has a network though it was made without one."""


@dataclass(slots=True)
class Container:
    """Owned by whoever holds it: a pool, then one run. `close` ends it, from wherever."""

    id: str
    image: str
    shape: Shape
    stream: socket.socket = field(repr=False)
    demultiplexer: Demultiplexer = field(repr=False)
    greeting: bytes = field(repr=False)  # the ready frame, for the reply of the run to come
    since: float  # wall clock, for the engine's memory of events

    def alive(self) -> bool:
        """Whether it still waits: a waiting launcher says nothing, a dead one leaves an end of file."""
        try:
            self.stream.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return True
        except OSError:
            return False
        return False  # an end of file, or words that nobody asked for

    def close(self) -> None:
        """Let go. The launcher sees the end of its stdin, kills what runs and exits; the engine removes it."""
        with contextlib.suppress(OSError):
            self.stream.shutdown(socket.SHUT_RDWR)
        self.stream.close()


def check_image(image: Image, reference: str, launcher: str) -> None:
    """Refuse an image that is not this version's: its launcher would be another."""
    found = image.labels.get(LABEL_PROTOCOL), image.labels.get(LABEL_LAUNCHER)
    if found != (str(frames.PROTOCOL), launcher):
        raise ImageUnavailable(
            f"the image {reference} was not built by this version of skillexec",
            hint="run `skillexec image build`",
        )


def start(engine: Engine, spec: ContainerSpec) -> Container:
    """Make, check and start a container, and wait until its launcher is ready.

    No job is handed over before every control has been read back; the check happens while the launcher's
    interpreter starts.
    """
    since = time.time()
    identifier = engine.create(spec.config(), f"skillexec-{secrets.token_hex(8)}")
    try:
        stream = engine.attach(identifier)
        try:
            engine.start(identifier)
            _read_back(engine, spec, identifier)
            demultiplexer = Demultiplexer()
            ready, greeting = _await_ready(stream, demultiplexer)
            _check_isolation(ready)
        except BaseException:
            stream.close()
            raise
    except BaseException:
        with contextlib.suppress(InfraError):  # the reaper finds it by its label
            engine.remove(identifier)
        raise
    return Container(identifier, spec.image, spec.shape, stream, demultiplexer, greeting, since)


def _read_back(engine: Engine, spec: ContainerSpec, identifier: str) -> None:
    missing = spec.differences(engine.inspect(identifier))
    if missing:
        raise InfraError(
            f"the engine did not take these controls as they were given: {', '.join(missing)}",
            hint=f"nothing runs without them; {_DOCTOR}",
        )


def _check_isolation(ready: Ready) -> None:
    """What the launcher sees from inside, where no setting can pretend."""
    if ready.network:
        raise Exposed(f"the container sees a network: {', '.join(ready.network)}", hint=_DOCTOR)


def _await_ready(stream: socket.socket, demultiplexer: Demultiplexer) -> tuple[Ready, bytes]:
    reply, greeting = Reply(Limits()), b""
    until = time.monotonic() + READY_SECONDS
    while reply.ready is None:
        data = _receive(stream, until - time.monotonic())
        greeting += demultiplexer.feed(data)
        if not data or len(greeting) > _READY_BYTES:
            raise InfraError(
                f"the launcher did not get ready: {demultiplexer.crash or 'it ended'}", hint=_DOCTOR
            )
        reply = Reply(Limits())
        for _ in reply.feed(greeting):
            pass
    return reply.ready, greeting


def _receive(stream: socket.socket, seconds: float) -> bytes:
    if not readable(stream, seconds):
        raise InfraError(f"the launcher was not ready within {READY_SECONDS:.0f} s", hint=_DOCTOR)
    try:
        return stream.recv(_READY_BYTES)
    except OSError:
        return b""
