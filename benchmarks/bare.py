"""What a sandbox is measured against: the same scripts as plain subprocesses that nothing holds back."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from benchmarks.measure import in_turns

ENVIRONMENT = {"PATH": "/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/tmp", "LANG": "C.UTF-8"}
# What a skill's shell script mostly does: a few lines of its own, and programs that do the work.
PIPELINE = r"""#!/bin/bash
set -euo pipefail
for n in 1 2 3 4 5; do printf '{"n": %d, "square": %d}\n' "$n" "$((n * n))"; done |
  jq --compact-output --slurp '{count: length, sum: map(.square) | add}'
printf '%s\n' pear apple fig | sort | head -n 2 | tr a-z A-Z
"""


def run_bare(*command: str) -> None:
    """With the environment that a script in the sandbox has: some programs start slower in a richer one."""
    subprocess.run(command, check=True, capture_output=True, env=ENVIRONMENT)


def fastest_python(script: Path) -> str:
    """The baseline may not be handicapped by a slow interpreter: the quicker of the system's and ours."""
    candidates = [path for path in ("/usr/bin/python3", sys.executable) if Path(path).exists()]
    times = in_turns({path: partial(run_bare, path, str(script)) for path in candidates}, rounds=9)
    return min(candidates, key=lambda path: times[path].p50)


@dataclass(frozen=True, slots=True)
class Bare:
    """A script without a sandbox: what to start, what to call it, and the programs that the host needs for it."""

    command: tuple[str, ...]
    name: str
    needs: tuple[str, ...]

    @property
    def missing(self) -> str | None:
        """A program that this host lacks."""
        lacking = (one for one in self.needs if shutil.which(one, path=ENVIRONMENT["PATH"]) is None)
        return next(lacking, None)


def on_host(program: str, script: Path, *, needs: tuple[str, ...] = ()) -> Bare:
    """By the host's own program."""
    return Bare((program, str(script)), program, (program, *needs))


def unpack_image(image: str, folder: Path) -> Path | None:
    """The image's files in a folder, to run its programs without any sandbox; None where we may not chroot."""
    if os.geteuid() != 0:
        return None
    root = folder / "image"
    root.mkdir()
    made = subprocess.run(["docker", "create", image, "true"], capture_output=True, text=True, check=True)
    container = made.stdout.strip()
    try:
        with subprocess.Popen(["docker", "export", container], stdout=subprocess.PIPE) as export:
            subprocess.run(["tar", "-x", "-C", str(root)], stdin=export.stdout, check=True)
    finally:
        subprocess.run(["docker", "rm", container], capture_output=True, check=True)
    return root


def as_in_image(program: str, script: Path, root: Path | None, *, needs: tuple[str, ...] = ()) -> Bare:
    """By the image's program, as versions differ; by the host's where the image is not unpacked."""
    if root is None:
        return on_host(program, script, needs=needs)
    shutil.copy(script, root / script.name)
    command = ("chroot", str(root), program, f"/{script.name}")
    return Bare(command, f"the image's {program} in a chroot", ("chroot",))
