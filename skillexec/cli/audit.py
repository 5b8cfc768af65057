"""skillexec audit: the record, read. Checking it is in audit_check.py."""

from __future__ import annotations

import functools
import itertools
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from skillexec.audit.events import EVENTS, OUTCOMES
from skillexec.cli.audit_check import checkpoint, verify
from skillexec.cli.audit_text import (
    COLUMNS,
    NAMES,
    Table,
    duration,
    for_a_person,
    line,
    record_text,
    row,
    story_text,
)
from skillexec.cli.context import JSON_VERSION, App, Command, Group, pass_app, stdout_is_terminal
from skillexec.cli.table import fits_terminal, print_table, printable
from skillexec.errors import Usage

if TYPE_CHECKING:
    from skillexec.audit.query import Filter
    from skillexec.audit.record import Record
    from skillexec.audit.stats import Line
    from skillexec.state import State

POLL_SECONDS = 0.25
BAR_WIDTH = 20
STATS_COLUMNS = ("skill", "system", "runs", "failures", "denials", "p50", "p95")
LINES_AT_ONCE = 500  # each echo is a system call
FORMATS = ("jsonl", "cloudevents")

_FILTERS = (
    click.option("--since", metavar="TIME", help="From then on: 2h or 7d ago, or 2026-07-28T10:30 (UTC)."),
    click.option("--until", metavar="TIME", help="Up to then; a day without a time means its end."),
    click.option("--actor", metavar="NAME", help="Done by this actor."),
    click.option("--system", metavar="NAME", help="About this system."),
    click.option("--team", metavar="NAME", help="About this team."),
    click.option("--skill", metavar="NAME", help="About this skill."),
    click.option("--event", metavar="NAME", help="Of this event, or of all of a noun: 'grant.*'."),
    click.option("--outcome", metavar="NAME", help="That came out so: ok, failed, denied, ..."),
    click.option("--run", metavar="ID", help="Of this run."),
)


class _Reading(Command):
    """A command that only reads: nobody acts, so --actor is a filter like the others."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if any(param.name == "actor" and param.expose_value for param in self.params):
            self.params = [param for param in self.params if param.name != "actor" or param.expose_value]


def _known(kind: str, value: str | None, known: Iterator[str]) -> None:
    """Refuse a word that no record can hold: an empty list would look like an answer."""
    import difflib

    words = sorted(known)
    if value is not None and value not in words:
        near = difflib.get_close_matches(value, words, n=3) or words
        raise Usage(f"no {kind} is called {value!r}", hint=f"try {', '.join(near)}")


def _filter(*, since: str | None, until: str | None, **names: str | None) -> Filter:
    from skillexec.audit.query import Filter, with_times

    _known("outcome", names["outcome"], iter(OUTCOMES))
    nouns = {name.partition(".")[0] + ".*" for name in EVENTS}
    _known("event", names["event"], iter(nouns | EVENTS.keys()))
    return with_times(Filter(**names), since=since, until=until)


def _filtered(function: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the filters, as one value."""

    @functools.wraps(function)
    def call(*args: Any, **options: Any) -> Any:
        names = ("since", "until", "actor", "system", "team", "skill", "event", "outcome", "run")
        wanted = _filter(**{name: options.pop(name) for name in names})
        return function(*args, wanted=wanted, **options)

    for option in reversed(_FILTERS):
        call = option(call)
    return call


@click.group(cls=Group)
def audit() -> None:
    """Review who was granted what, who ran what, and what was denied.

    The log is append-only, and each record holds the hash of the one before: `audit verify` checks them all.
    """


audit.add_command(verify)
audit.add_command(checkpoint)


def _print_records(records: tuple[Record, ...]) -> None:
    table: Table = (COLUMNS, [row(record) for record in records])
    if records and stdout_is_terminal():
        table = for_a_person(records, fits=fits_terminal)
    columns, rows = table
    print_table(columns, rows, empty="no such records", whole=set(columns) - NAMES)


@audit.command("list", cls=_Reading)
@click.option(
    "--limit", type=click.IntRange(1, 10_000), default=50, show_default=True, help="Records per page."
)
@click.option("--before", type=int, metavar="RECORD", help="The page that ends before this record.")
@_filtered
@pass_app
def list_(app: App, wanted: Filter, limit: int, before: int | None) -> None:
    """List records, newest first. Filters add up."""
    from skillexec.audit.query import page

    with app.state() as state, state.read() as connection:
        found = page(connection, wanted, limit=limit, before=before)

    def show() -> None:
        _print_records(found.records)
        if found.before is not None:
            click.echo(f"older ones: add --before {found.before}", err=True)

    app.answer({"records": [record.document for record in found.records], "before": found.before}, show)


def _is_record(state: State, name: str) -> bool:
    """Whether a number is meant, and not a run: somebody may number runs, so it has to be there."""
    from skillexec.audit.log import head

    if not (name.isascii() and name.isdigit()):
        return False
    with state.read() as connection:
        return 1 <= int(name) <= head(connection).seq


def _answer_record(app: App, record: Record) -> None:
    app.answer({"record": record.document}, lambda: click.echo(printable(record_text(record))))


def _answer_story(app: App, run: str, records: tuple[Record, ...]) -> None:
    document = {"run": run, "records": [record.document for record in records]}
    app.answer(document, lambda: click.echo(printable(story_text(records))))


@audit.command(cls=_Reading)
@click.argument("name", metavar="RECORD|RUN")
@pass_app
def show(app: App, name: str) -> None:
    """Show one record by its number, or the whole story of a run by its id."""
    from skillexec.audit.query import one, story

    with app.state() as state:
        is_record = _is_record(state, name)
        with state.read() as connection:
            if is_record:
                _answer_record(app, one(connection, int(name)))
            else:
                _answer_story(app, name, story(connection, name))


def _echo_followed(app: App, record: Record) -> None:
    if app.json:
        click.echo(json.dumps({"version": JSON_VERSION, "record": record.document}))
    else:
        click.echo(printable(line(record)))


def _new_records(state: State, wanted: Filter, after: int) -> Iterator[Record]:
    """What comes after this record, for ever."""
    from skillexec.audit.log import head
    from skillexec.audit.query import stream

    while True:
        with state.read() as connection:
            newest = head(connection).seq
            found = tuple(stream(connection, wanted, after=after)) if newest > after else ()
        yield from found
        after = newest
        time.sleep(POLL_SECONDS)


@audit.command(cls=_Reading)
@click.option(
    "--last",
    type=click.IntRange(0, 1000),
    default=10,
    show_default=True,
    help="Begin with so many that are there.",
)
@_filtered
@pass_app
def follow(app: App, wanted: Filter, last: int) -> None:
    """Show records as they come, until Ctrl-C. With --json, one object a line."""
    from skillexec.audit.log import head
    from skillexec.audit.query import page

    try:
        with app.state() as state:
            with state.read() as connection:
                after = head(connection).seq
                earlier = page(connection, wanted, limit=last).records if last else ()
            for record in reversed(earlier):
                _echo_followed(app, record)
            for record in _new_records(state, wanted, after):
                _echo_followed(app, record)
    except KeyboardInterrupt:
        return  # that is how it ends


@audit.command(cls=_Reading)
@click.option(
    "--format",
    "form",
    type=click.Choice(FORMATS),
    default="jsonl",
    show_default=True,
    help="A line for each record.",
)
@_filtered
@pass_app
def export(app: App, wanted: Filter, form: str) -> None:
    """Print records for other programs, oldest first.

    jsonl is the hashed text itself: the SHA-256 of a line is what the next one calls prev. cloudevents is
    CloudEvents 1.0.
    """
    from skillexec.audit.export import FORMATS as WRITERS
    from skillexec.audit.export import source_of
    from skillexec.audit.query import stream

    with app.state() as state, state.read() as connection:
        source = source_of(connection)
        lines = (WRITERS[form](record, source) for record in stream(connection, wanted))
        while some := list(itertools.islice(lines, LINES_AT_ONCE)):
            click.echo("\n".join(some))


def _bar(figures: Line, most: int) -> str:
    """Runs as a bar, the failed ones lighter."""
    full = round(BAR_WIDTH * figures.runs / most) if most else 0
    failed = min(round(BAR_WIDTH * figures.failures / most) if most else 0, full)
    return "█" * (full - failed) + "▒" * failed


def _figures(line: Line) -> tuple[object, ...]:
    return (line.runs, line.failures, line.denials, duration(line.p50_us), duration(line.p95_us))


def _stats_tables(lines: tuple[Line, ...]) -> Iterator[Table]:
    """The figures for a terminal: with bars, without, and with names that fold between words."""
    most = max((line.runs for line in lines), default=0)
    plain = [(line.skill, line.system, *_figures(line)) for line in lines]
    bars = [(*row, _bar(line, most)) for row, line in zip(plain, lines, strict=True)]
    yield [*STATS_COLUMNS, "runs, failed ▒"], bars
    yield STATS_COLUMNS, plain
    joined = [(f"{line.skill} as {line.system}", *_figures(line)) for line in lines]
    yield ["skill as system", *STATS_COLUMNS[2:]], joined


def _print_stats(lines: tuple[Line, ...]) -> None:
    drawn, plain, joined = _stats_tables(lines)
    table = plain
    if stdout_is_terminal():
        table = next((each for each in (drawn, plain) if fits_terminal(*each)), joined)
    print_table(*table, empty="nothing ran and nothing was denied")


@audit.command(cls=_Reading)
@_filtered
@pass_app
def stats(app: App, wanted: Filter) -> None:
    """Show, per skill and system, how many runs, failures and denials there were, and how long runs took."""
    from skillexec.audit.stats import stats as figures

    with app.state() as state, state.read() as connection:
        lines = figures(connection, wanted)
    app.answer({"stats": [asdict(each) for each in lines]}, lambda: _print_stats(lines))
