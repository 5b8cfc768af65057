"""What an image is and what is in it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from skillexec.images import engine
from skillexec.images.building import BASE_LABEL, CONTEXT_LABEL
from skillexec.images.context import gather
from skillexec.images.engine import labels_of
from skillexec.images.probe import ask
from skillexec.sandbox import spec

# The programs whose versions people ask for.
PROGRAMS = (
    "bash", "curl", "esbuild", "file", "git", "jq", "node", "pandoc", "pdftotext", "python3", "qpdf", "rg", "sqlite3",
)  # fmt: skip
_VERSION = re.compile(r"\d+(?:\.\d+)+[\w.+-]*|jq-[\d.]+|\d+")
_FRACTION = re.compile(r"\.\d+")


@dataclass(frozen=True, slots=True)
class Package:
    """One Debian package; size in bytes, installed."""

    name: str
    version: str
    size: int


@dataclass(frozen=True, slots=True)
class Program:
    """A program and the version that it says."""

    name: str
    version: str


@dataclass(frozen=True, slots=True)
class Facts:
    """What an image is and what is in it. Digests are empty where the image does not carry the label."""

    tag: str
    digest: str
    created: datetime
    size: int
    architecture: str
    base: str
    context: str
    launcher: str
    protocol: str
    current: bool  # made of what this version of skillexec would make it of
    packages: tuple[Package, ...]
    programs: tuple[Program, ...]

    @property
    def age_days(self) -> float:
        return (datetime.now(UTC) - self.created).total_seconds() / 86400


def created_at(image: dict[str, Any]) -> datetime:
    """When an inspected image was made. The engine says nanoseconds, which Python can't read."""
    return datetime.fromisoformat(_FRACTION.sub("", image["Created"]).replace("Z", "+00:00"))


def _package(fields: list[str]) -> Package:
    name, version, kibibytes = fields
    return Package(name=name, version=version, size=int(kibibytes or 0) << 10)


def _program(name: str, said: str) -> Program:
    match = _VERSION.search(said)
    return Program(name=name, version=match[0].removeprefix("jq-") if match else said[:40])


def show(tag: str) -> Facts:
    """Look at a local image. What is in it is asked inside a locked-down container."""
    with engine.engine() as api:
        image = engine.require(api, tag)
        packages = ask(api, image["Id"], "packages")["packages"]
        versions = ask(api, image["Id"], "versions", PROGRAMS)["versions"]
    labels = labels_of(image)
    return Facts(
        tag=tag,
        digest=image["Id"],
        created=created_at(image),
        size=image["Size"],
        architecture=image["Architecture"],
        base=labels.get(BASE_LABEL, ""),
        context=labels.get(CONTEXT_LABEL, ""),
        launcher=labels.get(spec.LABEL_LAUNCHER, ""),
        protocol=labels.get(spec.LABEL_PROTOCOL, ""),
        current=labels.get(CONTEXT_LABEL) == gather().digest,
        packages=tuple(_package(fields) for fields in packages),
        programs=tuple(_program(name, said) for name, said in versions.items()),
    )
