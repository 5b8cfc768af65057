"""A run's result as one versioned JSON document, and as an exit status."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import asdict
from types import MappingProxyType
from typing import Any

from skillexec import errors
from skillexec.model import Artifact, Captured, Decision, Problem, RunResult, Status

VERSION = 1
_CANCELLED = 130  # what shells expect after Ctrl-C


def _statuses() -> Mapping[str, int]:
    """Exit statuses by error code, read off the error tree."""
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type)]
    return {kind.code: kind.exit_status for kind in kinds if issubclass(kind, errors.SkillexecError)}


def exit_status(result: RunResult) -> int:
    """What `skillexec run` exits with. Unknown is never success."""
    if result.status is Status.OK:
        return 0
    if result.status is Status.CANCELLED:
        return _CANCELLED
    known = _statuses()
    code = result.error.code if result.error else str(result.status)
    return known.get(code, known.get(str(result.status), errors.Bug.exit_status))


_REFUSALS: Mapping[type[errors.SkillexecError], Status] = MappingProxyType(
    {
        errors.Denied: Status.DENIED,
        errors.SkillError: Status.DENIED,
        errors.ConfirmationRequired: Status.CONFIRMATION_REQUIRED,
        errors.SecretsMissing: Status.SECRETS_MISSING,
        errors.InvalidInput: Status.INVALID_INPUT,
        errors.Usage: Status.INVALID_INPUT,
        errors.EngineLost: Status.ENGINE_LOST,
    }
)


def refusal_status(error: errors.SkillexecError) -> Status:
    """The status of a run that ended before its script began."""
    return next((status for kind, status in _REFUSALS.items() if isinstance(error, kind)), Status.INFRA_ERROR)


def problem_of(error: errors.SkillexecError) -> Problem:
    return Problem(error.code, error.message, error.hint)


def _stream(captured: Captured) -> dict[str, Any]:
    """Text, losslessly: what is not UTF-8 is given as base64 beside the readable form."""
    described: dict[str, Any] = {
        "text": captured.data.decode("utf-8", "backslashreplace"),
        "bytes": captured.total,
        "truncated": captured.truncated,
        "omitted": captured.omitted,
        "exact": captured.exact_text,
    }
    if not captured.exact_text:
        described["base64"] = base64.b64encode(captured.data).decode()
    return described


def _artifact(artifact: Artifact, *, with_data: bool) -> dict[str, Any]:
    described: dict[str, Any] = {
        "name": artifact.name,
        "bytes": len(artifact.data),
        "executable": artifact.executable,
    }
    if with_data:
        described["base64"] = base64.b64encode(artifact.data).decode()
    return described


def _decision(decision: Decision) -> dict[str, Any]:
    return {
        "allowed": decision.allowed,
        "rule": str(decision.rule),
        "reason": decision.reason,
        "team": decision.team,
    }


def as_document(result: RunResult, *, with_artifacts: bool = False) -> dict[str, Any]:
    """The JSON object that `skillexec run --json` prints. Fields are added in later versions, never renamed."""
    return {
        "version": VERSION,
        "run_id": result.run_id,
        "status": str(result.status),
        "skill": {
            "name": result.skill,
            "digest": result.digest or None,
            "source": str(result.source) if result.source else None,
        },
        "system": result.system,
        "team": result.team,
        "decision": _decision(result.decision) if result.decision else None,
        "exit_code": result.exit_code,
        "signal": result.signal,
        "stdout": _stream(result.stdout),
        "stderr": _stream(result.stderr),
        "output": result.output,
        "artifacts": [_artifact(artifact, with_data=with_artifacts) for artifact in result.artifacts],
        "usage": asdict(result.usage),
        "limits": asdict(result.limits),
        "image": result.image or None,
        "warm": result.warm,
        "redactions": result.redactions,
        "timings": dict(result.timings),
        "notes": list(result.notes),
        "error": asdict(result.error) if result.error else None,
    }
