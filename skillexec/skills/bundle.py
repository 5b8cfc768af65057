"""The bundle: a skill's exact bytes, taken once, as a deterministic tar, and their digest.

The same files give the same bytes on any machine: sorted by path, no times, no owners, and of the mode only whether
a file is executable. Empty folders are not kept, and neither is what tools leave behind (`.git`, `__pycache__`,
`.DS_Store`): it differs between copies of the same skill, and what is not in the bundle can't be executed.

Links are refused, also those that stay inside: a bundle holds files and nothing that has to be interpreted. So are
devices, FIFOs and sockets.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

from skillexec.errors import PathRefused, SkillError
from skillexec.model import Bundle, BundleFile
from skillexec.skills.beneath import FILE, FOLDER, kind, read_exactly, regular

MAX_FILES = 2_000
MAX_ENTRIES = 2 * MAX_FILES  # with folders, and with what is left out
MAX_BYTES = 64 << 20
MAX_DEPTH = 32
LEFT_OUT = frozenset({".git", "__pycache__", ".DS_Store"})

_SMALLER = "keep data out of the skill's folder"
_BLOCK = 512
_RECORD = 20 * _BLOCK  # archives are padded to this, as every tar does
_NAME, _PREFIX = 100, 155  # what a header holds of a path
_LONG_NAME = b"././@LongLink"
_EXECUTABLE, _PLAIN = b"0000755", b"0000644"


@dataclass(frozen=True, slots=True)
class _File:
    path: bytes
    data: bytes
    executable: bool


def _padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % _BLOCK)


def _split(path: bytes) -> tuple[bytes, bytes] | None:
    """A path as the header's prefix and name; None where it fits into no header."""
    if len(path) <= _NAME:
        return b"", path
    cut = path.find(b"/", max(0, len(path) - _NAME - 1), _PREFIX + 1)
    return (path[:cut], path[cut + 1 :]) if cut > 0 and path[cut + 1 :] else None


def _header(prefix: bytes, name: bytes, *, size: int, mode: bytes, flag: bytes) -> bytes:
    """One ustar header: no owner, no time."""
    fields = (
        name.ljust(_NAME, b"\0"),
        mode + b"\0" + b"0000000\0" * 2,  # mode, uid, gid
        b"%011o\0" % size + b"00000000000\0",  # size, mtime
        b" " * 8 + flag + bytes(100),  # checksum (as blanks while it is computed), type, link target
        b"ustar\00000" + bytes(64) + b"0000000\0" * 2,  # magic, version, owner names, device numbers
        prefix.ljust(_PREFIX, b"\0") + bytes(12),
    )
    block = b"".join(fields)
    return block[:148] + b"%06o\0 " % sum(block) + block[156:]


def _entry(file: _File) -> Iterator[bytes]:
    mode = _EXECUTABLE if file.executable else _PLAIN
    parts = _split(file.path)
    if parts is None:  # the GNU way, which every reader knows: the path as the content of an entry before
        yield _header(b"", _LONG_NAME, size=len(file.path) + 1, mode=_PLAIN, flag=b"L")
        yield _padded(file.path + b"\0")
        parts = (b"", file.path[:_NAME])
    yield _header(*parts, size=len(file.data), mode=mode, flag=b"0")
    yield _padded(file.data)


def _pack(files: list[_File]) -> bytes:
    parts = [part for file in files for part in _entry(file)]
    parts.append(bytes(2 * _BLOCK))
    parts.append(bytes(-sum(map(len, parts)) % _RECORD))
    return b"".join(parts)


def _shown(path: bytes) -> str:
    return os.fsdecode(path)


@dataclass(slots=True)
class _Taker:
    """Reads a folder once, each file by way of the open folder that holds it, within the bounds."""

    bytes_left: int = MAX_BYTES
    entries_left: int = MAX_ENTRIES
    files: list[_File] = field(default_factory=list)

    def take(self, folder: int, prefix: bytes, depth: int) -> None:
        if depth > MAX_DEPTH:
            raise SkillError(f"folders are nested deeper than {MAX_DEPTH}: {_shown(prefix)}")
        for name, is_folder in self._entries(folder):
            if _shown(name) in LEFT_OUT:
                continue
            if is_folder:
                self._folder(folder, name, prefix, depth)
            else:
                self._file(folder, name, prefix)

    def _entries(self, folder: int) -> list[tuple[bytes, bool]]:
        with os.scandir(folder) as entries:
            some = list(islice(entries, self.entries_left + 1))
        self.entries_left -= len(some)
        if self.entries_left < 0:
            raise SkillError(f"more than {MAX_ENTRIES} files and folders", hint=_SMALLER)
        return [(os.fsencode(entry.name), entry.is_dir(follow_symlinks=False)) for entry in some]

    def _folder(self, folder: int, name: bytes, prefix: bytes, depth: int) -> None:
        inner = os.open(name, FOLDER | os.O_NOFOLLOW, dir_fd=folder)
        try:
            self.take(inner, prefix + name + b"/", depth + 1)
        finally:
            os.close(inner)

    def _file(self, folder: int, name: bytes, prefix: bytes) -> None:
        path = prefix + name
        if len(self.files) >= MAX_FILES:
            raise SkillError(f"more than {MAX_FILES} files", hint=_SMALLER)
        descriptor = self._open(folder, name, path)
        try:
            self.files.append(self._read(descriptor, path))
        finally:
            os.close(descriptor)

    def _open(self, folder: int, name: bytes, path: bytes) -> int:
        try:
            return os.open(name, FILE, dir_fd=folder)
        except OSError:
            # A link, or a socket: name it. Anything else is the error that it is.
            mode = os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode
            if not stat.S_ISREG(mode):
                hint = "put the file itself in its place" if stat.S_ISLNK(mode) else "remove it"
                raise PathRefused(f"{_shown(path)} is {kind(mode)}, not a regular file", hint=hint) from None
            raise

    def _read(self, descriptor: int, path: bytes) -> _File:
        info = regular(descriptor, _shown(path))
        if info.st_size > self.bytes_left:
            raise SkillError(f"more than {MAX_BYTES >> 20} MiB", hint=_SMALLER)
        data = read_exactly(descriptor, info.st_size + 1)  # one more, so that growth shows
        if len(data) != info.st_size:
            raise SkillError(f"{_shown(path)} changed while it was read", hint="try again")
        self.bytes_left -= len(data)
        return _File(path, data, bool(info.st_mode & 0o111))


def take_bundle(directory: Path) -> Bundle:
    """The exact bytes of a skill, read once. Nothing reads the folder again after this."""
    taker = _Taker()
    try:
        folder = os.open(directory, FOLDER | os.O_NOFOLLOW)
        try:
            taker.take(folder, b"", 0)
        finally:
            os.close(folder)
    except OSError as error:
        raise SkillError(
            f"{directory}: can't read {os.fsdecode(error.filename or b'.')}: {error.strerror}"
        ) from error
    except SkillError as error:
        raise type(error)(f"{directory}: {error.message}", hint=error.hint) from None
    taker.files.sort(key=lambda file: file.path)
    data = _pack(taker.files)
    listed = tuple(BundleFile(_shown(file.path), len(file.data), file.executable) for file in taker.files)
    return Bundle(data, "sha256:" + hashlib.sha256(data).hexdigest(), listed)


def _places(bundle: Bundle) -> Iterator[tuple[BundleFile, int]]:
    """Each file of a bundle, and where its bytes begin."""
    position = 0
    for file in bundle.files:
        if _split(os.fsencode(file.path)) is None:
            position += _BLOCK + len(_padded(os.fsencode(file.path) + b"\0"))
        position += _BLOCK
        yield file, position
        position += file.size + (-file.size % _BLOCK)


def bundle_contents(bundle: Bundle) -> Iterator[tuple[str, bytes]]:
    """Each file of a bundle and its bytes: from the bundle itself, not from the folder."""
    for file, position in _places(bundle):
        yield file.path, bundle.data[position : position + file.size]


def file_in(bundle: Bundle, path: str) -> bytes | None:
    """The bytes of one file of a bundle; None where it has no such file."""
    for file, position in _places(bundle):
        if file.path == path:
            return bundle.data[position : position + file.size]
    return None
