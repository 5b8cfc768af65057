"""How a container is made: one frozen object, reviewed here, read back after create.

No skill and no caller can change it: limits choose numbers within hard bounds, the operator chooses
image and runtime, and everything else is fixed below. Each control stands beside its reason.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from skillexec.errors import Usage
from skillexec.model import Limits
from skillexec.sandbox import frames

USER_ID = 65532
USER = f"{USER_ID}:{USER_ID}"
COMMAND = ("/usr/bin/python3", "/usr/lib/skillexec/launcher.py")

LABEL_OWNER = "skillexec.owner"
LABEL_PROTOCOL = "skillexec.protocol"
LABEL_LAUNCHER = "skillexec.launcher"

SHM_BYTES = 8 << 20  # semaphores and small shared memory of multiprocessing; counts as container memory
INODES = 32_768  # per tmpfs: empty files cost kernel memory too
OPEN_FILES = 4096  # an engine without rights over its own limits can't give more than it has
OOM_SCORE = 500  # when the host itself runs out of memory, a sandbox goes before anything else

# The least and the most of each limit. A setting or a skill that asks for more is refused, not cut.
BOUNDS: Mapping[str, tuple[float, float]] = {
    "seconds": (0.01, 3600),
    "memory": (48 << 20, 16 << 30),
    "cpus": (0.1, 64),
    "pids": (8, 4096),
    "tmpfs": (4 << 20, 8 << 30),
    "output": (0, 64 << 20),
    "output_total": (0, 64 << 30),
    "file_size": (0, 8 << 30),
    "open_files": (32, OPEN_FILES),
    "artifacts": (0, 4096),
    "artifact_bytes": (0, 1 << 30),
}


def check_limits(limits: Limits) -> None:
    """Refuse limits beyond the hard bounds."""
    for name, (least, most) in BOUNDS.items():
        value = getattr(limits, name)
        if not least <= value <= most:  # NaN fails this too
            raise Usage(f"the limit {name} is {value:,}", hint=f"give between {least:,} and {most:,}")


def launcher_digest() -> str:
    """What the image's label must say: the digest of the launcher's files as this version has them."""
    digest = hashlib.sha256()
    for name in frames.LAUNCHER_FILES:
        data = (Path(__file__).parent / name).read_bytes()
        digest.update(b"%s\0%d\0" % (name.encode(), len(data)))
        digest.update(data)
    return f"sha256:{digest.hexdigest()}"


@dataclass(frozen=True, slots=True)
class Shape:
    """What is fixed when a container is made: runs of equal shape can share a pool."""

    memory: int
    cpus: float
    pids: int
    tmpfs: int

    @classmethod
    def of(cls, limits: Limits) -> Shape:
        # tmpfs counts as container memory. More than half of it, and a full folder could leave the
        # kernel nothing to end but the launcher.
        return cls(limits.memory, limits.cpus, limits.pids, min(limits.tmpfs, limits.memory // 2))


@dataclass(frozen=True, slots=True)
class ContainerSpec:
    """Everything that the engine is told about one container."""

    image: str  # the id, not the tag: what was checked is what runs
    shape: Shape
    seccomp: str = field(repr=False)  # the profile's JSON: engines take no path over the API
    owner: str = ""
    runtime: str = ""  # "": the engine's own
    network_mode: str = ""  # "": NetworkDisabled; "none": for engines where that does not hold

    def config(self) -> dict[str, Any]:
        """The body of the engine's create call."""
        return {
            "Image": self.image,
            "Entrypoint": list(COMMAND),
            "Cmd": [],
            "Env": ["PATH=/usr/local/bin:/usr/bin:/bin", "LANG=C.UTF-8"],
            "User": USER,
            "WorkingDir": "/",
            "Hostname": "sandbox",
            "Labels": {LABEL_OWNER: self.owner},
            # No interface is made at all: 40 % faster to start than an empty network, and as isolated.
            "NetworkDisabled": not self.network_mode,
            # The job comes over stdin. StdinOnce turns the caller's end into an end of file, so that a
            # container never outlives its owner.
            "AttachStdin": True,
            "AttachStdout": True,
            "AttachStderr": True,
            "OpenStdin": True,
            "StdinOnce": True,
            "Tty": False,
            "StopTimeout": 1,  # PID 1 heeds no SIGTERM; an engine that shuts down need not wait for it
            "Healthcheck": {"Test": ["NONE"]},
            "HostConfig": self._host_config(),
        }

    def _host_config(self) -> dict[str, Any]:
        return {
            **self._privileges(),
            **self._resources(),
            **self._surroundings(),
        }

    def _privileges(self) -> dict[str, Any]:
        return {
            "Privileged": False,
            "CapDrop": ["ALL"],
            "CapAdd": [],
            "GroupAdd": [],
            "Devices": [],
            "DeviceCgroupRules": [],
            "DeviceRequests": [],
            "SecurityOpt": ["no-new-privileges:true", f"seccomp={self.seccomp}"],
            "ReadonlyRootfs": True,
            "Binds": [],
            "Mounts": [],
            "VolumesFrom": [],
            "Tmpfs": self._tmpfs(),
            # Others' processes, host names and users stay out of sight.
            "PidMode": "",
            "UTSMode": "",
            "UsernsMode": "",
            "IpcMode": "private",
            "CgroupnsMode": "private",
            "Runtime": self.runtime,
        }

    def _tmpfs(self) -> dict[str, str]:
        """The only writable places, together as large as the limit; never a device or a set-uid file."""
        shares = {"/skill": 4, "/work": 2, "/tmp": 4}  # noqa: S108 - inside the container
        return {
            path: f"rw,exec,nosuid,nodev,size={self.shape.tmpfs // share},nr_inodes={INODES},"
            f"uid={USER_ID},gid={USER_ID},mode=0755"
            for path, share in shares.items()
        }

    def _resources(self) -> dict[str, Any]:
        return {
            "Memory": self.shape.memory,
            "MemorySwap": self.shape.memory,  # equal: no swap on top
            "NanoCpus": int(self.shape.cpus * 1e9),
            "PidsLimit": self.shape.pids,
            "OomKillDisable": False,
            "OomScoreAdj": OOM_SCORE,
            "ShmSize": SHM_BYTES,
            # nproc would count this user's processes in all containers: the pids limit is per container.
            "Ulimits": [
                {"Name": "core", "Soft": 0, "Hard": 0},
                {"Name": "nofile", "Soft": OPEN_FILES, "Hard": OPEN_FILES},  # each job lowers it further
            ],
        }

    def _surroundings(self) -> dict[str, Any]:
        return {
            "NetworkMode": self.network_mode or "default",
            "PortBindings": {},
            "PublishAllPorts": False,
            "ExtraHosts": [],
            "Links": [],
            # A script's output is its caller's; json-file would write it to the engine's disk without bound.
            "LogConfig": {"Type": "none", "Config": {}},
            "RestartPolicy": {"Name": "no", "MaximumRetryCount": 0},
            "Init": False,  # the launcher is PID 1
            "AutoRemove": True,  # the engine clears up even where the owner was killed
        }

    def differences(self, inspected: Mapping[str, Any]) -> tuple[str, ...]:
        """The controls that the engine did not take as they were given. Unknown is a difference."""
        config = self.config()
        host, image, labels = config.pop("HostConfig"), config.pop("Image"), config.pop("Labels")
        if not self.runtime:
            del host["Runtime"]  # the engine fills in the name of its own
        wrong = [name for name, value in config.items() if not _same(value, _of(inspected, "Config", name))]
        wrong += [
            name for name, value in host.items() if not _same(value, _of(inspected, "HostConfig", name))
        ]
        if inspected.get("Image") != image:
            wrong.append("Image")
        if (
            not labels.items() <= (_of(inspected, "Config", "Labels") or {}).items()
        ):  # the image has labels, too
            wrong.append("Labels")
        if _MASKED - set(_of(inspected, "HostConfig", "MaskedPaths") or ()):
            wrong.append("MaskedPaths")
        if _READ_ONLY - set(_of(inspected, "HostConfig", "ReadonlyPaths") or ()):
            wrong.append("ReadonlyPaths")
        if inspected.get("Mounts"):  # an image's VOLUME would be writable and unbounded
            wrong.append("Mounts")
        return tuple(wrong)


# The least of what every engine hides from containers.
_MASKED = frozenset({"/proc/kcore", "/proc/keys", "/proc/timer_list", "/sys/firmware"})
_READ_ONLY = frozenset({"/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"})


def _of(inspected: Mapping[str, Any], section: str, name: str) -> Any:
    found = inspected.get(section)
    return found.get(name) if isinstance(found, Mapping) else None


def _same(wanted: Any, found: Any) -> bool:
    """Equal, where nothing, none and empty are the same."""
    return bool(wanted == found or (not wanted and not found))
