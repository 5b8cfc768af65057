"""What a run leaves on the record: the decision and the intent before, the outcome after, whatever it was."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from skillexec.audit import Event, append, check_new_run, open_runs, record_abandoned
from skillexec.model import Bundle, Decision, RunResult, Skill, Status
from skillexec.plan import Plan
from skillexec.process import process_identity

if TYPE_CHECKING:
    import sqlite3

    from skillexec.state import State


def _microseconds(seconds: float) -> int:
    return max(round(seconds * 1e6), 0)


def _stated(**fields: Any) -> dict[str, Any]:
    """Only what is known."""
    return {name: value for name, value in fields.items() if value not in (None, "", ())}


class Journal:
    """Writes the records of runs. Each method returns when its records are durable, or raises."""

    def __init__(self, state: State, *, actor: str) -> None:
        self._state = state
        self._actor = actor

    def sweep(self) -> int:
        """Record as abandoned the runs whose process is gone. Says how many there were."""
        with self._state.quick_read() as connection:
            if not open_runs(connection):
                return 0
        with self._state.quick_write() as connection:
            return len(record_abandoned(connection, actor=self._actor))

    def check(self, run: str) -> None:
        """Raise Usage where a run can't have this id, before anybody is asked or anything is resolved for it."""
        with self._state.quick_read() as connection:
            check_new_run(connection, run)

    def intend(
        self,
        run: str,
        *,
        skill: Skill,
        bundle: Bundle,
        decision: Decision,
        plan: Plan,
        secrets: tuple[str, ...],
        confirmation: str,
    ) -> None:
        """The decision and the intent, together, before any container gets the job."""
        data = _stated(
            rule=str(decision.rule),
            digest=bundle.digest,
            source=str(skill.source),
            policy=decision.policy,
            input=plan.input_digest,
            arguments=plan.arguments_digest,
            command=plan.label,
            files=len(plan.files),
            names=list(secrets),
            confirmation=confirmation,
            limit_us=_microseconds(plan.limits.seconds),
            memory=plan.limits.memory,
        )
        with self._state.quick_write() as connection:
            self._decided(connection, run, decision, bundle=bundle, skill=skill)
            append(
                connection,
                self._event("run.started", run, decision, data=data | process_identity().data),
            )

    def refuse(
        self,
        run: str,
        result: RunResult,
        *,
        skill: Skill | None,
        bundle: Bundle | None,
        names: tuple[str, ...],
    ) -> None:
        """The end of a run that never began. A denial is its own end."""
        decision = result.decision
        assert decision is not None
        with self._state.quick_write() as connection:
            self._decided(connection, run, decision, bundle=bundle, skill=skill)
            if decision.allowed:
                append(connection, self._ended(run, result, decision, names=names))

    def conclude(self, run: str, result: RunResult) -> None:
        """The outcome of a run that began."""
        assert result.decision is not None
        with self._state.quick_write() as connection:
            append(connection, self._ended(run, result, result.decision, names=()))

    def _decided(
        self,
        connection: sqlite3.Connection,
        run: str,
        decision: Decision,
        *,
        bundle: Bundle | None,
        skill: Skill | None,
    ) -> None:
        data = _stated(
            rule=str(decision.rule),
            operation="run",
            digest=bundle.digest if bundle else None,
            source=str(skill.source) if skill else None,
            policy=decision.policy,
        )
        name = "decision.allowed" if decision.allowed else "decision.denied"
        outcome = "allowed" if decision.allowed else str(Status.DENIED)
        append(connection, self._event(name, run, decision, outcome=outcome, data=data))

    def _ended(self, run: str, result: RunResult, decision: Decision, *, names: tuple[str, ...]) -> Event:
        data = _stated(
            digest=result.digest,
            image=result.image,
            exit_code=result.exit_code,
            signal=result.signal,
            error=result.error.code if result.error else None,
            duration_us=_microseconds(result.usage.wall_seconds),
            cpu_us=_microseconds(result.usage.cpu_seconds),
            peak_memory=result.usage.peak_memory,
            stdout_bytes=result.stdout.total,
            stderr_bytes=result.stderr.total,
            truncated=result.stdout.truncated or result.stderr.truncated,
            artifacts=len(result.artifacts),
            redactions=result.redactions,
            names=list(names),
            warm=result.warm,
            steps={step: _microseconds(seconds) for step, seconds in result.timings.items()},
        )
        return self._event("run.ended", run, decision, outcome=str(result.status), data=data)

    def _event(
        self, name: str, run: str, decision: Decision, *, outcome: str | None = None, data: Mapping[str, Any]
    ) -> Event:
        from skillexec.audit import named

        return Event(
            name,
            self._actor,
            system=named(decision.system),
            team=decision.team,
            skill=named(decision.skill),
            outcome=outcome,
            run=run,
            data=data,
        )
