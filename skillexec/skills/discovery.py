"""Which skills there are: ordered roots, most trusted first; the first skill of a name wins.

A full scan looks at every folder and reads those whose SKILL.md is not as the index knows it. A lookup by name
(`Library.find`) trusts the index for the rest, and looks only at

- every root folder: unchanged, so that no skill came, went or was renamed;
- the SKILL.md asked for: unchanged, in the folder of its own name;
- the folder of that name in every root that comes before: still without a SKILL.md;
- when all files were last compared: less than a minute ago.

If any of these fails, it scans. So what it returns is unchanged since it was read, and was the first of its name
at the last comparison. What it may miss for that minute is a *more trusted* skill, in a folder of another name,
whose SKILL.md was edited to claim this name; never can a less trusted one take over. A run binds to the source
and takes its own bundle and digest after that, so a stale answer can't change what may run.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from shlex import quote

from skillexec.errors import SkillError, SkillUnknown
from skillexec.model import Skill, Source
from skillexec.skills.beneath import stamp
from skillexec.skills.index import Index, Row, index_file, reader_version, row_skill
from skillexec.skills.root import FILES, Broken, Listed, Problem, RootScan, file_stamp, scan_root

PROJECT_FOLDERS = (".skillexec/skills", ".agents/skills", ".claude/skills")
FRESH_SECONDS = 60.0

Roots = Sequence[tuple[Path, Source]]


@dataclass(frozen=True, slots=True)
class Collision:
    """A skill that is not used because another of its name comes first."""

    name: str
    kept: Skill
    shadowed: Skill


class Shelf(Mapping[str, Skill]):
    """Skills by name, in the order in which roots and folders come. Each is made when it is looked at."""

    def __init__(self, listed: Mapping[str, Listed]) -> None:
        self._listed = listed

    def __getitem__(self, name: str) -> Skill:
        return self._listed[name].skill

    def __iter__(self) -> Iterator[str]:
        return iter(self._listed)

    def __len__(self) -> int:
        return len(self._listed)


@dataclass(frozen=True, slots=True)
class Skills:
    """What a scan found. `listed` has name, description and source of each at next to no cost."""

    listed: tuple[Listed, ...] = ()
    skills: Shelf = field(default_factory=lambda: Shelf({}))
    collisions: tuple[Collision, ...] = ()
    broken: tuple[Broken, ...] = ()
    problems: tuple[Problem, ...] = ()

    def get(self, name: str) -> Skill:
        """The skill of this name, or an error that says what there is instead."""
        if name in self.skills:
            return self.skills[name]
        for broken in self.broken:
            if broken.directory.name == name:
                raise SkillError(
                    f"{broken.directory / broken.file} can't be used: {broken.reason}",
                    hint=broken.hint or f"mend it: `skillexec skill validate {quote(str(broken.directory))}`",
                )
        raise SkillUnknown(f"no skill {name!r}", hint=self._hint(name))

    def _hint(self, name: str) -> str:
        from difflib import get_close_matches

        near = get_close_matches(name, self.skills, n=3)
        return f"did you mean {' or '.join(near)}?" if near else "`skillexec skill list` shows what there is"


def project_roots(
    project: Path, trusted: Collection[Path]
) -> tuple[list[tuple[Path, Source]], list[Problem]]:
    """The folders of a project that hold skills, as trusted as the project is; and those that lead out of it."""
    real = Path(os.path.realpath(project))  # pathlib's own raises where links go in a circle
    if not os.access(real, os.X_OK):
        return [], [Problem(real, "the project can't be looked into", "go to a folder that you may read")]
    source = Source.USER if real in trusted else Source.THIRD_PARTY
    roots: list[tuple[Path, Source]] = []
    problems: list[Problem] = []
    for folder in (real / name for name in PROJECT_FOLDERS):
        try:
            target = folder.resolve() if folder.is_dir() else None
        except OSError as error:
            problems.append(
                Problem(folder, f"can't be looked into: {error.strerror}", "check who may read it")
            )
            continue
        if target is not None and not target.is_relative_to(real):
            message = f"a link out of the project, to {target}: left out"
            problems.append(
                Problem(folder, message, f"`skillexec root add {quote(str(target))} --source user`")
            )
        elif target is not None:
            roots.append((folder, source))
    return roots, problems


def _distinct(roots: Roots) -> list[tuple[Path, Source, os.stat_result | None]]:
    """Each folder once, with its state where there is one."""
    seen: set[tuple[int, int]] = set()
    found: list[tuple[Path, Source, os.stat_result | None]] = []
    for path, source in roots:
        try:
            info = os.stat(path)
        except OSError:
            found.append((path, source, None))
            continue
        if (info.st_dev, info.st_ino) not in seen:
            seen.add((info.st_dev, info.st_ino))
            found.append((path, source, info))
    return found


def _merged(scans: Iterable[RootScan]) -> Skills:
    listed: dict[str, Listed] = {}
    collisions: list[Collision] = []
    broken: list[Broken] = []
    problems: list[Problem] = []
    for scan in scans:
        for one in scan.skills:
            kept = listed.setdefault(one.name, one)
            # A link to another folder of the same root is that folder, and shadows nothing.
            if kept is not one and kept.skill.directory != one.skill.directory:
                collisions.append(Collision(one.name, kept.skill, one.skill))
        broken += scan.broken
        problems += scan.problems
    return Skills(tuple(listed.values()), Shelf(listed), tuple(collisions), tuple(broken), tuple(problems))


class Library:
    """The skills of some roots, and of a project where there is one.

    `trusted` are projects whose skills count as the user's own; `cache` is a folder of ours where indexes are kept,
    and without it nothing is.
    """

    def __init__(
        self,
        roots: Roots,
        *,
        project: Path | None = None,
        trusted: Collection[Path] = (),
        cache: Path | None = None,
    ) -> None:
        below, self._problems = project_roots(project, trusted) if project else ([], [])
        self.roots = tuple(sorted([*roots, *below], key=lambda root: root[1].rank))
        self.cache = cache if cache is not None and cache.is_dir() else None

    def scan(self) -> Skills:
        """Everything there is, in its present state."""
        reader = reader_version() if self.cache else ""
        scans = [
            scan_root(path, source, cache=self.cache, reader=reader)
            for path, source, _ in _distinct(self.roots)
        ]
        return _merged([*scans, RootScan(problems=tuple(self._problems))])

    def find(self, names: Iterable[str]) -> list[Skill]:
        """The skills of these names, in this order. Costs the same among fifty and five thousand."""
        wanted = list(names)
        found = self._indexed(wanted)
        if found is None:
            everything = self.scan()
            found = [everything.get(name) for name in wanted]
        return found

    def get(self, name: str) -> Skill:
        """The skill of this name."""
        return self.find([name])[0]

    def _indexed(self, names: Sequence[str]) -> list[Skill] | None:
        """What the indexes say, where they can be believed about all of these names."""
        if self.cache is None:
            return None
        found: dict[str, Skill] = {}
        ahead: list[Path] = []
        reader = reader_version()
        for path, source, info in _distinct(self.roots):
            if info is None:
                continue  # a root that is not there has no skills
            missing = [name for name in names if name not in found]
            index = Index.open(index_file(self.cache, str(path)), root=str(path), reader=reader)
            if index is None:
                return None
            with index:
                root = _IndexedRoot(index, path, source, tuple(ahead))
                answered = root.lookup(missing, info)
            if answered is None:
                return None
            found.update(answered)
            ahead.append(path)
        return [found[name] for name in names] if all(name in found for name in names) else None


@dataclass(frozen=True, slots=True)
class _IndexedRoot:
    """A root as its index knows it, and the roots that come before it."""

    index: Index
    path: Path
    source: Source
    ahead: tuple[Path, ...]

    def lookup(self, names: Sequence[str], info: os.stat_result) -> dict[str, Skill] | None:
        """Those of the names that are here; None where the index can't be believed about one of them."""
        if self.index.about.stamp != stamp(info) or self.index.age > FRESH_SECONDS:
            return None
        found: dict[str, Skill] = {}
        for name in names:
            rows = self.index.lookup(name)
            if rows == []:
                continue
            own = next((row for row in rows or () if row.folder == name), None)
            if own is None or own.more is None or not self._unchanged(own):
                return None  # damaged, changed, or claimed by a folder of another name: a scan decides
            found[name] = row_skill(own, self.path, self.source)
        return found

    def _unchanged(self, row: Row) -> bool:
        here = self.path / row.folder
        if file_stamp(here / row.file) != row.stamp or (row.file != FILES[0] and file_stamp(here / FILES[0])):
            return False
        return not any(file_stamp(root / row.folder / name) for root in self.ahead for name in FILES)
