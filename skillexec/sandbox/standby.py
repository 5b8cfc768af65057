"""The script's process, made before there is a script: it waits, already confined, until it is told what to become.

There are two of them. One stands in for a fresh `python3`. A fork shares its parent's memory until one of the two
writes to it, and Python writes to nearly all of its memory (reference counts): a fork made when the job is there
spends most of a short run on page faults. So it is made ahead, and takes its own copy of every page while nobody
waits for it. The other one executes any other program, and has as little memory as can be: all of it has to be
given back first, which for the stand-in takes as long as a short script does.

The one that is not needed waits on, hidden from the script as the launcher is, until all is over.
"""

from __future__ import annotations

import ctypes
import marshal
import os
import signal
from typing import NamedTuple

from . import confinement, interpreter
from .program import Program
from .supervision import Child
from .task import Refused

NO_SCRIPT = 126  # seen by nobody: the failure pipe says more
DESCRIPTORS = 256  # more than the launcher ever holds
_LENGTH = 8
_POPULATE_READ, _POPULATE_WRITE = 22, 23  # madvise(2), Linux 5.14


class Start(NamedTuple):
    """All that the process needs to become the script."""

    program: Program
    env: dict[bytes, bytes]
    stdin: bool  # whether anything is written to it; else it is /dev/null
    file_size: int
    open_files: int
    stand_in: bool  # this very interpreter instead of a new program


class Place(NamedTuple):
    """Where the launcher's own code is, which a script must not see."""

    package: str
    folder: str


def _packed(start: Start) -> bytes:
    order = marshal.dumps((tuple(start.program), *start[1:]))
    return len(order).to_bytes(_LENGTH, "big") + order


def _read_exactly(fd: int, size: int) -> bytes:
    data = b""
    while len(data) < size:
        piece = os.read(fd, size - len(data))
        if not piece:
            os._exit(NO_SCRIPT)  # the launcher is gone, or has no job for us
        data += piece
    return data


def _await_order(fd: int) -> Start:
    size = int.from_bytes(_read_exactly(fd, _LENGTH), "big")
    program, *rest = marshal.loads(_read_exactly(fd, size))  # noqa: S302 - from the launcher, over a pipe of its own
    os.close(fd)
    return Start(Program(*program), *rest)


def map_in(*, own: bool) -> None:
    """Maps in all code and data; `own`: with a copy of every page that is shared with another process. Where the kernel
    can't, it happens later, page by page."""
    libc = ctypes.CDLL(None)
    with open("/proc/self/maps", "rb") as maps:
        lines = maps.read().splitlines()
    for line in lines:
        span, rights = line.split(None, 2)[:2]
        first, last = (int(end, 16) for end in span.split(b"-"))
        advice = _POPULATE_WRITE if own and rights == b"rw-p" else _POPULATE_READ
        libc.madvise(ctypes.c_void_p(first), ctypes.c_size_t(last - first), advice)


def _execute(start: Start) -> None:
    for ignored_by_python in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(ignored_by_python, signal.SIG_DFL)
    os.execve(start.program.path, start.program.argv, start.env)  # noqa: S606 - no shell is the point


def _settle(
    streams: tuple[int, int, int],
    keep: tuple[int, int],
    landlock: confinement.Landlock | None,
    *,
    stand_in: bool,
) -> None:
    """Everything that does not depend on the job."""
    for number, fd in enumerate(streams):
        os.dup2(fd, number)
    os.setsid()
    os.umask(0o022)
    confinement.confine(landlock)
    low, high = sorted(keep)
    os.closerange(3, low)
    os.closerange(low + 1, high)
    os.closerange(high + 1, DESCRIPTORS)
    if stand_in:
        map_in(own=True)
    confinement.hide()


def _become(start: Start, place: Place) -> None:
    confinement.show()
    confinement.limit(file_size=start.file_size, open_files=start.open_files)
    if not start.stdin:
        nothing = os.open("/dev/null", os.O_RDONLY)
        os.dup2(nothing, 0)
        os.close(nothing)
    if not start.stand_in:
        _execute(start)
    interpreter.hand_over(start.program, start.env, package=place.package, folder=place.folder)


def _stand_by(
    orders: int,
    streams: tuple[int, int, int],
    failure: int,
    landlock: confinement.Landlock | None,
    place: Place,
    *,
    stand_in: bool,
) -> None:
    """In the child; does not return. Handover passes, everything else goes into the failure pipe."""
    try:
        _settle(streams, (orders, failure), landlock, stand_in=stand_in)
        _become(_await_order(orders), place)
    except interpreter.Handover:
        os.close(failure)
        raise
    except BaseException as error:  # noqa: BLE001 - a child must never run the parent's code
        words = f"the script could not be started: {error}"[:1000]
        os.write(failure, words.encode("utf-8", "backslashreplace"))
        os._exit(NO_SCRIPT)


class Standby:
    """The launcher's hold on the waiting process."""

    def __init__(self, landlock: confinement.Landlock | None, place: Place, *, stand_in: bool) -> None:
        orders, self._orders = os.pipe()
        stdin, self._stdin = os.pipe()
        self._out, out = os.pipe()
        self._err, err = os.pipe()
        self._failure, failure = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            _stand_by(orders, (stdin, out, err), failure, landlock, place, stand_in=stand_in)
        for fd in (orders, stdin, out, err, failure):
            os.close(fd)

    def begin(self, start: Start) -> Child:
        """Tell it what to become. From here on it is the script's."""
        try:
            order = memoryview(_packed(start))
            while order:
                order = order[os.write(self._orders, order) :]
        except BrokenPipeError:
            raise Refused("the process that waited for the script is gone") from None
        os.close(self._orders)
        if not start.stdin:
            os.close(self._stdin)
        return Child(self.pid, self._out, self._err, self._failure, self._stdin if start.stdin else None)
