"""A container promised to one run: being started while the caller still prepares the job."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, replace

from skillexec.errors import InfraError, InvalidInput, SkillexecError, Usage
from skillexec.model import Bundle, Command, InputFile, Limits, Outcome, Status
from skillexec.model import Usage as Used
from skillexec.sandbox import verdict
from skillexec.sandbox.bounded import within
from skillexec.sandbox.cancel import Cancel
from skillexec.sandbox.container import Container
from skillexec.sandbox.engine import Engine
from skillexec.sandbox.execution import Execution, Heard, Lost, OnOutput, Overdue, Sieve
from skillexec.sandbox.pool import Claim, Pool
from skillexec.sandbox.reaper import Reaper
from skillexec.sandbox.session import Exit, Job
from skillexec.sandbox.spec import Shape
from skillexec.sandbox.turns import Turns
from skillexec.sandbox.verdict import Verdict

_KILL_SECONDS = 0.5  # with the grace before it, everything is dead within one second of the deadline
_INQUEST_SECONDS = 3.0
_ATTEMPTS = 4  # containers that may turn out dead before the job has left us


@dataclass(frozen=True, slots=True)
class Services:
    """What a lease needs of its sandbox."""

    engine: Engine
    pool: Pool
    turns: Turns
    reaper: Reaper
    concurrent: int
    fork_python: bool


class _NoContainer(Exception):
    """The run ended before it had one."""

    def __init__(self, ruling: Verdict) -> None:
        super().__init__(ruling.error)
        self.ruling = ruling


class Lease:
    """Call `run` once, or `release`. The time counts from the moment that the lease was made.

    As a context manager it lets the container go at the end of the block, not of the run: the engine's clearing up
    would take the processors from whoever puts the outcome on record.
    """

    def __init__(self, services: Services, limits: Limits) -> None:
        self._services = services
        self._limits = limits
        self._began = time.monotonic()
        self._deadline = self._began + limits.seconds
        self._claim = Claim(Shape.of(limits))
        self._over = False
        self._used: Container | None = None
        self._in_block = False
        self._turn = services.turns.enter(lambda: services.pool.serve(self._claim))

    def __enter__(self) -> Lease:
        self._in_block = True
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def release(self) -> None:
        """Give it up. A container that never had a job goes back to the pool; one that had is let go."""
        if self._used is not None:
            used, self._used = self._used, None
            self._let_go(used)
            self._services.turns.leave(self._turn)
            self._services.pool.rest()
        elif not self._over:
            self._over = True
            self._services.pool.give_up(self._claim)
            self._services.turns.leave(self._turn)

    def run(
        self,
        bundle: Bundle,
        command: Command,
        *,
        env: Mapping[str, str] | None = None,
        stdin: bytes | None = None,
        files: tuple[InputFile, ...] = (),
        on_output: OnOutput | None = None,
        cancel: Cancel | None = None,
        sieve: Callable[[], Sieve] | None = None,
    ) -> Outcome:
        """Hand the job over and see it through. Whatever happens to the run is an Outcome; raised are
        only a second use, what `on_output` raises, and Ctrl-C, both of the latter after the kill.

        `sieve` makes one sieve per stream; output passes it before `on_output` and the capture.
        """
        if self._over:
            raise Usage("a lease serves one run", hint="prepare another one")
        job = Job(
            command=command,
            bundle=bundle.data,
            seconds=self._left(),
            limits=self._limits,
            env=env or {},
            files=files,
            stdin=stdin,
            fork_python=self._services.fork_python,
        )
        try:
            container = self._container(cancel)
        except _NoContainer as error:
            return self._outcome(error.ruling)
        except SkillexecError as error:  # of the start: there is no engine, no image, no room
            return self._outcome(Verdict(Status.INFRA_ERROR, error.message, error.hint))
        return self._see_through(container, replace(job, seconds=self._left()), on_output, cancel, sieve)

    def _left(self) -> float:
        return max(0.0, self._deadline - time.monotonic())

    def _container(self, cancel: Cancel | None) -> Container:
        """A container that is alive and now ours, or the reason why there is none."""
        try:
            with cancel.told(self._wake) if cancel else nullcontext():
                container = self._await(cancel)
        except BaseException:
            self.release()
            raise
        # In this order: a Ctrl-C from here on finds a container that has to be let go, and a turn to give back.
        self._over, self._used = True, container
        self._claim.take()
        return container

    def _wake(self) -> None:
        self._claim.wake()

    def _await(self, cancel: Cancel | None) -> Container:
        for _ in range(_ATTEMPTS):
            container = self._claim.wait(self._left())
            if cancel is not None and cancel.requested:
                raise _NoContainer(verdict.cancelled())
            if container is None and not self._claim.served:
                raise _NoContainer(verdict.crowded(self._limits, self._services.concurrent))
            if container is None:
                raise _NoContainer(verdict.not_started(self._limits))
            if not self._left():
                raise _NoContainer(verdict.timed_out(self._limits))
            if container.alive():
                return container
            self._claim_another()
        raise _NoContainer(
            Verdict(Status.INFRA_ERROR, "containers end before they get a job", verdict.DOCTOR)
        )

    def _claim_another(self) -> None:
        """The one that we had is dead and never had a job: a fresh one in its place."""
        dead = self._claim.take()
        self._claim = Claim(self._claim.shape)
        self._services.pool.serve(self._claim)
        if dead is not None:
            self._let_go(dead)

    def _let_go(self, container: Container) -> None:
        container.close()
        self._services.reaper.expect_gone(container.id)

    def _see_through(
        self,
        container: Container,
        job: Job,
        on_output: OnOutput | None,
        cancel: Cancel | None,
        sieve: Callable[[], Sieve] | None,
    ) -> Outcome:
        handed = time.monotonic()
        try:
            execution = Execution(container, job, deadline=self._deadline, on_output=on_output, sieve=sieve)
            ruling = self._rule(execution, container, cancel)
            heard = execution.finish()
        except BaseException:  # Ctrl-C, or the caller's own on_output: nothing may go on behind its back
            self._services.reaper.kill(container.id, _KILL_SECONDS)
            self.release()
            raise
        if not self._in_block:
            self.release()
        timings = {"container": handed - self._began, "run": time.monotonic() - handed}
        return self._outcome(ruling, container, heard, timings)

    def _rule(self, execution: Execution, container: Container, cancel: Cancel | None) -> Verdict:
        try:
            execution.converse(cancel)
        except Exception as error:
            if error is execution.callers_error:  # may be of our classes: it is theirs all the same
                raise
            return self._troubled(error, execution, container, cancel)
        assert execution.exit is not None  # the protocol has no end without an exit
        return verdict.judge(execution.exit, self._limits)

    def _troubled(
        self, error: Exception, execution: Execution, container: Container, cancel: Cancel | None
    ) -> Verdict:
        match error:
            case InvalidInput():  # the job can't even be said
                return Verdict(Status.INVALID_INPUT, error.message, error.hint)
            case InfraError():  # a launcher that breaks the protocol, or no means to talk to it
                self._services.reaper.kill(container.id, _KILL_SECONDS)
                return Verdict(Status.INFRA_ERROR, error.message, error.hint or verdict.DOCTOR)
            case Overdue():
                return self._overdue(execution.exit, container, cancel)
            case Lost():
                return self._lost(execution.exit, container, str(error))
        raise error

    def _overdue(self, end: Exit | None, container: Container, cancel: Cancel | None) -> Verdict:
        confirmed = self._services.reaper.kill(container.id, _KILL_SECONDS)
        if end is not None:
            return verdict.unfinished(verdict.judge(end, self._limits), self._limits)
        if not confirmed:
            return verdict.lost("the Docker engine does not answer")
        if cancel is not None and cancel.requested:
            return verdict.cancelled()
        return verdict.timed_out(self._limits)

    def _lost(self, end: Exit | None, container: Container, last_words: str) -> Verdict:
        """The stream broke. Ask the engine what it knows; without an exit frame nothing counts as success."""
        engine, since = self._services.engine, container.since
        death = within(_INQUEST_SECONDS, lambda: engine.death(container.id, since))
        if death is None:
            return verdict.lost("the Docker engine was lost in mid-run")
        if death.oom:
            return verdict.out_of_memory(self._limits)
        if end is not None and (ruling := verdict.judge(end, self._limits)).status is not Status.OK:
            return ruling
        return verdict.lost(f"the container vanished in mid-run ({last_words})")

    def _outcome(
        self,
        ruling: Verdict,
        container: Container | None = None,
        heard: Heard | None = None,
        timings: Mapping[str, float] | None = None,
    ) -> Outcome:
        outcome = Outcome(
            status=ruling.status,
            error=ruling.error,
            hint=ruling.hint,
            warm=self._claim.warm,
            container=container.id if container else "",
            image=container.image if container else "",
            timings=timings or {"container": time.monotonic() - self._began},
        )
        return outcome if heard is None else _with_heard(outcome, heard)


def _with_heard(outcome: Outcome, heard: Heard) -> Outcome:
    outcome = replace(
        outcome, stdout=heard.stdout, stderr=heard.stderr, artifacts=heard.artifacts, notes=heard.notes
    )
    end = heard.exit
    if end is None:
        return replace(outcome, usage=Used(wall_seconds=outcome.timings["run"]))
    inside = {f"launcher.{step}": micros / 1e6 for step, micros in end.timings.items()}
    return replace(
        outcome,
        exit_code=end.exit_code,
        signal=end.signal,
        usage=Used(end.wall_us / 1e6, end.cpu_us / 1e6, end.peak_memory),
        timings={**outcome.timings, **inside},
    )
