"""What a team, a system, a skill and a digest may be called. Anything else is rejected, never normalised."""

from __future__ import annotations

import re
from collections.abc import Iterable

from skillexec.errors import Usage
from skillexec.model import IDENTIFIER, SKILL_NAME, SKILL_NAME_MAX

DIGEST = re.compile(r"sha256:[0-9a-f]{64}")


def is_identifier(name: object) -> bool:
    return isinstance(name, str) and IDENTIFIER.fullmatch(name) is not None


def is_skill(name: object) -> bool:
    return isinstance(name, str) and len(name) <= SKILL_NAME_MAX and SKILL_NAME.fullmatch(name) is not None


def is_digest(digest: object) -> bool:
    return isinstance(digest, str) and DIGEST.fullmatch(digest) is not None


def check_identifier(kind: str, name: str) -> str:
    """The name itself, or a refusal that says what a name may be."""
    if not is_identifier(name):
        raise Usage(
            f"{name!r} can't be the name of a {kind}",
            hint="1 to 64 of a-z, 0-9, dot, underscore and hyphen, with a letter or digit first",
        )
    return name


def check_skills(names: Iterable[str]) -> tuple[str, ...]:
    """The names, each once and in order, or a refusal of the first that no skill can have."""
    unique = tuple(dict.fromkeys(names))
    for name in unique:
        if not is_skill(name):
            raise Usage(
                f"{name!r} can't be the name of a skill that is granted or run",
                hint="1 to 64 of a-z and 0-9, with single hyphens between",
            )
    return unique


def check_digest(digest: str) -> str:
    if not is_digest(digest):
        raise Usage(
            f"{digest!r} is not a digest",
            hint="sha256: and 64 hex digits, as `skillexec skill show` prints it",
        )
    return digest
