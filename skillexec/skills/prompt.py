"""The first tier as an agent reads it: `<available_skills>`, as XML or JSON.

What a skill's author wrote is text here, whatever it looks like: everything is escaped, and characters that XML
forbids become U+FFFD. No skills give nothing at all, not an empty element.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

from skillexec.errors import Usage
from skillexec.model import Skill

MAX_SKILLS = 5  # as many as a system can be granted

Format = Literal["xml", "json"]

_FORBIDDEN = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_ESCAPES = str.maketrans(
    {"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#x27;", "\r": "&#13;"}
)


def _keys(schema: Mapping[str, Any] | None) -> list[str]:
    """The names that a schema speaks of, the optional ones with a question mark."""
    properties = (schema or {}).get("properties")
    required = (schema or {}).get("required")
    if not isinstance(properties, Mapping):
        return []
    needed = required if isinstance(required, list) else []
    return [str(key) if key in needed else f"{key}?" for key in properties]


def _described(skill: Skill, *, location: bool) -> dict[str, str | list[str]]:
    found: dict[str, str | list[str]] = {
        "name": skill.name,
        "description": skill.description,
        "input": _keys(skill.input_schema),
        "output": _keys(skill.output_schema),
        "timeout": str(skill.timeout_class),
        "secrets": list(skill.required_env),
    }
    if location:
        found["location"] = str(skill.location)
    return found


def _escaped(text: str) -> str:
    return _FORBIDDEN.sub("\ufffd", text).translate(_ESCAPES)


def _element(tag: str, value: str | list[str]) -> Iterator[str]:
    if isinstance(value, str):
        yield from (f"<{tag}>", _escaped(value), f"</{tag}>")
    elif value:
        yield from (f"<{tag}>", *(f"<key>{_escaped(item)}</key>" for item in value), f"</{tag}>")


def _xml(described: Sequence[Mapping[str, str | list[str]]]) -> str:
    lines = ["<available_skills>"]
    for skill in described:
        lines.append("<skill>")
        for tag, value in skill.items():
            lines.extend(_element(tag, value))
        lines.append("</skill>")
    lines.append("</available_skills>")
    return "\n".join(lines)


def _json(described: Sequence[Mapping[str, str | list[str]]]) -> str:
    import json

    return json.dumps({"available_skills": described}, indent=2)


def render_prompt(skills: Sequence[Skill], *, format: Format = "xml", location: bool = False) -> str:  # noqa: A002
    """What an agent is told of the skills that it may run: five at most, and "" where there are none.

    The keys of input and output are those of the schemas; an optional one ends with a question mark. Which skills are
    permitted is the caller's business.
    """
    if len(skills) > MAX_SKILLS:
        names = ", ".join(skill.name for skill in skills)
        raise Usage(
            f"{len(skills)} skills are more than {MAX_SKILLS}: {names}", hint="name those that you want"
        )
    if format not in ("xml", "json"):
        raise Usage(f"no prompt format {format!r}", hint="use xml or json")
    if not skills:
        return ""
    described = [_described(skill, location=location) for skill in skills]
    return _json(described) if format == "json" else _xml(described)
