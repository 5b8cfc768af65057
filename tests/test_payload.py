"""The JSON of a result is what its published schema says."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pydantic import ValidationError

from skillexec.model import (
    Artifact,
    Captured,
    Decision,
    Problem,
    Rule,
    RunResult,
    Source,
    Status,
)
from skillexec.payload import RunDocument
from skillexec.result import as_document, exit_status

SCHEMA = Path(__file__).parent.parent / "docs" / "run-result.schema.json"
FULL = RunResult(
    run_id="r-1",
    status=Status.OK,
    skill="echo",
    system="scout",
    digest="sha256:" + "0" * 64,
    source=Source.ORG,
    team="research",
    decision=Decision(True, Rule.SYSTEM_GRANT, "granted", "scout", "echo", "research"),
    exit_code=0,
    stdout=Captured(b"\xff", b"", 1),
    output={"n": [1, None]},
    artifacts=(Artifact("a/b", b"\x00", executable=True),),
    timings={"load": 0.1},
    notes=("left out one",),
)


@pytest.mark.parametrize(
    "result", [FULL, RunResult("r-2", Status.DENIED, "x", "y", error=Problem("denied", "no"))]
)
def test_what_is_written_can_be_read_as_typed_values(result: RunResult) -> None:
    for with_artifacts in (True, False):
        text = json.dumps(as_document(result, with_artifacts=with_artifacts))
        read = RunDocument.model_validate_json(text)
        assert (read.run_id, read.status, read.skill.name) == (result.run_id, result.status, result.skill)


def test_a_document_with_a_field_that_nobody_declared_is_refused() -> None:
    with pytest.raises(ValidationError):
        RunDocument.model_validate({**as_document(FULL), "surprise": 1})


def test_the_published_schema_is_the_models() -> None:
    """After a change of the models the file is written anew from `RunDocument.model_json_schema()`."""
    assert json.loads(SCHEMA.read_text()) == RunDocument.model_json_schema()


@pytest.mark.parametrize(
    ("status", "code", "expected"),
    [
        (Status.OK, None, 0),
        (Status.FAILED, "failed", 10),
        (Status.TIMEOUT, "timeout", 11),
        (Status.OOM, "oom", 12),
        (Status.OUTPUT_LIMIT, "output_limit", 13),
        (Status.INVALID_OUTPUT, "invalid_output", 14),
        (Status.DENIED, "denied", 20),
        (Status.DENIED, "skill_unknown", 24),
        (Status.CONFIRMATION_REQUIRED, "confirmation_required", 21),
        (Status.SECRETS_MISSING, "secrets_missing", 22),
        (Status.INVALID_INPUT, "invalid_input", 23),
        (Status.INFRA_ERROR, "image_unavailable", 30),
        (Status.ENGINE_LOST, "engine_lost", 31),
        (Status.CANCELLED, "cancelled", 130),
        (Status.INFRA_ERROR, "no-such-code", 30),
    ],
)
def test_every_status_has_its_exit_status(status: Status, code: str | None, expected: int) -> None:
    error = Problem(code, "why") if code else None
    assert exit_status(RunResult("r", status, "s", "y", error=error)) == expected
