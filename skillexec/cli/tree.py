"""Trees: drawn by rich on a terminal, with plain lines elsewhere."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from skillexec.cli.context import stdout_is_terminal

if TYPE_CHECKING:
    from rich.tree import Tree


@dataclass(frozen=True, slots=True)
class Node:
    """A line and what hangs below it."""

    label: str
    children: tuple[Node, ...] = ()


def _lines(node: Node, *, first: str, rest: str) -> Iterator[str]:
    yield first + node.label
    for position, child in enumerate(node.children, start=1):
        last = position == len(node.children)
        yield from _lines(
            child, first=rest + ("└── " if last else "├── "), rest=rest + ("    " if last else "│   ")
        )


def _drawn(node: Node) -> Tree:
    from rich.text import Text
    from rich.tree import Tree

    tree = Tree(Text(node.label))
    for child in node.children:
        tree.children.append(_drawn(child))
    return tree


def print_tree(node: Node) -> None:
    """Print the tree."""
    if stdout_is_terminal():
        from rich.console import Console

        Console().print(_drawn(node))
        return
    for line in _lines(node, first="", rest=""):
        click.echo(line)
