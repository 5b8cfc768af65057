"""Files opened beneath a folder, and never outside it.

Every step is taken relative to an open descriptor and follows no link, so that what was checked is what is
read: a swap in between makes the step fail. A link that stays inside is resolved by us, as text, and the
result is opened in the same strict way.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Sequence
from pathlib import Path

from skillexec.errors import PathRefused, SkillError

FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
# Never wait for a FIFO's writer or a modem's carrier, never take a terminal: look at what it is first.
FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
MAX_LINKS = 8
_READS = 3
_CHUNK = 1 << 20
_KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a FIFO",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFLNK: "a link",
}

Stamp = str


def stamp(info: os.stat_result) -> Stamp:
    """What changes when a file does: where it is, its size, and both of its times."""
    return f"{info.st_dev}.{info.st_ino}.{info.st_size}.{info.st_mtime_ns}.{info.st_ctime_ns}"


def kind(mode: int) -> str:
    """What a file that is not a regular one is, in words."""
    return _KINDS.get(stat.S_IFMT(mode), "not a regular file")


def open_top(path: Path) -> int:
    """Open a folder that the caller names: links in the path are the caller's own choice."""
    return os.open(path, FOLDER)


def _walk(folder: int, parts: Sequence[str], flags: int) -> int:
    current = folder
    try:
        for part in parts[:-1]:
            step = os.open(part, FOLDER | os.O_NOFOLLOW, dir_fd=current)
            if current != folder:
                os.close(current)
            current = step
        return os.open(parts[-1], flags | os.O_NOFOLLOW, dir_fd=current)
    finally:
        if current != folder:
            os.close(current)


def _target(folder: int, path: str) -> str | None:
    """Where the link leads; None where it is none, or nothing."""
    try:
        return os.readlink(path, dir_fd=folder)
    except OSError:
        return None


def _inside(target: str, base: Path) -> str:
    """An absolute target as one relative to the base, which it has to be in."""
    real = os.path.realpath(base)
    if target != real and not target.startswith(real.rstrip("/") + "/"):
        raise PathRefused(f"the link to {target} leaves {base}")
    return target[len(real) :]


def _resolve(folder: int, parts: Sequence[str], base: Path) -> list[str]:
    """The same path without links. Only text: opening it strictly is what makes it safe."""
    pending, done, links = list(reversed(parts)), list[str](), 0
    while pending:
        part = pending.pop()
        if part == "..":
            if not done:
                raise PathRefused(f"the link {'/'.join(parts)} leaves {base}")
            done.pop()
        elif (target := _target(folder, "/".join([*done, part]))) is None:
            done.append(part)
        else:
            links += 1
            if links > MAX_LINKS:
                raise PathRefused(f"{'/'.join(parts)}: links in a circle, or more than {MAX_LINKS} of them")
            if target.startswith("/"):
                target, done = _inside(target, base), []
            pending.extend(reversed([step for step in target.split("/") if step not in ("", ".")]))
    return done


def open_beneath(folder: int, path: str, *, base: Path, flags: int = FILE) -> tuple[int, str]:
    """Open what a relative path names beneath an open folder, and say its path without links.

    `base` is where the folder is, for messages and for links that are spelled absolutely.
    """
    parts = path.split("/")
    try:
        return _walk(folder, parts, flags), path
    except OSError as error:
        if error.errno not in (errno.ELOOP, errno.ENOTDIR):
            raise
    resolved = _resolve(folder, parts, base)
    if not resolved:
        raise PathRefused(f"the link {path} leads to {base} itself")
    return _walk(folder, resolved, flags), "/".join(resolved)


def regular(descriptor: int, name: str) -> os.stat_result:
    """The state of an open file, which has to be a regular one."""
    info = os.fstat(descriptor)
    if not stat.S_ISREG(info.st_mode):
        raise PathRefused(f"{name} is {kind(info.st_mode)}, not a regular file")
    return info


def read_exactly(descriptor: int, size: int) -> bytes:
    """This many bytes from the start, or fewer where the file ends before."""
    data = os.pread(descriptor, size, 0)
    if len(data) == size or not data:
        return data
    parts, done = [data], len(data)
    while done < size and (data := os.pread(descriptor, min(size - done, _CHUNK), done)):
        parts.append(data)
        done += len(data)
    return b"".join(parts)


def read_settled(descriptor: int, name: str, *, limit: int) -> tuple[bytes, os.stat_result]:
    """The first `limit` bytes of a file that nobody was writing meanwhile, and its state."""
    before = regular(descriptor, name)
    for _ in range(_READS):
        data = read_exactly(descriptor, min(before.st_size, limit))
        after = os.fstat(descriptor)
        if stamp(after) == stamp(before) and len(data) == min(before.st_size, limit):
            return data, after
        before = after
    raise SkillError(f"{name} keeps changing while it is read", hint="try again when nothing writes to it")
