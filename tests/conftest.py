"""What tests of the sandbox share: bundles, and a sandbox on the real engine with the real image."""

from __future__ import annotations

import hashlib
import io
import os
import signal
import subprocess
import sys
import tarfile
import textwrap
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from skillexec.model import Bundle, BundleFile, Command, Interpreter, Limits, Outcome
from skillexec.sandbox import Sandbox, SandboxSettings

# Shells start background jobs with SIGINT ignored, and then all that the tests start would ignore it, too.
signal.signal(signal.SIGINT, signal.default_int_handler)

IMAGE = os.environ.get("SKILLEXEC_TEST_IMAGE", "skillexec/cli-tools:current")
QUICK = Limits(seconds=20)


def make_bundle(files: Mapping[str, str | bytes]) -> Bundle:
    """A bundle of these files, by the standard library and not by our own code. Scripts can be indented."""
    contents = {
        path: textwrap.dedent(content).lstrip("\n").encode() if isinstance(content, str) else content
        for path, content in sorted(files.items())
    }
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for path, data in contents.items():
            entry = tarfile.TarInfo(path)
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
    listed = tuple(BundleFile(path, len(data), False) for path, data in contents.items())
    return Bundle(buffer.getvalue(), "sha256:" + hashlib.sha256(buffer.getvalue()).hexdigest(), listed)


def script(target: str, *args: str) -> Command:
    return Command(Interpreter.SCRIPT, target, args)


def run_python(sandbox: Sandbox, code: str, *args: str, **options: Any) -> Outcome:
    """Run a Python script that consists of this code."""
    options.setdefault("limits", QUICK)
    return sandbox.execute(make_bundle({"probe.py": code}), script("probe.py", *args), **options)


def run_shell(sandbox: Sandbox, code: str, *args: str, **options: Any) -> Outcome:
    options.setdefault("limits", QUICK)
    return sandbox.execute(make_bundle({"probe.sh": code}), script("probe.sh", *args), **options)


def containers(*filters: str, address: str = "") -> list[str]:
    """The ids of all containers, running or not, as the engine's own client tells."""
    command = ["docker", *(["--host", address] if address else []), "ps", "--all", "--quiet", "--no-trunc"]
    for item in filters:
        command += ["--filter", item]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()


def until(condition: Callable[[], bool], seconds: float) -> bool:
    """Whether it comes true within the time: as much as a busy machine may need, since nobody waits for it to pass."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.02)
    return True


def kept(seconds: float, measure: Callable[[], float], tries: int = 5) -> bool:
    """Whether a promise about time is kept in one of a few tries: a defect of ours breaks it each time, a machine
    that is busy with something else only now and then."""
    return any(measure() <= seconds for _ in range(tries))


@pytest.fixture(scope="session")
def settings() -> SandboxSettings:
    return SandboxSettings(image=IMAGE, warm=0)


@pytest.fixture(scope="session")
def sandbox() -> Iterator[Sandbox]:
    """One for all tests that only run something: a warm pool makes them quick."""
    with Sandbox.open(SandboxSettings(image=IMAGE, warm=2, concurrent=8)) as opened:
        yield opened


@pytest.fixture
def fresh(settings: SandboxSettings) -> Iterator[Sandbox]:
    """One of its own, without a pool."""
    with Sandbox.open(settings) as opened:
        yield opened


@pytest.fixture
def start_program(tmp_path: Path) -> Iterator[Callable[[str], subprocess.Popen[str]]]:
    """Starts a Python program in a process of its own, to be killed by the test or after it."""
    started: list[subprocess.Popen[str]] = []

    def start(code: str) -> subprocess.Popen[str]:
        path = tmp_path / f"program{len(started)}.py"
        path.write_text(textwrap.dedent(code))
        here = str(Path(__file__).parent)
        search = os.pathsep.join(filter(None, (here, os.environ.get("PYTHONPATH"))))
        environment = {**os.environ, "PYTHONPATH": search, "SKILLEXEC_TEST_IMAGE": IMAGE}
        process = subprocess.Popen(
            [sys.executable, str(path)],
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
            cwd=Path(__file__).parent,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()
