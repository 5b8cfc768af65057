"""How we measure: contenders in turns, in one run, medians; and a verdict beside each bar."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Times:
    """The seconds of one contender."""

    samples: tuple[float, ...]

    @property
    def p50(self) -> float:
        return statistics.median(self.samples)

    @property
    def p95(self) -> float:
        return sorted(self.samples)[min(int(len(self.samples) * 0.95), len(self.samples) - 1)]


def _once(contender: Callable[[], object]) -> float:
    began = time.perf_counter()
    contender()
    return time.perf_counter() - began


def _nothing() -> None:
    pass


def in_turns(
    contenders: Mapping[str, Callable[[], object]],
    *,
    rounds: int,
    warm_up: int = 2,
    between: Callable[[], object] = _nothing,
) -> dict[str, Times]:
    """Run each contender once per round, so that what disturbs the machine disturbs them alike.

    `between` is called before each of them, and its time does not count.
    """
    for _ in range(warm_up):
        for contender in contenders.values():
            contender()
    taken: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(rounds):
        for name, contender in contenders.items():
            between()
            taken[name].append(_once(contender))
    return {name: Times(tuple(samples)) for name, samples in taken.items()}


@dataclass(frozen=True, slots=True)
class Row:
    """One line of a table: what was measured, the figure, the bar, and whether it was reached."""

    what: str
    figure: str
    bar: str = ""
    reached: bool | None = None


def ratio_row(what: str, ours: Times, theirs: Times, *, most: float) -> Row:
    """A ratio of medians against the most that it may be."""
    ratio = ours.p50 / theirs.p50
    p50 = f"{ours.p50 * 1e3:.1f} vs {theirs.p50 * 1e3:.1f} ms"
    p95 = f"{ours.p95 * 1e3:.1f} vs {theirs.p95 * 1e3:.1f}"
    return Row(what, f"{ratio:.2f}x (p50 {p50}; p95 {p95})", f"<= {most:g}x", ratio <= most)


def print_rows(title: str, rows: Sequence[Row]) -> None:
    """A Markdown table, fit for the README."""
    words = {True: "reached", False: "MISSED", None: ""}
    print(f"\n### {title}\n\n| | measured | bar | |\n|---|---|---|---|")
    for row in rows:
        print(f"| {row.what} | {row.figure} | {row.bar} | {words[row.reached]} |", flush=True)
