"""Many runs at once and one after the other: nothing crosses, nothing leaks; and a state that can't be written."""

from __future__ import annotations

import hashlib
import json
import secrets
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from conftest import containers, until
from running import SYSTEM, Place

from skillexec.cli import boundary
from skillexec.errors import StateUnusable
from skillexec.model import RunResult, Source, Status
from skillexec.permissions.grants import Wish
from skillexec.result import as_document
from skillexec.sandbox.spec import LABEL_OWNER
from skillexec.state import State
from skillexec.testing import FakeVault

ROOT = Path(__file__).resolve().parent.parent
AT_ONCE = 32
TELL = """
import hashlib, os, sys
key = os.environ["API_KEY"]
digest = hashlib.sha256(key.encode()).hexdigest()
with open(os.path.join(os.environ["SKILLEXEC_OUT"], sys.argv[1]), "w") as file:
    file.write(digest)
print(digest, key, sys.stdin.read())
"""


def _many(place: Place) -> dict[str, str]:
    """Systems with teams and values of their own, all for one skill and one name."""
    place.skill("tell", {"run.py": TELL}, extension={"required_env": ["API_KEY"]}, grant=False)
    values = {}
    with place.admin() as admin:
        for number in range(AT_ONCE):
            team, system = f"team-{number}", f"agent-{number}"
            admin.add_team(team)
            admin.add_system(system, team=team)
            admin.add_to_envelope(team, ["tell"])
            admin.add_grants(system, [Wish("tell", Source.ORG)])
            admin.map_secret(name="API_KEY", reference=f"op://{team}/api/key", team=team)
            values[system] = secrets.token_urlsafe(24)
    return values


def _as_seen(result: RunResult) -> str:
    return json.dumps(as_document(result, with_artifacts=True))


def test_no_value_crosses_between_runs_of_many_systems_at_once(tmp_path: Path) -> None:
    place = Place(tmp_path)
    values = _many(place)
    backend = FakeVault({f"op://team-{n}/api/key": values[f"agent-{n}"] for n in range(AT_ONCE)})
    live: dict[str, bytes] = dict.fromkeys(values, b"")
    with place.runner(backend=backend, warm=4) as runner, ThreadPoolExecutor(AT_ONCE) as threads:

        def run(system: str) -> RunResult:
            def heard(_stream: str, data: bytes) -> None:
                live[system] += data

            return runner.run("tell", system=system, args=(system,), input=system, on_output=heard)

        results = dict(zip(values, threads.map(run, values), strict=True))
    for system, result in results.items():
        digest = hashlib.sha256(values[system].encode()).hexdigest()
        assert result.status is Status.OK, result.error
        assert result.stdout.text == f'{digest} [redacted] "{system}"\n' == live[system].decode()
        assert [(a.name, a.data.decode()) for a in result.artifacts] == [(system, digest)]
        assert not any(value in _as_seen(result) for value in values.values())
    started = place.records(event="run.started")
    assert sorted(str(record.system) for record in started) == sorted(values)


def test_hundreds_of_runs_in_one_process_leave_it_as_it_was() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.soak", "250"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "flat: nothing leaks" in done.stdout


@pytest.mark.parametrize(
    "grown", [{"descriptors": 100}, {"threads": 9}, {"containers": 9}, {"memory": 99 << 20}]
)
def test_the_soak_would_notice_what_grows(monkeypatch: pytest.MonkeyPatch, grown: dict[str, int]) -> None:
    monkeypatch.syspath_prepend(str(ROOT))
    from benchmarks.soak import Sample

    before = Sample(descriptors=20, threads=4, containers=2, memory=60 << 20)
    fields = {name: getattr(before, name) for name in ("descriptors", "threads", "containers", "memory")}
    assert before.grew(before) == []
    assert len(Sample(**{**fields, **grown}).grew(before)) == 1


# -- a state that can't be written


@pytest.fixture
def full(tmp_path: Path) -> Iterator[Place]:
    """A home on a disk of its own that has no room left."""
    disk = tmp_path / "home"
    disk.mkdir(mode=0o700)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m,mode=0700", "tmpfs", str(disk)], check=True)
    try:
        place = Place(tmp_path)
        place.skill("tell", {"run.sh": "echo ran"})
        with (disk / "ballast").open("wb", buffering=0) as ballast:
            try:
                while ballast.write(bytes(4096)):
                    pass
            except OSError:
                pass  # full
        yield place
    finally:
        subprocess.run(["umount", str(disk)], check=True)


def test_on_a_full_disk_nothing_runs_and_it_says_so(full: Place) -> None:
    done = full.command("run", "tell", "--as", SYSTEM)
    assert (done.returncode, done.stdout) == (40, ""), done.stderr
    assert "the state at" in done.stderr
    assert "Traceback" not in done.stderr
    (full.home.path / "ballast").unlink()
    assert full.command("run", "tell", "--as", SYSTEM).stdout == "ran\n"
    assert [record.outcome for record in full.records(event="run.ended")] == ["ok"]


HOLD = """
import sqlite3, sys, time
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("BEGIN IMMEDIATE")
print("held", flush=True)
time.sleep(60)
"""


@pytest.fixture
def locked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    """A home whose database another process holds for longer than we wait, which is half a second here."""
    place = Place(tmp_path)
    place.skill("tell", {"run.sh": "echo ran"})
    original = State.open

    def impatient(path: Path, **options: Any) -> State:
        return original(path, **{**options, "busy_seconds": 0.5})

    monkeypatch.setattr(State, "open", impatient)
    monkeypatch.setenv("SKILLEXEC_HOME", str(place.home.path))
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(place.home.state_file)], stdout=subprocess.PIPE, text=True
    )
    assert holder.stdout is not None
    assert holder.stdout.readline() == "held\n"
    yield place
    holder.kill()
    holder.wait()
    holder.stdout.close()


def test_while_another_process_holds_the_state_nothing_runs(
    locked: Place, capfd: pytest.CaptureFixture[str]
) -> None:
    seen: list[bytes] = []
    with locked.runner(warm=0) as runner, pytest.raises(StateUnusable) as refusal:
        runner.run("tell", system=SYSTEM, on_output=lambda _, data: seen.append(data))
    assert (refusal.value.exit_status, seen) == (40, [])
    with pytest.raises(SystemExit) as ended:
        boundary.main(["run", "tell", "--as", SYSTEM])
    shown = capfd.readouterr()
    assert (ended.value.code, shown.out) == (40, "")
    assert "try again" in shown.err
    assert locked.records(event="run.started") == []


def _orphans(before: set[str]) -> list[str]:
    """Containers made since then whose process is gone. Others may have a pool of their own on this machine."""
    template = f'{{{{index .Config.Labels "{LABEL_OWNER}"}}}}'
    alive = {path.name for path in Path("/proc").iterdir() if path.name.isdigit()}
    orphans = []
    for container in set(containers(f"label={LABEL_OWNER}")) - before:
        told = subprocess.run(
            ["docker", "inspect", "--format", template, container],
            capture_output=True,
            text=True,
            check=False,
        )
        if told.returncode == 0 and told.stdout.split("/")[3] not in alive:
            orphans.append(container)
    return orphans


def test_a_moment_after_a_command_has_ended_its_container_is_gone(tmp_path: Path) -> None:
    place = Place(tmp_path)
    place.skill("tell", {"run.sh": "echo ran"})
    before = set(containers(f"label={LABEL_OWNER}"))
    assert place.command("run", "tell", "--as", SYSTEM).stdout == "ran\n"
    assert place.command("run", "tell", "--as", "nobody").returncode == 20
    assert until(lambda: not _orphans(before), 30)
