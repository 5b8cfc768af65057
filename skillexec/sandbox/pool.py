"""Containers ahead of their runs: single-use, claimed by one, refilled while nobody is in a hurry.

A claim takes a waiting container, else the next one that gets ready: one that is being started anyway,
or one started for it. So a run never waits longer than a start of its own would take.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from skillexec.errors import InfraError, SkillexecError
from skillexec.sandbox.bounded import begun
from skillexec.sandbox.container import Container
from skillexec.sandbox.spec import Shape

# A refill waits until the run that emptied the pool has ended, for both would share the processors; but
# not longer than this, for a run may take minutes.
REFILL_SECONDS = 0.1
# Nor does it get in the way of what the caller does with the result, such as putting it on record.
REST_SECONDS = 0.015


class Claim:
    """A container that is here, or on its way. Belongs to one run."""

    def __init__(self, shape: Shape) -> None:
        self.shape = shape
        self.warm = False  # a container was waiting
        self.served = False  # its turn has come
        self.given_up = False
        self._done = threading.Event()
        self._container: Container | None = None
        self._error: SkillexecError | None = None

    def fulfil(self, container: Container | None, error: SkillexecError | None = None) -> None:
        self._container, self._error = container, error
        self._done.set()

    def wake(self) -> None:
        """End the waiting, with or without a container."""
        self._done.set()

    def wait(self, seconds: float) -> Container | None:
        """The container, for the caller to keep; None where it did not come. Raises what its start raised."""
        self._done.wait(max(0.0, seconds))
        if self._error is not None:
            raise self._error
        return self._container

    def take(self) -> Container | None:
        """The container, once."""
        container, self._container = self._container, None
        return container


@dataclass(slots=True)
class _Rack:
    """The containers of one shape: waiting, wanted, and being started."""

    waiting: deque[Container] = field(default_factory=deque)
    claims: deque[Claim] = field(default_factory=deque)
    starting: int = 0


class Pool:
    """`start` makes a container and may take its time; `discard` is told of those that nobody wants."""

    def __init__(
        self,
        start: Callable[[Shape], Container],
        discard: Callable[[Container], None],
        *,
        warm: int,
        idle_seconds: float,
    ) -> None:
        self._start, self._discard = start, discard
        self._warm, self._idle_seconds = warm, idle_seconds
        self._changed = threading.Condition()
        self._racks: dict[Shape, _Rack] = {}
        self._keeper: threading.Thread | None = None
        self._ahead = 0  # started once for a claim that is sure to come, beside those that are kept warm
        self._shape: Shape | None = None  # the last one asked for: what is kept warm
        self._refill_at: float | None = None
        self._idle_at = 0.0
        self._failure: SkillexecError | None = None  # of the last start that failed
        self._closed = False

    def waiting(self) -> int:
        """How many containers wait for a run."""
        with self._changed:
            return self._waiting()

    def _waiting(self) -> int:
        return sum(len(rack.waiting) for rack in self._racks.values())

    def _rack(self, shape: Shape) -> _Rack:
        return self._racks.setdefault(shape, _Rack())

    def serve(self, claim: Claim) -> None:
        """Give the claim a waiting container at once, else the next that gets ready."""
        dead: list[Container] = []
        with self._changed:
            if self._closed:
                claim.fulfil(None, _closed())
            elif not claim.given_up:
                claim.served = True
                self._serve(claim, dead)
        for container in dead:
            self._discard(container)

    def _serve(self, claim: Claim, dead: list[Container]) -> None:
        self._ahead = 0
        self._want(claim.shape, REFILL_SECONDS)
        rack = self._rack(claim.shape)
        container = _first_alive(rack.waiting, dead)
        if container is not None:
            claim.warm = True
            claim.fulfil(container)
        else:
            rack.claims.append(claim)
            self._start_for(claim.shape, rack)

    def give_up(self, claim: Claim) -> None:
        """Take a claim back. A container that it got goes back onto the rack: it never had a job."""
        with self._changed:
            claim.given_up = True
            rack = self._rack(claim.shape)
            if claim in rack.claims:
                rack.claims.remove(claim)
            container = claim.take()
            surplus = self._place(container) if container is not None else []
        for each in surplus:
            self._discard(each)

    def fill(self, shape: Shape) -> None:
        """Keep containers of this shape ready from now on."""
        with self._changed:
            self._check_open()
            self._want(shape, 0.0)

    def start_ahead(self, shape: Shape) -> None:
        """Start one container, once, for a claim that will come: for a process that runs one thing and ends."""
        with self._changed:
            self._check_open()
            self._shape, self._ahead = shape, 1
            self._begin_start(shape, self._rack(shape))

    def wait_full(self, seconds: float) -> bool:
        """Wait until as many containers are ready as are kept. Raises what kept them from it."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting() >= self._warm or self._refill_at is None, seconds)
            if self._waiting() < self._warm and self._failure is not None:
                raise self._failure
            return self._waiting() >= self._warm

    def rest(self) -> None:
        """A run has ended: a good moment to refill."""
        with self._changed:
            if self._refill_at is not None:
                self._refill_at = time.monotonic() + REST_SECONDS
                self._changed.notify_all()

    def close(self) -> None:
        """Let all of them go. Starts that are under way are discarded when they are done."""
        with self._changed:
            self._closed = True
            left = [container for rack in self._racks.values() for container in rack.waiting]
            claims = [claim for rack in self._racks.values() for claim in rack.claims]
            for rack in self._racks.values():
                rack.waiting.clear()
                rack.claims.clear()
            self._changed.notify_all()
        for claim in claims:
            claim.fulfil(None, _closed())
        for container in left:
            self._discard(container)

    def wait_settled(self, seconds: float) -> None:
        """Wait for starts under way, so that none of them is left behind."""
        with self._changed:
            self._changed.wait_for(lambda: not any(rack.starting for rack in self._racks.values()), seconds)

    def _check_open(self) -> None:
        if self._closed:
            raise _closed()

    def _want(self, shape: Shape, delay: float) -> None:
        """Under the lock: keep this shape warm, refilled after the delay."""
        now = time.monotonic()
        self._shape, self._idle_at = shape, now + self._idle_seconds
        if not self._warm:
            return
        self._refill_at = min(self._refill_at or now + delay, now + delay)
        if self._keeper is None:
            self._keeper = begun(self._keep, "skillexec-pool")
        self._changed.notify_all()

    def _start_for(self, shape: Shape, rack: _Rack) -> None:
        """Under the lock: see to it that every claim has a start that will serve it."""
        while rack.starting < len(rack.claims):
            self._begin_start(shape, rack)

    def _begin_start(self, shape: Shape, rack: _Rack) -> None:
        """Under the lock."""
        rack.starting += 1
        if begun(lambda: self._run_start(shape), "skillexec-start") is None:
            rack.starting -= 1
            self._fail(rack, InfraError("this process gets no more threads", hint="raise `ulimit -u`"))

    def _run_start(self, shape: Shape) -> None:
        container: Container | None = None
        error: SkillexecError = InfraError("a container could not be started")
        try:
            container = self._start(shape)
        except SkillexecError as problem:
            error = problem
        except BaseException as problem:  # noqa: BLE001 - a thread's boundary: the claim must hear of it
            error = InfraError(f"a container could not be started: {type(problem).__name__}: {problem}")
        surplus: list[Container] = []
        with self._changed:  # in one step: a claim that came in between would have one more started
            rack = self._rack(shape)
            rack.starting -= 1
            if container is not None:
                surplus = self._place(container)
            else:
                self._fail(rack, error)
            self._changed.notify_all()
        for each in surplus:
            self._discard(each)

    def _place(self, container: Container) -> list[Container]:
        """Under the lock: to the claim that waits longest, else onto the rack; those to discard for it."""
        rack = self._rack(container.shape)
        if rack.claims:
            rack.claims.popleft().fulfil(container)
            return []
        room = max(self._warm, self._ahead) - len(rack.waiting)
        if self._closed or self._shape != container.shape or room <= 0:
            return [container]
        # Whatever was started before the image was rebuilt, or for another shape, makes room.
        surplus = self._outdated(container)
        rack.waiting.append(container)
        self._changed.notify_all()
        return surplus

    def _outdated(self, newest: Container) -> list[Container]:
        gone = []
        for rack in self._racks.values():
            for old in [
                old for old in rack.waiting if (old.image, old.shape) != (newest.image, newest.shape)
            ]:
                rack.waiting.remove(old)
                gone.append(old)
        return gone

    def _fail(self, rack: _Rack, error: SkillexecError) -> None:
        """Under the lock: tell the claim that waits longest, unless another start will serve it; stop refilling."""
        self._refill_at, self._failure = None, error
        if len(rack.claims) > rack.starting:
            rack.claims.popleft().fulfil(None, error)
        self._changed.notify_all()

    def _keep(self) -> None:
        """The keeper's thread: sleeps until something is due."""
        while True:
            with self._changed:
                due = self._due()
                while not self._closed and (due is None or due > time.monotonic()):
                    self._changed.wait(None if due is None else due - time.monotonic())
                    due = self._due()
                if self._closed:
                    return
                surplus = self._act()
            for container in surplus:
                self._discard(container)

    def _due(self) -> float | None:
        """Under the lock: when the keeper has to act next. While a start is under way, not before its end."""
        if self._shape is None:
            return None
        rack = self._rack(self._shape)
        if self._refill_at is not None:
            return None if rack.claims or rack.starting else self._refill_at
        return self._idle_at if self._waiting() else None

    def _act(self) -> list[Container]:
        """Under the lock: start one, or let all go that nobody wanted for so long."""
        assert self._shape is not None
        rack = self._rack(self._shape)
        if self._refill_at is not None:
            if len(rack.waiting) < self._warm:
                self._begin_start(self._shape, rack)
            else:
                self._refill_at = None
            return []
        idle = [container for each in self._racks.values() for container in each.waiting]
        for each in self._racks.values():
            each.waiting.clear()
        return idle


def _closed() -> InfraError:
    return InfraError("the sandbox is closed", hint="open another one")


def _first_alive(waiting: deque[Container], dead: list[Container]) -> Container | None:
    while waiting:
        container = waiting.popleft()
        if container.alive():
            return container
        dead.append(container)
    return None
