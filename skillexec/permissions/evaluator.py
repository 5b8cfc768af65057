"""Casbin, fed with the lines of one decision. Not for sharing between threads."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import casbin

from skillexec.permissions.lines import Line, source_lines


class Evaluator(casbin.Enforcer):  # type: ignore[misc]  # casbin ships no types
    """An enforcer whose policy is replaced for each request, so that there is no cache to go stale."""

    def __init__(self, model: Path) -> None:
        self._parsed: dict[str, Any] = {}
        super().__init__(str(model))
        for line in source_lines():
            self.model["g"][line.key].rm.add_link(*line.values)

    def _get_expression(self, expr: str, functions: Any = None) -> Any:
        """The matcher, parsed once. Casbin parses it for every request, which is two thirds of the time.

        The functions are bound to the role managers of this enforcer, which stay the same objects.
        """
        if expr not in self._parsed:
            self._parsed[expr] = casbin.Enforcer._get_expression(expr, functions)
        return self._parsed[expr]

    def _load(self, lines: Iterable[Line]) -> bool:
        by_key: dict[str, list[tuple[str, ...]]] = defaultdict(list)
        for key, values in lines:
            by_key[key].append(values)
        self.model["p"]["p"].policy = by_key["p"]
        for key in ("g", "g2"):
            manager = self.model["g"][key].rm
            manager.clear()
            for values in by_key[key]:
                manager.add_link(*values)
        return bool(by_key["p"])

    def allows(self, lines: Iterable[Line], *, system: str, skill: str, digest: str, source: str) -> bool:
        """Whether the model, over these lines alone, allows the request."""
        if not self._load(lines):
            return False  # over an empty policy Casbin evaluates the matcher with empty strings: never ask it
        return self.enforce(system, skill, digest, source) is True
