"""The index: what was read in one root, kept so that the next start need not read it again.

It holds metadata only and is believed only where the state of the file that it speaks of (device, inode, size,
both times) is still the same; what runs is a bundle, taken from the files themselves. A file that is damaged, of
another version, somebody else's, or writable by others is ignored, and written anew.

    head    magic, lengths, checksums
    about   JSON: which root, its state, who read it
    table   per row, sorted by key: key (CRC of the name), offset, length, checksum
    rows    JSON, one list per folder

A lookup reads the first three and then the rows of one name, so it costs the same among 50 and 5,000.
"""

from __future__ import annotations

import json
import os
import stat
import struct
import time
import zlib
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, NamedTuple

from skillexec import __version__
from skillexec.model import Diagnostic, Severity, Skill, Source, TimeoutClass
from skillexec.skills.beneath import Stamp

MAX_BYTES = 256 << 20
MAX_FILES = 64  # roots remembered; projects come and go
NEVER: Stamp = ""  # the state of no file: what must be read again each time

_MAGIC = b"SKXIDX1\n"
_HEAD = struct.Struct(
    "=8s5I"
)  # magic; lengths of about, of the table (in rows), of the rows; checksums of both parts
_COLUMNS = 4
_PREFIX = "skills-"
_encoded = json.JSONEncoder(
    separators=(",", ":")
).encode  # made once: json.dumps would make one for every row


class Row(NamedTuple):
    """What is known of one folder of a root. Only text: of thousands, few are ever looked into."""

    folder: str
    file: str
    stamp: Stamp
    name: str | None  # None: broken
    text: str  # the description; of a broken one the reason
    more: (
        str | None
    )  # the rest, as JSON; of a broken one the hint; None where only the claim to the name is known


@dataclass(frozen=True, slots=True)
class About:
    """Which root an index is of, in which state, and by which code it was read."""

    root: str
    stamp: Stamp
    reader: str


def reader_version() -> str:
    """Changes when the code that reads skills does: in a checkout, files change without a version."""
    found = [entry.stat() for entry in os.scandir(Path(__file__).parent) if entry.name.endswith(".py")]
    return f"{__version__}/{sum(info.st_size for info in found)}/{max(info.st_mtime_ns for info in found)}"


def index_file(folder: Path, root: str) -> Path:
    """Where the index of a root is kept."""
    raw = os.fsencode(root)
    return folder / f"{_PREFIX}{zlib.crc32(raw):08x}{zlib.adler32(raw):08x}"


def _key(name: str | None) -> int:
    return 0 if name is None else zlib.crc32(name.encode("utf-8", "surrogatepass"))


# --- skills as rows -----------------------------------------------------------------------------------

_ELSEWHERE = ("name", "description", "source", "directory", "file", "diagnostics")
_PLAIN = tuple(field.name for field in fields(Skill) if field.name not in _ELSEWHERE)
_TUPLES = ("allowed_tools", "required_env", "network")
_EMPTY = Skill("", "", Source.THIRD_PARTY, Path())


def _is_json(value: Any) -> bool:
    """Whether the value comes back from JSON as it was."""
    if isinstance(value, dict):
        return all(isinstance(key, str) and _is_json(item) for key, item in value.items())
    if isinstance(value, list):
        return all(map(_is_json, value))
    return (
        value is None
        or isinstance(value, str | bool | int)
        or (isinstance(value, float) and value - value == 0)
    )


def skill_row(skill: Skill, folder: str, state: Stamp) -> Row:
    """What to remember of a skill, defaults left out; its claim to the name where that is all that may be."""
    found = {key: getattr(skill, key) for key in _PLAIN if getattr(skill, key) != getattr(_EMPTY, key)}
    found.update({key: list(found[key]) for key in _TUPLES if key in found})
    if skill.diagnostics:
        found["diagnostics"] = [
            [d.rule, d.message, d.fix, d.line, str(d.severity)] for d in skill.diagnostics
        ]
    known = state != NEVER and _is_json(found)
    more = _encoded(found) if known else None
    return Row(folder, skill.file, state, skill.name, skill.description, more)


def _diagnostics(found: Iterable[Sequence[Any]]) -> tuple[Diagnostic, ...]:
    return tuple(
        Diagnostic(rule, message, fix, line, Severity(severity))
        for rule, message, fix, line, severity in found
    )


# What JSON has no word for, and how it is made again.
_RESTORE: Mapping[str, Callable[[Any], Any]] = {
    **dict.fromkeys(_TUPLES, tuple),
    "timeout_class": TimeoutClass,
    "diagnostics": _diagnostics,
}


def row_skill(row: Row, root: Path, source: Source) -> Skill:
    """The skill of a row that holds one."""
    assert row.name is not None and row.more is not None
    found = json.loads(row.more)
    more = {key: _RESTORE[key](value) if key in _RESTORE else value for key, value in found.items()}
    return Skill(row.name, row.text, source, root / row.folder, row.file, **more)


# --- reading ------------------------------------------------------------------------------------------


class _Damaged(Exception):
    """Not an index that we may believe."""


class Index:
    """An index file, open and checked. To be used with `with`."""

    def __init__(self, descriptor: int, about: About, table: memoryview, rows: tuple[int, int, int]) -> None:
        self._descriptor = descriptor
        self.about = about
        self._count = len(table) // _COLUMNS
        self._table = table
        self._rows_start, self._rows_length, self._rows_check = rows

    @classmethod
    def open(cls, path: Path, *, root: str, reader: str) -> Index | None:
        """The index of this root, or None where there is none that may be believed."""
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:
            return None
        try:
            index = cls._checked(descriptor)
            if index.about.root == root and index.about.reader == reader:
                return index
        except (_Damaged, OSError, ValueError, TypeError, KeyError):
            pass  # whatever is wrong with it: a cache that can't be read is no cache
        os.close(descriptor)
        return None

    @classmethod
    def _checked(cls, descriptor: int) -> Index:
        info = os.fstat(descriptor)
        ours = stat.S_ISREG(info.st_mode) and info.st_uid == os.geteuid() and not info.st_mode & 0o022
        if not ours or info.st_size > MAX_BYTES:
            raise _Damaged
        head = os.pread(descriptor, _HEAD.size, 0)
        if len(head) != _HEAD.size:
            raise _Damaged
        magic, about_length, count, rows_length, check, rows_check = _HEAD.unpack(head)
        start = _HEAD.size + about_length + count * _COLUMNS * 4
        if magic != _MAGIC or start + rows_length != info.st_size:
            raise _Damaged
        middle = os.pread(descriptor, start - _HEAD.size, _HEAD.size)
        if len(middle) != start - _HEAD.size or zlib.crc32(middle) != check:
            raise _Damaged
        document = json.loads(middle[:about_length])
        about = About(document["root"], document["stamp"], document["reader"])
        return cls(
            descriptor, about, memoryview(middle)[about_length:].cast("I"), (start, rows_length, rows_check)
        )

    def __enter__(self) -> Index:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._descriptor)

    @property
    def age(self) -> float:
        """Seconds since every file was last compared with this index."""
        return abs(time.time() - os.fstat(self._descriptor).st_mtime)

    def confirm(self) -> None:
        """Note that every file was just compared, and found as it says."""
        os.utime(self._descriptor)

    def rows(self) -> list[Row]:
        """All of them; none where they are damaged."""
        data = os.pread(self._descriptor, self._rows_length, self._rows_start)
        if len(data) != self._rows_length or zlib.crc32(data) != self._rows_check:
            return []
        return list(map(Row._make, json.loads(b"[%b]" % data)))

    def lookup(self, name: str) -> list[Row] | None:
        """The rows that claim a name; None where they are damaged."""
        keys, key = self._table[: self._count], _key(name)
        found = []
        position = bisect_left(keys, key)
        while position < self._count and keys[position] == key:
            row = self._read(position)
            if row is None:
                return None
            if row.name == name:
                found.append(row)
            position += 1
        return found

    def _read(self, position: int) -> Row | None:
        offset, length, check = (self._table[column * self._count + position] for column in (1, 2, 3))
        data = os.pread(self._descriptor, length, self._rows_start + offset)
        return Row._make(json.loads(data)) if len(data) == length and zlib.crc32(data) == check else None


# --- writing ------------------------------------------------------------------------------------------


def _table(rows: Sequence[Row], encoded: Sequence[bytes]) -> bytes:
    columns: list[tuple[int, int, int, int]] = []
    offset = 0
    for row, data in zip(rows, encoded, strict=True):
        columns.append((_key(row.name), offset, len(data), zlib.crc32(data)))
        offset += len(data) + 1  # the comma
    columns.sort()
    return b"".join(struct.pack(f"={len(columns)}I", *column) for column in zip(*columns, strict=True))


def _encode(about: About, rows: Sequence[Row]) -> bytes:
    encoded = [_encoded(row).encode() for row in rows]
    described = json.dumps({"root": about.root, "stamp": about.stamp, "reader": about.reader}).encode()
    middle, data = described + _table(rows, encoded), b",".join(encoded)
    head = _HEAD.pack(_MAGIC, len(described), len(rows), len(data), zlib.crc32(middle), zlib.crc32(data))
    return head + middle + data


def _replace(path: Path, data: bytes) -> None:
    """In one step, so that a reader sees the old file or the new one."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.{time.monotonic_ns()}")
    descriptor = os.open(
        temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600
    )
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def _oldest(folder: Path) -> Iterator[Path]:
    """The indexes past the number that is kept; leftovers of a crash count among them."""
    kept = [path for path in folder.iterdir() if path.name.lstrip(".").startswith(_PREFIX)]
    if len(kept) > MAX_FILES:
        kept.sort(key=lambda path: path.lstat().st_mtime, reverse=True)
        yield from kept[MAX_FILES:]


def write_index(path: Path, about: About, rows: Iterable[Row]) -> None:
    """Keep the rows for next time. A cache that can't be written is no error: next time reads again."""
    data = _encode(about, list(rows))
    if len(data) > MAX_BYTES:
        return
    try:
        _replace(path, data)
        for old in _oldest(path.parent):
            old.unlink(missing_ok=True)
    except OSError:
        pass
