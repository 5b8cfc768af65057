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
import shutil
import statistics
import subprocess
import sys
import tarfile
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

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
ENVIRONMENT = {"PATH": "/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/tmp", "LANG": "C.UTF-8"}
LIMITS = Limits(seconds=120, cpus=float(CONCURRENT))

PYTHON = 'import json, sys\nprint(json.dumps({"arguments": sys.argv[1:], "answer": 42}))\n'
# What a skill's shell script mostly does: a few lines of its own, and programs that do the work.
PIPELINE = r"""#!/bin/bash
set -euo pipefail
for n in 1 2 3 4 5; do printf '{"n": %d, "square": %d}\n' "$n" "$((n * n))"; done |
  jq --compact-output --slurp '{count: length, sum: map(.square) | add}'
printf '%s\n' pear apple fig | sort | head -n 2 | tr a-z A-Z
"""
SCRIPTS = {
    "a.py": PYTHON,
    "b.sh": PIPELINE,
    "a.sh": "#!/bin/bash\nfor n in 1 2 3; do echo \"line $n\"; done\n",
    "a.js": 'console.log(JSON.stringify({answer: 42}));\n',
    "flood.py": "import sys\nblock = b'x' * (1 << 20)\nfor _ in range(1024): sys.stdout.buffer.write(block)\n",
}  # fmt: skip


@dataclass(frozen=True)
class Row:
    """One line of the table."""

    what: str
    ours: str
    theirs: str
    ratio: str
    bar: str
    met: bool | None


def _bundle() -> Bundle:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, text in SCRIPTS.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(text)
            archive.addfile(entry, io.BytesIO(text.encode()))
    return Bundle(buffer.getvalue(), "sha256:" + hashlib.sha256(buffer.getvalue()).hexdigest(), ())


BUNDLE = _bundle()


def _seconds(call: Callable[[], object]) -> float:
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


def _bare(*command: str) -> None:
    """With the environment that a script in the sandbox has: some programs start slower in a richer one."""
    subprocess.run(command, check=True, capture_output=True, env=ENVIRONMENT)


def _docker_run() -> None:
    _bare(
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


def _p95(samples: list[float]) -> float:
    return statistics.quantiles(samples, n=20)[-1]


def _compare(what: str, ours: list[float], theirs: list[float], bar: float) -> Row:
    ratio = statistics.median(ours) / statistics.median(theirs)
    tail = _p95(ours) / _p95(theirs)
    return Row(
        what,
        f"{statistics.median(ours) * 1e3:.1f} / {_p95(ours) * 1e3:.1f} ms",
        f"{statistics.median(theirs) * 1e3:.1f} / {_p95(theirs) * 1e3:.1f} ms",
        f"{ratio:.2f}x / {tail:.2f}x",
        f"<= {bar}x",
        ratio <= bar,
    )


def _fastest_python(script: str) -> str:
    """The baseline may not be handicapped by a slow interpreter: the quicker of the system's and ours."""
    candidates = [path for path in ("/usr/bin/python3", sys.executable) if Path(path).exists()]
    return min(
        candidates,
        key=lambda path: statistics.median(_seconds(lambda: _bare(path, script)) for _ in range(9)),
    )


def _take_turns(sandbox: Sandbox, script: str, command: tuple[str, ...]) -> tuple[list[float], list[float]]:
    ours, theirs = [], []
    for _ in range(SAMPLES):
        _rested(sandbox)
        theirs.append(_seconds(lambda: _bare(*command)))
        _rested(sandbox)
        ours.append(_seconds(lambda: _ours(sandbox, script, warm=True)))
    return ours, theirs


def _unpack_image(root: Path) -> None:
    """The image's files in a folder, to run its programs without any sandbox."""
    made = subprocess.run(["docker", "create", IMAGE, "true"], capture_output=True, text=True, check=True)
    container = made.stdout.strip()
    with subprocess.Popen(["docker", "export", container], stdout=subprocess.PIPE) as export:
        subprocess.run(["tar", "-x", "-C", str(root)], stdin=export.stdout, check=True)
    subprocess.run(["docker", "rm", container], capture_output=True, check=True)


def _baselines(folder: Path) -> dict[str, tuple[str, ...]]:
    """The same programs without a sandbox. Node and jq as the image has them, where we may chroot: versions differ."""
    plain: tuple[str, ...] = ()
    scripts = folder
    if os.geteuid() == 0:
        root = folder / "image"
        root.mkdir()
        _unpack_image(root)
        for name in ("a.js", "b.sh"):
            shutil.copy(folder / name, root / name)
        plain, scripts = ("chroot", str(root)), Path("/")
    python = _fastest_python(str(folder / "a.py"))
    return {
        "a.py": (python, str(folder / "a.py")),
        "a.sh": ("bash", str(folder / "a.sh")),
        "b.sh": (*plain, "bash", str(scripts / "b.sh")),
        "a.js": (*plain, "node", str(scripts / "a.js")),
    }


def warm_rows(folder: Path) -> list[Row]:
    """A container that waits, against a subprocess that nothing holds back."""
    rows = []
    with Sandbox.open(SandboxSettings(image=IMAGE, warm=1)) as sandbox:
        for script, command in _baselines(folder).items():
            name = f"the image's {command[2]} in a chroot" if command[0] == "chroot" else command[0]
            needed = ("bash", "jq") if script == "b.sh" and command[0] != "chroot" else command[:1]
            if any(shutil.which(program, path=ENVIRONMENT["PATH"]) is None for program in needed):
                rows.append(Row(f"warm run, {script}", "", f"no {name} on this host", "", "<= 1.3x", None))
                continue
            samples = _take_turns(sandbox, script, command)
            bar = 0.5 if script == "a.py" else 1.3
            rows.append(_compare(f"warm run, {script} against {name}", *samples, bar))
    return rows


def cold_row() -> Row:
    """No container waits: made, checked, started and run, against Docker's own client with the same image."""
    ours, theirs = [], []
    with Sandbox.open(SandboxSettings(image=IMAGE, warm=0)) as sandbox:
        _ours(sandbox, "a.py", warm=False)
        for _ in range(COLD_SAMPLES):
            ours.append(_seconds(lambda: _ours(sandbox, "a.py", warm=False)))
            time.sleep(0.3)
            theirs.append(_seconds(_docker_run))
            time.sleep(0.3)
    return _compare("cold run, hardened, against `docker run --rm --network none`", ours, theirs, 0.6)


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
    ratio = statistics.mean(ours) / statistics.mean(theirs)
    return Row(
        f"sustained, {SUSTAINED} runs, {CONCURRENT} at once, against a loop of `docker run`",
        f"{statistics.mean(ours):.1f} runs/s",
        f"{statistics.mean(theirs):.1f} runs/s",
        f"{ratio:.2f}x",
        ">= 1.5x",
        ratio >= 1.5,
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
    return Row(
        "1 GiB of output",
        f"host grows by {grown / 1e6:.1f} MB ({rate:.0f} MB/s)",
        "",
        "",
        "<= 20 MB",
        grown <= 20e6,
    )


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
    return Row("idle pool container", text, "", "", "<= 25 MB", mebibytes * 1.048576 <= 25)


def _print(rows: list[Row]) -> None:
    print("| | ours, p50 / p95 | theirs, p50 / p95 | ratio, p50 / p95 | bar | met |")
    print("|---|---|---|---|---|---|")
    for row in rows:
        verdict = {True: "yes", False: "**no**", None: "not measured"}[row.met]
        print(f"| {row.what} | {row.ours} | {row.theirs} | {row.ratio} | {row.bar} | {verdict} |")


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


def main() -> None:
    rows = [flood_row()]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for script, text in SCRIPTS.items():
            (folder / script).write_text(text)
        rows = [*warm_rows(folder), cold_row(), sustained_row(), *rows, idle_row()]
    _print(rows)
    image = ("docker", "run", "--rm", "--network=none", "--entrypoint=/usr/bin/env", IMAGE)
    print(f"\nhost  {_versions(python='/usr/bin/python3')}; this process: {sys.version.split()[0]}")
    print(f"image {_versions(*image, python='/usr/bin/python3')}")
    print(f"load average at the end: {os.getloadavg()[0]:.1f} on {CONCURRENT} processors")


if __name__ == "__main__":
    main()
