"""Checkpoints: signed notes of how long the log was and what its newest hash was, kept in another place.

The chain alone can't show that its end was cut off, or that all of it was written anew. A note somewhere else can:
a file of lines, one checkpoint each, only ever added to, so that it may lie on append-only storage.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import os
import stat
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any

from skillexec.audit.log import Head
from skillexec.audit.record import canonical, stamp
from skillexec.audit.verify import START, Finding, verify
from skillexec.errors import AuditUnusable

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
    from sqlalchemy import Connection

FORMAT = 1
_TYPE = "skillexec.checkpoint"  # signed too, so that the signature can stand for nothing else
_WRITTEN_BY = "name the file that `skillexec audit checkpoint --to FILE` wrote"


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The log had `count` records then, and the newest one's hash was `head`."""

    count: int
    head: str
    time: str
    key: str
    signature: str

    @property
    def signed(self) -> bytes:
        """The exact bytes under the signature."""
        return canonical(self._statement()).encode()

    @property
    def line(self) -> str:
        return canonical({**self._statement(), "signature": self.signature})

    def _statement(self) -> dict[str, Any]:
        return {
            "count": self.count,
            "head": self.head,
            "key": self.key,
            "time": self.time,
            "type": _TYPE,
            "v": FORMAT,
        }


def public_path(path: Path) -> Path:
    """Where the public half of a key lies: beside it."""
    return path.with_suffix(".pub")


def _id(public: Ed25519PublicKey) -> str:
    return hashlib.sha256(public.public_bytes_raw()).hexdigest()[:16]


def _write_new(path: Path, data: bytes, mode: int) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, mode)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def create_key(path: Path) -> str:
    """Make the key that signs checkpoints, readable by this user alone, and its public half; its id is returned."""
    from cryptography.hazmat.primitives import serialization as form
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    key = Ed25519PrivateKey.generate()
    private = key.private_bytes(form.Encoding.PEM, form.PrivateFormat.PKCS8, form.NoEncryption())
    public = key.public_key().public_bytes(form.Encoding.PEM, form.PublicFormat.SubjectPublicKeyInfo)
    try:
        _write_new(path, private, 0o600)
        _write_new(public_path(path), public, 0o644)
    except FileExistsError as error:
        raise AuditUnusable(
            f"there is a key at {path} already", hint="it is kept: checkpoints need it"
        ) from error
    except OSError as error:
        raise AuditUnusable(f"can't write the key {path}: {error.strerror}") from error
    return _id(key.public_key())


def _read_key(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise AuditUnusable(
            f"can't read the key {path}: {error.strerror}", hint="run `skillexec init`"
        ) from error


def load_key(path: Path) -> Ed25519PrivateKey:
    """The key that signs. One that others may read is refused: their signatures would be ours."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    data = _read_key(path)
    if stat.S_IMODE(path.stat().st_mode) & 0o077:
        raise AuditUnusable(f"others may read the key {path}", hint=f"chmod 0600 '{path}'")
    try:
        key = load_pem_private_key(data, password=None)
    except (ValueError, TypeError) as error:
        raise AuditUnusable(f"{path} is not a private key") from error
    if not isinstance(key, Ed25519PrivateKey):
        raise AuditUnusable(f"{path} is not an Ed25519 key")
    return key


def load_public_key(path: Path) -> Ed25519PublicKey:
    """The key that signatures are checked with."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    from cryptography.hazmat.primitives.serialization import load_pem_public_key

    try:
        key = load_pem_public_key(_read_key(path))
    except ValueError as error:
        raise AuditUnusable(f"{path} is not a public key", hint="it is the file that ends in .pub") from error
    if not isinstance(key, Ed25519PublicKey):
        raise AuditUnusable(f"{path} is not an Ed25519 key")
    return key


def key_id(path: Path) -> str:
    """The short name of the key at this path, as checkpoints and records state it."""
    return _id(load_key(path).public_key())


def _parse(line: str) -> Checkpoint:
    said = json.loads(line)
    if (said["type"], said["v"]) != (_TYPE, FORMAT):
        raise ValueError("another type or format")
    found = Checkpoint(**{name: said[name] for name in ("count", "head", "time", "key", "signature")})
    if found.line != line:
        raise ValueError("not as we write it")
    return found


def read_checkpoints(path: Path) -> tuple[Checkpoint, ...]:
    """All checkpoints of a file, in order."""
    try:
        lines = path.read_text("ascii").splitlines()
    except OSError as error:
        raise AuditUnusable(f"can't read the checkpoints in {path}: {error.strerror}") from error
    except UnicodeError as error:
        raise AuditUnusable(f"{path} is not a file of checkpoints", hint=_WRITTEN_BY) from error
    found = []
    for number, line in enumerate(lines, start=1):
        try:
            found.append(_parse(line))
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise AuditUnusable(
                f"{path}, line {number}: this is not a checkpoint", hint=_WRITTEN_BY
            ) from error
    if not found:
        raise AuditUnusable(
            f"{path} holds no checkpoint", hint=f"`skillexec audit checkpoint --to {quote(str(path))}`"
        )
    return tuple(found)


def _is_signed(checkpoint: Checkpoint, public: Ed25519PublicKey) -> bool:
    from cryptography.exceptions import InvalidSignature

    try:
        public.verify(base64.b64decode(checkpoint.signature, validate=True), checkpoint.signed)
    except (InvalidSignature, binascii.Error, ValueError):
        return False
    return True


def _hash_of(connection: Connection, seq: int) -> str | None:
    from sqlalchemy import select

    from skillexec.schema import audit

    return connection.execute(select(audit.c.hash).where(audit.c.seq == seq)).scalar()


def check(
    connection: Connection, checkpoints: Sequence[Checkpoint], public: Ed25519PublicKey, *, newest: int
) -> Iterator[Finding]:
    """What the checkpoints say against a log whose chain holds up to the record `newest`."""
    for checkpoint in checkpoints:
        if not _is_signed(checkpoint, public):
            other = "" if checkpoint.key == _id(public) else f": it names the key {checkpoint.key}"
            yield Finding(
                f"the checkpoint of {checkpoint.time} was not signed with the key {_id(public)}{other}"
            )
        elif checkpoint.count > newest:
            yield Finding(
                f"is missing: the log ends with record {newest}, and at {checkpoint.time} it had {checkpoint.count}",
                newest + 1,
            )
        elif checkpoint.count and _hash_of(connection, checkpoint.count) != checkpoint.head:
            yield Finding(
                f"is not the one that the checkpoint of {checkpoint.time} saw: the log was written anew",
                checkpoint.count,
            )


def sign(head: Head, key: Ed25519PrivateKey) -> Checkpoint:
    """A checkpoint of a log that ends like this, now."""
    draft = Checkpoint(head.seq, head.hash, stamp(datetime.now(UTC)), _id(key.public_key()), "")
    signature = base64.b64encode(key.sign(draft.signed)).decode()
    return Checkpoint(draft.count, draft.head, draft.time, draft.key, signature)


def _add_line(path: Path, line: str) -> None:
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        with os.fdopen(descriptor, "wb") as file:
            file.write(line.encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise AuditUnusable(f"can't write the checkpoint to {path}: {error.strerror}") from error


def _refuse(findings: Sequence[Finding]) -> None:
    if findings:
        raise AuditUnusable(f"no checkpoint was made, as the log does not verify: {findings[0]}")


def take(
    connection: Connection,
    key: Ed25519PrivateKey,
    path: Path,
    *,
    progress: Callable[[int], None] = lambda _: None,
) -> Checkpoint:
    """Verify the log from the file's last checkpoint on (or all of it), and add a checkpoint to the file."""
    earlier = read_checkpoints(path) if path.exists() and path.stat().st_size else ()
    start = Head(earlier[-1].count, earlier[-1].head) if earlier else START
    report = verify(connection, start=start, progress=progress)
    _refuse(report.findings)
    _refuse(list(check(connection, earlier, key.public_key(), newest=_newest(connection))))
    made = sign(report.head, key)
    _add_line(path, made.line)
    return made


def _newest(connection: Connection) -> int:
    from skillexec.audit.log import head

    return head(connection).seq
