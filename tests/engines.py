"""Engines for tests: one of their own, to be killed, stopped and filled; and one that is careless with networks."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from skillexec.sandbox import launcher_digest
from skillexec.sandbox.engine import Engine

IMAGE = "skillexec/small:test"

# What a launcher and a small script need, from the real image: an engine of one's own has no images, and
# copying all of it would take most of the tests' time.
_PACK = """
programs="/usr/bin/python3 /bin/sh /bin/bash /usr/bin/sleep"
libraries=$(ldd $programs /usr/lib/python3.*/lib-dynload/*.so | grep -o '/[^ ]*[.]so[^ ]*' | sort -u)
tar --create --dereference --exclude=dist-packages --exclude=test --exclude=__phello__ \
    $programs $(echo "$libraries" | grep -v lib-dynload) /usr/lib/python3.* /usr/lib/skillexec 2>/dev/null
"""


class OwnEngine:
    """A dockerd in a network namespace of its own, on a tmpfs of its own."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.data = folder / "data"
        self.address = f"unix://{folder}/docker.sock"
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it, or start it again after it was killed; returns when it answers."""
        self._end_containerd()  # one that outlived its engine would not let the next one in
        (self._folder / "docker.pid").unlink(missing_ok=True)
        # --net: two engines in one namespace fight over the bridge. Its containerd comes with it.
        command = ["unshare", "--net", "dockerd", "--host", self.address, "--data-root", str(self.data)]
        command += ["--exec-root", str(self._folder / "exec"), "--pidfile", str(self._folder / "docker.pid")]
        command += ["--bridge", "none", "--iptables=false", "--ip6tables=false", "--ip-forward=false"]
        command += ["--shutdown-timeout", "2"]
        with open(self._folder / "log", "ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
        end = time.monotonic() + 90
        while self.docker("version", check=False).returncode != 0:
            assert time.monotonic() < end, (self._folder / "log").read_text()[-2000:]
            time.sleep(0.1)

    def docker(
        self, *arguments: str, check: bool = True, stdin: int | None = None
    ) -> subprocess.CompletedProcess[bytes]:
        return subprocess.run(
            ["docker", "--host", self.address, *arguments],
            capture_output=True,
            check=check,
            stdin=stdin,
            timeout=180,
        )

    def load(self, image: str) -> None:
        pack = [
            "docker",
            "run",
            "--rm",
            "--network=none",
            "--user=0",
            "--entrypoint=/bin/sh",
            image,
            "-c",
            _PACK,
        ]
        labels = f"LABEL skillexec.protocol=1 skillexec.launcher={launcher_digest()}"
        with subprocess.Popen(pack, stdout=subprocess.PIPE) as packing:
            assert packing.stdout is not None
            self.docker("import", "--change", labels, "-", IMAGE, stdin=packing.stdout.fileno())

    def signal(self, number: signal.Signals) -> None:
        assert self.process is not None
        os.kill(self.process.pid, number)

    def kill(self) -> None:
        """As a crash would: the engine alone, with its containers left to themselves."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def clean(self) -> None:
        assert self.process is not None
        with contextlib.suppress(ProcessLookupError):
            self.signal(signal.SIGCONT)
            self.signal(signal.SIGTERM)
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.kill()
        self._end_containerd()

    def _end_containerd(self) -> None:
        """Known by the file that only ours was started with."""
        file = self._folder / "exec" / "containerd" / "containerd.pid"
        if not file.exists():
            return
        pid = int(file.read_text())
        with contextlib.suppress(OSError):
            if str(self._folder) in Path(f"/proc/{pid}/cmdline").read_text():
                os.kill(pid, signal.SIGKILL)
        file.unlink(missing_ok=True)


@contextmanager
def own_engine(folder: Path, image: str) -> Iterator[OwnEngine]:
    """Needs root, as every dockerd does."""
    engine = OwnEngine(folder)
    engine.data.mkdir(parents=True)
    subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=512m", "skillexec-test", str(engine.data)], check=True
    )
    try:
        engine.start()
        engine.load(image)
        yield engine
    finally:
        engine.clean()
        for place in (folder / "exec" / "netns", engine.data):
            subprocess.run(["umount", "--recursive", "--lazy", str(place)], capture_output=True)
        shutil.rmtree(folder, ignore_errors=True)


class Careless(Engine):
    """The real engine, but it gives every container a network and says that it did not."""

    def create(self, config: Mapping[str, Any], name: str) -> str:
        return super().create({**config, "NetworkDisabled": False}, name)

    def inspect(self, container: str) -> dict[str, Any]:
        found = super().inspect(container)
        found["Config"]["NetworkDisabled"] = found["HostConfig"]["NetworkMode"] == "default"
        return found
