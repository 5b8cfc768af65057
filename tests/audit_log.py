"""A small log to look at, and ways to make it wrong."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from pathlib import Path

from skillexec import audit
from skillexec.audit import Event
from skillexec.audit.events import Json
from skillexec.process import process_identity
from skillexec.schema import AUDIT_TRIGGERS
from skillexec.state import State

DIGEST = "sha256:" + "ab" * 32


def put(state: State, *events: Event) -> tuple[audit.Record, ...]:
    with state.write() as connection:
        return tuple(audit.append(connection, event) for event in events)


def started(run: str, *, system: str = "researcher", skill: str = "web-search") -> Event:
    data = {"rule": "system_grant", "digest": DIGEST, **process_identity().data}
    return Event("run.started", "ann", system=system, team="red", skill=skill, run=run, data=data)


def ended(
    run: str,
    *,
    system: str = "researcher",
    skill: str = "web-search",
    outcome: str = "ok",
    duration: int = 1_500_000,
) -> Event:
    data: dict[str, Json] = {
        "digest": DIGEST,
        "duration_us": duration,
        "exit_code": 0,
        "steps": {"execute": duration},
    }
    return Event(
        "run.ended", "ann", system=system, team="red", skill=skill, outcome=outcome, run=run, data=data
    )


def denied(run: str, *, system: str = "researcher", skill: str = "git-push") -> Event:
    data = {"rule": "system_grant", "operation": "run"}
    return Event("decision.denied", "ann", system=system, skill=skill, outcome="denied", run=run, data=data)


def allowed(run: str) -> Event:
    data = {"rule": "system_grant", "operation": "run", "digest": DIGEST}
    return Event(
        "decision.allowed",
        "ann",
        system="researcher",
        skill="web-search",
        outcome="allowed",
        run=run,
        data=data,
    )


def a_day(state: State) -> tuple[audit.Record, ...]:
    """Nine records: a team, two runs with their decisions, a denial."""
    return put(
        state,
        Event("team.added", "ann", team="red", data={"root": False}),
        Event("system.added", "ann", team="red", system="researcher"),
        allowed("r1"),
        started("r1"),
        ended("r1"),
        denied("r2"),
        allowed("r3"),
        started("r3"),
        ended("r3", outcome="failed", duration=250_000),
    )


def tamper(path: Path, *statements: str | tuple[str, Sequence[object]], restore: bool = True) -> None:
    """What somebody with the file and time can do: drop the guards, change things, put the guards back."""
    with sqlite3.connect(path, isolation_level=None) as connection:
        for name in AUDIT_TRIGGERS:
            connection.execute(f"DROP TRIGGER {name}")
        for statement in statements:
            text, values = (statement, ()) if isinstance(statement, str) else statement
            connection.execute(text, values)
        for trigger in AUDIT_TRIGGERS.values() if restore else ():
            connection.execute(trigger)
    connection.close()
