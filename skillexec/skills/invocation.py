"""Explicit invocation: "/name rest", where a person asks for a skill by its name."""

from __future__ import annotations

from collections.abc import Container
from typing import NamedTuple


class Invocation(NamedTuple):
    """A skill that was asked for, and what else was said."""

    name: str
    rest: str


def parse_invocation(text: str, names: Container[str]) -> Invocation | None:
    """The invocation, where the text starts with a slash and one of the names; anything else is plain text: None."""
    if not text.startswith("/"):
        return None
    words = text[1:].split(maxsplit=1)
    if not words or text[1].isspace() or words[0] not in names:
        return None
    return Invocation(words[0], words[1].rstrip() if len(words) > 1 else "")
