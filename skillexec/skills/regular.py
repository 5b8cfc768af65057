"""Reading one SKILL.md by its path, whatever it turns out to be: a pipe, a device, a folder."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from shlex import quote

from skillexec.errors import SkillError

FILE_NAMES = ("SKILL.md", "skill.md")
MAX_FILE = 8 << 20


def holds_skill(directory: Path) -> bool:
    """Whether there is a SKILL.md, or a skill.md; a link that leads nowhere is none."""
    return any(os.access(directory / name, os.F_OK) for name in FILE_NAMES)


def is_closed(directory: Path) -> bool:
    """Whether it is a folder whose files we may not even look for."""
    return directory.is_dir() and not os.access(directory, os.X_OK)


def skill_file(directory: Path) -> Path:
    """The folder's SKILL.md, or its skill.md."""
    for name in FILE_NAMES:
        if os.access(directory / name, os.F_OK):
            return directory / name
    if not os.access(directory, os.F_OK):
        raise SkillError(f"there is no {directory}", hint="name the folder that holds SKILL.md")
    if not stat.S_ISDIR(os.stat(directory).st_mode):
        raise SkillError(f"{directory} is not a folder", hint="name the folder that holds SKILL.md")
    if is_closed(directory):
        raise SkillError(f"{directory} can't be looked into", hint=f"chmod u+x {quote(str(directory))}")
    raise SkillError("there is no SKILL.md in the folder", hint="create it, with a name and a description")


def read_regular(path: Path, limit: int = MAX_FILE) -> bytes:
    """The first bytes of a regular file. Opening never waits, as a pipe's would."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise SkillError(f"{path.name} can't be opened: {error.strerror}") from error
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise SkillError(f"{path.name} is not a regular file", hint="replace it with one")
        with open(descriptor, "rb", closefd=False) as file:
            return file.read(limit)
    finally:
        os.close(descriptor)
