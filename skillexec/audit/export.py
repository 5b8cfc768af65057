"""The log for other programs, a line for each record."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from skillexec.audit.record import Record, canonical

if TYPE_CHECKING:
    from sqlalchemy import Connection


def jsonl(record: Record, _source: str) -> str:
    """The record's own text: its SHA-256 is what the next line calls `prev`, so that anyone can verify a file."""
    return record.body


def cloudevent(record: Record, source: str) -> str:
    """A CloudEvents 1.0 event in its JSON format; `id` is the record's hash, `sequence` the official extension."""
    event: dict[str, Any] = {
        "specversion": "1.0",
        "id": record.hash,
        "source": source,
        "type": f"skillexec.{record.event}",
        "time": record.time,
        "sequence": f"{record.seq:020d}",  # compared as text by the extension's rules
        "datacontenttype": "application/json",
        "data": json.loads(record.body),
    }
    subject = "/".join(name for name in (record.team, record.system, record.skill) if name)
    return canonical({**event, "subject": subject} if subject else event)


FORMATS: Mapping[str, Callable[[Record, str], str]] = {"jsonl": jsonl, "cloudevents": cloudevent}


def source_of(connection: Connection) -> str:
    """A name for this log that no other log has: its first record's hash."""
    from sqlalchemy import select

    from skillexec.schema import audit

    first = connection.execute(select(audit.c.hash).where(audit.c.seq == 1)).scalar()
    return f"urn:skillexec:log:{(first or 'empty')[:32]}"
