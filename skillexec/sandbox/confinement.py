"""What holds the script's process beyond the container: Landlock, limits, and a launcher out of reach.

System calls that Python has no name for go through ctypes; their numbers are the same on every
architecture that Landlock knows.
"""

from __future__ import annotations

import ctypes
import os
import resource
import signal
from collections.abc import Sequence

_PR_SET_DUMPABLE = 4
_PR_SET_NO_NEW_PRIVS = 38
_LANDLOCK_CREATE_RULESET, _LANDLOCK_ADD_RULE, _LANDLOCK_RESTRICT_SELF = 444, 445, 446
_LANDLOCK_VERSION = 1
_RULE_PATH_BENEATH = 1

# What counts as writing, by the ABI that brought it (linux/landlock.h).
_WRITE_FILE = 1 << 1
_REMOVE_AND_MAKE = 0x1FF0  # REMOVE_DIR, REMOVE_FILE, MAKE_CHAR ... MAKE_SYM: bits 4 to 12
_REFER = 1 << 13  # ABI 2
_TRUNCATE = 1 << 14  # ABI 3
_SCOPE_ABSTRACT_SOCKETS, _SCOPE_SIGNALS = 1, 2  # ABI 6
# ABI 1 forbids every rename between folders, which breaks ordinary programs such as git.
_LEAST_ABI = 2

_SIGSET_BYTES = 128  # sigset_t of glibc and musl
_SFD_FLAGS = os.O_NONBLOCK | os.O_CLOEXEC


class _Ruleset(ctypes.Structure):
    _fields_ = (("fs", ctypes.c_uint64), ("net", ctypes.c_uint64), ("scoped", ctypes.c_uint64))


class _PathBeneath(ctypes.Structure):
    _pack_ = 1
    _fields_ = (("allowed", ctypes.c_uint64), ("parent", ctypes.c_int32))


_libc = ctypes.CDLL(None, use_errno=True)


def _syscall(number: int, *arguments: object) -> int:
    result: int = _libc.syscall(ctypes.c_long(number), *arguments)
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result


def _prctl(option: int, value: int) -> None:
    if _libc.prctl(option, ctypes.c_ulong(value), *[ctypes.c_ulong(0)] * 3):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def hide() -> None:
    """Nobody of the same user may trace this process or open its memory and descriptors."""
    _prctl(_PR_SET_DUMPABLE, 0)


def show() -> None:
    """It is the script's own from here on; also opens /proc/self to it."""
    _prctl(_PR_SET_DUMPABLE, 1)


def out_of_reach() -> None:
    """For the launcher: hidden, no new privileges, and deaf to a script's signals."""
    hide()
    _prctl(_PR_SET_NO_NEW_PRIVS, 1)
    # A script may signal PID 1. What has no handler is dropped by the kernel, and Python's only
    # one is for SIGINT.
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def child_signals() -> int:
    """A descriptor that turns readable when a child ended: no handler that could be abused."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
    mask = ctypes.create_string_buffer(_SIGSET_BYTES)
    mask[(signal.SIGCHLD - 1) // 8] = bytes([1 << (signal.SIGCHLD - 1) % 8])
    fd: int = _libc.signalfd(-1, mask, _SFD_FLAGS)
    if fd < 0:
        raise OSError(ctypes.get_errno(), "signalfd")
    return fd


def _table(name: str) -> list[list[str]]:
    try:
        with open("/proc/net/" + name, encoding="ascii") as file:
            return [line.split() for line in file]
    except OSError:
        return []  # a kernel without IPv6 has no table of its routes


def network() -> list[str]:
    """What there is of a network besides `lo`: the host refuses a container that sees any.

    From inside, where no setting can pretend. Without a list of interfaces nothing is known.
    """
    interfaces = [row[0].partition(":")[0] for row in _table("dev")[2:]] or ["unknown"]
    interfaces = [name for name in interfaces if name != "lo" and _is_up(name)]
    routes = ["route:" + row[0] for row in _table("route")[1:]]
    routes += ["route6:" + row[-1] for row in _table("ipv6_route") if row[-1] != "lo"]
    return interfaces[:16] + routes[:16]


def _is_up(interface: str) -> bool:
    """Some kernels put tunnel devices that lead nowhere into every namespace, never up. In doubt it is up."""
    try:
        with open(f"/sys/class/net/{interface}/flags", encoding="ascii") as file:
            return bool(int(file.read(), 16) & 1)
    except (OSError, ValueError):
        return True


def landlock_abi() -> int:
    """The ABI that will be used; 0 where the kernel has none that is fit."""
    try:
        abi = _syscall(_LANDLOCK_CREATE_RULESET, None, ctypes.c_size_t(0), ctypes.c_uint32(_LANDLOCK_VERSION))
    except OSError:
        return 0
    return abi if abi >= _LEAST_ABI else 0


class Landlock:
    """Rules made ahead of the run: writing only beneath the given folders, signals only to one's own."""

    def __init__(self, abi: int, writable: Sequence[str]) -> None:
        writing = _WRITE_FILE | _REMOVE_AND_MAKE | _REFER | (_TRUNCATE if abi >= 3 else 0)
        scope = _SCOPE_ABSTRACT_SOCKETS | _SCOPE_SIGNALS if abi >= 6 else 0
        rules = _Ruleset(fs=writing, net=0, scoped=scope)
        size = ctypes.sizeof(rules) if abi >= 6 else 8
        self._fd = _syscall(
            _LANDLOCK_CREATE_RULESET, ctypes.byref(rules), ctypes.c_size_t(size), ctypes.c_uint32(0)
        )
        for folder in writable:
            self._allow(folder, writing)

    def _allow(self, folder: str, rights: int) -> None:
        parent = os.open(folder, os.O_PATH | os.O_CLOEXEC)
        rule = _PathBeneath(allowed=rights, parent=parent)
        _syscall(
            _LANDLOCK_ADD_RULE,
            ctypes.c_int(self._fd),
            ctypes.c_int(_RULE_PATH_BENEATH),
            ctypes.byref(rule),
            ctypes.c_uint32(0),
        )
        os.close(parent)

    def restrict_self(self) -> None:
        """For this process and all that it starts, for good."""
        _syscall(_LANDLOCK_RESTRICT_SELF, ctypes.c_int(self._fd), ctypes.c_uint32(0))


def _die_first() -> None:
    """When memory runs out the kernel ends the script, and the launcher lives to tell."""
    try:
        fd = os.open("/proc/self/oom_score_adj", os.O_WRONLY)
    except OSError:
        return  # no proc to write to: then the largest process dies, which is the script in practice
    os.write(fd, b"1000")
    os.close(fd)


def _lower(limit: int, value: int) -> None:
    hard = resource.getrlimit(limit)[1]
    value = value if hard == resource.RLIM_INFINITY else min(value, hard)
    resource.setrlimit(limit, (value, value))


def confine(landlock: Landlock | None) -> None:
    """Called in the process that will become the script, ahead of its job."""
    show()  # to write to /proc/self
    _die_first()
    _lower(resource.RLIMIT_CORE, 0)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    if landlock is not None:
        landlock.restrict_self()


def limit(*, file_size: int, open_files: int) -> None:
    """What the job says on top."""
    _lower(resource.RLIMIT_FSIZE, file_size)
    _lower(resource.RLIMIT_NOFILE, open_files)
