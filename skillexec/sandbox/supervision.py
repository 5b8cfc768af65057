"""Watches over the script: relays what it writes, and ends it and all that it started."""

from __future__ import annotations

import os
import select
import signal
import time
from typing import NamedTuple

from .frames import CANCEL, CHUNK, STDERR, STDOUT, FrameError
from .wire import Wire

KILL_SECONDS = 5.0  # after which a process that the kernel can't end is left to the end of the namespace
# What a script writes in small pieces is passed on together, so that a line does not wake four processes between
# here and the reader. Short enough for nobody to notice, and not for whoever writes much.
REST_SECONDS = 0.004
MUCH = 4096


class Child(NamedTuple):
    """The script's process and our ends of its pipes."""

    pid: int
    stdout: int
    stderr: int
    failure: int  # what went wrong before it became the script; closed when it did
    stdin: int | None


class Ending(NamedTuple):
    """How it ended. `status` is what wait(2) said."""

    reason: str
    status: int | None
    error: str
    run_us: int


class Supervisor:
    """One run, from the moment that the process exists until no process is left."""

    def __init__(
        self, wire: Wire, children: int, *, deadline: float, output_total: int, spares: frozenset[int]
    ) -> None:
        self._wire = wire
        self._children = children  # readable when a child ended
        self._known = {1, *spares}  # us, and processes that never had a job and never will
        self._deadline = deadline
        self._output_total = output_total
        self._kinds: dict[int, bytes] = {}
        self._totals = {STDOUT: 0, STDERR: 0}
        self._listening = True  # to what the script writes
        self._rest_until: float | None = None
        self._at_once = False  # whether what comes next is passed on without a rest
        self._stdin = memoryview(b"")
        self._stdin_end: int | None = None
        self._failure = b""
        self._status: int | None = None
        self._reason = ""

    def run(self, child: Child, stdin: bytearray) -> Ending:
        """Returns when every process but this one is gone and what they wrote is on its way."""
        started = time.monotonic()
        self._begin(child, stdin)
        while not self._reason:
            self._turn(child)
        self._kill_everything(child.pid)
        run_us = int((time.monotonic() - started) * 1e6)
        self._read_the_rest(child)
        return self._verdict(run_us)

    def _begin(self, child: Child, stdin: bytearray) -> None:
        self._kinds = {child.stdout: STDOUT, child.stderr: STDERR}
        for fd in (child.stdout, child.stderr, self._children):
            os.set_blocking(fd, False)
            self._wire.watch(fd)
        if child.stdin is not None:
            self._stdin, self._stdin_end = memoryview(stdin), child.stdin
            os.set_blocking(child.stdin, False)
            self._wire.watch(child.stdin, select.POLLOUT)
            self._feed(child.stdin)

    def _turn(self, child: Child) -> None:
        now = time.monotonic()
        if now >= self._deadline:
            self._reason = "timeout"
            return
        if self._rest_until is not None and now >= self._rest_until:
            self._rest_until, self._at_once = None, True
        self._listen(not self._wire.full and self._rest_until is None)
        until = self._deadline if self._rest_until is None else min(self._deadline, self._rest_until)
        written = []
        for fd in self._wire.turn(until - now):
            if fd in self._kinds:
                written.append(fd)
            elif fd == self._stdin_end:
                self._feed(fd)
            elif fd == self._children:
                self._reap(child.pid)
        self._pass_on_or_rest(written)
        self._obey()

    def _listen(self, listening: bool) -> None:
        """Reads no more from the script than the host takes: then the script waits, not our memory."""
        if listening == self._listening:
            return
        self._listening = listening
        for fd in self._kinds:
            if listening:
                self._wire.watch(fd)
            else:
                self._wire.unwatch(fd)

    def _pass_on_or_rest(self, written: list[int]) -> None:
        """The first piece begins a rest; what has come by its end is passed on together."""
        if not written:
            return
        if not self._at_once:
            self._rest_until = time.monotonic() + REST_SECONDS
            return
        self._at_once = False
        for fd in written:
            self._relay(fd)
        self._wire.push()

    def _relay(self, fd: int) -> bool:
        """Queues one piece for the host; False at the end of the stream or where nothing is there."""
        try:
            data = os.read(fd, CHUNK)
        except BlockingIOError:
            return False
        if not data:
            self._wire.unwatch(fd)
            del self._kinds[fd]
            return False
        self._at_once = self._at_once or len(data) >= MUCH
        self._queue(self._kinds[fd], data)
        return True

    def _queue(self, kind: bytes, data: bytes) -> None:
        if self._output_total:
            left = self._output_total - self._totals[kind]
            if len(data) > left:
                if self._reason in ("", "exited"):  # a deadline or a cancel came first, and says why it ended
                    self._reason = "output_limit"
                data = data[:left]
        self._totals[kind] += len(data)
        if data:
            self._wire.queue(kind, data)

    def _feed(self, fd: int) -> None:
        """Gives the script more of its stdin; it may close it early, as `head` does."""
        try:
            while self._stdin:
                self._stdin = self._stdin[os.write(fd, self._stdin[:CHUNK]) :]
        except BlockingIOError:
            return
        except BrokenPipeError:
            pass
        self._end_stdin()

    def _end_stdin(self) -> None:
        if self._stdin_end is not None:
            self._wire.unwatch(self._stdin_end)
            os.close(self._stdin_end)
            self._stdin_end = None

    def _reap(self, main: int) -> bool:
        """Collects whoever ended, orphans included; False when there are no children any more."""
        try:
            os.read(self._children, 4096)
        except BlockingIOError:
            pass
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return False
            if pid == 0:
                return True
            if pid == main:
                self._status = status
                self._reason = self._reason or "exited"

    def _kill_everything(self, main: int) -> None:
        """SIGKILL to every process of the namespace until none is left, whatever session it is in.

        The kernel signals them all at once and a process with a signal pending can't fork, so that
        one round is enough; the loop is for those that take their time to go.
        """
        if os.getpid() != 1:
            raise RuntimeError("kill(-1) outside a PID namespace would end everything on the machine")
        until = time.monotonic() + KILL_SECONDS
        while time.monotonic() < until:
            if not self._reap(main) or not self._others():
                return
            try:
                os.kill(-1, signal.SIGKILL)
            except ProcessLookupError:
                pass
            select.select([self._children], [], [], 0.05)

    def _others(self) -> bool:
        """Whether anybody is left but us and the spares. A spare never had a job, so it has nothing to write, and takes
        as long to go as a short script runs: nobody waits for it."""
        return any(name.isdigit() and int(name) not in self._known for name in os.listdir("/proc"))

    def _obey(self) -> None:
        while self._wire.received:
            if self._wire.received.popleft().kind != CANCEL:
                raise FrameError("only a cancel may follow the go")
            self._reason = self._reason or "cancelled"

    def _read_the_rest(self, child: Child) -> None:
        """What lies in the pipes, and no waiting for their end: somebody may still hold them."""
        self._end_stdin()
        self._wire.unwatch(self._children)
        self._listen(True)
        for fd in list(self._kinds):
            while self._relay(fd):
                pass
        for fd in self._kinds:
            self._wire.unwatch(fd)
        self._failure = _what_is_there(child.failure)

    def _verdict(self, run_us: int) -> Ending:
        if self._failure:  # it never became the script: its status says nothing
            return Ending("refused", None, self._failure.decode("utf-8", "backslashreplace"), run_us)
        return Ending(self._reason, self._status, "", run_us)


def _what_is_there(fd: int) -> bytes:
    os.set_blocking(fd, False)
    try:
        return os.read(fd, 4096)
    except BlockingIOError:
        return b""
