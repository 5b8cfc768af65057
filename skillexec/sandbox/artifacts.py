"""Collects what the script left in its output folder, once no process is left that could interfere.

Everything is opened relative to a folder's descriptor and never through a link, so that a name can't
lead anywhere else. What is left out is said in a note.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from typing import NamedTuple

from .frames import acceptable_name

DEPTH_MAX = 32
ENTRIES_MAX = 20_000  # looked at, so that a folder of millions can't hold up the end
NOTES_MAX = 32
SHOWN_MAX = 200  # characters of a name in a note
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


def is_empty(work: str, name: str) -> bool:
    """Whether `work`/`name` is a folder with nothing in it; what else it may be is the collector's to say."""
    try:
        folder = os.open(f"{work}/{name}", _FOLDER)
    except OSError:
        return False
    with os.scandir(folder) as entries:
        empty = next(entries, None) is None
    os.close(folder)
    return empty


class Found(NamedTuple):
    """A file to send; the receiver closes `fd`."""

    name: str
    size: int
    executable: bool
    fd: int


class Notes:
    """What was left out and why; bounded."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._more = 0

    def left_out(self, name: str, why: str) -> None:
        if len(self._lines) < NOTES_MAX:
            # Whole or not at all: the host masks secrets in it, and would not know half of one.
            shown = ascii(name) if len(name) <= SHOWN_MAX else f"a name of {len(name)} characters"
            self._lines.append(f"left out {shown}: {why}")
        else:
            self._more += 1

    def lines(self) -> list[str]:
        return [*self._lines, f"left out {self._more} more"] if self._more else list(self._lines)


class Collector:
    """Walks a folder in the order of names and yields what fits the caps."""

    def __init__(self, *, count: int, total: int) -> None:
        self._count = count
        self._total = total
        self._entries = 0
        self.notes = Notes()

    def collect(self, work: str, name: str) -> Iterator[Found]:
        """The files beneath `work`/`name`."""
        outer = os.open(work, _FOLDER)
        try:
            folder = os.open(name, _FOLDER, dir_fd=outer)
        except FileNotFoundError:
            return
        except OSError as error:
            self.notes.left_out(name, f"the output folder can't be opened: {error.strerror}")
            return
        finally:
            os.close(outer)
        yield from self._walk(folder, "", 0)

    def _walk(self, folder: int, prefix: str, depth: int) -> Iterator[Found]:
        try:
            for entry in self._names(folder, prefix):
                yield from self._entry(folder, entry, prefix + entry, depth)
        finally:
            os.close(folder)

    def _names(self, folder: int, prefix: str) -> list[str]:
        names = []
        with os.scandir(folder) as entries:
            for entry in entries:
                self._entries += 1
                if self._entries > ENTRIES_MAX:
                    self.notes.left_out(prefix or ".", f"more than {ENTRIES_MAX} entries")
                    break
                names.append(entry.name)
        return sorted(names)

    def _entry(self, folder: int, entry: str, name: str, depth: int) -> Iterator[Found]:
        if not acceptable_name(name):
            self.notes.left_out(name, "its name can't be passed on")
            return
        try:
            mode = os.stat(entry, dir_fd=folder, follow_symlinks=False).st_mode
            if stat.S_ISDIR(mode):
                yield from self._folder(folder, entry, name, depth)
            elif stat.S_ISREG(mode):
                yield from self._file(folder, entry, name)
            else:
                self.notes.left_out(name, "neither a file nor a folder")
        except OSError as error:
            self.notes.left_out(name, error.strerror or "can't be read")

    def _folder(self, folder: int, entry: str, name: str, depth: int) -> Iterator[Found]:
        if depth >= DEPTH_MAX:
            self.notes.left_out(name, f"deeper than {DEPTH_MAX} folders")
            return
        yield from self._walk(os.open(entry, _FOLDER, dir_fd=folder), name + "/", depth + 1)

    def _file(self, folder: int, entry: str, name: str) -> Iterator[Found]:
        fd = os.open(entry, _FILE, dir_fd=folder)
        status = os.fstat(fd)
        why = self._too_much(status)
        if why:
            os.close(fd)
            self.notes.left_out(name, why)
            return
        self._count -= 1
        self._total -= status.st_size
        yield Found(name, status.st_size, bool(status.st_mode & 0o111), fd)

    def _too_much(self, status: os.stat_result) -> str:
        if not stat.S_ISREG(status.st_mode):
            return "not a file any more"
        if self._count < 1:
            return "more files than are collected"
        if status.st_size > self._total:
            return f"its {status.st_size} bytes are more than the {self._total} that are left"
        return ""
