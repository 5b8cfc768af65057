"""Sees to it that no container is left: those that should be gone by now, and those of dead owners."""

from __future__ import annotations

import math
import threading
import time

from skillexec.errors import EngineUnavailable, InfraError
from skillexec.sandbox.bounded import begun, within
from skillexec.sandbox.engine import Engine, Listed
from skillexec.sandbox.owner import Owner
from skillexec.sandbox.spec import LABEL_OWNER

# A launcher exits within milliseconds of its end or its owner's; the engine then removes the container.
PATIENCE_SECONDS = 3.0
CLOSE_SECONDS = 10.0
_AGAIN_SECONDS = 30.0  # between two looks at an engine that is away
_ABANDONED_SECONDS = 3600.0  # no run lasts longer: what was made and never ran by then is rubbish
_OTHERS = ""  # due in the place of a container: a sweep


class Reaper:
    """Of one owner. Works in a thread of its own that sleeps unless something is due."""

    def __init__(self, engine: Engine, owner: Owner) -> None:
        self._engine, self._owner = engine, owner
        self._changed = threading.Condition()
        self._due: dict[str, float] = {}
        self._thread: threading.Thread | None = None
        self._closed = False
        self._made = False

    def note_made(self) -> None:
        """There may be containers of ours from now on. A moment later, what others left is swept up, once.

        Not now, for a run waits; and a process that ends sooner sweeps when it closes.
        """
        if not self._made:
            self._made = True
            self.expect_gone(_OTHERS)

    def expect_gone(self, container: str) -> None:
        """It ends by itself; make sure of it later."""
        self._look_at({container}, PATIENCE_SECONDS)

    def _look_at(self, containers: set[str], seconds: float) -> None:
        with self._changed:
            due, before = time.monotonic() + seconds, min(self._due.values(), default=math.inf)
            self._due.update(dict.fromkeys(containers, due))
            if self._thread is None and not self._closed:
                self._thread = begun(self._watch, "skillexec-reaper")
            if due < before:  # else it wakes early enough: a run that ends need not wake it
                self._changed.notify_all()

    def kill(self, container: str, seconds: float) -> bool:
        """Kill and remove now. True when the engine has confirmed it within the time."""
        self.expect_gone(container)
        return within(seconds, lambda: self._removed(container)) is not None

    def _removed(self, container: str) -> bool:
        self._engine.remove(container)
        return True

    def sweep(self) -> int:
        """Remove what owners left that are dead for certain. Returns how many."""
        left = [item for item in self._engine.containers(LABEL_OWNER) if self._rubbish(item)]
        return sum(self._cleared(item.id) for item in left)

    def _cleared(self, container: str) -> bool:
        """Remove it. One that the engine can't remove must not keep the others."""
        try:
            self._engine.remove(container)
        except EngineUnavailable:
            raise
        except InfraError:
            return False
        return True

    def _rubbish(self, item: Listed) -> bool:
        owner = Owner.parse(item.label)
        if owner is None or owner.token == self._owner.token:
            return False
        stale = time.time() - item.created > _ABANDONED_SECONDS
        return (stale and item.state in ("created", "exited", "dead")) or owner.gone(self._owner)

    def _watch(self) -> None:
        while True:
            with self._changed:
                while not self._closed and not self._overdue():
                    self._changed.wait(min(self._due.values()) - time.monotonic() if self._due else None)
                if self._closed:
                    return
                overdue = self._overdue()
                for container in overdue:
                    del self._due[container]
            self._remove_those_left(overdue)

    def _overdue(self) -> set[str]:
        now = time.monotonic()
        return {container for container, due in self._due.items() if due <= now}

    def _remove_those_left(self, overdue: set[str]) -> None:
        try:
            if _OTHERS in overdue:
                self.sweep()
            ours = {item.id for item in self._engine.containers(LABEL_OWNER, str(self._owner))}
            for container in overdue & ours:
                self._cleared(container)
        except InfraError:
            self._look_at(overdue, _AGAIN_SECONDS)  # the engine is away, and may be back by then

    def close(self, *, patiently: bool = True) -> None:
        """Wait until none of ours is left, by force where patience does not help. No thread is started."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        if not self._made:
            return
        self._engine.hurry(PATIENCE_SECONDS)
        try:
            if patiently:
                self._clear()
            self.sweep()
        except InfraError:
            pass  # the engine is away: the next sandbox's sweep clears up

    def _clear(self) -> None:
        began = time.monotonic()
        while ours := self._engine.containers(LABEL_OWNER, str(self._owner)):
            if time.monotonic() - began > CLOSE_SECONDS:
                return
            if time.monotonic() - began > CLOSE_SECONDS / 10:
                for item in ours:
                    self._cleared(item.id)
            time.sleep(0.01)
