"""The main job, end to end, with the command line alone: `make demo`.

Uses a home of its own that is gone afterwards. Prints each command and what it really prints.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
SKILLEXEC = [sys.executable, "-P", "-m", "skillexec"]
INPUT = '{"text": "to be or not to be", "top": 2}'


class Demo:
    """A home, a working folder, and commands run in them."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._environment = {**os.environ, "SKILLEXEC_HOME": str(folder / "home"), "SKILLEXEC_ACTOR": "alice"}
        self._environment.pop("OP_SERVICE_ACCOUNT_TOKEN", None)

    def say(self, words: str) -> None:
        print(f"\n# {words}", flush=True)

    def run(self, *arguments: str, expect: int = 0) -> None:
        """Run one command as a person would, and stop the demo if it does not end as promised."""
        shown = shlex.join(argument.replace(str(HERE), "examples") for argument in arguments)
        print(f"$ skillexec {shown}", flush=True)
        done = subprocess.run(
            [*SKILLEXEC, *arguments],
            cwd=self._folder,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stderr=subprocess.STDOUT,  # in the order in which a person would see it
            check=False,
        )
        if done.returncode != expect:
            sys.exit(f"the demo failed: exit status {done.returncode} where {expect} was promised")
        if expect:
            print(f"(exit status {expect})", flush=True)


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="skillexec-demo-") as folder:
        demo = Demo(Path(folder))
        demo.say("An operator makes a home, says where skills are, and grants one to an agent.")
        demo.run("init")
        demo.run("root", "add", str(HERE / "skills"), "--source", "org")
        demo.run("team", "add", "research")
        demo.run("envelope", "add", "research", "word-count", "web-search")
        demo.run("system", "add", "scout", "--team", "research")
        demo.run("grant", "add", "scout", "word-count")
        demo.say("The agent runs it: in a fresh container, without network, on the record.")
        demo.run("run", "word-count", "--as", "scout", "--input", INPUT, "--out", "out", "--run-id", "demo")
        demo.say("What was not granted is denied, and says why.")
        demo.run("run", "web-search", "--as", "scout", "--input", '{"query": "x"}', expect=20)
        demo.run("why", "scout", "web-search")
        demo.say("A secret that can't be had stops the run before anything starts.")
        demo.run("grant", "add", "scout", "web-search")
        demo.run("run", "web-search", "--as", "scout", "--input", '{"query": "x"}', expect=22)
        demo.say("An auditor sees all of it, and that nobody changed it.")
        demo.run("audit", "show", "demo")
        demo.run("audit", "list", "--system", "scout", "--outcome", "denied")
        demo.run("audit", "verify")


if __name__ == "__main__":
    main()
