"""Starts the real launcher as PID 1 of a real container and speaks the protocol with it.

The launcher files are mounted from the checkout over the image's, so that what is tested is what is
here; everything else is the image's.
"""

from __future__ import annotations

import io
import os
import select
import subprocess
import tarfile
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from skillexec.model import Artifact, Command, InputFile, Interpreter, Limits
from skillexec.sandbox import session

IMAGE = os.environ.get("SKILLEXEC_TEST_IMAGE", "skillexec/cli-tools:current")
FOLDER = Path(session.__file__).parent
TMPFS = "rw,nosuid,nodev,uid=65532,gid=65532,mode=0755,size=64m"


def bundle_of(files: Mapping[str, str | bytes]) -> bytes:
    """A tar of files, made by the standard library and not by our own code."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, content in files.items():
            data = content.encode() if isinstance(content, str) else content
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
    return buffer.getvalue()


def container_command(*options: str) -> list[str]:
    tmpfs = [f"--tmpfs={path}:{TMPFS}" for path in ("/skill", "/work", "/tmp")]
    return [
        "docker", "run", "--rm", "--interactive", "--network=none", "--user=65532:65532", "--read-only",
        "--cap-drop=ALL", "--security-opt=no-new-privileges", "--log-driver=none", "--pids-limit=64",
        "--memory=256m", "--memory-swap=256m", "--env=LANG=C.UTF-8", "--env=HOME=/work/home",
        f"--volume={FOLDER}:/usr/lib/skillexec:ro", *tmpfs, *options,
        IMAGE, "/usr/bin/python3", "/usr/lib/skillexec/launcher.py",
    ]  # fmt: skip


@dataclass
class Run:
    """Everything that a container answered."""

    stdout: bytes = b""
    stderr: bytes = b""
    exit: session.Exit | None = None
    artifacts: list[Artifact] = field(default_factory=list)
    notes: tuple[str, ...] = ()
    status: int | None = None  # the container's own
    crash: bytes = b""  # what the launcher itself had to say

    @property
    def ended(self) -> session.Exit:
        assert self.exit is not None, f"the launcher sent no exit: {self.crash!r}"
        return self.exit

    @property
    def result(self) -> tuple[bytes, bytes, int | None, int | None]:
        return self.stdout, self.stderr, self.ended.exit_code, self.ended.signal


class Container:
    """A waiting launcher, for one job."""

    def __init__(self, *options: str, limits: Limits | None = None) -> None:
        self.limits = limits or Limits(seconds=20)
        self.name = f"skillexec-test-{uuid.uuid4().hex[:12]}"
        self.process = subprocess.Popen(
            container_command(f"--name={self.name}", *options),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
        )
        self.reply = session.Reply(self.limits)
        self.run = Run()

    def __enter__(self) -> Container:
        return self

    def __exit__(self, *_: object) -> None:
        for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
            assert stream is not None
            stream.close()
        try:
            self.process.wait(60)
        finally:
            self.process.kill()
            self.process.wait()

    def events(self, seconds: float = 90) -> Iterator[session.Event]:
        """Events as they come, until the end of the stream."""
        assert self.process.stdout is not None
        until = time.monotonic() + seconds
        while True:
            ready, _, _ = select.select([self.process.stdout], [], [], max(0, until - time.monotonic()))
            assert ready, f"nothing from the launcher in {seconds} s"
            data = os.read(self.process.stdout.fileno(), 1 << 16)
            if not data:
                return
            yield from self.reply.feed(data)
            if self.reply.ended:
                self.close_stdin()  # as a host does that has heard the end; the launcher waits for it

    def wait_ready(self) -> session.Ready:
        event = next(self.events())
        assert isinstance(event, session.Ready)
        return event

    def write(self, data: bytes) -> None:
        assert self.process.stdin is not None
        view = memoryview(data)
        while view:
            view = view[self.process.stdin.write(view) or 0 :]

    def close_stdin(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()

    def send(self, job: session.Job) -> None:
        self.write(b"".join(session.encode_job(job)))

    def finish(self, seconds: float = 90) -> Run:
        """Reads all there is."""
        for event in self.events(seconds):
            self._note(event)
        self.run.status = self.process.wait(60)
        assert self.process.stderr is not None
        self.run.crash = self.process.stderr.read(1 << 16)
        return self.run

    def _note(self, event: session.Event) -> None:
        if isinstance(event, session.Output):
            setattr(self.run, event.stream, getattr(self.run, event.stream) + event.data)
        elif isinstance(event, session.Exit):
            self.run.exit = event
        elif isinstance(event, session.ArtifactDone):
            self.run.artifacts.append(event.artifact)
        elif isinstance(event, session.End):
            self.run.notes = event.notes


def job(
    files: Mapping[str, str | bytes],
    target: str,
    args: Sequence[str] = (),
    *,
    kind: Interpreter = Interpreter.SCRIPT,
    seconds: float = 20,
    limits: Limits | None = None,
    env: Mapping[str, str] | None = None,
    inputs: Sequence[InputFile] = (),
    stdin: bytes | None = None,
    fork: bool = False,
) -> session.Job:
    """A job with defaults that suit tests."""
    return session.Job(
        command=Command(kind, target, tuple(args)),
        bundle=bundle_of(files),
        seconds=seconds,
        limits=limits or Limits(),
        env=env or {},
        files=tuple(inputs),
        stdin=stdin,
        fork_python=fork,
    )


def run_jobs(wanted: Sequence[session.Job]) -> list[Run]:
    """Many jobs, each in a container of its own, a few at a time: for tables."""
    with ThreadPoolExecutor(4) as threads:
        return list(threads.map(run_job, wanted))


def run_job(wanted: session.Job, *options: str) -> Run:
    """One job in a container of its own."""
    with Container(*options, limits=wanted.limits) as container:
        container.send(wanted)
        return container.finish()
