"""The files that a caller handed in: opened and listed without ever leaving their folder or following a link."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass

from skilltools.program import NotFound, Refused, Usage

LIST_MAX = 1000
_DEPTH_MAX = 32


@dataclass(frozen=True)
class Entry:
    path: str
    kind: str  # file, folder, link, other
    size: int


def relative(path: str, root: str) -> tuple[str, ...]:
    """The components of a path below `root`; "." is the folder itself. The folder's own name may stand before it."""
    if "\0" in path:
        raise Usage("a path can't hold a NUL")
    inside = path[len(root) :] if path == root or path.startswith(root + "/") else path
    if inside is path and path.startswith("/"):
        raise Refused(f"outside the input folder: {path}", path=path)
    parts = tuple(part for part in inside.split("/") if part not in {"", "."})
    if ".." in parts:
        raise Refused(f"a path can't go up: {path}", path=path)
    return parts


def _kind(mode: int) -> str:
    kinds = ((stat.S_ISREG, "file"), (stat.S_ISDIR, "folder"), (stat.S_ISLNK, "link"))
    return next((name for test, name in kinds if test(mode)), "other")


def _step(folder: int, name: str, path: str) -> int:
    """One component further. The look before serves the message; O_NOFOLLOW is what holds."""
    try:
        mode = os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode
        if _kind(mode) in {"link", "other"}:
            raise Refused(f"links and devices are not read: {path}", path=path)
        # O_NONBLOCK: should it have become a pipe meanwhile, opening it must not wait for a writer.
        return os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
    except (FileNotFoundError, NotADirectoryError):
        raise NotFound(f"no such input file: {path}", path=path) from None
    except OSError as error:
        raise Refused(f"can't open {path}: {error.strerror}", path=path) from None


def open_inside(root: str, path: str) -> int:
    """A descriptor of the file or folder at `path`, walked to component by component."""
    current = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    for name in relative(path, root):
        try:
            following = _step(current, name, path)
        finally:
            os.close(current)
        current = following
    return current


def _walk(folder: int, prefix: str, depth: int) -> Iterator[Entry]:
    with os.scandir(folder) as found:
        names = sorted(entry.name for entry in found)
    for name in names:
        status = os.stat(name, dir_fd=folder, follow_symlinks=False)
        kind = _kind(status.st_mode)
        yield Entry(prefix + name, kind, status.st_size if kind == "file" else 0)
        if kind == "folder" and depth < _DEPTH_MAX:
            inner = _step(folder, name, prefix + name)
            try:
                yield from _walk(inner, f"{prefix}{name}/", depth + 1)
            finally:
                os.close(inner)


def listing(folder: int, prefix: str) -> tuple[list[Entry], bool]:
    """What is below an open folder, sorted, and whether there is more than is listed."""
    entries: list[Entry] = []
    for entry in _walk(folder, prefix, 0):
        if len(entries) == LIST_MAX:
            return entries, True
        entries.append(entry)
    return entries, False
