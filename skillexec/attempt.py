"""One run on its way: what is known of it by now, and what can be said of it at its end."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from skillexec.errors import Bug, InvalidOutput
from skillexec.model import (
    Bundle,
    Confirmation,
    Decision,
    Outcome,
    Problem,
    RunRequest,
    RunResult,
    Skill,
    Status,
)
from skillexec.plan import Plan, output_problem, parsed_output
from skillexec.redact import Masker, MaskStream
from skillexec.stopwatch import Stopwatch


def _output(outcome: Outcome, masker: Masker) -> Any:
    try:
        return masker.value(parsed_output(outcome.stdout))
    except RecursionError:  # nested deeper than anybody could read
        return None


def _problem(outcome: Outcome, clean: Callable[[str], str]) -> Problem | None:
    if outcome.status is Status.OK:
        return None
    message = outcome.error or f"the script ended with {_ending(outcome)}"
    return Problem(str(outcome.status), clean(message), clean(outcome.hint))


def _ending(outcome: Outcome) -> str:
    return f"signal {outcome.signal}" if outcome.signal is not None else f"exit code {outcome.exit_code}"


class Attempt:
    """One run on its way: what is known of it by now."""

    def __init__(self, request: RunRequest) -> None:
        self.request = request
        self.id = request.run_id or uuid.uuid4().hex
        self.skill: Skill | None = None
        self.bundle: Bundle | None = None
        self.decision: Decision | None = None
        self.plan: Plan | None = None
        self.references: Mapping[str, str] = {}  # secret names, and where each comes from
        self.confirmation = ""
        self.masker = Masker({})
        self.streams: list[MaskStream] = []
        self.watch = Stopwatch()

    def sieve(self) -> MaskStream:
        """What one stream of the script's output goes through."""
        self.streams.append(self.masker.stream())
        return self.streams[-1]

    def result(self, status: Status, **details: Any) -> RunResult:
        """A result with what is known of the run, and the details of its end."""
        known = RunResult(
            run_id=self.id,
            status=status,
            skill=self.request.skill,
            system=self.request.system,
            digest=self.bundle.digest if self.bundle else "",
            source=self.skill.source if self.skill else None,
            team=self.decision.team if self.decision else None,
            decision=self.decision,
            timings=self.watch.steps,
        )
        if self.plan:
            known = replace(known, limits=self.plan.limits)
        return replace(known, **details)

    def broken_off(self, error: BaseException) -> RunResult:
        """Interrupted, or crashed. Of an exception only its type is told: its text may hold anything.

        A reader that has gone (`| head`) is an interruption.
        """
        if isinstance(error, Exception) and not isinstance(error, BrokenPipeError):
            return self.result(Status.INFRA_ERROR, error=Problem(Bug.code, type(error).__name__))
        return self.result(Status.CANCELLED, error=Problem("cancelled", "the run was interrupted"))

    def question(self) -> Confirmation:
        """What a person is asked, where nobody vouches for the skill."""
        assert self.skill is not None and self.bundle is not None and self.plan is not None
        return Confirmation(
            skill=self.skill.name,
            source=self.skill.source,
            digest=self.bundle.digest,
            system=self.request.system,
            command=self.plan.label,
            secrets=tuple(self.references),
            network=self.skill.network,
            seconds=self.plan.limits.seconds,
        )

    def ended(self, outcome: Outcome) -> RunResult:
        """What the sandbox says, with nothing in it that could hold a secret, and the output held to its schema."""
        assert self.skill is not None
        clean = self.masker.text
        output = _output(outcome, self.masker)
        status, error = outcome.status, _problem(outcome, clean)
        if status is Status.OK and self.skill.output_schema is not None:
            wrong = output_problem(self.skill.output_schema, output)
            if wrong:
                status = Status.INVALID_OUTPUT
                error = Problem(
                    InvalidOutput.code,
                    f"the output does not fit its schema: {clean(wrong)}",
                    "mend the skill",
                )
        return self.result(
            status,
            exit_code=outcome.exit_code,
            signal=outcome.signal,
            stdout=outcome.stdout,
            stderr=outcome.stderr,
            output=output,
            artifacts=tuple(replace(artifact, name=clean(artifact.name)) for artifact in outcome.artifacts),
            usage=outcome.usage,
            image=outcome.image,
            warm=outcome.warm,
            redactions=sum(stream.count for stream in self.streams),
            notes=tuple(clean(note) for note in outcome.notes),
            error=error,
        )
