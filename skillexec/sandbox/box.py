"""The sandbox: opened once, executes many, leaves nothing behind."""

from __future__ import annotations

import atexit
import json
import os
import threading
import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from skillexec.errors import InfraError, Usage
from skillexec.model import Bundle, Command, InputFile, Limits, Outcome
from skillexec.sandbox.cancel import Cancel
from skillexec.sandbox.container import Container, Exposed, check_image, start
from skillexec.sandbox.engine import Engine
from skillexec.sandbox.execution import OnOutput, Sieve
from skillexec.sandbox.lease import Lease, Services
from skillexec.sandbox.owner import Owner
from skillexec.sandbox.pool import Pool
from skillexec.sandbox.reaper import Reaper
from skillexec.sandbox.spec import ContainerSpec, Shape, check_limits, launcher_digest
from skillexec.sandbox.turns import Turns
from skillexec.shipped import shipped

_SETTLE_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class SandboxSettings:
    """How containers are made and kept. What one run may use is in its Limits."""

    image: str = "skillexec/cli-tools:current"
    runtime: str = ""  # "": the engine's own; "runsc": gVisor
    concurrent: int = 8  # runs at work at once; more wait in order of arrival
    warm: int = 2  # containers kept waiting; 0: none, for a process that runs one thing and ends
    idle_seconds: float = 300.0  # after which the waiting ones go
    fork_python: bool = True  # Python scripts in the launcher's own interpreter
    seccomp: Path | None = None  # None: the allowlist that ships with skillexec
    engine: str = ""  # unix://...; "": $DOCKER_HOST, else the usual socket


@dataclass(frozen=True, slots=True)
class Checked:
    """What answers: the engine's version and the image's id."""

    engine: str
    image: str


class Sandbox:
    """Executes commands in fresh, locked-down containers. Safe to share between threads, not across a fork.

    `with Sandbox.open(settings) as sandbox: sandbox.execute(...)`. Opening touches nothing: an engine or
    an image that is missing shows in the first outcome, or in `check`.
    """

    def __init__(self, settings: SandboxSettings) -> None:
        self._settings = settings
        self._owner = Owner.current()
        self._engine = Engine(settings.engine)
        self._reaper = Reaper(self._engine, self._owner)
        self._pool = Pool(self._start, self._discard, warm=settings.warm, idle_seconds=settings.idle_seconds)
        self._network_mode = ""
        self._image_id = ""
        self._made: tuple[str, str] | None = None  # seccomp profile and launcher digest, read once
        self._lock = threading.Lock()
        self._closed = False
        self._services = Services(
            engine=self._engine,
            pool=self._pool,
            turns=Turns(settings.concurrent),
            reaper=self._reaper,
            concurrent=settings.concurrent,
            fork_python=settings.fork_python,
        )

    @classmethod
    def open(cls, settings: SandboxSettings | None = None) -> Sandbox:
        """A sandbox that closes itself when the process ends, if nobody did before."""
        sandbox = cls(settings or SandboxSettings())
        atexit.register(sandbox.close)
        _forget_after_fork(sandbox)
        return sandbox

    def __enter__(self) -> Sandbox:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self, *, patiently: bool = True) -> None:
        """End what waits, and return when no container of ours is left. Does nothing the second time.

        Not patiently: return when each has been told to end. The engine removes it some milliseconds later.
        """
        if os.getpid() != self._owner.process.pid:
            return  # the parent's; its lock may have been held in the moment of the fork
        with self._lock:
            if self._closed:
                return
            self._closed = True
        atexit.unregister(self.close)
        self._pool.close()
        self._pool.wait_settled(_SETTLE_SECONDS)
        self._reaper.close(patiently=patiently)

    @property
    def image(self) -> str:
        """The id of the image that containers are made from, as far as it is known yet; else its name."""
        return self._image_id or self._settings.image

    def check(self) -> Checked:
        """Raise EngineUnavailable or ImageUnavailable where nothing could run; say what answers."""
        return Checked(self._engine.version(), self._image())

    def sweep(self) -> int:
        """Remove the containers of owners that are dead: what crashes left. Returns how many."""
        return self._reaper.sweep()

    def waiting(self) -> int:
        """How many containers wait for a run."""
        return self._pool.waiting()

    def warm_up(self, limits: Limits | None = None, *, seconds: float = 0.0) -> bool:
        """Start filling the pool for such limits, and wait so long for it to be full.

        Raises what keeps it from filling, where that shows within the time.
        """
        self._check_usable()
        check_limits(limits or Limits())
        self._pool.fill(Shape.of(limits or Limits()))
        return self._pool.wait_full(seconds)

    def start_ahead(self, limits: Limits | None = None) -> None:
        """Start one container in the background for the next run, whatever the settings keep warm."""
        self._check_usable()
        check_limits(limits or Limits())
        self._pool.start_ahead(Shape.of(limits or Limits()))

    def prepare(self, limits: Limits | None = None) -> Lease:
        """Claim a container, or start one in the background, while the caller makes the job ready.

        The time of the limits starts here. Raises Usage for limits beyond the hard bounds.
        """
        self._check_usable()
        check_limits(limits or Limits())
        return Lease(self._services, limits or Limits())

    def execute(
        self,
        bundle: Bundle,
        command: Command,
        *,
        env: Mapping[str, str] | None = None,
        limits: Limits | None = None,
        stdin: bytes | None = None,
        files: tuple[InputFile, ...] = (),
        on_output: OnOutput | None = None,
        cancel: Cancel | None = None,
        sieve: Callable[[], Sieve] | None = None,
    ) -> Outcome:
        """Run the command on the bundle in a fresh container.

        Whatever happens to the run is an Outcome, also an engine or an image that is missing. Raised
        are Usage for limits out of bounds, what `on_output` raises, and Ctrl-C after the kill.
        `on_output(stream, data)` is called in this thread while the script runs.
        """
        with self.prepare(limits) as lease:
            return lease.run(
                bundle,
                command,
                env=env,
                stdin=stdin,
                files=files,
                on_output=on_output,
                cancel=cancel,
                sieve=sieve,
            )

    async def execute_async(self, bundle: Bundle, command: Command, **options: Any) -> Outcome:
        """`execute` for asyncio, in a thread of its own. Cancelling the task cancels the run: the
        CancelledError comes when everything is dead. `on_output` is called in that thread."""
        from skillexec.sandbox.asynchronous import in_thread

        cancel = options.pop("cancel", None) or Cancel()
        return await in_thread(lambda: self.execute(bundle, command, cancel=cancel, **options), cancel.cancel)

    def _check_usable(self) -> None:
        if os.getpid() != self._owner.process.pid:
            raise Usage("this sandbox belongs to the parent process", hint="open one after the fork")
        if self._closed:
            raise Usage("this sandbox is closed", hint="open another one")

    def _image(self) -> str:
        image = self._engine.image(self._settings.image)
        check_image(image, self._settings.image, self._read_once()[1])
        self._image_id = image.id
        return image.id

    def _read_once(self) -> tuple[str, str]:
        with self._lock:
            if self._made is None:
                self._made = _seccomp(self._settings.seccomp), launcher_digest()
            return self._made

    def _start(self, shape: Shape) -> Container:
        """In a thread of the pool: a container that is ready."""
        spec = ContainerSpec(
            image=self._image(),
            shape=shape,
            seccomp=self._read_once()[0],
            owner=str(self._owner),
            runtime=self._settings.runtime,
            network_mode=self._network_mode,
        )
        self._reaper.note_made()
        try:
            return start(self._engine, spec)
        except Exposed:
            if spec.network_mode:
                raise
            self._network_mode = "none"  # this engine does not keep NetworkDisabled: ask for it the other way
            return self._start(shape)

    def _discard(self, container: Container) -> None:
        container.close()
        self._reaper.expect_gone(container.id)


def _forget_after_fork(sandbox: Sandbox) -> None:
    reference = weakref.ref(sandbox._engine)

    def forget() -> None:
        engine = reference()
        if engine is not None:
            engine.forget()

    os.register_at_fork(after_in_child=forget)


def _seccomp(path: Path | None) -> str:
    """The profile as the engine takes it: compact JSON. Unreadable means that nothing runs."""
    path = path or shipped("images") / "seccomp.json"
    try:
        return json.dumps(json.loads(path.read_text()), separators=(",", ":"))
    except (OSError, ValueError) as error:
        raise InfraError(
            f"the seccomp profile {path} can't be used: {error}", hint="install skillexec again"
        ) from error
