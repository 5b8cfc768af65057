"""What the benchmarks say about their bars: a verdict only where there is one, and every miss named."""

from __future__ import annotations

from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture(autouse=True)
def _importable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT))


def test_the_last_line_names_what_was_missed_and_what_was_not_measured() -> None:
    from benchmarks.measure import Row, Times, at_least, bars_line, not_measured, ratio_row

    slow, fast = Times((0.004, 0.003, 0.005)), Times((0.002,))
    rows = [
        ratio_row("held", fast, slow, most=0.5),
        ratio_row("late", slow, fast, most=1.5),
        at_least("exactly", 200, 200, figure="200 MB/s", unit=" MB/s"),
        not_measured("node", "no node on this host", bar="<= 1.3x"),
        Row("only shown", "1.00x"),
    ]
    line = bars_line({"one": rows[:2], "two": rows[2:]})
    assert line == "2 of 4 bars reached. MISSED: one: late (2.00x, bar <= 1.5x). not measured: two: node"
    assert bars_line({"one": rows[:1]}) == "1 of 1 bars reached"


def test_pages_of_unlike_length_get_no_verdict() -> None:
    from benchmarks.audit import page_row
    from benchmarks.measure import Times

    small, large = Times((0.001,)), Times((0.003,))
    alike = page_row("run", small=small, large=large, rows=(2, 2))
    unlike = page_row("rare", small=small, large=large, rows=(2, 50))
    assert (alike.bar, alike.reached) == ("<= 2x", False)
    assert (unlike.bar, unlike.reached) == ("", None)
    assert "3.00x" in unlike.figure and "50 rows vs 2" in unlike.figure


@pytest.mark.parametrize(
    ("appended", "inserted", "reached"), [(1000, 9000, True), (400, 800, True), (999, 2000, False)]
)
def test_appends_reach_their_bar_by_rate_or_beside_the_disk(
    appended: float, inserted: float, reached: bool
) -> None:
    from benchmarks.audit import appends_row

    assert appends_row(appended, inserted).reached is reached
