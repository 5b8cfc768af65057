"""The job as the launcher reads it: one JSON frame, every field checked before anything is done."""

from __future__ import annotations

import json
import os
from typing import Any, NamedTuple

from .frames import PROTOCOL, FrameError, acceptable_name

KINDS = ("script", "module", "tool")
SIZE_MAX = 1 << 40
STDIN_MAX = 64 << 20  # held in memory until the script reads it


class Refused(Exception):
    """The job can't be run as it is; the message reaches the caller."""


class Announced(NamedTuple):
    """An input file whose bytes will follow."""

    name: str
    size: int


class Task(NamedTuple):
    """One job. Arguments and environment are bytes, as the kernel takes them."""

    kind: str
    target: str
    args: tuple[bytes, ...]
    env: dict[bytes, bytes]
    seconds: float
    output_total: int
    artifacts: int
    artifact_bytes: int
    file_size: int
    open_files: int
    fork_python: bool
    bundle: int
    files: tuple[Announced, ...]
    stdin: int | None


def _typed(value: Any, kind: type, name: str) -> Any:
    if type(value) is not kind:
        raise FrameError(f"the job's {name} is missing or of the wrong type")
    return value


def _size(job: dict[str, Any], name: str, most: int = SIZE_MAX) -> int:
    value: int = _typed(job.get(name), int, name)
    if not 0 <= value <= most:
        raise FrameError(f"the job's {name} is out of range")
    return value


def _seconds(job: dict[str, Any]) -> float:
    value = job.get("seconds")
    if type(value) not in (int, float) or not 0 <= float(str(value)) <= 1e6:  # NaN fails both
        raise FrameError("the job's seconds make no sense")
    return float(str(value))


def _bytes(text: Any, name: str) -> bytes:
    """A C string: what args and env hold. Undecodable bytes travel as lone surrogates."""
    try:
        data = os.fsencode(_typed(text, str, name))
    except UnicodeEncodeError:
        raise Refused(f"{name} holds a character that no byte stands for") from None
    if b"\0" in data:
        raise Refused(f"{name} holds a NUL")
    return data


def _env(job: dict[str, Any]) -> dict[bytes, bytes]:
    env = {}
    for name, value in _typed(job.get("env"), dict, "env").items():
        key = _bytes(name, "the name of an environment variable")
        if not key or b"=" in key:
            raise Refused("an environment variable has an impossible name")
        env[key] = _bytes(value, "an environment variable")
    return env


def _files(job: dict[str, Any]) -> tuple[Announced, ...]:
    announced = []
    for item in _typed(job.get("files"), list, "files"):
        entry = _typed(item, dict, "files")
        name: str = _typed(entry.get("name"), str, "file name")
        if not acceptable_name(name):
            raise Refused(f"an input file has an impossible name: {name[:80]!a}")
        announced.append(Announced(name, _size(entry, "size")))
    return tuple(announced)


def _kind(job: dict[str, Any]) -> str:
    kind: str = _typed(job.get("kind"), str, "kind")
    if kind not in KINDS:
        raise FrameError("the job is of no known kind")
    return kind


def parse(payload: bytes) -> Task:
    """The task, or FrameError where it is no job at all, or Refused where it can't be run."""
    try:
        job = json.loads(payload.decode("ascii"))
    except (ValueError, RecursionError):
        raise FrameError("the job is no JSON") from None
    if _typed(job, dict, "object").get("protocol") != PROTOCOL:
        raise FrameError(f"the job is not of protocol {PROTOCOL}")
    return Task(
        kind=_kind(job),
        target=_typed(job.get("target"), str, "target"),
        args=tuple(_bytes(arg, "an argument") for arg in _typed(job.get("args"), list, "args")),
        env=_env(job),
        seconds=_seconds(job),
        output_total=_size(job, "output_total"),
        artifacts=_size(job, "artifacts"),
        artifact_bytes=_size(job, "artifact_bytes"),
        file_size=_size(job, "file_size"),
        open_files=_size(job, "open_files", 1 << 20),
        fork_python=_typed(job.get("fork_python"), bool, "fork_python"),
        bundle=_size(job, "bundle"),
        files=_files(job),
        stdin=None if job.get("stdin", 0) is None else _size(job, "stdin", STDIN_MAX),
    )
