"""What the image stands on: Debian from a registry by digest, Debian made here by mmdebstrap, or a local image.

A registry is asked only for a reference that carries a digest, only by an explicit build, and the build says so.
Where none is reachable, mmdebstrap makes the same distribution from Debian's signed archive, with one fixed date:
the same packages give the same bytes.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from skillexec.errors import ImageUnavailable, Usage
from skillexec.images import engine
from skillexec.images.progress import Journal
from skillexec.shipped import shipped

if TYPE_CHECKING:
    import docker

AUTO = "auto"
MMDEBSTRAP = "mmdebstrap"
SUITE = "bookworm"
# The index digest (amd64, arm64 and more) of one release of Debian's official image. Old is fine: the build
# upgrades its packages. To move on: `docker buildx imagetools inspect debian:bookworm-slim`.
REGISTRY = "debian:bookworm-slim@sha256:3783cc01769c7b2b1b83a5c5ad96c815348e28ed7da68e2e3687004faa906251"
EPOCH = 1735689600  # 2025-01-01: the date of every file that is newer; any fixed one would do
BOOTSTRAPPED = f"skillexec/base:{SUITE}"
RECIPE_LABEL = "skillexec.recipe"

_PINNED = re.compile(r"[a-z0-9][\w./:-]*@sha256:[0-9a-f]{64}")
_PULL_SECONDS = 20  # without any news from the registry
_PASSED_ON = ("http_proxy", "https_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY")


@dataclass(frozen=True, slots=True)
class Base:
    """An image that is here: its id for FROM, and where it comes from for the record."""

    image: str
    origin: str


@dataclass(frozen=True, slots=True)
class Filesystem:
    """A root filesystem as a tar, and its digest."""

    path: Path
    digest: str


def proxies() -> dict[str, str]:
    """The proxy settings of this process: builds need them, images must not keep them."""
    return {name: os.environ[name] for name in _PASSED_ON if name in os.environ}


# --- from a registry


def _short(reference: str) -> str:
    """Enough of a reference to know it by."""
    name, _, digest = reference.partition("@sha256:")
    return f"{name}@sha256:{digest[:12]}"


def _pull(api: docker.APIClient, reference: str) -> None:
    for event in api.pull(reference, stream=True, decode=True):
        if "error" in event:
            raise ImageUnavailable(f"{_short(reference)} can't be pulled: {event['error']}")


def registry_base(reference: str, journal: Journal) -> Base:
    """A base by digest: the local one where it is here, else pulled."""
    import docker.errors
    import requests.exceptions

    with engine.engine(seconds=_PULL_SECONDS) as api:
        found = engine.inspect(api, reference)
        if found is None:
            journal.step(f"pulling {_short(reference)} from its registry")
            try:
                _pull(api, reference)
            except (docker.errors.APIError, requests.exceptions.RequestException) as error:
                reason = getattr(error, "explanation", None) or f"no news for {_PULL_SECONDS} s"
                raise ImageUnavailable(f"{_short(reference)} can't be pulled: {reason}") from error
            found = engine.require(api, reference)
    return Base(image=found["Id"], origin=reference)


# --- from Debian's archive


def bootstrap_command(target: Path) -> list[str]:
    """mmdebstrap's arguments."""
    return [
        "mmdebstrap",
        "--variant=minbase",  # the essential packages and apt
        f"--dpkgopt={shipped('images') / 'cli-tools' / 'dpkg-slim.conf'}",
        '--aptopt=Acquire::Languages "none"',
        "--format=tar",
        SUITE,  # with its security and stable updates, as mmdebstrap does for stable releases
        str(target),
    ]


def _recipe() -> str:
    """Changes where the way to make a base does, so that an old base is not taken for a new one."""
    slim = (shipped("images") / "cli-tools" / "dpkg-slim.conf").read_bytes()
    words = [*bootstrap_command(Path("base.tar"))[:2], SUITE, str(EPOCH), hashlib.sha256(slim).hexdigest()]
    return hashlib.sha256("\0".join(words).encode()).hexdigest()


def _logged(command: list[str], journal: Journal, environment: dict[str, str]) -> None:
    """Run a program with its output in the log."""
    journal.write(f"$ {' '.join(command)}\n")
    done = subprocess.run(
        command,
        env={**os.environ, **environment},
        stdin=subprocess.DEVNULL,
        stdout=journal.file,
        stderr=subprocess.STDOUT,
        check=False,
    )
    if done.returncode != 0:
        raise ImageUnavailable(
            f"{command[0]} failed with exit status {done.returncode}", hint=f"its output is in {journal.path}"
        )


def _require_mmdebstrap(journal: Journal) -> None:
    if shutil.which("mmdebstrap"):
        return
    if os.geteuid() != 0 or not shutil.which("apt-get"):
        raise ImageUnavailable(
            "no base: no registry answered, and mmdebstrap is not installed",
            hint="`sudo apt-get install mmdebstrap` (Debian, Ubuntu), or bring a Debian image with --base or --from",
        )
    journal.note("installing mmdebstrap with apt-get on this machine")
    quiet = {"DEBIAN_FRONTEND": "noninteractive"}
    _logged(["apt-get", "update"], journal, quiet)
    _logged(["apt-get", "install", "-y", "--no-install-recommends", "mmdebstrap"], journal, quiet)


def _file_digest(path: Path) -> str:
    with path.open("rb") as file:
        return f"sha256:{hashlib.file_digest(file, 'sha256').hexdigest()}"


def bootstrap(folder: Path, journal: Journal) -> Filesystem:
    """Make Debian's root filesystem in a folder. The same packages give the same digest."""
    _require_mmdebstrap(journal)
    target = folder / "base.tar"
    journal.step(f"making Debian {SUITE} with mmdebstrap from Debian's archive")
    _logged(bootstrap_command(target), journal, {"SOURCE_DATE_EPOCH": str(EPOCH), "LC_ALL": "C.UTF-8"})
    return Filesystem(path=target, digest=_file_digest(target))


def _import(api: docker.APIClient, filesystem: Filesystem, journal: Journal) -> None:
    repository, _, tag = BOOTSTRAPPED.partition(":")
    journal.step("handing the base to the engine")
    changes = [
        f"LABEL {RECIPE_LABEL}={_recipe()}",
        "ENV PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    ]
    api.import_image_from_file(str(filesystem.path), repository=repository, tag=tag, changes=changes)


def _bootstrapped(image: dict[str, Any]) -> Base:
    return Base(image=image["Id"], origin=f"mmdebstrap {SUITE} {image['RootFS']['Layers'][0]}")


def bootstrapped_base(journal: Journal, *, fresh: bool) -> Base:
    """The base that mmdebstrap makes: the one made before, unless a fresh one is asked for."""
    with engine.engine(seconds=300) as api:
        found = engine.inspect(api, BOOTSTRAPPED)
        if found is None or fresh or engine.labels_of(found).get(RECIPE_LABEL) != _recipe():
            with tempfile.TemporaryDirectory(prefix="skillexec-base-") as folder:
                _import(api, bootstrap(Path(folder), journal), journal)
            found = engine.require(api, BOOTSTRAPPED)
    return _bootstrapped(found)


# --- another image


def local_base(image: str) -> Base:
    """An image that is already here. It is not pulled, and one that declares volumes is refused."""
    with engine.engine() as api:
        found = engine.inspect(api, image)
    if found is None:
        raise ImageUnavailable(f"there is no image {image} here", hint=f"`docker pull {image}` first")
    if found["Config"].get("Volumes"):
        raise ImageUnavailable(
            f"{image} declares volumes ({', '.join(found['Config']['Volumes'])}), which no container can refuse",
            hint="use an image without VOLUME",
        )
    return Base(image=found["Id"], origin=f"{image} {found['Id']}")


# --- the choice


def check_choice(choice: str) -> None:
    """Refuse what is neither a way of ours nor pinned by digest, before anything is done."""
    if choice not in (AUTO, MMDEBSTRAP) and not _PINNED.fullmatch(choice):
        raise Usage(
            f"the base {choice!r} has no digest",
            hint="give NAME@sha256:..., or mmdebstrap, or a local image with --from",
        )


def find_base(choice: str, journal: Journal, *, fresh: bool = False) -> Base:
    """The base of that choice: auto, mmdebstrap, or a registry reference with a digest."""
    check_choice(choice)
    if choice == MMDEBSTRAP:
        return bootstrapped_base(journal, fresh=fresh)
    if choice != AUTO:
        return registry_base(choice, journal)
    try:
        return registry_base(REGISTRY, journal)
    except ImageUnavailable as error:
        journal.note(f"{error.message}; using mmdebstrap instead")
        return bootstrapped_base(journal, fresh=fresh)
