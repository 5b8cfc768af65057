"""Strict validation beside the reference validator itself, where that is installed, and why they differ."""

from __future__ import annotations

import enum
import os
import stat
from dataclasses import dataclass
from pathlib import Path

from skillexec.errors import SkillError, Usage
from skillexec.model import Severity
from skillexec.skills.frontmatter import BOM, MAX_BYTES, TooLong, split
from skillexec.skills.regular import MAX_FILE, read_regular, skill_file
from skillexec.skills.strict import validate_strict


class Verdict(enum.StrEnum):
    ACCEPTS = "accepts"
    REJECTS = "rejects"
    CRASHES = "crashes"
    UNASKED = "was not asked"


@dataclass(frozen=True, slots=True)
class Comparison:
    """What each of the two says of one skill; `why` is empty where they agree."""

    directory: Path
    ours: Verdict
    theirs: Verdict
    errors: tuple[str, ...]  # the reference validator's own words
    why: str = ""


def _verdict(errors: object) -> Verdict:
    return Verdict.REJECTS if errors else Verdict.ACCEPTS


def _reference(directory: Path) -> tuple[Verdict, tuple[str, ...]]:
    try:
        from skills_ref.validator import validate
    except ImportError as error:
        raise Usage("skills-ref is not installed", hint="pip install skills-ref") from error
    try:
        errors = tuple(validate(directory))
    except Exception as error:  # noqa: BLE001 - someone else's program: that it can crash is what we report
        return Verdict.CRASHES, (f"{type(error).__name__}: {error}",)
    return _verdict(errors), errors


def _cut_elsewhere(data: bytes) -> bool:
    """Whether the reference validator ends the frontmatter at a `---` that is not a line."""
    text = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    parts = text.split(b"---", 2)
    try:
        ours = split(text).yaml
    except SkillError:
        return len(parts) == 3
    return parts[1] != ours


def _is_too_long(data: bytes) -> bool:
    try:
        split(data)
    except TooLong:
        return True
    except SkillError:
        pass
    return False


def _why_not_asked(directory: Path) -> str:
    """Why the reference validator, which reads whatever there is to its end, is not asked; empty where it can be."""
    try:
        file = skill_file(directory)
        info = file.stat()
    except (SkillError, OSError):
        return ""
    if not stat.S_ISREG(info.st_mode):
        return f"known: skills-ref would read for ever from a {file.name} that is no regular file"
    if info.st_size > MAX_FILE:
        return f"known: --strict reads at most {MAX_FILE >> 20} MiB of a file"
    if os.access(file, os.R_OK) and _is_too_long(read_regular(file)):
        return f"known: --strict reads at most {MAX_BYTES >> 10} KiB of frontmatter"
    return ""


def _why(directory: Path, theirs: Verdict) -> str:
    if theirs is Verdict.CRASHES:
        return "known: skills-ref crashes on this file instead of reporting it"
    data = read_regular(skill_file(directory))
    if data.startswith(BOM):
        return "known: skills-ref rejects a byte order mark"
    if _cut_elsewhere(data):
        return "known: skills-ref ends the frontmatter at any `---`, also inside a value"
    return "not known: please report it, with the file"


def compare(directory: Path) -> Comparison:
    """Validate a skill with both."""
    ours = _verdict([found for found in validate_strict(directory) if found.severity is Severity.ERROR])
    if why := _why_not_asked(directory):
        return Comparison(directory, ours, Verdict.UNASKED, (), why)
    theirs, errors = _reference(directory)
    return Comparison(directory, ours, theirs, errors, "" if ours is theirs else _why(directory, theirs))
