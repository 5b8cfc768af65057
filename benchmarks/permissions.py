"""What a decision costs: at 100 and at 100,000 grants, along a chain, and beside stock Casbin on the same policies.

    python -m benchmarks.permissions

Rounds of all contenders are interleaved, so that a slow moment of the machine hits all of them; medians are shown.
"""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Callable
from pathlib import Path

import casbin
from casbin.model.model_fast import FastModel
from sqlalchemy import insert

from benchmarks.measure import Row, Times, at_most, print_rows, ratio_row, seconds
from skillexec import schema
from skillexec.model import Source
from skillexec.permissions.decision import Decider, model_file
from skillexec.permissions.lines import Line
from skillexec.permissions.policy_export import casbin_lines
from skillexec.permissions.snapshot import load_snapshot
from skillexec.state import State

DIGEST = "sha256:" + "0" * 64
SMALL, LARGE = 100, 100_000
MOST_MICROSECONDS, MOST_GROWTH, MOST_FOR_CHAIN = 150, 1.3, 4


def _rows(count: int) -> tuple[list[dict[str, object]], ...]:
    """Systems with five grants each, in teams of a hundred, each team with an envelope of twenty skills of its own.

    Of its own, because the first decision of a stock enforcer is quadratic in the holders of one skill.
    """
    members = [(f"system-{number}", number // 100) for number in range(count // 5)]
    teams = range(members[-1][1] + 1)
    return (
        [{"name": f"team-{team}"} for team in teams],
        [{"name": name, "team": f"team-{team}"} for name, team in members],
        [
            {"team": f"team-{team}", "skill": f"skill-{team}-{number}"}
            for team in teams
            for number in range(20)
        ],
        [
            {"system": name, "slot": slot, "skill": f"skill-{team}-{slot}", "source": "builtin"}
            for name, team in members
            for slot in range(1, 6)
        ],
    )


def _chain(state: State) -> None:
    """Two spawned teams below system-7: three is a chain of three."""
    with state.write() as connection:
        for team, origin, system in (("spawned-2", "system-7", "two"), ("spawned-3", "two", "three")):
            connection.execute(insert(schema.teams).values(name=team, origin=origin))
            connection.execute(insert(schema.systems).values(name=system, team=team))


def _fill(path: Path, count: int) -> State:
    state = State.open(path, create=True)
    with state.write() as connection:
        tables = (schema.teams, schema.systems, schema.envelopes, schema.grants)
        for table, rows in zip(tables, _rows(count), strict=True):
            connection.execute(insert(table), rows)
    _chain(state)
    return state


def _decision(state: State, decider: Decider, system: str, skill: str, expected: bool) -> Callable[[], None]:
    def decide() -> None:
        with state.quick_read() as connection:
            decision = decider.decide(
                connection, system=system, skill=skill, digest=DIGEST, source=Source.BUILTIN
            )
        assert decision.allowed is expected, decision

    return decide


def _stock(enforcer: casbin.Enforcer, skill: str, expected: bool) -> Callable[[], None]:
    def decide() -> None:
        assert enforcer.enforce("system-7", skill, DIGEST, "builtin") is expected

    return decide


class _FastModel(FastModel):  # type: ignore[misc]
    """FastModel forgets to say that a definition was read, and so reads one `g` of three. Mended, to compare at all."""

    def add_def(self, sec: str, key: str, value: str) -> object:
        super().add_def(sec, key, value)
        return self.model[sec].get(key) if value else None


class _FastEnforcer(casbin.FastEnforcer):  # type: ignore[misc]
    def new_model(self, path: str = "", text: str = "") -> FastModel:
        model = _FastModel(self._cache_key_order)
        model.load_model(path) if path else model.load_model_from_text(text)
        return model


def _fed(enforcer: casbin.Enforcer, lines: list[Line]) -> casbin.Enforcer:
    """With these lines, past the file adapter: FastEnforcer counts its whole policy anew for each line of a file."""
    for key, values in lines:
        if key == "p":
            enforcer.model["p"]["p"].policy.append(list(values))
        else:
            enforcer.model["g"][key].rm.add_link(*values)
    return enforcer


def _stock_contenders(state: State, size: int) -> dict[str, Callable[[], None]]:
    with state.read() as connection:
        lines = casbin_lines(load_snapshot(connection))
    plain = _fed(casbin.Enforcer(str(model_file())), lines)
    fast = _fed(_FastEnforcer(str(model_file()), cache_key_order=(0, 1)), lines)
    return {
        f"Enforcer, allowed, {size:,}": _stock(plain, "skill-0-3", True),
        f"Enforcer, denied, {size:,}": _stock(plain, "skill-0-9", False),
        f"FastEnforcer, allowed, {size:,}": _stock(fast, "skill-0-3", True),
        f"FastEnforcer, denied, {size:,}": _stock(fast, "skill-0-9", False),
    }


def _take(contenders: dict[str, Callable[[], None]], *, rounds: int, batch: int) -> dict[str, Times]:
    """The times of each, in interleaved batches; a slow one takes part once in each of three rounds."""
    times: dict[str, list[float]] = {name: [] for name in contenders}
    slow = {name for name, call in contenders.items() if max(seconds(call), seconds(call)) > 5e-3}
    for number, (name, call) in itertools.product(range(rounds), contenders.items()):
        repeats = batch if name not in slow else int(number < 3)
        times[name].extend(seconds(call) for _ in range(repeats))
    return {name: Times(tuple(found)) for name, found in times.items()}


def _ours(state: State, decider: Decider, size: int) -> dict[str, Callable[[], None]]:
    return {
        f"allowed, {size:,}": _decision(state, decider, "system-7", "skill-0-3", True),
        f"denied, {size:,}": _decision(state, decider, "system-7", "skill-0-9", False),
    }


def measure(folder: Path) -> dict[str, Times]:
    """The times of every contender, all in one run."""
    decider = Decider()
    small, large = _fill(folder / "small.db", SMALL), _fill(folder / "large.db", LARGE)
    with small, large:
        contenders = {**_ours(small, decider, SMALL), **_ours(large, decider, LARGE)}
        contenders["chain of three"] = _decision(large, decider, "three", "skill-0-3", True)
        for state, size in ((small, SMALL), (large, LARGE)):
            contenders.update(_stock_contenders(state, size))
        return _take(contenders, rounds=20, batch=50)


def _kind_rows(kind: str, small: Times, large: Times) -> list[Row]:
    worse = max(small.p50, large.p50) * 1e6
    return [
        at_most(f"a decision, {kind}", worse, MOST_MICROSECONDS, figure=f"{worse:.0f} us", unit=" us"),
        ratio_row(f"{kind}, {LARGE:,} grants to {SMALL:,}", large, small, most=MOST_GROWTH),
    ]


def _rows_of(found: dict[str, Times]) -> list[Row]:
    """Each promise of ours, then what the others take beside us."""
    rows: list[Row] = []
    for kind in ("allowed", "denied"):
        rows += _kind_rows(kind, found[f"{kind}, {SMALL:,}"], found[f"{kind}, {LARGE:,}"])
    one = found[f"allowed, {LARGE:,}"]
    rows.append(ratio_row("a chain of three to one", found["chain of three"], one, most=MOST_FOR_CHAIN))
    for name in [name for name in found if "Enforcer" in name]:
        theirs, ours = found[name].p50, found[name.partition(", ")[2]].p50
        rows.append(Row(f"stock {name}", f"{theirs * 1e6:,.0f} us, {theirs / ours:,.1f}x ours"))
    return rows


def main() -> list[Row]:
    """Print the table."""
    with tempfile.TemporaryDirectory() as folder:
        rows = _rows_of(measure(Path(folder)))
    print_rows("Permissions", rows)
    return rows


if __name__ == "__main__":
    main()
