"""PID 1 of a sandbox container: waits for one job, runs it, reports, and is gone.

Started as a file by the image's `python3`, without options. docs/protocol.md has the command and every
byte that goes over stdin and stdout.
"""

from __future__ import annotations

import sys

STARTED_WITH = frozenset(sys.modules)  # what a plain python3 holds before it runs anything

import os  # noqa: E402 - STARTED_WITH comes first

FOLDER = os.path.dirname(os.path.abspath(__file__))
if __name__ == "__main__":
    # A package made by hand: the files beside this one can be imported, and sys.path stays out of it.
    __package__ = "skillexec_launcher"
    sys.modules[__package__] = type(sys)(__package__)
    sys.modules[__package__].__path__ = [FOLDER]
    sys.path.remove(FOLDER)

import time  # noqa: E402
from typing import NamedTuple  # noqa: E402

from . import confinement, frames, interpreter, program  # noqa: E402
from .artifacts import Collector, Found, is_empty  # noqa: E402
from .delivery import Delivery  # noqa: E402
from .standby import Place, Standby, Start, map_in  # noqa: E402
from .supervision import Ending, Supervisor  # noqa: E402
from .task import Refused, Task  # noqa: E402
from .usage import Meter  # noqa: E402
from .wire import HostGone, Wire  # noqa: E402

BROKEN_PROTOCOL = 2
HOST_GONE = 3
# The engine takes a container apart as soon as we are gone, with processors that the host needs to hear us out.
LINGER_SECONDS = 5.0
Standbys = dict[bool, Standby]  # by whether it can stand in for a fresh python3
DEFAULT_PATH = b"/usr/local/bin:/usr/bin:/bin"


class Layout(NamedTuple):
    """Where things are in the container."""

    skill: str = "/skill"
    work: str = "/work"
    temporary: str = "/tmp"  # noqa: S108 - the container's own
    writable: tuple[str, ...] = ("/work", "/tmp", "/dev")  # noqa: S108

    def environment(self, path: bytes) -> dict[bytes, bytes]:
        """All that a script sees, unless the job adds to it."""
        return {
            b"PATH": path,
            b"HOME": os.fsencode(self.work + "/home"),
            b"TMPDIR": os.fsencode(self.temporary),
            b"LANG": b"C.UTF-8",
            b"SKILLEXEC_IN": os.fsencode(self.work + "/in"),
            b"SKILLEXEC_OUT": os.fsencode(self.work + "/out"),
            b"SKILLEXEC_SKILL": os.fsencode(self.skill),
        }


class Launcher:
    """One container's life: `serve` from ready to end."""

    def __init__(self, layout: Layout, wire: Wire) -> None:
        self._layout = layout
        self._wire = wire
        self._path = os.environb.get(b"PATH") or DEFAULT_PATH
        self._children = confinement.child_signals()
        self._can_fork = interpreter.is_ordinary(layout.environment(self._path))
        self._abi = confinement.landlock_abi()
        self._meter = Meter()
        self._marks: dict[str, float] = {}

    def serve(self) -> None:
        """Everything, in the order of the protocol."""
        standbys = self._prepare()
        self._wire.send_json(
            frames.READY,
            {
                "protocol": frames.PROTOCOL,
                "landlock": self._abi,
                "fork_python": self._can_fork,
                "network": confinement.network(),
            },
        )
        delivery = self._receive()
        self._mark("received")
        self._meter.begin()
        ending = self._run(delivery, standbys)
        self._report(ending)
        notes = self._send_artifacts(delivery.task, ending)
        self._wire.send_json(frames.END, {"notes": notes})
        self._wire.drain()
        self._wire.await_end(LINGER_SECONDS)

    def _prepare(self) -> Standbys:
        os.umask(0)
        for name in ("in", "out", "home"):
            os.mkdir(f"{self._layout.work}/{name}", 0o755)
        os.chdir(self._layout.skill)
        if self._can_fork:
            interpreter.preload()
        landlock = confinement.Landlock(self._abi, self._layout.writable) if self._abi else None
        place = Place(__package__ or "", FOLDER)
        kinds = (False, True) if self._can_fork else (False,)
        standbys = {stand_in: Standby(landlock, place, stand_in=stand_in) for stand_in in kinds}
        map_in(own=False)  # a copy of its own would cost every waiting container eight megabytes
        return standbys

    def _mark(self, step: str) -> None:
        self._marks[step] = time.monotonic()

    def _receive(self) -> Delivery:
        delivery = Delivery(skill=self._layout.skill, inputs=self._layout.work + "/in")
        while True:
            late = delivery.deadline is not None and time.monotonic() >= delivery.deadline
            left = None if delivery.deadline is None else delivery.deadline - time.monotonic()
            frame = None if late else self._wire.next(left)
            if late or (frame is not None and delivery.take(frame)):
                return delivery
            if frame is not None and frame.kind == frames.JOB:
                self._mark("job")

    def _run(self, delivery: Delivery, standbys: Standbys) -> Ending:
        try:
            return self._run_task(delivery, standbys)
        except Refused as error:
            return Ending("refused", None, str(error), 0)

    def _run_task(self, delivery: Delivery, standbys: Standbys) -> Ending:
        task, deadline = delivery.task, delivery.deadline
        if delivery.refusal or task is None or deadline is None:
            raise Refused(delivery.refusal)
        if time.monotonic() >= deadline:
            return Ending("timeout", None, "", 0)
        start = self._start(task)
        chosen = standbys.pop(start.stand_in)
        supervisor = Supervisor(
            self._wire,
            self._children,
            deadline=deadline,
            output_total=task.output_total,
            spares=frozenset(spare.pid for spare in standbys.values()),
        )
        child = chosen.begin(start)
        self._mark("started")
        task.env.clear()  # secrets: the script's process has them now, nobody else needs them
        ending = supervisor.run(child, delivery.stdin)
        self._mark("ended")
        return ending

    def _start(self, task: Task) -> Start:
        found = program.find(task, os.fsencode(self._layout.skill), self._path)
        stand_in = task.fork_python and self._can_fork
        return Start(
            program=found,
            env={**self._layout.environment(self._path), **task.env},
            stdin=task.stdin is not None,
            file_size=task.file_size,
            open_files=task.open_files,
            stand_in=stand_in and interpreter.can_stand_in(found, task.env, STARTED_WITH),
        )

    def _report(self, ending: Ending) -> None:
        usage = self._meter.read()
        status = ending.status
        signalled = status is not None and os.WIFSIGNALED(status)
        self._wire.queue_json(
            frames.EXIT,
            {
                "reason": ending.reason,
                "exit_code": os.WEXITSTATUS(status) if status is not None and not signalled else None,
                "signal": os.WTERMSIG(status) if status is not None and signalled else None,
                "oom_kills": usage.oom_kills,
                "cpu_us": usage.cpu_us,
                "wall_us": ending.run_us,
                "peak_memory": usage.peak_memory,
                "error": ending.error,
                "timings": self._timings(),
            },
        )

    def _timings(self) -> dict[str, int]:
        """Microseconds from each mark to the next, under the later one's name."""
        times = list(self._marks.items())
        return {name: int((at - before) * 1e6) for (_, before), (name, at) in zip(times, times[1:])}  # noqa: B905, RUF007

    def _send_artifacts(self, task: Task | None, ending: Ending) -> list[str]:
        if task is None or ending.status is None or is_empty(self._layout.work, "out"):
            return []
        self._wire.push()  # how it ended is known; collecting may take its time
        collector = Collector(count=task.artifacts, total=task.artifact_bytes)
        for found in collector.collect(self._layout.work, "out"):
            self._send_artifact(found)
        return collector.notes.lines()

    def _send_artifact(self, found: Found) -> None:
        header = {"name": found.name, "size": found.size, "executable": found.executable}
        self._wire.send_json(frames.ARTIFACT, header)
        left = found.size
        while left:
            data = os.read(found.fd, min(left, frames.CHUNK))
            if not data:
                raise RuntimeError("a file shrank though nobody is left to write to it")
            left -= len(data)
            self._wire.send(frames.DATA, data)
            self._wire.drain(frames.CHUNK)
        os.close(found.fd)


def main(layout: Layout) -> None:
    """Serves one job; the process ends here, unless it is the script's."""
    if os.getpid() != 1:
        sys.exit("the launcher is the first process of a container, and nothing else")
    confinement.out_of_reach()
    try:
        Launcher(layout, Wire(0, 1)).serve()
    except HostGone:
        os._exit(HOST_GONE)
    except frames.FrameError as error:
        os.write(2, f"{error}\n"[:1000].encode("ascii", "backslashreplace"))
        os._exit(BROKEN_PROTOCOL)
    os._exit(0)


if __name__ == "__main__":
    main(Layout())
