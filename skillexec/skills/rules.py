"""The rules of the Agent Skills specification that concern single values, shared by both ways of checking."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from skillexec.model import SKILL_NAME_MAX, Diagnostic, Severity

DESCRIPTION_MAX = 1024
COMPATIBILITY_MAX = 500
KEYS = frozenset({"name", "description", "license", "compatibility", "allowed-tools", "metadata"})


@dataclass(frozen=True, slots=True)
class Finding:
    """A diagnostic and the file that it is about."""

    file: Path
    rule: str
    message: str
    fix: str = ""
    line: int | None = None
    severity: Severity = Severity.ERROR


def finding(file: Path, diagnostic: Diagnostic) -> Finding:
    """The diagnostic as a finding about this file."""
    return Finding(
        file, diagnostic.rule, diagnostic.message, diagnostic.fix, diagnostic.line, diagnostic.severity
    )


def name_problems(name: str, line: int | None = None) -> Iterator[Diagnostic]:
    """What is wrong with a name in itself. Letters and digits of any script are allowed."""
    name = unicodedata.normalize("NFKC", name.strip())
    wrong = {
        "name-long": (
            len(name) > SKILL_NAME_MAX,
            f"{len(name)} characters, {SKILL_NAME_MAX} are allowed",
            "shorten it",
        ),
        "name-case": (name != name.lower(), "it must be lowercase", f"write {shown(name.lower())}"),
        "name-hyphen": (
            name.startswith("-") or name.endswith("-") or "--" in name,
            "hyphens must be single and inside the name",
            "remove the others",
        ),
        "name-character": (
            not all(character.isalnum() or character == "-" for character in name),
            "it has characters other than letters, digits and hyphens",
            "remove them",
        ),
    }
    for rule, (is_wrong, why, fix) in wrong.items():
        if is_wrong:
            yield Diagnostic(rule, f"the name {shown(name)} is not valid: {why}", fix, line, Severity.ERROR)


def name_mismatch(name: str, folder: str, line: int | None = None) -> Iterator[Diagnostic]:
    """A name must be its folder's, whichever way the two are composed in Unicode."""
    name, folder = (unicodedata.normalize("NFKC", text) for text in (name.strip(), folder))
    if name != folder:
        message = f"the name {shown(name)} is not the folder's, {shown(folder)}"
        yield Diagnostic("name-folder", message, "rename one of them", line, Severity.ERROR)


def length_problems(rule: str, text: str, limit: int, line: int | None = None) -> Iterator[Diagnostic]:
    """A text that is longer than the specification allows."""
    if len(text) > limit:
        message = f"{len(text)} characters where {limit} are allowed"
        yield Diagnostic(rule, message, "shorten it; details belong in the body", line, Severity.ERROR)


def shown(text: str) -> str:
    """Text of a stranger's file as a message may show it: short, printable, on one line."""
    escaped = text if text.isprintable() else ascii(text)[1:-1]
    return f"`{escaped[:80]}{'…' if len(escaped) > 80 else ''}`"
