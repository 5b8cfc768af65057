"""Finds out what to start: by shebang, then by extension; a module; or a tool of the image."""

from __future__ import annotations

import os
import stat
from typing import NamedTuple

from .task import Refused, Task
from .unpack import safe_parts

SHEBANG_MAX = 1024
EXTENSIONS: dict[bytes, tuple[tuple[bytes, ...], ...]] = {
    b".py": ((b"python3",),),
    b".sh": ((b"bash",), (b"sh",)),  # scripts without a shebang use bash's language more often than not
    b".bash": ((b"bash",),),
    b".js": ((b"node",),),
    b".mjs": ((b"node",),),
    b".cjs": ((b"node",),),
    b".ts": ((b"tsx",), (b"bun",), (b"deno", b"run")),
}
# Names that shebangs use and that the image knows by another.
OTHER_NAMES = {b"python": b"python3", b"nodejs": b"node"}


class Program(NamedTuple):
    """What to execute. `python` is how many leading words of argv are the interpreter's own
    where it is a plain `python3` (1: a script follows, 2: `-m` and a module), else 0."""

    path: bytes
    argv: tuple[bytes, ...]
    python: int = 0


def which(name: bytes, path: bytes) -> bytes | None:
    """The executable of that name on PATH."""
    if not name or b"/" in name:
        return None
    for folder in path.split(b":"):
        candidate = (folder or b".") + b"/" + name
        if folder.startswith(b"/") and _executable(candidate):
            return candidate
    return None


def _executable(path: bytes) -> bool:
    try:
        return stat.S_ISREG(os.stat(path).st_mode) and os.access(path, os.X_OK)
    except OSError:
        return False


def shebang(path: bytes) -> list[bytes]:
    """The words of the first line where it is a shebang; Windows line ends are fine."""
    with open(path, "rb", buffering=0) as file:
        head = file.read(SHEBANG_MAX)
    if not head.startswith(b"#!"):
        return []
    return head[2:].split(b"\n", 1)[0].split()


def _named(words: list[bytes]) -> list[bytes]:
    """The interpreter and its options, without `env` in front."""
    if words and os.path.basename(words[0]) == b"env":
        rest = words[1:]
        if rest and rest[0] in (b"-S", b"--split-string"):
            return rest[1:]
        if rest and rest[0].startswith(b"-S"):
            return [rest[0][2:], *rest[1:]]
        return rest
    return words


def _interpreter(words: list[bytes], path: bytes) -> Program | None:
    """The program that a shebang means, if this image has it."""
    named = _named(words)
    if not named or b"=" in named[0]:
        return None
    name = os.path.basename(named[0])
    if named[0].startswith(b"/") and _executable(named[0]):
        return Program(named[0], tuple(named))
    for candidate in (name, OTHER_NAMES.get(name, b"")):
        found = which(candidate, path)
        if found:
            return Program(found, (candidate, *named[1:]))
    return None


def _by_extension(name: bytes, path: bytes) -> Program | None:
    _, extension = os.path.splitext(name)
    for words in EXTENSIONS.get(extension.lower(), ()):
        found = which(words[0], path)
        if found:
            return Program(found, words)
    return None


def _is_plain_python(program: Program, path: bytes) -> bool:
    if len(program.argv) != 1:
        return False
    return os.path.basename(program.path) == b"python3" and program.path == which(b"python3", path)


def _script(task: Task, root: bytes, path: bytes) -> Program:
    target = os.fsencode(task.target)
    full = root + b"/" + b"/".join(safe_parts(target))
    try:
        regular = stat.S_ISREG(os.lstat(full).st_mode)
    except OSError:
        regular = False
    if not regular:
        raise Refused(f"no such script in the skill: {task.target[:200]!a}")
    words = shebang(full)
    program = _interpreter(words, path) or _by_extension(target, path)
    if program is None:
        raise Refused(_no_interpreter(task.target, words))
    shown = b"./" + target if target.startswith(b"-") else target
    plain = _is_plain_python(program, path)
    return Program(program.path, (*program.argv, shown, *task.args), python=1 if plain else 0)


def _no_interpreter(target: str, words: list[bytes]) -> str:
    if words:
        wanted = b" ".join(words)[:200].decode("utf-8", "backslashreplace")
        return f"the image has no interpreter for {target[:200]!a}: its first line asks for {wanted!a}"
    return f"no interpreter known for {target[:200]!a}: it has neither a shebang nor a known extension"


def _module(task: Task, path: bytes) -> Program:
    names = task.target.split(".")
    if not all(name.isidentifier() for name in names):
        raise Refused(f"not the name of a module: {task.target[:200]!a}")
    found = which(b"python3", path)
    if found is None:
        raise Refused("the image has no python3")
    return Program(found, (b"python3", b"-m", os.fsencode(task.target), *task.args), python=2)


def _tool(task: Task, path: bytes) -> Program:
    name = os.fsencode(task.target)
    found = which(name, path)
    if found is None or name.startswith(b"-"):
        raise Refused(f"the image has no tool {task.target[:200]!a}")
    words = shebang(found) if os.access(found, os.R_OK) else []
    program = _interpreter(words, path) if words else None
    if program is not None and _is_plain_python(program, path):
        # What the kernel would make of the tool's own first line.
        return Program(program.path, (*program.argv, found, *task.args), python=1)
    return Program(found, (name, *task.args))


def find(task: Task, root: bytes, path: bytes) -> Program:
    """What to execute for a task whose bundle lies under `root`, or Refused."""
    try:
        if task.kind == "module":
            return _module(task, path)
        if task.kind == "tool":
            return _tool(task, path)
        return _script(task, root, path)
    except UnicodeEncodeError:
        raise Refused("the target holds a character that no byte stands for") from None
