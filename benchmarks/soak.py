"""Many runs in one process: file descriptors, threads, containers and memory must stay flat.

`python -m benchmarks.soak [RUNS]`, 2,000 unless told. Exits 1 when something grew.
"""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks.run import SCRIPTS, make_home
from skillexec.model import Status
from skillexec.runner import Runner
from skillexec.sandbox.spec import LABEL_OWNER

RUNS = 2000
WARM = 2
MEMORY_SLACK = 16 << 20  # bytes; the allocator's own ups and downs


@dataclass(frozen=True, slots=True)
class Sample:
    """What a process holds at one moment."""

    descriptors: int
    threads: int
    containers: int
    memory: int

    def __str__(self) -> str:
        return f"{self.descriptors:5} {self.threads:8} {self.containers:11} {self.memory / (1 << 20):9.1f}"

    def grew(self, since: Sample) -> list[str]:
        """What is more than it was, beyond what a pool at work explains."""
        found = []
        if self.descriptors > since.descriptors + 8:
            found.append(f"file descriptors: {since.descriptors} -> {self.descriptors}")
        if self.threads > since.threads + 3:
            found.append(f"threads: {since.threads} -> {self.threads}")
        if self.containers > since.containers + 3:
            found.append(f"containers: {since.containers} -> {self.containers}")
        if self.memory > since.memory + MEMORY_SLACK:
            found.append(f"memory: {since.memory >> 20} -> {self.memory >> 20} MiB")
        return found


def own_containers() -> int:
    """Containers, in whatever state, of sandboxes of this process."""
    listed = subprocess.run(
        [
            "docker",
            "ps",
            "--all",
            "--filter",
            f"label={LABEL_OWNER}",
            "--format",
            f'{{{{.Label "{LABEL_OWNER}"}}}}',
        ],
        capture_output=True,
        text=True,
        check=True,
    )
    return sum(f"/{os.getpid()}/" in label for label in listed.stdout.splitlines())


def sample() -> Sample:
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return Sample(
        descriptors=len(list(Path("/proc/self/fd").iterdir())),
        threads=threading.active_count(),
        containers=own_containers(),
        memory=pages * os.sysconf("SC_PAGE_SIZE"),
    )


def settled(held: Sample, *, seconds: float = 30.0) -> Sample:
    """What the process holds once it has no more than that: an engine that is behind takes a while to remove."""
    end = time.monotonic() + seconds
    while (now := sample()).grew(held) and time.monotonic() < end:
        time.sleep(0.2)
    return now


def soak(runner: Runner, runs: int, *, system: str, skills: tuple[str, ...]) -> None:
    """That many runs, one after the other; each has to end well."""
    for number in range(runs):
        result = runner.run(skills[number % len(skills)], system=system)
        if result.status is not Status.OK:
            sys.exit(f"run {number} ended {result.status}: {result.error}")


def main(arguments: list[str] | None = None) -> None:
    runs = int((arguments or [str(RUNS)])[0])
    easing = max(runs // 20, 50)  # runs after which caches are filled and pools have their size
    with tempfile.TemporaryDirectory(prefix="skillexec-soak-") as name:
        home = make_home(Path(name))
        before = sample()
        print(f"{'runs':>6} descriptors threads containers memory (MiB)  runs/s")
        print(f"{0:6} {before}")
        with Runner.open(home.path, warm=WARM, actor="soak") as runner:
            soak(runner, easing, system="bench", skills=tuple(SCRIPTS))
            at_ease = settled(replace(sample(), containers=WARM - 3))
            print(f"{easing:6} {at_ease}", flush=True)
            done, step = easing, max((runs - easing) // 10, 1)
            while done < runs:
                count, began = min(step, runs - done), time.perf_counter()
                soak(runner, count, system="bench", skills=tuple(SCRIPTS))
                done += count
                now = settled(at_ease)
                print(f"{done:6} {now}  {count / (time.perf_counter() - began):7.1f}", flush=True)
        grown = now.grew(at_ease)
        after = settled(replace(before, threads=before.threads - 3, containers=-3))
        print(f" after {after}")
    left = [f"{after.containers} containers after close"] if after.containers else []
    left += [f"threads after close: {after.threads}"] if after.threads > before.threads else []
    verdict = "; ".join(grown + left)
    print(f"LEAKS: {verdict}" if verdict else "flat: nothing leaks")
    sys.exit(1 if verdict else 0)


if __name__ == "__main__":
    main(sys.argv[1:])
