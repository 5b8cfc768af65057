"""Tables: drawn by rich on a terminal, plain aligned columns elsewhere (rich costs 40 ms to import)."""

from __future__ import annotations

from collections.abc import Sequence

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


def _print_drawn(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, header_style="bold")
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    Console().print(table)


def print_table(columns: Sequence[str], rows: Sequence[Sequence[object]], *, empty: str = "nothing") -> None:
    """Print the rows under their column names, or say in words that there are none."""
    cells = [[one_line("" if cell is None else str(cell)) for cell in row] for row in rows]
    if not cells:
        click.echo(empty)
    elif stdout_is_terminal():
        _print_drawn(columns, cells)
    else:
        _print_aligned(columns, cells)
