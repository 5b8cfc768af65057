"""Codes and exit statuses are promises; the tree in the docstring is the tree."""

from __future__ import annotations

import re

from skillexec import errors
from skillexec.errors import SkillexecError

PROMISED = {
    "usage": 2,
    "refused": 2,
    "failed": 10,
    "timeout": 11,
    "oom": 12,
    "output_limit": 13,
    "invalid_output": 14,
    "denied": 20,
    "confirmation_required": 21,
    "secrets_missing": 22,
    "invalid_input": 23,
    "skill_invalid": 24,
    "skill_unknown": 24,
    "path_refused": 24,
    "infra_error": 30,
    "engine_unavailable": 30,
    "image_unavailable": 30,
    "engine_lost": 31,
    "state_unusable": 40,
    "config_invalid": 40,
    "audit_unusable": 40,
    "bug": 70,
}


def _tree(kind: type[SkillexecError]) -> list[type[SkillexecError]]:
    return [kind, *(below for child in kind.__subclasses__() for below in _tree(child))]


def _ours() -> list[type[SkillexecError]]:
    return [kind for kind in _tree(SkillexecError)[1:] if kind.__module__ == "skillexec.errors"]


def test_codes_and_exit_statuses_are_as_promised() -> None:
    assert {kind.code: kind.exit_status for kind in _ours()} == PROMISED


def test_the_docstring_shows_the_tree_as_it_is() -> None:
    assert errors.__doc__
    rows = re.findall(r"^ {6,}(\w+) +(\w+) +(\d+)$", errors.__doc__, re.MULTILINE)
    assert {(name, code, int(status)) for name, code, status in rows} == {
        (kind.__name__, kind.code, kind.exit_status) for kind in _ours()
    }
