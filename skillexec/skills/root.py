"""One root: a folder whose immediate subfolders are skills, scanned safely and not twice.

Whatever a folder holds, it can cost only itself: what can't be read is listed as broken, with the reason, and the
rest still loads. Numbers and bytes are bounded, nothing waits, and no link leads out of the root.
"""

from __future__ import annotations

import gc
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from errno import ELOOP
from pathlib import Path
from shlex import quote
from typing import NamedTuple

from skillexec.errors import SkillError
from skillexec.model import Skill, Source
from skillexec.skills.beneath import FILE, FOLDER, Stamp, open_beneath, open_top, read_settled, stamp
from skillexec.skills.index import NEVER, About, Index, Row, index_file, row_skill, skill_row, write_index

FILES = ("SKILL.md", "skill.md")
MAX_FOLDERS = 20_000
MAX_BYTES = 256 << 20  # read of all SKILL.md together in one scan
# A file changed twice within one tick of the kernel's clock shows the same times: what changed this recently
# is not remembered as unchanged.
_RACY_NS = 50_000_000


@dataclass(frozen=True, slots=True)
class Broken:
    """A folder that means to be a skill and can't be used."""

    directory: Path
    file: str
    source: Source
    reason: str
    hint: str = ""


@dataclass(frozen=True, slots=True)
class Problem:
    """What went wrong with a root as a whole."""

    path: Path
    message: str
    hint: str = ""


class Listed(NamedTuple):
    """A skill as a list shows it. The whole of it is made when asked for: most of thousands never are."""

    row: Row
    root: Path
    source: Source
    fresh: Skill | None = None  # where it was read just now

    @property
    def name(self) -> str:
        return self.row.name or ""

    @property
    def description(self) -> str:
        return self.row.text

    @property
    def skill(self) -> Skill:
        return self.fresh or row_skill(self.row, self.root, self.source)


@dataclass(frozen=True, slots=True)
class RootScan:
    """What one root holds."""

    skills: tuple[Listed, ...] = ()
    broken: tuple[Broken, ...] = ()
    problems: tuple[Problem, ...] = ()


class _Full(Exception):
    """The scan has read as much as it may."""


@contextmanager
def _no_collection() -> Iterator[None]:
    """Thousands of values are made and none of them is garbage: looking for some takes a third of the time."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def file_stamp(path: str | Path, *, folder: int | None = None) -> Stamp | None:
    """The state of whatever is there, links not followed; None where nothing is."""
    try:
        return stamp(os.stat(path, dir_fd=folder, follow_symlinks=False))
    except OSError:
        return None


def _reason(folder: str, file: str, error: SkillError | OSError, state: Stamp = NEVER) -> Row:
    """What to remember of a folder that is broken."""
    if isinstance(error, SkillError):
        return Row(folder, file, state, None, error.message, error.hint)
    return Row(folder, file, state, None, f"can't be read: {error.strerror}", "")


@dataclass(slots=True)
class _Scanner:
    """One pass over one root, by way of its open folder."""

    folder: int
    path: Path
    source: Source
    known: Mapping[str, Row]
    started: int = field(default_factory=time.time_ns)
    bytes_left: int = MAX_BYTES
    fresh: dict[str, Skill] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)

    def rows(self) -> Iterator[Row]:
        """What to remember of every folder that holds a SKILL.md; `fresh` has the skills that were read."""
        for name, is_link in self._folders():
            try:
                row = (None if is_link else self._kept(name)) or self._read(name)
            except _Full:
                self._problem(
                    f"more than {MAX_BYTES >> 20} MiB of SKILL.md: those from {name} on are left out"
                )
                return
            if row is not None:
                yield row

    def settled(self, info: os.stat_result) -> Stamp:
        """The state to remember: none that could still change without showing it.

        A modification time ahead of the clock was put there, as by an archive from another time zone: then only the
        time of the last change counts, which nobody can set.
        """
        ahead = info.st_mtime_ns > self.started
        changed = info.st_ctime_ns if ahead else max(info.st_mtime_ns, info.st_ctime_ns)
        return stamp(info) if changed < self.started - _RACY_NS else NEVER

    def _problem(self, message: str) -> None:
        self.problems.append(Problem(self.path, message, hint="spread the skills over several roots"))

    def _folders(self) -> list[tuple[str, bool]]:
        """Names of folders and of links, which may be some, in an order that is always the same."""
        names: list[tuple[str, bool]] = []
        with os.scandir(self.folder) as entries:
            for entry in entries:
                is_link = entry.is_symlink()
                if is_link or entry.is_dir(follow_symlinks=False):
                    names.append((entry.name, is_link))
                if len(names) > MAX_FOLDERS:
                    self._problem(f"more than {MAX_FOLDERS} folders: the rest is left out")
                    break
        return sorted(names[:MAX_FOLDERS])

    def _kept(self, name: str) -> Row | None:
        """What the index knows, where the file is as it was."""
        row = self.known.get(name)
        if row is None or row.more is None:
            return None
        try:
            info = os.stat(f"{name}/{row.file}", dir_fd=self.folder, follow_symlinks=False)
        except OSError:
            return None
        if stamp(info) != row.stamp:
            return None
        upstaged = row.file != FILES[0] and file_stamp(f"{name}/{FILES[0]}", folder=self.folder)
        return None if upstaged else row

    def _read(self, name: str) -> Row | None:
        try:
            folder, resolved = open_beneath(self.folder, name, base=self.path, flags=FOLDER)
        except (FileNotFoundError, NotADirectoryError):
            return None  # gone meanwhile, or a link to a file
        except (OSError, SkillError) as error:
            return _reason(name, FILES[0], error)
        try:
            return self._read_folder(folder, name, resolved)
        finally:
            os.close(folder)

    def _read_folder(self, folder: int, name: str, resolved: str) -> Row | None:
        for file in FILES:
            try:
                descriptor = os.open(file, FILE, dir_fd=folder)
            except FileNotFoundError:
                continue
            except OSError as error:
                return _reason(name, file, SkillError(f"{file} is a link") if error.errno == ELOOP else error)
            try:
                return self._read_file(descriptor, name, file, resolved)
            except (OSError, SkillError) as error:
                return _reason(name, file, error)
            finally:
                os.close(descriptor)
        return None

    def _read_file(self, descriptor: int, name: str, file: str, resolved: str) -> Row:
        from skillexec.skills.frontmatter import PREFIX_BYTES
        from skillexec.skills.reading import read_skill

        data, info = read_settled(descriptor, file, limit=PREFIX_BYTES)
        self.bytes_left -= len(data)
        if self.bytes_left < 0:
            raise _Full
        state = self.settled(info) if resolved == name else NEVER
        try:
            skill = read_skill(data, directory=self.path / resolved, file=file, source=self.source)
        except SkillError as error:
            return _reason(name, file, error, state)
        self.fresh[name] = skill
        return skill_row(skill, name, state)


def _as_broken(root: Path, source: Source, row: Row) -> Broken:
    return Broken(root / row.folder, row.file, source, row.text, row.more or "")


def _scan(folder: int, path: Path, source: Source, known: Sequence[Row]) -> tuple[RootScan, list[Row], Stamp]:
    """What the root holds, what to remember of it, and the state of the folder when that was true."""
    scanner = _Scanner(folder, path, source, {row.folder: row for row in known})
    state = scanner.settled(os.fstat(folder))
    rows = list(scanner.rows())
    # Two of one name in one root: the folder that bears the name comes first.
    sound = sorted((row for row in rows if row.name is not None), key=lambda row: row.name != row.folder)
    fresh = scanner.fresh
    skills = tuple([Listed(row, path, source, fresh.get(row.folder)) for row in sound])
    broken = tuple(_as_broken(path, source, row) for row in rows if row.name is None)
    return RootScan(skills, broken, tuple(scanner.problems)), rows, state


def _scan_indexed(folder: int, path: Path, source: Source, file: Path, reader: str) -> RootScan:
    with Index.open(file, root=str(path), reader=reader) or nullcontext() as index:
        known = index.rows() if index else []
        scan, rows, state = _scan(folder, path, source, known)
        if index and rows == known and index.about.stamp == state:
            index.confirm()
            return scan
    write_index(file, About(str(path), state, reader), rows)
    return scan


def scan_root(path: Path, source: Source, *, cache: Path | None = None, reader: str = "") -> RootScan:
    """Everything in one root, in its present state. `cache` is the folder of indexes, `reader` our version."""
    try:
        folder = open_top(path)
    except OSError as error:
        hint = f"bring the folder back, or `skillexec root remove {quote(str(path))}`"
        return RootScan(problems=(Problem(path, f"the root can't be opened: {error.strerror}", hint),))
    try:
        with _no_collection():
            if cache is None:
                return _scan(folder, path, source, ())[0]
            return _scan_indexed(folder, path, source, index_file(cache, str(path)), reader)
    finally:
        os.close(folder)
