"""What the README shows is what really happens."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()


def _block(label: str) -> str:
    found = re.search(rf"<!-- {label}:.*?-->\n```\n(.*?)```", README, re.DOTALL)
    assert found, label
    return found[1]


def _constant(text: str) -> str:
    """The text without what differs from run to run."""
    text = re.sub(r"\b[0-9a-f]{32}\b", "RUN", text)
    return re.sub(r"\d+ ms · [\d.]+ MiB", "TIME · MEMORY", text)


def test_the_readme_shows_what_the_demo_really_prints() -> None:
    demo = subprocess.run(
        [sys.executable, str(ROOT / "examples" / "demo.py")],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert demo.returncode == 0, demo.stdout + demo.stderr
    printed = _constant(demo.stdout)
    commands = _constant(_block("demo")).split("$ skillexec ")
    assert len(commands) > 5
    for command in commands[1:]:
        assert f"$ skillexec {command}" in printed


def test_the_readme_shows_the_help_as_it_is() -> None:
    done = subprocess.run(
        [sys.executable, "-P", "-m", "skillexec", "--help"], capture_output=True, text=True, check=True
    )
    assert _block("help") == f"$ skillexec --help\n{done.stdout}"


def test_every_page_and_file_that_the_readme_links_to_exists() -> None:
    links = re.findall(r"\]\(([^)#:]+)\)", README)
    assert links
    for link in links:
        assert (ROOT / link).exists(), link


def test_the_first_thirty_lines_hold_a_run_and_a_denied_run() -> None:
    start = "\n".join(README.splitlines()[:40])
    assert "ok ·" in start
    assert "denied ·" in start
