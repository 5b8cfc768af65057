"""The rules of DESIGN 5 as Casbin lines: the same for one decision and for the export of everything."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import NamedTuple

from skillexec.model import Source
from skillexec.permissions.facts import Link

ANY = "*"  # no team, system, skill or digest can be called so


class Line(NamedTuple):
    """One line of a Casbin policy: its key ("p", "g", "g2", "g3") and its values."""

    key: str
    values: tuple[str, ...]


def _guard(link: Link, skill: str, *, team: str, effect: str) -> Line:
    return Line("p", (link.system, skill, team, link.pin or ANY, link.source or "", effect))


def lines_for(link: Link, skill: str) -> Iterator[Line]:
    """What this one system contributes to decisions about the skill. Disabled: nothing, so nothing passes."""
    if link.disabled:
        return
    if link.origin is None:
        if link.granted:
            yield _guard(link, skill, team=ANY if link.is_root else link.team, effect="allow")
        if link.in_envelope:
            yield Line("g2", (skill, link.team))
        return
    if link.granted:
        yield _guard(link, skill, team=ANY, effect="deny")
    if link.granted or link.inherit:
        yield Line("g", (link.system, link.origin, skill))


def source_lines(sources: Iterable[Source] = Source) -> tuple[Line, ...]:
    """A grant covers its own source and every more trusted one."""
    ordered = [str(source) for source in sources]
    return tuple(Line("g3", pair) for pair in pairwise(ordered))
