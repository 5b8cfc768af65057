"""Runs inside the image, by `python3 -c`, and answers one question about it as a JSON object on stdout.

Standard library only, Python 3.9 and later. `files`: what could raise a script's rights. `launcher`: the digests of
the launcher's files. `tools NAME...`: whether each answers --help. `versions NAME...`, `packages`: what is in here.
"""

from __future__ import annotations

import hashlib
import json
import os
import pwd
import stat
import subprocess
import sys
from pathlib import Path

LAUNCHER = "/usr/lib/skillexec"
FOLDERS = ("/skill", "/work", "/tmp")  # noqa: S108 - where tmpfs is mounted
SECONDS = 15
# These say their version in another way than --version.
VERSION_FLAGS = {"pdftotext": "-v", "unzip": "-v"}


def _walk(top: str):  # type: ignore[no-untyped-def]
    """Every file and folder on the root filesystem, without following links."""
    device = os.lstat(top).st_dev
    folders = [top]
    while folders:
        with os.scandir(folders.pop()) as entries:
            for entry in entries:
                info = entry.stat(follow_symlinks=False)
                if info.st_dev != device:
                    continue
                yield entry.path, info
                if stat.S_ISDIR(info.st_mode):
                    folders.append(entry.path)


def _has_capabilities(path: str) -> bool:
    try:
        return bool(os.getxattr(path, "security.capability", follow_symlinks=False))
    except OSError:
        return False


def files() -> dict[str, object]:
    raised, capable, open_to_all = [], [], []
    for path, info in _walk("/"):
        if info.st_mode & (stat.S_ISUID | stat.S_ISGID):
            raised.append(path)
        if not stat.S_ISREG(info.st_mode):
            continue
        if info.st_mode & stat.S_IWOTH:
            open_to_all.append(path)
        if info.st_mode & 0o111 and _has_capabilities(path):
            capable.append(path)
    return {"setuid": sorted(raised), "capabilities": sorted(capable), "writable": sorted(open_to_all)}


def launcher() -> dict[str, object]:
    found = [path for path in Path(LAUNCHER).glob("*") if path.is_file()]
    return {"files": {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in found}}


def user() -> dict[str, object]:
    try:
        name = pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        name = ""
    missing = [folder for folder in FOLDERS if not Path(folder).is_dir()]
    return {
        "uid": os.getuid(),
        "gid": os.getgid(),
        "groups": os.getgroups(),
        "name": name,
        "missing": missing,
    }


def _first_line(command: list[str]) -> tuple[bool, str]:
    try:
        done = subprocess.run(
            command, capture_output=True, stdin=subprocess.DEVNULL, timeout=SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return False, str(error)
    said = (done.stdout or done.stderr).decode(errors="replace").strip().splitlines()
    return done.returncode == 0, said[0] if said else ""


def tools(names: list[str]) -> dict[str, object]:
    answers = {}
    for name in names:
        answered, said = _first_line([name, "--help"])
        answers[name] = {"ok": answered and bool(said), "said": said}
    return {"tools": answers}


def versions(names: list[str]) -> dict[str, object]:
    return {
        "versions": {name: _first_line([name, VERSION_FLAGS.get(name, "--version")])[1] for name in names}
    }


def packages() -> dict[str, object]:
    done = subprocess.run(
        ["dpkg-query", "-W", "-f", "${Package}\\t${Version}\\t${Installed-Size}\\n"],
        capture_output=True,
        text=True,
        check=True,
    )
    return {"packages": [line.split("\t") for line in done.stdout.splitlines()]}


def main(question: str, *arguments: str) -> None:
    simple = {"files": files, "launcher": launcher, "user": user, "packages": packages}
    named = {"tools": tools, "versions": versions}
    answer = simple[question]() if question in simple else named[question](list(arguments))
    json.dump(answer, sys.stdout)


if __name__ == "__main__":
    main(*sys.argv[1:])
