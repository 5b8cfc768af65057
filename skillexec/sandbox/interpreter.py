"""Lets a forked copy of the launcher's interpreter run a script as if `python3` had just started it.

Starting Python takes longer than most scripts; a fork takes a tenth. The script can't tell, because
it is run by the same C function that `python3 FILE` ends in, with no Python frame beneath it. That is
done with documented means only: the child raises Handover, which unwinds every frame of the launcher;
the interpreter then calls `sys.excepthook`, which is a ctypes function, `PyRun_SimpleFileEx`. From
there on tracebacks, `SystemExit`, `KeyboardInterrupt`, threads, `atexit` and flushing are CPython's own.
"""

from __future__ import annotations

import ctypes
import gc
import io
import os
import signal
import sys
from collections.abc import Callable, Mapping
from types import ModuleType, TracebackType
from typing import Any

from .program import Program, which

# Imported ahead for the script: what most of them use, nothing that acts when imported. Each module
# makes the end of every run a little slower (its memory is touched, so copied), hence no more than these.
PRELOADED = ("argparse", "collections", "datetime", "json", "os", "pathlib", "re", "typing")
# Variables that a Python reads when it starts, so that a running one can't follow them.
_READ_AT_START = (b"PYTHON", b"LC_", b"LANG", b"HOME", b"TZ", b"PATH", b"LD_", b"GLIBC_", b"MALLOC_")


class Handover(BaseException):
    """Unwinds the launcher's frames in the child; never seen by anybody."""


def preload() -> None:
    """Imports PRELOADED, while no run is waiting for it."""
    for name in PRELOADED:
        __import__(name)
    # What is here now outlives every collection: a fork that visits it would copy all of its memory.
    gc.collect()
    gc.freeze()


def is_ordinary(env: Mapping[bytes, bytes]) -> bool:
    """Whether this interpreter started as a plain `python3` would in the script's environment."""
    mine = os.environb
    alike = all(mine.get(name) == env.get(name) for name in (b"PATH", b"HOME", b"LANG"))
    extra = any(name.startswith(_READ_AT_START) and name not in env for name in mine)
    options = (sys.flags.isolated, sys.flags.no_site, sys.flags.dont_write_bytecode, sys.flags.utf8_mode)
    found = which(b"python3", env[b"PATH"]) == os.fsencode(sys.executable)
    return alike and found and not extra and not any(options)


def can_stand_in(program: Program, env: Mapping[bytes, bytes], started_with: frozenset[str]) -> bool:
    """Whether a fork would behave as the program: same interpreter, nothing read only at start,
    and no file beside the script that a fresh Python would import in place of what is loaded here."""
    if not program.python or program.path != os.fsencode(sys.executable):
        return False
    if any(name.startswith(_READ_AT_START) for name in env):
        return False
    loaded = {name.partition(".")[0] for name in sys.modules} - started_with
    beside = {name.partition(".")[0] for name in os.listdir(_first_path(program))}
    return not loaded & beside


def _first_path(program: Program) -> str:
    """What `sys.path[0]` will be."""
    if program.python == 2:
        return os.getcwd()
    return os.path.dirname(os.path.realpath(os.fsdecode(program.argv[1])))


def _standard_stream(fd: int, name: str, mode: str, errors: str) -> io.TextIOWrapper:
    """As `create_stdio` of CPython's pylifecycle.c makes them."""
    binary = open(fd, mode + "b", closefd=False)  # noqa: SIM115 - it lives as long as the process
    raw = binary.raw  # type: ignore[attr-defined]
    raw.name = name
    text = io.TextIOWrapper(
        binary, encoding="utf-8", errors=errors, newline="\n", line_buffering=name == "<stderr>"
    )
    text.mode = mode  # type: ignore[misc]
    return text


def _renew_streams() -> None:
    lenient = sys.stdin.errors or "strict"  # set at start by the locale, alike for stdin and stdout
    sys.stdin = sys.__stdin__ = _standard_stream(0, "<stdin>", "r", lenient)  # type: ignore[misc]
    sys.stdout = sys.__stdout__ = _standard_stream(1, "<stdout>", "w", lenient)  # type: ignore[misc]
    sys.stderr = sys.__stderr__ = _standard_stream(2, "<stderr>", "w", "backslashreplace")  # type: ignore[misc]


def _renew_main() -> None:
    """A `__main__` as the interpreter makes it before it runs anything, the order of names included."""
    main = ModuleType("__main__")
    loader = sys.modules["_frozen_importlib"].BuiltinImporter
    vars(main).update(__loader__=loader, __annotations__={}, __builtins__=sys.modules["builtins"])
    sys.modules["__main__"] = main


def _forget_launcher(package: str, folder: str) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == package]:
        del sys.modules[name]
    for path in [path for path in sys.path_importer_cache if path.startswith(folder)]:
        del sys.path_importer_cache[path]


def _set_environment(env: Mapping[bytes, bytes]) -> None:
    os.environ.clear()
    for name, value in env.items():
        os.environb[name] = value


def _forget_frames(traceback: TracebackType | None) -> None:
    """Frees what the launcher's frames held; the traceback itself is the caller's for as long as
    the script runs."""
    for name in ("last_type", "last_value", "last_traceback", "last_exc"):
        sys.__dict__.pop(name, None)
    while traceback is not None:
        traceback.tb_frame.clear()
        traceback = traceback.tb_next


class _Argument:
    """An argument of the C call, made when the hook is called, whatever it is called with."""

    def __init__(self, make: Callable[[object], object]) -> None:
        self.from_param = make


def _exit_if_ended(result: int, *_: object) -> int:
    """0: the script came to its end. Else its exception is printed already, and Python, on its way
    out of the hook, does what it does after an unhandled exception."""
    if result == 0:
        raise SystemExit(0)
    return result


def _take_over(_: object) -> ctypes.c_int:
    sys.excepthook = sys.__excepthook__
    return ctypes.c_int(1)  # closeit


def _file_hook(path: str) -> Callable[..., object]:
    """PyRun_SimpleFileEx(file, name, closeit), which takes three arguments as an excepthook does."""
    libc = ctypes.CDLL(None)
    libc.fopen.restype = ctypes.c_void_p
    file = libc.fopen(os.fsencode(path), b"rbe")
    if not file:
        raise OSError(f"can't open {path!a}")
    run: Any = ctypes.pythonapi.PyRun_SimpleFileEx
    run.argtypes = [
        _Argument(lambda _: ctypes.c_void_p(file)),
        _Argument(lambda _: ctypes.c_char_p(os.fsencode(path))),
        _Argument(_last_preparation),
    ]
    run.errcheck = _exit_if_ended
    hook: Callable[..., object] = run
    return hook


def _last_preparation(traceback: object) -> ctypes.c_int:
    _forget_frames(traceback)  # type: ignore[arg-type]
    # Calling a hook counts as one level of recursion, which a script started by python3 does not have.
    ctypes.pythonapi.Py_LeaveRecursiveCall()
    return _take_over(None)


def _module_hook(name: str) -> Callable[..., object]:
    """What `python3 -m NAME` does; here one frame of ours stays beneath runpy's."""

    def run(_type: object, _value: object, traceback: TracebackType) -> None:
        import runpy

        _forget_frames(traceback)
        _take_over(None)
        try:
            runpy._run_module_as_main(name)  # type: ignore[attr-defined]
        except SystemExit:
            raise
        except BaseException as error:  # noqa: BLE001 - as the interpreter's own top level
            _show(error)
        else:
            raise SystemExit(0)

    return run


def _show(error: BaseException) -> None:
    own = error.__traceback__
    error.__traceback__ = own.tb_next if own else None
    sys.excepthook(type(error), error, error.__traceback__)
    if isinstance(error, KeyboardInterrupt):
        # Makes the interpreter end itself by SIGINT in the end, as it does after an unhandled one.
        sys.excepthook = lambda *_: None
        ctypes.pythonapi.PyRun_SimpleString(b"raise KeyboardInterrupt")


def hand_over(program: Program, env: Mapping[bytes, bytes], *, package: str, folder: str) -> None:
    """Turns this forked process into the program. Raises Handover, which the caller must let pass."""
    words = [os.fsdecode(word) for word in program.argv]
    first = _first_path(program)
    _set_environment(env)
    _renew_streams()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.path.insert(0, first)
    sys.orig_argv = words
    if program.python == 1:
        sys.argv[:] = words[1:]
        sys.excepthook = _file_hook(os.path.abspath(words[1]))
    else:
        sys.argv[:] = ["-m", *words[3:]]
        sys.excepthook = _module_hook(words[2])
    _renew_main()
    _forget_launcher(package, folder)
    raise Handover
