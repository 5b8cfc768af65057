"""Whole runs beside what people do today: a bare subprocess, and `docker run` from the shell."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from benchmarks.measure import Row, Times, in_turns, print_rows, ratio_row
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
}


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


def _quiet(command: list[str], environment: Mapping[str, str] | None = None) -> None:
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True, env=environment)


def _fastest_python(script: Path) -> str:
    """The system's interpreter or this one: whichever starts faster is the one to beat."""
    candidates = [path for path in ("/usr/bin/python3", sys.executable) if Path(path).exists()]
    runs = {path: partial(_quiet, [path, str(script)]) for path in candidates}
    times = in_turns(runs, rounds=5)
    return min(candidates, key=lambda path: times[path].p50)


class Warm:
    """Runs one skill again and again, each time from a waiting container."""

    def __init__(self, runner: Runner, skill: str) -> None:
        self._runner, self._skill = runner, skill
        self.steps: dict[str, list[float]] = {}
        self.cold = 0

    def __call__(self) -> None:
        result = self._runner.run(self._skill, system="bench")
        if result.status is not Status.OK:
            sys.exit(f"the run ended {result.status}: {result.error}")
        self._note(result)

    def _note(self, result: RunResult) -> None:
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


def _warm_rows(home: Home, folder: Path) -> list[Row]:
    python = _fastest_python(folder / "skills/hello-python/run.py")
    bare = {
        "hello-python": [python, str(folder / "skills/hello-python/run.py")],
        "hello-bash": ["/bin/bash", str(folder / "skills/hello-bash/run.sh")],
    }
    rows = []
    with Runner.open(home.path, warm=WARM, actor="benchmark") as runner:
        for skill, most in (("hello-python", 1.0), ("hello-bash", 1.5)):
            ours = Warm(runner, skill)
            times = in_turns(
                {"bare": partial(_quiet, bare[skill]), "ours": ours},
                rounds=ROUNDS,
                between=_refilled(runner),
            )
            language = skill.removeprefix("hello-")
            rows.append(
                ratio_row(
                    f"whole `Runner.run`, {language}, to a bare subprocess",
                    times["ours"],
                    times["bare"],
                    most=most,
                )
            )
            rows.append(Row(f"its steps, medians ({ours.cold} of {ROUNDS} cold)", ours.shown()))
    return rows


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


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="skillexec-bench-") as name:
        folder = Path(name)
        home = make_home(folder)
        print_rows("Runs", [*_warm_rows(home, folder), _shell_row(home, folder)])


if __name__ == "__main__":
    main()
