"""One record of the log: its canonical form, which is what is hashed, and back."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from skillexec.audit.events import Event
from skillexec.errors import AuditUnusable

FORMAT = 1
GENESIS = "0" * 64  # what the first record names as its predecessor
TIME_FORMAT = "%Y-%m-%dT%H:%M:%S.%fZ"

# Made once: json.dumps with options builds an encoder per call.
_encode = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False).encode


@dataclass(frozen=True, slots=True)
class Record:
    """What the log says once, in order. `body` is the exact text whose SHA-256 is `hash`."""

    seq: int
    time: str  # UTC, always with six digits of a second
    actor: str
    event: str
    system: str | None
    team: str | None
    skill: str | None
    outcome: str | None
    run: str | None
    data: Mapping[str, Any]
    prev: str
    hash: str
    body: str

    @property
    def when(self) -> datetime:
        return datetime.strptime(self.time, TIME_FORMAT).replace(tzinfo=UTC)

    @property
    def document(self) -> dict[str, Any]:
        """The record as a JSON object, with its hash."""
        return {**json.loads(self.body), "hash": self.hash}


def canonical(document: Mapping[str, Any]) -> str:
    """Keys sorted, no whitespace, ASCII only: the same text in every language."""
    return _encode(document)


def text_hash(body: str) -> str:
    return hashlib.sha256(body.encode()).hexdigest()


def stamp(moment: datetime) -> str:
    return moment.astimezone(UTC).strftime(TIME_FORMAT)


def make(event: Event, *, seq: int, prev: str, moment: datetime) -> Record:
    """The record of an event, as the successor of the one whose hash is `prev`."""
    fields: dict[str, Any] = {
        "actor": event.actor,
        "data": dict(event.data),
        "event": event.event,
        "outcome": event.outcome,
        "prev": prev,
        "run": event.run,
        "seq": seq,
        "skill": event.skill,
        "system": event.system,
        "team": event.team,
        "time": stamp(moment),
    }
    body = canonical({**fields, "v": FORMAT})
    return Record(**fields, hash=text_hash(body), body=body)


def parse(body: str, recorded_hash: str) -> Record:
    """A stored record. Whether it is true is for verify to say; this only reads it."""
    try:
        fields = json.loads(body)
        version = fields.pop("v")
        if version != FORMAT:
            raise AuditUnusable(
                f"record {fields.get('seq')} has format {version}, this skillexec knows {FORMAT}",
                hint="upgrade skillexec",
            )
        return Record(**fields, hash=recorded_hash, body=body)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise AuditUnusable("a record can't be read", hint="`skillexec audit verify` says which") from error
