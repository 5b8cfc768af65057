"""Tables: drawn by rich on a terminal, plain aligned columns elsewhere (rich costs 40 ms to import)."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

import click

from skillexec.cli.context import stdout_is_terminal


def printable(text: str) -> str:
    """The text without what could move a terminal's cursor or change its state; line ends and tabs stay."""
    return "".join(character if character.isprintable() or character in "\n\t" else "�" for character in text)


def one_line(value: str) -> str:
    """One line, no control characters: what is shown may come from a stranger's file."""
    return "".join(character if character.isprintable() else "�" for character in " ".join(value.split()))


def _print_aligned(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    lines = [list(columns), *rows]
    widths = [max(len(line[index]) for line in lines) for index in range(len(columns))]
    for line in lines:
        click.echo("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())


def fits_terminal(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> bool:
    """Whether the table can be drawn without folding a cell."""
    from rich.cells import cell_len
    from rich.console import Console

    lines = [columns, *(["" if cell is None else str(cell) for cell in row] for row in rows)]
    return 1 + sum(3 + max(map(cell_len, each)) for each in zip(*lines, strict=True)) <= Console().width


def _parts(columns: Sequence[str], rows: Sequence[Sequence[str]], *, repeat: int) -> Iterator[list[int]]:
    """Which columns to draw together so that each part fits; the first `repeat` of them lead every part."""
    lead = list(range(repeat))
    part = list(lead)
    for index in range(repeat, len(columns)):
        wider = [*part, index]
        chosen = [[row[number] for number in wider] for row in rows]
        if part != lead and not fits_terminal([columns[number] for number in wider], chosen):
            yield part
            wider = [*lead, index]
        part = wider
    yield part


def _print_drawn(
    columns: Sequence[str], rows: Sequence[Sequence[str]], *, whole: Collection[str] = ()
) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, header_style="bold")
    for column in columns:
        table.add_column(column, overflow="fold", no_wrap=column in whole)
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    Console().print(table)


def print_table(
    columns: Sequence[str],
    rows: Sequence[Sequence[object]],
    *,
    empty: str = "nothing",
    whole: Collection[str] = (),
    repeat: int = 0,
) -> None:
    """Print the rows under their column names, or say in words that there are none.

    On a terminal that is too narrow, cells are folded, but for those of the columns `whole`. With `repeat`, the
    table is drawn in parts instead, each of which begins with so many of the first columns.
    """
    cells = [[one_line("" if cell is None else str(cell)) for cell in row] for row in rows]
    if not cells:
        click.echo(empty)
    elif not stdout_is_terminal():
        _print_aligned(columns, cells)
    elif not repeat:
        _print_drawn(columns, cells, whole=whole)
    else:
        for part in _parts(columns, cells, repeat=repeat):
            _print_drawn(
                [columns[index] for index in part], [[row[index] for index in part] for row in cells]
            )
