"""Runs one program inside an image, in a container that is locked down and thrown away."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from skillexec.errors import ImageUnavailable
from skillexec.images.context import seccomp_profile
from skillexec.sandbox.spec import USER

if TYPE_CHECKING:
    import docker

_OUTPUT_MAX = 4 << 20
_MEMORY = 512 << 20
_TMPFS = "rw,nosuid,nodev,size=64m,uid=65532,gid=65532"

Piece = tuple[bytes | None, bytes | None]  # of stdout, of stderr


@dataclass(frozen=True, slots=True)
class Done:
    """How a program inside the image ended."""

    exit_code: int
    stdout: bytes = field(repr=False)
    stderr: bytes = field(repr=False)
    timed_out: bool = False


def _host_config(api: docker.APIClient, capabilities: Sequence[str]) -> Any:
    from docker.types import LogConfig

    return api.create_host_config(
        network_mode="none",
        cap_drop=["ALL"],
        cap_add=list(capabilities),
        security_opt=["no-new-privileges:true", f"seccomp={seccomp_profile()}"],
        read_only=True,
        tmpfs=dict.fromkeys(("/tmp", "/work"), _TMPFS),  # noqa: S108 - inside the container
        mem_limit=_MEMORY,
        memswap_limit=_MEMORY,
        pids_limit=64,
        ipc_mode="private",
        log_config=LogConfig(type=LogConfig.types.NONE),
    )


def _collect(pieces: Iterable[Piece], overflow: Callable[[], None]) -> tuple[bytes, bytes]:
    """Both streams, up to a limit: an image from elsewhere may print for ever.

    What comes after is read and dropped until the end: an engine that can't get rid of output does not kill.
    """
    out, err, full = bytearray(), bytearray(), False
    for stdout, stderr in pieces:
        if full:
            continue
        out += stdout or b""
        err += stderr or b""
        full = len(out) + len(err) > _OUTPUT_MAX
        if full:
            overflow()
    return bytes(out), bytes(err)


def _kill(api: docker.APIClient, container: str) -> None:
    import docker.errors

    try:
        api.kill(container)
    except docker.errors.APIError:
        pass  # it has ended by itself


def _attended(api: docker.APIClient, container: str, seconds: float) -> Done:
    late = threading.Event()

    def end() -> None:
        late.set()
        _kill(api, container)

    def overflow() -> None:
        threading.Thread(target=_kill, args=(api, container)).start()

    stream = api.attach(container, stdout=True, stderr=True, stream=True, demux=True)
    api.start(container)
    timer = threading.Timer(seconds, end)
    timer.start()
    try:
        out, err = _collect(stream, overflow)
        code = api.wait(container, timeout=int(seconds))["StatusCode"]
    finally:
        timer.cancel()
    return Done(exit_code=code, stdout=out, stderr=err, timed_out=late.is_set())


def run_inside(
    api: docker.APIClient,
    image: str,
    command: Sequence[str],
    *,
    seconds: float,
    user: str = USER,
    capabilities: Sequence[str] = (),
) -> Done:
    """Run a command in a fresh container of the image: no network, nothing writable but tmpfs, no capabilities."""
    import docker.errors

    created = api.create_container(
        image,
        entrypoint=[command[0]],  # an image from elsewhere may have one of its own
        command=list(command[1:]),
        user=user,
        working_dir="/",
        labels={"skillexec.role": "probe"},
        host_config=_host_config(api, capabilities),
    )
    try:
        return _attended(api, created["Id"], seconds)
    except docker.errors.APIError as error:
        if error.is_client_error() or "executable" in str(error):
            return Done(exit_code=127, stdout=b"", stderr=str(error.explanation).encode())
        raise
    finally:
        api.remove_container(created["Id"], force=True)


def ask(
    api: docker.APIClient,
    image: str,
    question: str,
    arguments: Sequence[str] = (),
    *,
    user: str = USER,
    capabilities: Sequence[str] = (),
) -> dict[str, Any]:
    """Have the program of inside.py answer one question about the image it runs in."""
    source = Path(__file__).with_name("inside.py").read_text()
    command = ["/usr/bin/python3", "-I", "-B", "-c", source, question, *arguments]
    done = run_inside(api, image, command, seconds=60, user=user, capabilities=capabilities)
    try:
        answer: dict[str, Any] = json.loads(done.stdout)
    except ValueError as error:
        said = done.stderr.decode(errors="replace").strip().splitlines()
        raise ImageUnavailable(
            f"nothing useful runs inside {image}: {said[-1][:200] if said else f'exit status {done.exit_code}'}",
            hint="`skillexec image build` makes a new one",
        ) from error
    return answer
