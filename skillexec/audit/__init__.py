"""The record: append-only, one hash chain, in the database whose changes it records.

Permission changes and their records commit in one transaction; a run's intent is durable before a container gets
the job. The format is in docs/audit.md. Names load when they are used: SQLAlchemy takes a quarter of a second.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from skillexec.audit.events import EVENTS, OUTCOMES, Event, named
    from skillexec.audit.log import Head, OpenRun, append, check_new_run, head, open_runs, record_abandoned
    from skillexec.audit.record import Record

__all__ = [
    "EVENTS",
    "OUTCOMES",
    "Event",
    "Head",
    "OpenRun",
    "Record",
    "append",
    "check_new_run",
    "head",
    "named",
    "open_runs",
    "record_abandoned",
]

_MODULES = {
    "events": ("EVENTS", "OUTCOMES", "Event", "named"),
    "log": ("Head", "OpenRun", "append", "check_new_run", "head", "open_runs", "record_abandoned"),
    "record": ("Record",),
}


def __getattr__(name: str) -> Any:
    for module, names in _MODULES.items():
        if name in names:
            return getattr(import_module(f"skillexec.audit.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
