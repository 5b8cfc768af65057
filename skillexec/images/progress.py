"""How a build tells what it is doing, and where its whole output goes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TextIO


@dataclass(frozen=True, slots=True)
class Step:
    """One thing that begins: `number` of `total` where the engine says. A note is news and not work; a detail is
    what the step at hand is busy with."""

    text: str
    number: int = 0
    total: int = 0
    note: bool = False
    detail: bool = False


Progress = Callable[[Step], None]


@dataclass(slots=True)
class Journal:
    """One build's log file and the listener of its steps, which travel together."""

    path: Path
    file: TextIO
    listener: Progress
    notes: list[str] = field(default_factory=list)

    def write(self, text: str) -> None:
        self.file.write(text)
        self.file.flush()  # so that a build can be followed with tail -f

    def step(self, text: str, *, number: int = 0, total: int = 0) -> None:
        self.write(f"--- {text}\n")
        self.listener(Step(text, number, total))

    def detail(self, text: str) -> None:
        self.listener(Step(text, detail=True))

    def note(self, text: str) -> None:
        self.write(f"--- {text}\n")
        self.notes.append(text)
        self.listener(Step(text, note=True))
