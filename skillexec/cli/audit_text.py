"""How records read: as a row, as a line, as a story."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from skillexec.audit.record import Record

Table: TypeAlias = tuple[Sequence[str], Sequence[tuple[object, ...]]]

COLUMNS = ("record", "time (UTC)", "event", "outcome", "system", "skill", "team", "actor", "run")
_ABOUT = "system skill team"
NAMES = frozenset({"system", "skill", "team", _ABOUT, "actor", "run"})  # the columns that fold
_INDENT = " " * 4
_SHOWN_ELSEWHERE = frozenset({"actor", "data", "event", "hash", "prev", "seq", "time", "v"})


def duration(microseconds: int | None) -> str:
    """A duration with three digits that matter."""
    if microseconds is None:
        return ""
    if microseconds < 1_000:
        return f"{microseconds} us"
    if microseconds < 1_000_000:
        return f"{microseconds / 1e3:.3g} ms"
    return f"{microseconds / 1e6:.1f} s" if microseconds < 60_000_000 else f"{microseconds / 60e6:.1f} min"


def counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def size(number: int) -> str:
    if number < 10_000:
        return f"{number} B"
    return f"{number / 1024:.0f} KiB" if number < 10 << 20 else f"{number / (1 << 20):.0f} MiB"


def _clock(time: str) -> str:
    return time[:19].replace("T", " ")


def row(record: Record) -> tuple[object, ...]:
    """One line of `audit list`."""
    return (
        record.seq,
        _clock(record.time),
        record.event,
        record.outcome,
        record.system,
        record.skill,
        record.team,
        record.actor,
        record.run,
    )


def _short(record: Record) -> tuple[object, ...]:
    """The same where there is little room: the names are words that fold between them; the run is in `audit show`."""
    about = " ".join(name for name in (record.system, record.skill, record.team) if name)
    return (record.seq, _clock(record.time)[5:], record.event, record.outcome, about, record.actor)


def _unless_empty(columns: Sequence[str], rows: Sequence[tuple[object, ...]]) -> Table:
    kept = [index for index in range(len(columns)) if any(cells[index] for cells in rows)]
    return [columns[index] for index in kept], [tuple(cells[index] for index in kept) for cells in rows]


def for_a_person(records: Sequence[Record], *, fits: Callable[..., bool]) -> Table:
    """The table of `audit list` on a terminal, without the columns that are empty."""
    table = _unless_empty(COLUMNS, [row(record) for record in records])
    years = {record.time[:4] for record in records}
    if fits(*table) or len(years) > 1:
        return table
    columns = ("record", f"{years.pop()} (UTC)", "event", "outcome", _ABOUT, "actor")
    return _unless_empty(columns, [_short(record) for record in records])


def line(record: Record) -> str:
    """One line of `audit follow`: what has no value takes no room."""
    seq, time, event, *names = row(record)
    return f"{seq:>6}  {time}  {event:<17} " + " ".join(str(name) for name in names if name)


def _value(key: str, value: Any) -> str:
    if key.endswith("_us"):
        return duration(value)
    if key in ("memory", "peak_memory", "bytes") or key.endswith("_bytes"):
        return size(value)
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return ", ".join(map(str, value)) or "none"
    if isinstance(value, dict):
        return ", ".join(f"{step} {duration(number)}" for step, number in value.items())
    return str(value)


def _label(key: str) -> str:
    return "secrets" if key == "names" else key.removesuffix("_us").replace("_", " ")


def _details(data: Mapping[str, Any]) -> Iterator[str]:
    known = {_label(key): _value(key, value) for key, value in data.items() if value is not None}
    width = max(map(len, known), default=0)
    for label, value in known.items():
        yield f"{label:<{width}}  {value}"


def record_text(record: Record) -> str:
    """One record, all of it."""
    subject = {key: value for key, value in record.document.items() if key not in _SHOWN_ELSEWHERE and value}
    lines = [
        f"record {record.seq}: {record.event} by {record.actor}, {_clock(record.time)} UTC",
        *(_INDENT + detail for detail in _details({**subject, **record.data})),
        f"{_INDENT}hash  {record.hash}",
        f"{_INDENT}prev  {record.prev}",
    ]
    return "\n".join(lines)


def _since(record: Record, first: Record) -> str:
    return "+" + duration(max(round((record.when - first.when).total_seconds() * 1e6), 0))


def _chapter(record: Record, first: Record) -> Iterator[str]:
    outcome = f": {record.outcome}" if record.outcome else ""
    clock = record.time[11:23]
    yield f"{clock}  {_since(record, first):>9}  {record.event}{outcome}  (record {record.seq})"
    for detail in _details(record.data):
        yield f"{_INDENT * 6}{detail}"


def _ending(records: Sequence[Record]) -> str:
    last = records[-1]
    if last.event == "decision.denied":
        return "denied: nothing ran"
    if last.event == "run.abandoned":
        return "abandoned: the process that ran it is gone, and how it ended is not known"
    if last.event != "run.ended":
        return "no end is on record: it is running, or its process died"
    took = last.data.get("duration_us")
    return f"ended {last.outcome}" + (f" after {duration(took)}" if took else ": nothing ran")


def story_text(records: Sequence[Record]) -> str:
    """A run from the decision to its end."""
    first = records[0]
    team = f" of team {first.team}" if first.team else ""
    lines = [
        f"run {first.run}: {first.skill} as {first.system}{team}, by {first.actor}, {first.time[:10]} (UTC)"
    ]
    for record in records:
        lines.extend(_chapter(record, first))
    return "\n".join([*lines, _ending(records)])
