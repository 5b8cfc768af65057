"""What the tables say that a run has to know: by one indexed query each, straight to the driver."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from skillexec.statements import driver, sqlite

if TYPE_CHECKING:
    from skillexec.statements import AnyConnection

EVERY = ""  # every team, every skill: part of a key, so not NULL


class Link(NamedTuple):
    """One system of the chain: the one that asks, then its team's origin, then that one's, up to the top."""

    system: str
    system_disabled: bool
    team: str
    team_disabled: bool
    is_root: bool
    origin: str | None
    inherit: bool
    in_envelope: bool
    source: str | None  # of the grant; None: no grant
    pin: str | None

    @property
    def granted(self) -> bool:
        return self.source is not None

    @property
    def disabled(self) -> bool:
        return self.system_disabled or self.team_disabled


class Approval(NamedTuple):
    """One approval. `expires` is None where it holds until it is revoked."""

    system: str
    skill: str
    digest: str
    network: bool
    expires: datetime | None
    approved_by: str
    approved_at: datetime

    @classmethod
    def of(cls, row: Sequence[Any]) -> Approval:
        """A row of the table, whose columns are these fields."""
        found = cls(*row)
        return found._replace(
            network=bool(found.network),
            expires=_time(found.expires) if found.expires else None,
            approved_at=_time(found.approved_at),
        )

    def holds(self, now: datetime) -> bool:
        return self.expires is None or now < self.expires


class Mapped(NamedTuple):
    """One line of the mapping of secrets. An empty team or skill stands for all of them."""

    name: str
    reference: str
    team: str = EVERY
    skill: str = EVERY


def _time(text: Any) -> datetime:
    return datetime.fromisoformat(text)


def chain_of(connection: AnyConnection, *, system: str, skill: str) -> tuple[Link, ...]:
    """From the system to its top. Empty: no such system. A chain that is cut off ends in a link with an origin."""
    found = driver(connection).execute(sqlite.CHAIN, {"system": system, "skill": skill})
    return tuple(map(Link._make, found))


def approval_for(
    connection: AnyConnection, *, system: str, skill: str, digest: str, now: datetime
) -> Approval | None:
    """The approval of these bytes for this system, where there is one that has not expired."""
    asked = {"system": system, "skill": skill, "digest": digest}
    row = driver(connection).execute(sqlite.APPROVAL, asked).fetchone()
    found = Approval.of(row) if row is not None else None
    return found if found is not None and found.holds(now) else None


def mapped_for(connection: AnyConnection, *, team: str, skill: str) -> tuple[Mapped, ...]:
    """The lines that concern a run. Those with a skill are bound to it, which need not declare their names."""
    return tuple(
        map(Mapped._make, driver(connection).execute(sqlite.SECRETS, {"team": team, "skill": skill}))
    )


def strongest(lines: Iterable[Mapped]) -> dict[str, str]:
    """Name -> reference: a line for team and skill wins over one for the skill, the team, everyone."""
    weakest_first = sorted(lines, key=lambda line: (bool(line.skill), bool(line.team)))
    return {line.name: line.reference for line in weakest_first}
