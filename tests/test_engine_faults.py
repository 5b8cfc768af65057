"""Engines that are missing, forbidden, killed, restarted, hung or full: said within the deadline, and never `ok`."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from conftest import IMAGE as REAL_IMAGE
from conftest import QUICK, containers, kept, run_python, run_shell, until
from engines import IMAGE, OwnEngine, own_engine

from skillexec.errors import EngineUnavailable, ImageUnavailable
from skillexec.model import Limits, Outcome, Status
from skillexec.sandbox import Sandbox, SandboxSettings
from skillexec.sandbox.engine import Death, Engine

SLEEPER = "import time; print('begun', flush=True); time.sleep(60)"
LOST = (Status.ENGINE_LOST, Status.INFRA_ERROR)


@pytest.fixture(scope="module")
def shared() -> Iterator[OwnEngine]:
    folder = Path(tempfile.mkdtemp(prefix="skx"))  # short: a socket's path has 107 bytes at most
    with own_engine(folder, REAL_IMAGE) as engine:
        yield engine


@pytest.fixture
def engine(shared: OwnEngine) -> Iterator[OwnEngine]:
    """Running when the test begins, and again when it has ended."""
    yield shared
    assert shared.process is not None
    if shared.process.poll() is None:
        shared.signal(signal.SIGCONT)
    else:
        shared.start()


def opened(engine: OwnEngine) -> Sandbox:
    return Sandbox.open(SandboxSettings(image=IMAGE, engine=engine.address, warm=0))


def struck(
    engine: OwnEngine, blow: Callable[[], None], code: str = SLEEPER, seconds: float = 15.0
) -> tuple[Outcome, float]:
    """The outcome of a run in whose midst the engine is struck, and how long it took."""
    sandbox = opened(engine)
    striker = threading.Thread(target=blow)
    began = time.monotonic()
    outcome = run_python(sandbox, code, limits=Limits(seconds=seconds), on_output=lambda *_: striker.start())
    took = time.monotonic() - began
    striker.join()
    if engine.process is not None and engine.process.poll() is None:
        engine.signal(signal.SIGCONT)
    sandbox.close()
    return outcome, took


# In mid-run.


def test_an_engine_killed_in_mid_run_is_engine_lost_and_partial_output_is_kept(engine: OwnEngine) -> None:
    outcome, took = struck(engine, engine.kill)
    assert (outcome.status, outcome.stdout.data) == (Status.ENGINE_LOST, b"begun\n")
    assert took < 15.0
    assert "unknown" in outcome.error


def test_an_engine_killed_just_before_the_script_ends_well_is_not_ok(engine: OwnEngine) -> None:
    outcome, _ = struck(engine, engine.kill, "import time; print('begun', flush=True); time.sleep(2)")
    assert outcome.status is Status.ENGINE_LOST
    assert outcome.exit_code is None


def test_an_engine_killed_and_restarted_in_mid_run_is_engine_lost(engine: OwnEngine) -> None:
    def restart() -> None:
        engine.kill()
        engine.start()

    outcome, took = struck(engine, restart)
    assert outcome.status is Status.ENGINE_LOST
    assert took < 15.0


def test_an_engine_shut_down_in_mid_run_is_never_ok(engine: OwnEngine) -> None:
    outcome, took = struck(engine, lambda: engine.signal(signal.SIGTERM))
    assert outcome.status is Status.ENGINE_LOST
    assert took < 15.0
    assert engine.process is not None
    engine.process.wait(60)


def test_an_engine_that_hangs_in_mid_run_is_engine_lost_at_the_deadline(engine: OwnEngine) -> None:
    def took() -> float:
        outcome, seconds = struck(engine, lambda: engine.signal(signal.SIGSTOP), seconds=4.0)
        assert (outcome.status, outcome.stdout.data) == (Status.ENGINE_LOST, b"begun\n")
        assert seconds >= 4
        return seconds

    assert kept(5.0, took)


def test_a_container_killed_by_somebody_else_is_engine_lost(fresh: Sandbox) -> None:
    def strike(_stream: str, _data: bytes) -> None:
        subprocess.run(["docker", "kill", *containers(f"label=skillexec.owner={fresh._owner}")], check=True)

    outcome = run_python(fresh, SLEEPER, on_output=strike)
    assert (outcome.status, outcome.stdout.data) == (Status.ENGINE_LOST, b"begun\n")


def test_a_script_cannot_have_the_launcher_killed_in_its_place(fresh: Sandbox) -> None:
    """It tries to look as worthy as the launcher in the kernel's eyes, and smaller in each of its processes."""
    code = """
        echo 500 >/proc/self/oom_score_adj
        for n in $(seq 60); do (x=$(head -c 1500000 /dev/zero | tr '\\0' x); sleep 30) & done
        wait
    """
    outcome = run_shell(fresh, code, limits=Limits(seconds=60, memory=48 << 20, tmpfs=4 << 20))
    assert outcome.status is Status.OOM
    assert "launcher.ended" in outcome.timings  # it lived to tell


def test_the_engine_is_asked_whether_a_vanished_container_ran_out_of_memory() -> None:
    config = {
        "Image": REAL_IMAGE,
        "Entrypoint": ["/usr/bin/python3", "-c", "bytearray(1 << 30)"],
        "HostConfig": {"Memory": 24 << 20, "MemorySwap": 24 << 20, "AutoRemove": True},
    }
    engine = Engine.open()
    since = time.time()
    container = engine.create(config, "")
    engine.start(container)
    assert until(lambda: container not in containers(), 60)
    assert engine.death(container, since) == Death(oom=True, exit_code=137)


# Before a run.


def test_an_engine_that_hangs_before_the_run_is_infra_error_at_the_deadline(engine: OwnEngine) -> None:
    sandbox = opened(engine)
    engine.signal(signal.SIGSTOP)
    began = time.monotonic()
    outcome = run_python(sandbox, "print(1)", limits=Limits(seconds=1.5))
    assert outcome.status is Status.INFRA_ERROR
    assert 1.4 < time.monotonic() - began < 10  # an answer is waited for much longer
    assert "doctor" in outcome.hint
    engine.signal(signal.SIGCONT)
    sandbox.close()
    assert not containers(f"label=skillexec.owner={sandbox._owner}", address=engine.address)


def test_an_engine_whose_disk_is_full_says_so_and_works_again_afterwards(engine: OwnEngine) -> None:
    ballast = engine.data / "ballast"
    with opened(engine) as sandbox:
        with open(ballast, "wb", buffering=0) as file, pytest.raises(OSError, match="No space"):
            while True:
                file.write(b"x" * (4 << 20))
        try:
            outcome = run_python(sandbox, "print(1)")
        finally:
            ballast.unlink()
        assert outcome.status is Status.INFRA_ERROR
        assert "no space left" in outcome.error
        assert "docker system df" in outcome.hint
        assert run_python(sandbox, "print(2)").stdout.data == b"2\n"


def test_the_same_sandbox_works_again_when_the_engine_does(engine: OwnEngine) -> None:
    with opened(engine) as sandbox:
        assert run_python(sandbox, "print(1)").status is Status.OK
        engine.kill()
        dead = run_python(sandbox, "print(2)")
        assert dead.status is Status.INFRA_ERROR
        assert "dockerd" in dead.hint
        engine.start()
        assert run_python(sandbox, "print(3)").stdout.data == b"3\n"


def test_what_a_crash_of_engine_and_owner_left_is_swept_up(engine: OwnEngine) -> None:
    image = engine.docker("image", "inspect", "--format={{.Id}}", IMAGE).stdout.decode().strip()
    with opened(engine) as sandbox:
        owner = replace(sandbox._owner, process=replace(sandbox._owner.process, pid=2**22 - 1), token="dead")
        engine.docker("create", "--label", f"skillexec.owner={owner}", image, "sleep", "60")
        engine.kill()
        engine.start()
        assert sandbox.sweep() == 1
    assert containers(address=engine.address) == []


# No engine, no right, no image.


def test_no_engine_at_all_is_infra_error_with_what_to_do(tmp_path: Path) -> None:
    with Sandbox.open(SandboxSettings(engine=f"unix://{tmp_path}/none.sock")) as sandbox:
        outcome = run_python(sandbox, "print(1)")
        assert outcome.status is Status.INFRA_ERROR
        assert str(tmp_path) in outcome.error
        assert "systemctl start docker" in outcome.hint
        with pytest.raises(EngineUnavailable):
            sandbox.check()


def test_an_engine_far_away_is_refused_since_a_job_holds_secrets(settings: SandboxSettings) -> None:
    with Sandbox.open(replace(settings, engine="tcp://10.0.0.1:2375")) as sandbox:
        outcome = run_python(sandbox, "print(1)")
    assert outcome.status is Status.INFRA_ERROR
    assert "not local" in outcome.error


def test_a_socket_that_the_user_may_not_use_says_which_group_to_join(engine: OwnEngine) -> None:
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setgroups([])
            os.setgid(65534)
            os.setuid(65534)
            outcome = run_python(opened(engine), "print(1)")
            os.write(writer, f"{outcome.status}|{outcome.error}|{outcome.hint}".encode())
        finally:
            os._exit(0)  # whatever happens: a fork must not go on with the tests
    os.close(writer)
    with open(reader) as answer:
        status, error, hint = answer.read().split("|")
    os.waitpid(child, 0)
    assert status == "infra_error"
    assert "may not use" in error
    assert "usermod -aG docker" in hint


def test_a_missing_image_says_how_to_build_it_and_nothing_is_pulled(settings: SandboxSettings) -> None:
    with Sandbox.open(replace(settings, image="debian:no-such-tag")) as sandbox:
        outcome = run_python(sandbox, "print(1)")
        with pytest.raises(ImageUnavailable):
            sandbox.check()
    assert outcome.status is Status.INFRA_ERROR
    assert outcome.hint == "run `skillexec image build`"
    assert outcome.timings["container"] < 5


def test_an_image_of_another_version_is_refused(settings: SandboxSettings) -> None:
    name = "skillexec/other-version:test"
    build = f"FROM {REAL_IMAGE}\nLABEL skillexec.launcher=sha256:{'0' * 64}\n"
    subprocess.run(
        ["docker", "build", "--quiet", "--tag", name, "-"],
        input=build.encode(),
        check=True,
        capture_output=True,
    )
    try:
        with Sandbox.open(replace(settings, image=name)) as sandbox:
            outcome = run_python(sandbox, "print(1)")
    finally:
        subprocess.run(["docker", "rmi", name], check=True, capture_output=True)
    assert outcome.status is Status.INFRA_ERROR
    assert "not built by this version" in outcome.error
    assert outcome.hint == "run `skillexec image build`"


def test_a_runtime_that_the_engine_lacks_is_named(settings: SandboxSettings) -> None:
    with Sandbox.open(replace(settings, runtime="no-such-runtime")) as sandbox:
        outcome = run_python(sandbox, "print(1)")
    assert outcome.status is Status.INFRA_ERROR
    assert "sandbox.runtime" in outcome.hint


def test_without_its_seccomp_profile_nothing_runs(settings: SandboxSettings, tmp_path: Path) -> None:
    broken = tmp_path / "seccomp.json"
    for content in (None, "{", ""):
        if content is not None:
            broken.write_text(content)
        with Sandbox.open(replace(settings, seccomp=broken)) as sandbox:
            outcome = run_python(sandbox, "print(1)", limits=QUICK)
        assert outcome.status is Status.INFRA_ERROR
        assert "seccomp" in outcome.error
