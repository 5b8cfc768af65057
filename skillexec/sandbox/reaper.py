"""Sees to it that no container is left: those that should be gone by now, and those of dead owners."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from typing import Any

from skillexec.errors import InfraError
from skillexec.sandbox.bounded import within
from skillexec.sandbox.engine import Engine
from skillexec.sandbox.owner import Owner
from skillexec.sandbox.spec import LABEL_OWNER

# A launcher exits within milliseconds of its end or its owner's; the engine then removes the container.
PATIENCE_SECONDS = 3.0
CLOSE_SECONDS = 10.0
_ABANDONED_SECONDS = 3600.0  # no run lasts longer: what was made and never ran by then is rubbish


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
        """There may be containers of ours from now on."""
        self._made = True

    def expect_gone(self, container: str) -> None:
        """It ends by itself; make sure of it later."""
        with self._changed:
            self._due[container] = time.monotonic() + PATIENCE_SECONDS
            if self._thread is None:
                self._thread = threading.Thread(target=self._watch, name="skillexec-reaper", daemon=True)
                self._thread.start()
            if len(self._due) == 1:
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
        for item in left:
            self._engine.remove(item["Id"])
        return len(left)

    def _rubbish(self, item: Mapping[str, Any]) -> bool:
        owner = Owner.parse(item["Labels"].get(LABEL_OWNER, ""))
        if owner is None or owner.token == self._owner.token:
            return False
        stale = (
            item["State"] in ("created", "exited", "dead")
            and time.time() - item["Created"] > _ABANDONED_SECONDS
        )
        return stale or owner.gone(self._owner)

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
            ours = {item["Id"] for item in self._engine.containers(LABEL_OWNER, str(self._owner))}
            for container in overdue & ours:
                self._engine.remove(container)
        except InfraError:
            pass  # the engine is away, and with it the container: the next sweep clears up after it

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
            pass  # as above

    def _clear(self) -> None:
        began = time.monotonic()
        while ours := self._engine.containers(LABEL_OWNER, str(self._owner)):
            if time.monotonic() - began > CLOSE_SECONDS:
                return
            if time.monotonic() - began > CLOSE_SECONDS / 10:
                for item in ours:
                    self._engine.remove(item["Id"])
            time.sleep(0.01)
