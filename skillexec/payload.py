"""The JSON that programs read, as typed models: what `skillexec run --json` prints.

For callers: `RunDocument.model_validate_json(text)`. Its JSON Schema is docs/run-result.schema.json. Writing a result
needs none of this (pydantic takes 50 ms to import); a test holds both to each other.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from skillexec.model import Rule, Source, Status


class _Part(BaseModel):
    """Frozen, and nothing in it that is not declared."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class SkillPart(_Part):
    name: str
    digest: str | None = Field(description="SHA-256 of the bundle that ran")
    source: Source | None


class DecisionPart(_Part):
    allowed: bool
    rule: Rule
    reason: str
    team: str | None


class StreamPart(_Part):
    text: str = Field(description="bytes that are not UTF-8 as backslash escapes")
    bytes: int = Field(ge=0, description="how many there were in all")
    truncated: bool
    omitted: int = Field(ge=0, description="how many were left out between head and tail")
    exact: bool = Field(description="whether `text` needed no escapes")
    base64: str | None = Field(default=None, description="the exact bytes, where `text` is not exact")


class ArtifactPart(_Part):
    name: str
    bytes: int = Field(ge=0)
    executable: bool
    base64: str | None = Field(
        default=None, description="its contents, where they were not written to a folder"
    )


class UsagePart(_Part):
    wall_seconds: float = Field(ge=0)
    cpu_seconds: float = Field(ge=0)
    peak_memory: int = Field(ge=0, description="bytes")


class ProblemPart(_Part):
    code: str = Field(description="stable; see skillexec.errors")
    message: str
    hint: str


class RunDocument(_Part):
    """One run. Version 1: fields are added in later versions, never renamed."""

    version: Literal[1]
    run_id: str
    status: Status
    skill: SkillPart
    system: str
    team: str | None
    decision: DecisionPart | None
    exit_code: int | None
    signal: int | None
    stdout: StreamPart
    stderr: StreamPart
    output: Any = Field(description="stdout as JSON, where it is JSON")
    artifacts: tuple[ArtifactPart, ...]
    usage: UsagePart
    limits: dict[str, float]
    image: str | None
    warm: bool = Field(description="whether a waiting container was used")
    redactions: int = Field(ge=0)
    timings: dict[str, float] = Field(description="seconds of each step")
    notes: tuple[str, ...]
    error: ProblemPart | None
    saved: tuple[str, ...] = Field(default=(), description="files written because of --out")
