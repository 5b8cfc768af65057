"""Puts a job's bytes in place: the bundle's tar under the skill folder, input files under the work folder.

The reader is our own and takes bytes as they come: `tarfile` costs a hundred microseconds a member,
which is most of a warm run, and it can do much that nobody should ask of it here.
"""

from __future__ import annotations

import os

from .task import Announced, Refused

BLOCK = 512
LONG_MAX = 16 << 10  # a long name or a pax header; real ones are a few hundred bytes
_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class Sink:
    """One open file that still wants `left` bytes."""

    def __init__(self, path: bytes, size: int, mode: int) -> None:
        self.left = size
        self._fd = os.open(path, _CREATE, mode)
        if not size:
            os.close(self._fd)

    def write(self, data: memoryview) -> int:
        """Takes what it can of `data` and says how much that was."""
        part = data[: self.left]
        while part:
            part = part[os.write(self._fd, part) :]
        taken = min(self.left, len(data))
        self.left -= taken
        if not self.left:
            os.close(self._fd)
        return taken


def safe_parts(name: bytes) -> list[bytes]:
    """The parts of a relative path, or Refused."""
    parts = [part for part in name.split(b"/") if part not in (b"", b".")]
    if name.startswith(b"/") or b".." in parts or b"\0" in name:
        raise Refused(f"a path leaves its folder: {os.fsdecode(name)[:200]!a}")
    return parts


class Tree:
    """A folder that files are put into, and nothing outside of it."""

    def __init__(self, root: bytes) -> None:
        self.root = root
        self.folders: set[bytes] = set()

    def folder(self, parts: list[bytes]) -> bytes:
        """The path of a folder, made where it is missing."""
        path = self.root
        for part in parts:
            path += b"/" + part
            if path not in self.folders:
                os.mkdir(path, 0o755)
                self.folders.add(path)
        return path

    def file(self, name: bytes, size: int, mode: int) -> Sink:
        parts = safe_parts(name)
        if not parts:
            raise Refused("a file without a name")
        return Sink(self.folder(parts[:-1]) + b"/" + parts[-1], size, mode)

    def seal(self) -> None:
        """No more writing: folders read-only, as the files already are."""
        for path in self.folders:
            os.chmod(path, 0o555)  # noqa: S103 - nobody may write, which is the point
        os.chmod(self.root, 0o555)  # noqa: S103


def _number(field: bytes) -> int:
    if field[:1] == b"\x80":  # GNU's base 256, for what octal can't hold
        return int.from_bytes(field[1:], "big")
    try:
        return int(field.rstrip(b"\0 ") or b"0", 8)
    except ValueError:
        raise Refused("the bundle is no tar: a number that is none") from None


def _string(field: bytes) -> bytes:
    return field.split(b"\0", 1)[0]


def _pax_path(data: bytes) -> bytes | None:
    """The path that a pax header gives, if it does."""
    path = None
    while data.strip(b"\0"):
        length, _, _ = data.partition(b" ")
        if not length.isdigit() or not len(length) + 1 < int(length[:8]) <= len(data):
            raise Refused("the bundle is no tar: a broken pax header")
        key, _, value = data[len(length) + 1 : int(length) - 1].partition(b"=")
        if key == b"path":
            path = value
        data = data[int(length) :]
    return path


class Unpacker:
    """A tar, taken in pieces of any size. Regular files and folders only."""

    def __init__(self, tree: Tree) -> None:
        self._tree = tree
        self._block = bytearray()
        self._sink: Sink | None = None
        self._long: bytearray | None = None  # a long name or pax header that is being read
        self._long_left = 0
        self._long_is_pax = False
        self._name: bytes | None = None  # overrides the next header's
        self._padding = 0
        self._ended = False

    def feed(self, data: bytes) -> None:
        """Unpacks as far as the bytes go; Refused or OSError where that can't be."""
        view = memoryview(data)
        while view and not self._ended:
            view = view[self._take(view) :]

    def finish(self) -> None:
        """Refused where the archive stopped in the midst of a member."""
        if self._sink is not None or self._long is not None or self._block:
            raise Refused("the bundle is no tar: it is cut off")

    def _take(self, view: memoryview) -> int:
        if self._sink is not None:
            taken = self._sink.write(view)
            if not self._sink.left:
                self._sink = None
            return taken
        if self._long is not None:
            return self._take_long(view, self._long)
        if self._padding:
            taken = min(self._padding, len(view))
            self._padding -= taken
            return taken
        return self._take_header(view)

    def _take_long(self, view: memoryview, long: bytearray) -> int:
        part = view[: self._long_left]
        long += part
        self._long_left -= len(part)
        if not self._long_left:
            path = _pax_path(bytes(long)) if self._long_is_pax else _string(bytes(long))
            self._name = path if path is not None else self._name
            self._long = None
        return len(part)

    def _take_header(self, view: memoryview) -> int:
        part = view[: BLOCK - len(self._block)]
        self._block += part
        if len(self._block) == BLOCK:
            block = bytes(self._block)
            self._block.clear()
            self._header(block)
        return len(part)

    def _header(self, block: bytes) -> None:
        if not block.strip(b"\0"):
            self._ended = True
            return
        if sum(block) - sum(block[148:156]) + 8 * 0x20 != _number(block[148:156]):
            raise Refused("the bundle is no tar: a header's checksum is wrong")
        kind, size = block[156:157], _number(block[124:136])
        self._padding = -size % BLOCK
        if kind in b"xgL":
            self._start_long(kind, size)
        else:
            name, self._name = self._name or _header_name(block), None
            self._member(kind, name, size, executable=bool(_number(block[100:108]) & 0o111))

    def _start_long(self, kind: bytes, size: int) -> None:
        if not 0 < size <= LONG_MAX or kind == b"g":
            raise Refused("the bundle is no tar of ours: a header that it has no use for")
        self._long, self._long_left, self._long_is_pax = bytearray(), size, kind == b"x"

    def _member(self, kind: bytes, name: bytes, size: int, *, executable: bool) -> None:
        if kind == b"5":
            self._tree.folder(safe_parts(name))
        elif kind in (b"0", b"\0"):
            self._sink = self._tree.file(name, size, 0o555 if executable else 0o444)
            if not size:
                self._sink = None
        else:
            raise Refused(f"the bundle holds a link or a device: {os.fsdecode(name)[:200]!a}")


def _header_name(block: bytes) -> bytes:
    name, prefix = _string(block[:100]), _string(block[345:500])
    return prefix + b"/" + name if prefix and block[257:263] == b"ustar\0" else name


class Inputs:
    """The input files, whose bytes come one after the other."""

    def __init__(self, tree: Tree, files: tuple[Announced, ...]) -> None:
        self._tree = tree
        self._waiting = list(reversed(files))
        self._sink: Sink | None = None
        self.left = sum(file.size for file in files)
        self._open_next()

    def feed(self, data: bytes) -> None:
        """Takes bytes, of which there must be no more than `left`."""
        view = memoryview(data)
        self.left -= len(view)
        while view and self._sink is not None:
            view = view[self._sink.write(view) :]
            if not self._sink.left:
                self._open_next()

    def _open_next(self) -> None:
        self._sink = None
        while self._waiting and self._sink is None:
            file = self._waiting.pop()
            sink = self._tree.file(os.fsencode(file.name), file.size, 0o644)
            self._sink = sink if file.size else None
