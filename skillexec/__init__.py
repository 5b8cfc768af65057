"""skillexec: runs the scripts of Agent Skills, permitted, sandboxed and audited.

    from skillexec import Runner

    with Runner.open() as runner:
        result = runner.run("word-count", system="scout", input={"text": "to be or not to be"})

The names below load when they are used: importing the package costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from skillexec.errors import SkillexecError
    from skillexec.model import (
        Artifact,
        Confirmation,
        Decision,
        InputFile,
        Limits,
        Rule,
        RunRequest,
        RunResult,
        Skill,
        Source,
        Status,
    )
    from skillexec.result import as_document
    from skillexec.runner import Runner
    from skillexec.sandbox import Cancel, Sandbox

__version__ = "0.1.0"

__all__ = [
    "Artifact",
    "Cancel",
    "Confirmation",
    "Decision",
    "InputFile",
    "Limits",
    "Rule",
    "RunRequest",
    "RunResult",
    "Runner",
    "Sandbox",
    "Skill",
    "SkillexecError",
    "Source",
    "Status",
    "as_document",
]

_ELSEWHERE = {
    "SkillexecError": "errors",
    "as_document": "result",
    "Runner": "runner",
    "Cancel": "sandbox",
    "Sandbox": "sandbox",
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"skillexec.{_ELSEWHERE.get(name, 'model')}"), name)
