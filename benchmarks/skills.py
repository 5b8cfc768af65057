"""Skills: listing, lookup and start-up as ratios, each measured side by side in one run.

python -m benchmarks.skills
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from benchmarks.measure import Row, in_turns, print_rows, ratio_row, speedup_row
from skillexec.model import Source
from skillexec.skills.discovery import Library
from skillexec.skills.prompt import render_prompt

MANY, FEW, TEN = 5_000, 50, 10
_TEXT = """---
name: {name}
description: Turns input number {number} into a table. Use it when somebody asks for table {number}.
license: Apache-2.0
allowed-tools: Bash(git:*) Read
metadata:
  author: somebody
  version: "1.0"
---
# Instructions

{body}
"""


def _make(root: Path, count: int) -> Path:
    for number in range(count):
        name = f"skill-{number:04}"
        (root / name).mkdir(parents=True)
        text = _TEXT.format(name=name, number=number, body="One more line of instructions.\n" * 100)
        (root / name / "SKILL.md").write_text(text)
    time.sleep(0.1)  # files this fresh would not be remembered as unchanged
    return root


def _list(library: Library) -> int:
    """A list as a person sees it: every name and description."""
    return sum(len(one.name) + len(one.description) for one in library.scan().listed)


def _listing(base: Path, root: Path) -> Iterator[Row]:
    from skills_ref import read_properties

    def first() -> int:
        with tempfile.TemporaryDirectory(dir=base) as cache:
            return _list(Library([(root, Source.ORG)], cache=Path(cache)))

    kept = base / "kept"
    kept.mkdir(mode=0o700)
    library = Library([(root, Source.ORG)], cache=kept)
    _list(library)
    folders = sorted(root.iterdir())
    works: dict[str, Callable[[], object]] = {
        "reference": lambda: [read_properties(folder) for folder in folders],
        "first": first,
        "second": lambda: _list(library),
    }
    taken = in_turns(works, rounds=5, warm_up=0)
    once, again = taken["first"], taken["second"]
    yield speedup_row(f"list {MANY}: first time, against skills-ref", once, taken["reference"], least=10)
    yield speedup_row(f"list {MANY}: second time, against our first", again, once, least=10)


def _lookup(base: Path, many: Path, few: Path) -> Iterator[Row]:
    cache = base / "lookup"
    cache.mkdir(mode=0o700)
    names = {
        many: [f"skill-{n:04}" for n in (3, 900, 2500, 4000, 4999)],
        few: [f"skill-{n:04}" for n in range(5)],
    }
    libraries = {root: Library([(root, Source.ORG)], cache=cache) for root in names}
    for library in libraries.values():
        library.scan()

    def work(root: Path) -> Callable[[], object]:
        return lambda: render_prompt(libraries[root].find(names[root]))

    taken = in_turns({"many": work(many), "few": work(few)}, rounds=300)
    yield ratio_row(f"prompt for 5 of {MANY}, against 5 of {FEW}", taken["many"], taken["few"], most=2)


def _command(*arguments: str) -> list[str]:
    script = Path(sys.executable).with_name("skillexec")
    return [str(script), *arguments] if script.exists() else [sys.executable, "-m", "skillexec", *arguments]


def _start_up(base: Path) -> Iterator[Row]:
    project = base / "project"
    _make(project / ".skillexec/skills", TEN)
    environment = {"PATH": os.environ["PATH"], "SKILLEXEC_HOME": str(base / "home")}

    def start(command: list[str]) -> Callable[[], object]:
        return lambda: subprocess.run(
            command, cwd=project, env=environment, stdout=subprocess.DEVNULL, check=True
        )

    start(_command("init"))()
    start(_command("skill", "list"))()
    works = {
        "python": start([sys.executable, "-c", "pass"]),
        "help": start(_command("--help")),
        "list": start(_command("skill", "list")),
    }
    taken = in_turns(works, rounds=40)
    python = taken["python"]
    yield ratio_row("`skillexec --help`, against `python3 -c pass`", taken["help"], python, most=4)
    yield ratio_row("`skillexec skill list`, against `python3 -c pass`", taken["list"], python, most=8)


def main() -> list[Row]:
    """Print each ratio beside its bar."""
    with tempfile.TemporaryDirectory() as made:
        base = Path(made)
        many, few = _make(base / "many", MANY), _make(base / "few", FEW)
        rows = [*_start_up(base), *_lookup(base, many, few), *_listing(base, many)]
    print_rows("Skills", rows)
    return rows


if __name__ == "__main__":
    main()
