"""`allowed-tools` as a hard allowlist, where the operator asks for one (`[trust] allowed_tools = "enforce"`).

The specification means the list as pre-approval, so that it is off by default. Enforced, an agent keeps, while the
skill is active, the tools that the list names and the baseline, and no others.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase

from skillexec.errors import SkillError
from skillexec.model import Skill


def _plain(name: str) -> str:
    """Without the scope in parentheses; `.` and `_` are the same, since hosts spell tool names either way."""
    return name.partition("(")[0].strip().replace(".", "_")


def _named(tool: str, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(_plain(tool), _plain(pattern)) for pattern in patterns)


def permitted_tools(
    skill: Skill,
    available: Sequence[str],
    *,
    mode: str = "off",
    unmatched: str = "error",
    baseline: Sequence[str] = (),
) -> tuple[str, ...]:
    """Which of the available tools an agent may use while the skill is active, in their order.

    `unmatched` says what a list means that names none of them: `ignore` it, `enforce` it (the baseline alone is
    left), or an `error`.
    """
    if mode == "off" or not skill.allowed_tools:
        return tuple(available)
    if not any(_named(tool, skill.allowed_tools) for tool in available):
        if unmatched == "error":
            listed = ", ".join(skill.allowed_tools)
            raise SkillError(
                f"allowed-tools of {skill.name} names none of the tools that there are: {listed}",
                hint="mend the list, or set trust.unmatched to ignore or enforce",
            )
        if unmatched == "ignore":
            return tuple(available)
    kept = (*skill.allowed_tools, *baseline)
    return tuple(tool for tool in available if _named(tool, kept))
