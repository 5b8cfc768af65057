"""The sandbox beside what people use instead: a bare subprocess, and `docker run`. `python -m benchmarks.sandbox`

Ratios of one run on one machine, samples taken in turns, so that load and clock speed cancel out. A warm sample
begins when the pool is full and the machine has come to rest: the row "sustained" is about what happens when it
has not.
"""

from __future__ import annotations

import hashlib
import io
import os
import resource
import statistics
import subprocess
import sys
import tarfile
import tempfile
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from benchmarks.bare import PIPELINE, Bare, as_in_image, fastest_python, on_host, run_bare, unpack_image
from benchmarks.measure import Row, at_least, at_most, in_turns, not_measured, print_rows, ratio_row
from skillexec.model import Bundle, Command, Interpreter, Limits, Status
from skillexec.sandbox import Sandbox, SandboxSettings

IMAGE = os.environ.get("SKILLEXEC_TEST_IMAGE", "skillexec/cli-tools:current")
SAMPLES = 40
COLD_SAMPLES = 30
SUSTAINED = 200
CONCURRENT = os.cpu_count() or 2
REST_SECONDS = 0.1  # after a refill the engine and its shims finish what the caller does not wait for
PATIENCE_SECONDS = 3.0
# As many processors as the subprocess beside it has: the rows are about the sandbox, not about its CPU limit.
LIMITS = Limits(seconds=120, cpus=float(CONCURRENT))

PYTHON = 'import json, sys\nprint(json.dumps({"arguments": sys.argv[1:], "answer": 42}))\n'
SCRIPTS = {
    "a.py": PYTHON,
    "b.sh": PIPELINE,
    "a.sh": "#!/bin/bash\nfor n in 1 2 3; do echo \"line $n\"; done\n",
    "a.js": 'console.log(JSON.stringify({answer: 42}));\n',
    "flood.py": "import sys\nblock = b'x' * (1 << 20)\nfor _ in range(1024): sys.stdout.buffer.write(block)\n",
}  # fmt: skip


def _bundle() -> Bundle:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, text in SCRIPTS.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(text)
            archive.addfile(entry, io.BytesIO(text.encode()))
    return Bundle(buffer.getvalue(), "sha256:" + hashlib.sha256(buffer.getvalue()).hexdigest(), ())


BUNDLE = _bundle()


def _docker_run() -> None:
    run_bare(
        "docker", "run", "--rm", "--network", "none", "--entrypoint", "/usr/bin/python3", IMAGE, "-c", PYTHON
    )


def _ours(sandbox: Sandbox, script: str, *, warm: bool) -> None:
    outcome = sandbox.execute(BUNDLE, Command(Interpreter.SCRIPT, script), limits=LIMITS)
    assert outcome.status is Status.OK and outcome.warm is warm, outcome


def _idle_ticks() -> tuple[int, int]:
    numbers = [int(number) for number in Path("/proc/stat").read_text().splitlines()[0].split()[1:]]
    return numbers[3] + numbers[4], sum(numbers)


def _rested(sandbox: Sandbox) -> None:
    """Wait for a full pool, then for a moment in which the machine does little else; not for ever."""
    while not sandbox.warm_up(LIMITS, seconds=30):
        pass
    for _ in range(int(PATIENCE_SECONDS / REST_SECONDS)):
        idle, total = _idle_ticks()
        time.sleep(REST_SECONDS)
        idle_now, total_now = _idle_ticks()
        if idle_now - idle >= 0.8 * (total_now - total):
            return


def _baselines(folder: Path) -> dict[str, Bare]:
    """The same scripts without a sandbox. Node and jq as the image has them, where we may chroot: versions differ."""
    root = unpack_image(IMAGE, folder)
    return {
        "a.py": on_host(fastest_python(folder / "a.py"), folder / "a.py"),
        "a.sh": on_host("bash", folder / "a.sh"),
        "b.sh": as_in_image("bash", folder / "b.sh", root, needs=("jq",)),
        "a.js": as_in_image("node", folder / "a.js", root),
    }


def _warm_row(sandbox: Sandbox, script: str, bare: Bare) -> Row:
    most = 0.5 if script == "a.py" else 1.3
    if bare.missing:
        return not_measured(f"warm run, {script}", f"no {bare.missing} on this host", bar=f"<= {most:g}x")
    times = in_turns(
        {"bare": partial(run_bare, *bare.command), "ours": lambda: _ours(sandbox, script, warm=True)},
        rounds=SAMPLES,
        warm_up=0,
        between=lambda: _rested(sandbox),
    )
    return ratio_row(f"warm run, {script} against {bare.name}", times["ours"], times["bare"], most=most)


def warm_rows(folder: Path) -> list[Row]:
    """A container that waits, against a subprocess that nothing holds back."""
    with Sandbox.open(SandboxSettings(image=IMAGE, warm=1)) as sandbox:
        return [_warm_row(sandbox, script, bare) for script, bare in _baselines(folder).items()]


def cold_row() -> Row:
    """No container waits: made, checked, started and run, against Docker's own client with the same image."""
    with Sandbox.open(SandboxSettings(image=IMAGE, warm=0)) as sandbox:
        times = in_turns(
            {"ours": lambda: _ours(sandbox, "a.py", warm=False), "docker": _docker_run},
            rounds=COLD_SAMPLES,
            warm_up=1,
            between=lambda: time.sleep(0.3),
        )
    what = "cold run, hardened, against `docker run --rm --network none`"
    return ratio_row(what, times["ours"], times["docker"], most=0.6)


def _rate(call: Callable[[], None], count: int) -> float:
    """Runs per second with as many callers as processors, the clearing up included."""
    left = iter(range(count))
    lock = threading.Lock()

    def work() -> None:
        while True:
            with lock:
                if next(left, None) is None:
                    return
            call()

    threads = [threading.Thread(target=work) for _ in range(CONCURRENT)]
    began = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return count / (time.perf_counter() - began)


def sustained_row() -> Row:
    """Many runs without a pause, in four parts by turns."""
    ours, theirs = [], []

    def execute(sandbox: Sandbox) -> None:
        assert sandbox.execute(BUNDLE, Command(Interpreter.SCRIPT, "a.py"), limits=LIMITS).status is Status.OK

    for _ in range(2):
        with Sandbox.open(SandboxSettings(image=IMAGE)) as sandbox:
            ours.append(_rate(lambda: execute(sandbox), SUSTAINED // 2))
        theirs.append(_rate(_docker_run, SUSTAINED // 2))
    rate, other = statistics.median(ours), statistics.median(theirs)
    return at_least(
        f"sustained, {SUSTAINED} runs, {CONCURRENT} at once, against a loop of `docker run`",
        rate / other,
        1.5,
        figure=f"{rate / other:.2f}x ({rate:.1f} vs {other:.1f} runs/s)",
    )


def _peak_memory() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10


def flood_row() -> Row:
    """First of all, while this process has not been larger than it is."""
    with Sandbox.open(SandboxSettings(image=IMAGE, warm=0)) as sandbox:
        _ours(sandbox, "a.py", warm=False)
        before = _peak_memory()
        limits = Limits(seconds=300, output_total=0)
        outcome = sandbox.execute(BUNDLE, Command(Interpreter.SCRIPT, "flood.py"), limits=limits)
        grown = _peak_memory() - before
    assert outcome.stdout.total == 1 << 30, outcome.status
    rate = outcome.stdout.total / outcome.usage.wall_seconds / 1e6
    figure = f"host grows by {grown / 1e6:.1f} MB ({rate:.0f} MB/s)"
    return at_most("1 GiB of output", grown / 1e6, 20, figure=figure, unit=" MB")


def idle_row() -> Row:
    """What a waiting container costs, as its cgroup counts it."""
    with Sandbox.open(SandboxSettings(image=IMAGE, warm=1)) as sandbox:
        _rested(sandbox)
        shape = ["docker", "stats", "--no-stream", "--format", "{{.MemUsage}}"]
        label = f"label=skillexec.owner={sandbox._owner}"
        waiting = subprocess.run(
            ["docker", "ps", "-q", "--filter", label], capture_output=True, text=True, check=True
        )
        used = subprocess.run([*shape, *waiting.stdout.split()], capture_output=True, text=True, check=True)
    text = used.stdout.split("/")[0].strip()
    mebibytes = float(text.removesuffix("MiB"))
    return at_most("idle pool container", mebibytes * 1.048576, 25, figure=text, unit=" MB")


def _versions(*prefix: str, python: str) -> str:
    """First lines of --version. Where host and image differ, a warm row compares interpreters, too."""
    found = []
    for program in (python, "bash", "node"):
        try:
            done = subprocess.run([*prefix, program, "--version"], capture_output=True, text=True)
        except FileNotFoundError:
            continue
        found.append(f"{Path(program).name}: {done.stdout.splitlines()[0] if done.stdout else 'none'}")
    return "; ".join(found)


def main() -> list[Row]:
    rows = [flood_row()]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for script, text in SCRIPTS.items():
            (folder / script).write_text(text)
        rows = [*warm_rows(folder), cold_row(), sustained_row(), *rows, idle_row()]
    print_rows("Sandbox", rows)
    image = ("docker", "run", "--rm", "--network=none", "--entrypoint=/usr/bin/env", IMAGE)
    print(f"\nhost  {_versions(python='/usr/bin/python3')}; this process: {sys.version.split()[0]}")
    print(f"image {_versions(*image, python='/usr/bin/python3')}")
    print(f"load average at the end: {os.getloadavg()[0]:.1f} on {CONCURRENT} processors")
    return rows


if __name__ == "__main__":
    main()
