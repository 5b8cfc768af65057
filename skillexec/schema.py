"""Every table of the state database, in one place to review, and the steps from one version to the next.

Tables are the truth (DESIGN 5). What must hold under concurrency is held here, by keys and checks, not by
code that looks before it writes: five grants per system are five slots, one root team is a unique index, an
audit record has one successor.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    Connection,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    String,
    Table,
    Text,
    UniqueConstraint,
    text,
)

MAX_GRANTS = 5

metadata = MetaData()

teams = Table(
    "teams",
    metadata,
    Column("name", String(64), primary_key=True),
    # True or NULL, never false: a unique column holds NULL as often as it likes, and so one root at most. (A partial
    # index would say the same, and loads SQLAlchemy's PostgreSQL dialect into every command: 30 ms.)
    Column("is_root", Boolean, nullable=True, unique=True),
    Column("disabled", Boolean, nullable=False, server_default=text("0")),
    # A recursed team: spawned from a system of another team. The foreign key is closed below.
    Column("origin", String(64), ForeignKey("systems.name", use_alter=True), nullable=True),
    Column("inherit", Boolean, nullable=False, server_default=text("1")),
    CheckConstraint("is_root", name="root_or_null"),
    CheckConstraint("NOT (is_root AND origin IS NOT NULL)", name="root_has_no_origin"),
)
Index("teams_by_origin", teams.c.origin)

systems = Table(
    "systems",
    metadata,
    Column("name", String(64), primary_key=True),
    Column("team", String(64), ForeignKey("teams.name"), nullable=False, index=True),
    Column("disabled", Boolean, nullable=False, server_default=text("0")),
)

envelopes = Table(
    "envelopes",
    metadata,
    Column("team", String(64), ForeignKey("teams.name", ondelete="CASCADE"), primary_key=True),
    Column("skill", String(64), primary_key=True),
    sqlite_with_rowid=False,
)

grants = Table(
    "grants",
    metadata,
    Column("system", String(64), ForeignKey("systems.name", ondelete="CASCADE"), primary_key=True),
    Column("slot", Integer, primary_key=True, autoincrement=False),
    Column("skill", String(64), nullable=False),
    Column("source", String(16), nullable=False),  # the source that the skill had when it was granted
    Column("pin", String(80), nullable=True),  # a digest, where the grant is bound to exact bytes
    UniqueConstraint("system", "skill", name="one_grant_per_skill"),
    CheckConstraint(f"slot BETWEEN 1 AND {MAX_GRANTS}", name="five_slots"),
    sqlite_with_rowid=False,
)

approvals = Table(
    "approvals",
    metadata,
    Column("system", String(64), ForeignKey("systems.name", ondelete="CASCADE"), primary_key=True),
    Column("skill", String(64), primary_key=True),
    Column("digest", String(80), primary_key=True),
    Column("network", Boolean, nullable=False, server_default=text("0")),
    Column("expires", String(32), nullable=True),  # ISO 8601, UTC; none: until revoked
    Column("approved_by", String(128), nullable=False),
    Column("approved_at", String(32), nullable=False),
)

secrets = Table(
    "secrets",
    metadata,
    # Where a name's value comes from. "" stands for every team and every skill: part of a key, so not NULL.
    Column("name", String(128), primary_key=True),
    Column("team", String(64), primary_key=True, server_default=""),
    Column("skill", String(64), primary_key=True, server_default=""),
    Column("reference", Text, nullable=False),  # op://vault/item/field, never a value
)

# Who did what to what, how it came out: few distinct combinations, many records of each. One index over
# (kind, time) then serves every combination of filters, where an index per column would serve one at a time.
# "" stands for none: NULLs would not be unique.
audit_kinds = Table(
    "audit_kinds",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("actor", String(128), nullable=False),
    Column("event", String(64), nullable=False),
    Column("system", String(64), nullable=False),
    Column("team", String(64), nullable=False),
    Column("skill", String(64), nullable=False),
    Column("outcome", String(32), nullable=False),
    UniqueConstraint("event", "skill", "system", "actor", "team", "outcome", name="one_row_per_kind"),
)

audit = Table(
    "audit",
    metadata,
    # The number is assigned under the write lock. As the key it also keeps the chain from forking: of two records
    # that want to follow the same one, the second finds its number taken.
    Column("seq", BigInteger().with_variant(Integer, "sqlite"), primary_key=True, autoincrement=False),
    Column("hash", String(64), nullable=False),
    Column("body", Text, nullable=False),  # the canonical JSON that is hashed: this is the record
    # What the body says too, for queries only; verify compares.
    Column("kind", Integer, ForeignKey("audit_kinds.id"), nullable=False),
    Column("time", String(27), nullable=False),
    Column("run", String(64), nullable=True),
)
Index("audit_by_kind", audit.c.kind, audit.c.time, audit.c.seq)
Index("audit_by_time", audit.c.time, audit.c.seq)
Index(
    "audit_by_run",
    audit.c.run,
    audit.c.seq,
    sqlite_where=audit.c.run.is_not(None),
)

# Runs that started and have not ended, so that the abandoned ones are found without reading the log.
audit_open_runs = Table(
    "audit_open_runs",
    metadata,
    Column("run", String(64), primary_key=True),
    Column("seq", BigInteger().with_variant(Integer, "sqlite"), ForeignKey("audit.seq"), nullable=False),
)


def _forbid(name: str, when: str) -> str:
    return f"CREATE TRIGGER {name} {when} BEGIN SELECT RAISE(ABORT, 'the audit log is append-only'); END"


# By name, so that verify can say which one is gone. The third is there because INSERT OR REPLACE deletes without
# asking the second.
AUDIT_TRIGGERS = {
    "audit_no_update": _forbid("audit_no_update", "BEFORE UPDATE ON audit"),
    "audit_no_delete": _forbid("audit_no_delete", "BEFORE DELETE ON audit"),
    "audit_only_at_the_end": _forbid(
        "audit_only_at_the_end",
        "BEFORE INSERT ON audit WHEN NEW.seq IS NOT (SELECT COALESCE(MAX(seq), 0) + 1 FROM audit)",
    ),
    "audit_kinds_no_update": _forbid("audit_kinds_no_update", "BEFORE UPDATE ON audit_kinds"),
    "audit_kinds_no_delete": _forbid("audit_kinds_no_delete", "BEFORE DELETE ON audit_kinds"),
}


def _first(connection: Connection) -> None:
    metadata.create_all(connection)
    for statement in AUDIT_TRIGGERS.values():
        connection.execute(text(statement))


# Step n takes a database from version n to n + 1. A step that has been released never changes.
STEPS: Sequence[Callable[[Connection], None]] = (_first,)
VERSION = len(STEPS)
