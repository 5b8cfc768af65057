"""What tests of programs that use skillexec need: a vault that holds what the test says."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from skillexec.vault import Answer, VaultUnreachable


class FakeVault:
    """A vault backend in memory. Give it references and values, and how it should misbehave."""

    def __init__(
        self,
        values: Mapping[str, str] | None = None,
        *,
        problems: Mapping[str, str] | None = None,
        unreachable: str = "",
        silent: bool = False,
    ) -> None:
        self.values = dict(values or {})
        self.problems = dict(problems or {})
        self.unreachable = unreachable
        self.silent = silent
        self.asked: list[tuple[str, ...]] = []

    async def fetch(self, references: Sequence[str]) -> Mapping[str, Answer]:
        self.asked.append(tuple(references))
        if self.silent:
            await asyncio.Event().wait()
        if self.unreachable:
            raise VaultUnreachable(self.unreachable, hint="this is a fake")
        return {reference: self._answer(reference) for reference in references}

    def _answer(self, reference: str) -> Answer:
        if reference in self.problems:
            return Answer(problem=self.problems[reference])
        if reference not in self.values:
            return Answer(problem="itemNotFound")
        return Answer(value=self.values[reference])
