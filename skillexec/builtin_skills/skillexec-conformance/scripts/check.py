"""Checks, from inside, what skillexec promises a script; prints a report as JSON."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import resource
import shutil
import socket
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

PROGRAMS = (
    "python3",
    "bash",
    "node",
    "git",
    "jq",
    "rg",
    "brave-search",
    "file-reader",
    "git-readonly-sync",
    "web-fetch",
)
VARIABLES = ("PATH", "HOME", "TMPDIR", "LANG", "SKILLEXEC_IN", "SKILLEXEC_OUT", "SKILLEXEC_SKILL")
CAPABILITY_SETS = ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")
SCRATCH = ("/skill", "/work", "/tmp")  # noqa: S108 - the container's own
UNLIMITED = 1 << 60  # cgroup v1 writes "no limit" as a number near 2**63

Verdict = tuple[bool, str]


def _status() -> dict[str, str]:
    lines = Path("/proc/self/status").read_text(encoding="ascii", errors="replace").splitlines()
    return {key: value.strip() for key, _, value in (line.partition(":") for line in lines)}


def _refused(action: Callable[[], object]) -> bool:
    """Whether the system says no. Anything but an error is not a no."""
    try:
        action()
    except OSError as error:
        return error.errno in {errno.EACCES, errno.EPERM, errno.EROFS}
    return False


def working_folder() -> Verdict:
    here = Path.cwd()
    return here == Path(os.environ["SKILLEXEC_SKILL"]) and Path("SKILL.md").is_file(), str(here)


def _try_to_change(path: Path) -> bool:
    """Whether changing a file is refused, also after making it writable."""
    try:
        path.chmod(0o666)
    except OSError:
        pass  # fine, and not what is asked here
    return _refused(lambda: path.open("ab").close())


def skill_read_only() -> Verdict:
    held = [
        _refused(Path("intruder").touch),
        _refused(Path("scripts/intruder").touch),
        _try_to_change(Path("SKILL.md")),
    ]
    return all(held), "writing is refused" if all(held) else f"create, create below, change: {held}"


def root_read_only() -> Verdict:
    folders = ("/", "/etc", "/usr/bin", "/usr/local/bin", "/var", "/usr/lib/skillexec")
    writable = [folder for folder in folders if not _refused(Path(folder, "intruder").touch)]
    return not writable, "writable: " + " ".join(writable) if writable else "writing is refused"


def scratch_writable() -> Verdict:
    for name in ("HOME", "TMPDIR", "SKILLEXEC_OUT"):
        trial = Path(os.environ[name], "trial")
        trial.write_bytes(b"x" * 4096)
        trial.unlink()
    return True, "HOME, TMPDIR, SKILLEXEC_OUT"


def mounts_restricted() -> Verdict:
    mounts = (line.split() for line in Path("/proc/self/mounts").read_text(encoding="utf-8").splitlines())
    options = {fields[1]: set(fields[3].split(",")) for fields in mounts}
    loose = [place for place in SCRATCH if not {"nosuid", "nodev"} <= options.get(place, set())]
    return not loose, "without nosuid or nodev: " + " ".join(loose) if loose else "nosuid, nodev"


def bundle_exact() -> Verdict:
    digest = hashlib.sha256(Path("assets/pattern.bin").read_bytes()).hexdigest()
    expected = Path("assets/pattern.sha256").read_text(encoding="ascii").split()[0]
    readable = Path("references/checks.md").read_text(encoding="utf-8").startswith("# ")
    return digest == expected and readable, digest


def artifact_written() -> Verdict:
    greeting = Path("assets/greeting.txt").read_text(encoding="utf-8")
    artifact = Path(os.environ["SKILLEXEC_OUT"], "conformance.txt")
    artifact.write_text(greeting, encoding="utf-8")
    return artifact.read_text(encoding="utf-8") == greeting, artifact.name


def environment() -> Verdict:
    missing = [name for name in VARIABLES if not os.environ.get(name)]
    return not missing, "missing: " + " ".join(missing) if missing else " ".join(VARIABLES)


def not_root() -> Verdict:
    ids = {*os.getresuid(), *os.getresgid(), *os.getgroups()}
    return 0 not in ids, f"uid {os.getuid()}, gid {os.getgid()}, groups {os.getgroups()}"


def no_capabilities() -> Verdict:
    held = {name: value for name, value in _status().items() if name in CAPABILITY_SETS and int(value, 16)}
    return not held, str(held or "all sets are empty")


def no_new_privileges() -> Verdict:
    value = _status().get("NoNewPrivs", "?")
    return value == "1", f"NoNewPrivs {value}"


def seccomp() -> Verdict:
    value = _status().get("Seccomp", "?")
    return value == "2", f"Seccomp {value}"


def nothing_setuid() -> Verdict:
    raising = stat.S_ISUID | stat.S_ISGID
    folders = (
        Path(folder)
        for folder in ("/usr/bin", "/usr/sbin", "/usr/local/bin", "/usr/lib/git-core")
        if Path(folder).is_dir()
    )
    files = [
        entry for folder in folders for entry in os.scandir(folder) if entry.is_file(follow_symlinks=False)
    ]
    found = [entry.path for entry in files if entry.stat(follow_symlinks=False).st_mode & raising]
    return not found, " ".join(found) if found else f"{len(files)} programs looked at"


def _read_of_launcher(name: str) -> bytes:
    with open(f"/proc/1/{name}", "rb") as file:
        return file.read(1)


def launcher_out_of_reach() -> Verdict:
    reachable = [
        name for name in ("environ", "mem", "maps") if not _refused(partial(_read_of_launcher, name))
    ]
    reachable += [] if _refused(partial(os.listdir, "/proc/1/fd")) else ["fd"]
    return not reachable, "reachable: " + " ".join(
        reachable
    ) if reachable else "process 1 is closed to scripts"


def _connects(family: int, address: str) -> bool:
    with socket.socket(family, socket.SOCK_STREAM) as attempt:
        attempt.settimeout(2)
        return attempt.connect_ex((address, 443)) == 0


def _resolves(name: str) -> bool:
    try:
        return bool(socket.getaddrinfo(name, 443))
    except OSError:
        return False


def _reached() -> Iterator[str]:
    for family, address in (
        (socket.AF_INET, "1.1.1.1"),
        (socket.AF_INET, "10.0.0.1"),
        (socket.AF_INET6, "2606:4700::1111"),
    ):
        try:
            if _connects(family, address):
                yield address
        except OSError:
            pass  # not even a socket of that family
    if _resolves("example.com"):
        yield "example.com"


def no_network() -> Verdict:
    reached = list(_reached())
    return not reached, "reached: " + " ".join(reached) if reached else "no connection, no names"


def programs() -> Verdict:
    missing = [name for name in PROGRAMS if shutil.which(name) is None]
    started = [
        (name, subprocess.Popen([name, "--version"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
        for name in PROGRAMS
        if name not in missing
    ]
    silent = [name for name, process in started if process.wait(20) != 0]
    wrong = missing + silent
    return not wrong, "missing or failing: " + " ".join(wrong) if wrong else " ".join(PROGRAMS)


def _cgroup(*candidates: str) -> int | None:
    """A limit of this container's cgroup, version 2 or 1; none where it can't be read or there is none."""
    for candidate in candidates:
        try:
            text = Path("/sys/fs/cgroup", candidate).read_text(encoding="ascii").strip()
        except OSError:
            continue
        return int(text) if text.isdigit() and int(text) < UNLIMITED else None
    return None


def limits() -> Verdict:
    own = {"open_files": resource.RLIMIT_NOFILE, "file_size": resource.RLIMIT_FSIZE}
    seen: dict[str, int | None] = {name: resource.getrlimit(kind)[1] for name, kind in own.items()}
    seen = {name: None if value == resource.RLIM_INFINITY else value for name, value in seen.items()}
    seen["memory"] = _cgroup("memory.max", "memory/memory.limit_in_bytes")
    seen["processes"] = _cgroup("pids.max", "pids/pids.max")
    return None not in seen.values(), ", ".join(
        f"{name} {value or 'unlimited'}" for name, value in seen.items()
    )


CHECKS: tuple[Callable[[], Verdict], ...] = (
    working_folder,
    skill_read_only,
    root_read_only,
    scratch_writable,
    mounts_restricted,
    bundle_exact,
    artifact_written,
    environment,
    not_root,
    no_capabilities,
    no_new_privileges,
    seccomp,
    nothing_setuid,
    launcher_out_of_reach,
    no_network,
    programs,
    limits,
)


def _checked(check: Callable[[], Verdict]) -> dict[str, object]:
    try:
        ok, detail = check()
    except Exception as error:  # noqa: BLE001 - a check that can't be made has not held, and the others still count
        ok, detail = False, f"{type(error).__name__}: {error}"
    return {"name": check.__name__, "ok": ok, "detail": detail}


def _input() -> tuple[object, dict[str, object]]:
    data = sys.stdin.buffer.read()
    if not data:
        return None, {"name": "input_echoed", "ok": True, "detail": "there was no input"}
    try:
        return json.loads(data), {"name": "input_echoed", "ok": True, "detail": f"{len(data)} bytes of JSON"}
    except ValueError as error:
        return None, {"name": "input_echoed", "ok": False, "detail": f"not JSON: {error}"}


def _files() -> tuple[list[dict[str, object]], dict[str, object]]:
    root = Path(os.environ["SKILLEXEC_IN"])
    found = sorted(path for path in root.rglob("*") if path.is_file())
    contents = [(str(path.relative_to(root)), path.read_bytes()) for path in found]
    files: list[dict[str, object]] = [
        {"name": name, "size": len(data), "sha256": hashlib.sha256(data).hexdigest()}
        for name, data in contents
    ]
    return files, {"name": "input_files", "ok": True, "detail": f"{len(files)} read"}


def main() -> int:
    echo, echoed = _input()
    files, read = _files()
    checks = [_checked(check) for check in CHECKS] + [echoed, read]
    ok = all(check["ok"] for check in checks)
    report = {
        "skill": "skillexec-conformance",
        "script": "check.py",
        "ok": ok,
        "checks": checks,
        "echo": echo,
        "files": files,
        "artifacts": sorted(os.listdir(os.environ["SKILLEXEC_OUT"])),
    }
    print(json.dumps(report))
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())
