"""The Docker engine, as far as the sandbox needs it: a few calls, every failure mapped and explained.

Only local engines are used: a job holds secrets and travels in plain bytes over the engine's socket.
"""

from __future__ import annotations

import errno
import json
import os
import socket
import time
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPException
from typing import Any, TypeVar

from skillexec.errors import EngineUnavailable, ImageUnavailable, InfraError
from skillexec.sandbox import api

DEFAULT_SOCKET = "/var/run/docker.sock"
CALL_SECONDS = 30.0  # a start may take seconds on a busy machine; a hung engine must not hold us for ever
_SCHEME = "unix://"
_HEAD_BYTES = 16 << 10

_START_ENGINE = "start it: `sudo systemctl start docker`, or `sudo dockerd`; `skillexec doctor` checks"
_JOIN_GROUP = "let this user use the engine: `sudo usermod -aG docker $USER`, then log in again"
_BUILD_IMAGE = "run `skillexec image build`"

T = TypeVar("T")


class ContainerGone(InfraError):
    """The engine does not know the container (any more)."""


@dataclass(frozen=True, slots=True)
class Image:
    """An image as the engine has it."""

    id: str
    labels: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class About:
    """What an engine says of itself, for people who check whether it is fit."""

    version: str
    runtime: str  # the one used where nobody says otherwise
    runtime_version: str
    runtimes: tuple[str, ...]
    cgroup: str  # "1" or "2"
    seccomp: bool
    rootless: bool


@dataclass(frozen=True, slots=True)
class Listed:
    """A container as the engine lists it, with the value of the label that was asked for."""

    id: str
    state: str
    created: float  # wall clock
    label: str


@dataclass(frozen=True, slots=True)
class Death:
    """What the engine remembers of a container's end."""

    oom: bool = False
    exit_code: int | None = None


def socket_path(address: str) -> str:
    """The engine's socket: as given, else $DOCKER_HOST, else the usual place."""
    address = address or os.environ.get("DOCKER_HOST", "") or _SCHEME + DEFAULT_SOCKET
    if not address.startswith(_SCHEME):
        raise EngineUnavailable(
            f"the engine at {address} is not local", hint=f"set DOCKER_HOST to {_SCHEME}/path/of/the/socket"
        )
    return address.removeprefix(_SCHEME)


class Engine:
    """One engine. Making this touches nothing; safe to share between threads."""

    def __init__(self, address: str = "") -> None:
        self._address = address
        self._seconds = CALL_SECONDS
        self._streams: weakref.WeakSet[socket.socket] = weakref.WeakSet()

    @classmethod
    def open(cls, address: str = "") -> Engine:
        """An engine that answers, or EngineUnavailable."""
        engine = cls(address)
        engine.version()
        return engine

    def hurry(self, seconds: float) -> None:
        """Wait no longer than this for an answer from now on."""
        self._seconds = seconds

    def forget(self) -> None:
        """In a forked child: close our copies of all streams, or the parent's end would not end its containers."""
        for stream in list(self._streams):
            stream.close()

    @contextmanager
    def _asking(self, doing: str) -> Iterator[str]:
        """The engine's socket, with whatever goes wrong turned into one of our errors."""
        path = socket_path(self._address)
        try:
            yield path
        except api.ApiError as error:
            raise _refused(doing, error.status, error.explanation) from error
        except (AttributeError, LookupError, TypeError, ValueError) as error:
            raise InfraError(
                f"the Docker engine's answer can't be understood: it should {doing}",
                hint=f"check that {path} is a Docker engine's socket",
            ) from error
        except (OSError, HTTPException) as error:
            if getattr(error, "errno", None) in (errno.EMFILE, errno.ENFILE):
                raise InfraError("this process has too many open files", hint="raise `ulimit -n`") from error
            _knock(path, self._seconds)  # says precisely why it can't be reached
            raise EngineUnavailable(
                f"the Docker engine was lost while it should {doing}: {type(error).__name__}",
                hint=_START_ENGINE,
            ) from error

    def _call(
        self,
        doing: str,
        method: str,
        path: str,
        *,
        read: Callable[[bytes], T],
        query: Mapping[str, str | int] | None = None,
        body: Mapping[str, Any] | None = None,
    ) -> T:
        """What `read` finds in the engine's answer. Where that is not there, it is no engine's."""
        with self._asking(doing) as address:
            return read(api.call(address, method, path, seconds=self._seconds, query=query, body=body))

    def version(self) -> str:
        """The engine's version; also the proof that it answers."""
        return self._call(
            "tell its version", "GET", "/version", read=lambda answer: str(_object(answer)["Version"])
        )

    def about(self) -> About:
        version = self._call("describe itself", "GET", "/version", read=_object)
        return self._call("describe itself", "GET", "/info", read=lambda info: _about(version, _object(info)))

    def image(self, reference: str) -> Image:
        """The image of that name, which must be here already: nothing is ever pulled."""
        try:
            return self._call("find the image", "GET", api.path_of("images", reference, "json"), read=_image)
        except ContainerGone:
            raise ImageUnavailable(f"there is no image {reference}", hint=_BUILD_IMAGE) from None

    def create(self, config: Mapping[str, Any], name: str) -> str:
        """Make a container and return its id."""
        try:
            return self._call(
                "create a container",
                "POST",
                "/containers/create",
                query={"name": name},
                body=config,
                read=lambda answer: str(_object(answer)["Id"]),
            )
        except ContainerGone:
            raise ImageUnavailable(f"the image {config['Image']} is gone", hint=_BUILD_IMAGE) from None

    def attach(self, container: str) -> socket.socket:
        """Both ways into a container that has not started yet, as a non-blocking socket."""
        with self._asking("attach to a container") as address:
            stream = socket.socket(socket.AF_UNIX)
            self._streams.add(stream)
            try:
                stream.settimeout(self._seconds)
                stream.connect(address)
                _upgrade(stream, api.path_of("containers", container, "attach"))
                stream.setblocking(False)
            except BaseException:
                stream.close()
                raise
            return stream

    def start(self, container: str) -> None:
        self._call("start a container", "POST", api.path_of("containers", container, "start"), read=_nothing)

    def inspect(self, container: str) -> dict[str, Any]:
        path = api.path_of("containers", container, "json")
        return self._call("describe a container", "GET", path, read=_object)

    def remove(self, container: str) -> None:
        """Kill and remove. Already gone is as good; already going is waited for."""
        path = api.path_of("containers", container)
        try:
            self._call("remove a container", "DELETE", path, query={"force": 1, "v": 1}, read=_nothing)
        except ContainerGone:
            pass
        except InfraError as error:
            if "already in progress" not in str(error):
                raise

    def containers(self, label: str, value: str | None = None) -> list[Listed]:
        """All containers, running or not, that bear the label (with that value)."""
        wanted = json.dumps({"label": [label if value is None else f"{label}={value}"]})
        return self._call(
            "list containers",
            "GET",
            "/containers/json",
            query={"all": 1, "filters": wanted},
            read=lambda answer: [_listed(item, label) for item in json.loads(answer) or ()],
        )

    def death(self, container: str, since: float) -> Death:
        """What happened to a container that vanished. The engine remembers the last few hundred events."""
        wanted = json.dumps({"container": [container], "event": ["oom", "die"]})
        query: dict[str, str | int] = {"since": int(since), "until": int(time.time()) + 1, "filters": wanted}
        return self._call("tell what happened", "GET", "/events", query=query, read=_death)


def _nothing(_answer: bytes) -> None:
    """For calls that only have to be answered."""


def _object(answer: bytes) -> dict[str, Any]:
    found = json.loads(answer)
    if not isinstance(found, dict):
        raise TypeError("the answer is no object")
    return found


def _image(answer: bytes) -> Image:
    found = _object(answer)
    return Image(str(found["Id"]), dict(found["Config"].get("Labels") or {}))


def _listed(item: Mapping[str, Any], label: str) -> Listed:
    return Listed(
        str(item["Id"]), str(item["State"]), float(item["Created"]), str(item["Labels"].get(label, ""))
    )


def _knock(path: str, seconds: float) -> None:
    """Say precisely why an engine can't be reached, where it can't."""
    try:
        with socket.socket(socket.AF_UNIX) as probe:
            probe.settimeout(seconds)
            probe.connect(path)
    except PermissionError as error:
        raise EngineUnavailable(
            f"this user may not use the Docker engine at {path}", hint=_JOIN_GROUP
        ) from error
    except OSError as error:
        raise EngineUnavailable(
            f"no Docker engine at {path}: {error.strerror or error}", hint=_START_ENGINE
        ) from error


def _refused(doing: str, status: int | None, explanation: str) -> InfraError:
    if status == 404:
        return ContainerGone(explanation)
    hint = "run `skillexec doctor`"
    if "no space left" in explanation:
        hint = "the engine's disk is full: `docker system df` shows what takes it"
    elif "runtime specified" in explanation or "runtime name" in explanation:
        hint = "`docker info` lists the engine's runtimes; set sandbox.runtime to one of them"
    return InfraError(f"the Docker engine would not {doing}: {explanation.strip()}", hint=hint)


def _upgrade(stream: socket.socket, path: str) -> None:
    """Turn an HTTP request into a plain stream. The container has said nothing yet: no byte may follow the head."""
    stream.sendall(
        f"POST {path}?stdin=1&stdout=1&stderr=1&stream=1 HTTP/1.1\r\nHost: docker\r\n"
        "Connection: Upgrade\r\nUpgrade: tcp\r\nContent-Length: 0\r\n\r\n".encode()
    )
    answer = b""
    while b"\r\n\r\n" not in answer:
        piece = stream.recv(4096)
        answer += piece
        if not piece:
            raise OSError("the engine hung up")
        if len(answer) > _HEAD_BYTES:
            raise ValueError("no head of an answer")
    status = answer.split(b" ", 2)[1:2]
    if status == [b"404"]:
        raise api.ApiError(404, "the container is gone")
    if status != [b"101"] or not answer.endswith(b"\r\n\r\n"):
        raise ValueError(f"the engine answered {answer.splitlines()[0][:80]!r}")


def _death(answer: bytes) -> Death:
    events = [_object(line) for line in answer.splitlines() if line.strip()]
    codes = [event["Actor"]["Attributes"].get("exitCode", "") for event in events if event["Action"] == "die"]
    known = [int(code) for code in codes if code.isdigit()]
    return Death(any(event["Action"] == "oom" for event in events), known[-1] if known else None)


def _about(version: Mapping[str, Any], info: Mapping[str, Any]) -> About:
    components = {part["Name"]: part["Version"] for part in version.get("Components", ())}
    security = [str(option) for option in info.get("SecurityOptions") or ()]
    runtime = str(info.get("DefaultRuntime", ""))
    return About(
        version=str(version["Version"]),
        runtime=runtime,
        runtime_version=str(components.get(runtime, "")),
        runtimes=tuple(sorted(info.get("Runtimes") or ())),
        cgroup=str(info.get("CgroupVersion", "1")),
        seccomp=any(option.startswith("name=seccomp") for option in security),
        rootless="name=rootless" in security,
    )
