"""Whole runs beside what people do today: a bare subprocess, and `docker run` from the shell."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

from benchmarks.bare import ENVIRONMENT, PIPELINE, Bare, as_in_image, fastest_python, on_host, unpack_image
from benchmarks.measure import Row, Times, in_turns, not_measured, print_rows, ratio_row
from skillexec.admin import Admin
from skillexec.config import Root, load_config, save_roots
from skillexec.home import Home
from skillexec.init import create_home
from skillexec.model import RunResult, Source, Status
from skillexec.permissions.grants import Wish
from skillexec.runner import Runner
from skillexec.state import State

ROUNDS = 40
COLD_ROUNDS = 15
WARM = 3
SCRIPTS = {
    "hello-python": ("run.py", "import json\nprint(json.dumps({'ok': True}))\n"),
    "hello-bash": ("run.sh", "#!/bin/bash\necho '{\"ok\": true}'\n"),
    "pipeline": ("run.sh", PIPELINE),
}
WHOLE_RUNS = {
    "hello-python": ("python", 1.0),
    "hello-bash": ("bash", 1.5),
    "pipeline": ("bash that lets jq, sort and tr work", 1.5),
}  # what to call it, and the most of a bare subprocess that it may take


def make_home(folder: Path) -> Home:
    """A home with one system that may run the scripts."""
    home = Home(folder / "home")
    create_home(home, actor="benchmark", config="")
    for name, (path, text) in SCRIPTS.items():
        skill = folder / "skills" / name
        skill.mkdir(parents=True)
        (skill / "SKILL.md").write_text(f"---\nname: {name}\ndescription: Says hello.\n---\n")
        (skill / path).write_text(text)
    save_roots(home.config_file, (Root(folder / "skills", Source.ORG),))
    with State.open(home.state_file) as state:
        admin = Admin(state, actor="benchmark")
        admin.add_team("bench")
        admin.add_system("bench", team="bench")
        admin.add_to_envelope("bench", list(SCRIPTS))
        admin.add_grants("bench", [Wish(name, Source.ORG) for name in SCRIPTS])
    return home


def _quiet(command: Sequence[str], environment: Mapping[str, str] | None = None) -> None:
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True, env=environment)


class Warm:
    """Runs one skill again and again, each time from a waiting container."""

    def __init__(self, runner: Runner, skill: str) -> None:
        self._runner, self._skill = runner, skill
        self.steps: dict[str, list[float]] = {}
        self.runs = self.cold = 0

    def __call__(self) -> None:
        result = self._runner.run(self._skill, system="bench")
        if result.status is not Status.OK:
            sys.exit(f"the run ended {result.status}: {result.error}")
        self._note(result)

    def _note(self, result: RunResult) -> None:
        self.runs += 1
        self.cold += not result.warm
        for step, seconds in result.timings.items():
            self.steps.setdefault(step, []).append(seconds)

    def shown(self) -> str:
        medians = {step: Times(tuple(samples)).p50 * 1e3 for step, samples in self.steps.items()}
        return ", ".join(f"{step} {value:.2f}" for step, value in medians.items()) + " ms"


def _refilled(runner: Runner) -> Callable[[], None]:
    """Between two runs, outside of what is measured: agents pause as well."""

    def wait() -> None:
        limit = time.monotonic() + 20
        while runner.waiting() < WARM and time.monotonic() < limit:
            time.sleep(0.02)
        time.sleep(0.05)

    return wait


def _bare_scripts(home: Home, folder: Path) -> dict[str, Bare]:
    scripts = {name: folder / "skills" / name / path for name, (path, _) in SCRIPTS.items()}
    python = fastest_python(scripts["hello-python"])
    root = unpack_image(load_config(home.config_file).sandbox.image, folder)
    return {
        "hello-python": on_host(python, scripts["hello-python"]),
        "hello-bash": on_host("/bin/bash", scripts["hello-bash"]),
        "pipeline": as_in_image("bash", scripts["pipeline"], root, needs=("jq",)),
    }


def _rows_of_skill(runner: Runner, skill: str, bare: Bare) -> list[Row]:
    what, most = WHOLE_RUNS[skill]
    what = f"whole `Runner.run`, {what}"
    if bare.missing:
        return [not_measured(what, f"no {bare.missing} on this host", bar=f"<= {most:g}x")]
    ours = Warm(runner, skill)
    environment = ENVIRONMENT if skill == "pipeline" else None  # in a chroot, the host's PATH means nothing
    times = in_turns(
        {"bare": partial(_quiet, bare.command, environment), "ours": ours},
        rounds=ROUNDS,
        between=_refilled(runner),
    )
    return [
        ratio_row(f"{what}, to {bare.name}", times["ours"], times["bare"], most=most),
        Row(f"its steps, medians ({ours.cold} of {ours.runs} cold)", ours.shown()),
    ]


def _warm_rows(home: Home, folder: Path) -> list[Row]:
    bare = _bare_scripts(home, folder)
    with Runner.open(home.path, warm=WARM, actor="benchmark") as runner:
        return [row for skill in WHOLE_RUNS for row in _rows_of_skill(runner, skill, bare[skill])]


def _shell_row(home: Home, folder: Path) -> Row:
    image = load_config(home.config_file).sandbox.image
    program = (
        shutil.which("skillexec", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}") or "skillexec"
    )
    environment = {**os.environ, "SKILLEXEC_HOME": str(home.path)}
    code = (folder / "skills/hello-python/run.py").read_text()
    times = in_turns(
        {
            "ours": lambda: _quiet([program, "run", "hello-python", "--as", "bench", "--json"], environment),
            "docker": lambda: _quiet(
                ["docker", "run", "--rm", "--network", "none", image, "python3", "-c", code]
            ),
        },
        rounds=COLD_ROUNDS,
    )
    return ratio_row("`skillexec run`, no service, to `docker run`", times["ours"], times["docker"], most=1.5)


def main() -> list[Row]:
    with tempfile.TemporaryDirectory(prefix="skillexec-bench-") as name:
        folder = Path(name)
        home = make_home(folder)
        rows = [*_warm_rows(home, folder), _shell_row(home, folder)]
    print_rows("Runs", rows)
    return rows


if __name__ == "__main__":
    main()
