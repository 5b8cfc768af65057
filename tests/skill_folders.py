"""Skills on disk, for tests."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from pathlib import Path


def write_skill(
    root: Path,
    folder: str,
    *,
    name: str | None = None,
    description: str = "Does it.",
    more: str = "",
    body: str = "Body\n",
) -> Path:
    """A skill in its folder; `more` is further frontmatter."""
    directory = root / folder
    directory.mkdir(parents=True, exist_ok=True)
    text = f"---\nname: {folder if name is None else name}\ndescription: {description}\n{more}---\n{body}"
    (directory / "SKILL.md").write_text(text)
    return directory


def open_files() -> list[str]:
    """What this process has open, without the sockets and pipes of whatever else is at work in it."""
    found = []
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):  # the listing's own
            found.append(os.readlink(f"/proc/self/fd/{name}"))
    return sorted(target for target in found if target.startswith("/") and not target.startswith("/proc/"))


def settle() -> None:
    """Let so much time pass that the index may remember files as unchanged."""
    time.sleep(0.06)


def skillexec(*arguments: str, home: Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    """The real command in a process of its own."""
    return subprocess.run(
        [sys.executable, "-P", "-m", "skillexec", *arguments],
        env={"PATH": os.environ["PATH"], "SKILLEXEC_HOME": str(home), "SKILLEXEC_ACTOR": "tester"},
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=60,
        stdin=subprocess.DEVNULL,
    )
