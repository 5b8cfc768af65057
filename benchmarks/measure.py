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


def seconds(call: Callable[[], object]) -> float:
    """What one call takes."""
    began = time.perf_counter()
    call()
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
            between()
            contender()
    taken: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(rounds):
        for name, contender in contenders.items():
            between()
            taken[name].append(seconds(contender))
    return {name: Times(tuple(samples)) for name, samples in taken.items()}


@dataclass(frozen=True, slots=True)
class Row:
    """One line of a table: what was measured, the figure, the bar, and whether it was reached."""

    what: str
    figure: str
    bar: str = ""
    reached: bool | None = None


def at_most(what: str, value: float, most: float, *, figure: str, unit: str = "x") -> Row:
    """A value that must not be greater than its bar."""
    return Row(what, figure, f"<= {most:,g}{unit}", value <= most)


def at_least(what: str, value: float, least: float, *, figure: str, unit: str = "x") -> Row:
    """A value that must not be smaller than its bar."""
    return Row(what, figure, f">= {least:,g}{unit}", value >= least)


def not_measured(what: str, why: str, *, bar: str) -> Row:
    """A bar that nothing can be held against here."""
    return Row(what, f"not measured: {why}", bar)


def _both(one: float, other: float) -> str:
    larger = max(one, other)
    if larger < 1e-3:
        return f"{one * 1e6:.0f} vs {other * 1e6:.0f} us"
    digits = 2 if larger < 1e-2 else 1
    return f"{one * 1e3:.{digits}f} vs {other * 1e3:.{digits}f} ms"


def ratio_text(one: Times, other: Times) -> str:
    """How many times the other's time the one takes: medians first, then the slowest twentieth."""
    p50 = f"{one.p50 / other.p50:.2f}x (p50 {_both(one.p50, other.p50)}"
    return f"{p50}; p95 {one.p95 / other.p95:.2f}x, {_both(one.p95, other.p95)})"


def ratio_row(what: str, ours: Times, theirs: Times, *, most: float) -> Row:
    """A ratio of medians against the most that it may be."""
    return at_most(what, ours.p50 / theirs.p50, most, figure=ratio_text(ours, theirs))


def speedup_row(what: str, ours: Times, theirs: Times, *, least: float) -> Row:
    """How many times faster than theirs, by medians, against the least that it may be."""
    return at_least(what, theirs.p50 / ours.p50, least, figure=ratio_text(theirs, ours))


def print_rows(title: str, rows: Sequence[Row]) -> None:
    """A Markdown table, fit for the README."""
    words = {True: "reached", False: "MISSED", None: ""}
    print(f"\n### {title}\n\n| | measured | bar | |\n|---|---|---|---|")
    for row in rows:
        print(f"| {row.what} | {row.figure} | {row.bar} | {words[row.reached]} |", flush=True)


def bars_line(tables: Mapping[str, Sequence[Row]]) -> str:
    """How many bars of all these tables were reached, and which were not. A bar without a verdict was not reached."""
    held = [(f"{topic}: {row.what}", row) for topic, rows in tables.items() for row in rows if row.bar]
    missed = [
        f"{name} ({row.figure.split(' (')[0]}, bar {row.bar})" for name, row in held if row.reached is False
    ]
    unknown = [name for name, row in held if row.reached is None]
    parts = [f"{sum(row.reached is True for _, row in held)} of {len(held)} bars reached"]
    parts += ["MISSED: " + "; ".join(missed)] if missed else []
    parts += ["not measured: " + "; ".join(unknown)] if unknown else []
    return ". ".join(parts)
