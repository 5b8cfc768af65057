"""What goes into the image, byte for byte, and the digest that tells whether an image was made of it."""

from __future__ import annotations

import hashlib
import io
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from skillexec.errors import ImageUnavailable
from skillexec.sandbox import frames
from skillexec.shipped import shipped

TOOLS = "tools/"  # our programs that skills name; they end up in /usr/local/bin
PROGRAMS = "bin/"  # what else ends up there
LAUNCHER = "launcher/"  # files that end up in /usr/lib/skillexec
_LEFTOVERS = {"__pycache__", ".pytest_cache", ".ruff_cache", ".mypy_cache"}


@dataclass(frozen=True, slots=True)
class File:
    """One file of the build context; `name` has forward slashes."""

    name: str
    data: bytes = field(repr=False)

    @property
    def mode(self) -> int:
        """By place, not as found: a wheel does not keep modes."""
        return 0o755 if self.name.startswith((TOOLS, PROGRAMS)) else 0o644

    @property
    def digest(self) -> str:
        return hashlib.sha256(self.data).hexdigest()


@dataclass(frozen=True, slots=True)
class Context:
    """Everything that is sent to the engine for a build, sorted by name."""

    files: tuple[File, ...]
    protocol: int

    @property
    def digest(self) -> str:
        """Over names, modes and bytes."""
        return _digest(self.files)

    @property
    def launcher(self) -> tuple[File, ...]:
        return tuple(file for file in self.files if file.name.startswith(LAUNCHER))

    @property
    def tools(self) -> tuple[str, ...]:
        """The names of our own programs."""
        return tuple(file.name.removeprefix(TOOLS) for file in self.files if file.name.startswith(TOOLS))

    def tar(self) -> bytes:
        """The files as the engine takes them. No dates, so that its cache sees equal files as equal."""
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as archive:
            for file in self.files:
                entry = tarfile.TarInfo(file.name)
                entry.size, entry.mode = len(file.data), file.mode
                archive.addfile(entry, io.BytesIO(file.data))
        return buffer.getvalue()


def _digest(files: tuple[File, ...]) -> str:
    total = hashlib.sha256()
    for file in files:
        total.update(f"{file.name}\0{file.mode:o}\0{len(file.data)}\0".encode())
        total.update(file.data)
    return f"sha256:{total.hexdigest()}"


def _recipe(folder: Path) -> Iterator[File]:
    for path in sorted(folder.rglob("*")):
        relative = path.relative_to(folder)
        if path.is_file() and not _LEFTOVERS & set(relative.parts):
            yield File(relative.as_posix(), path.read_bytes())


def _launcher() -> Iterator[File]:
    folder = Path(frames.__file__).parent
    for name in frames.LAUNCHER_FILES:
        yield File(f"{LAUNCHER}{name}", (folder / name).read_bytes())


def gather() -> Context:
    """Read the recipe, the tools and the launcher of this installation."""
    try:
        files = (*_recipe(shipped("images") / "cli-tools"), *_launcher())
    except OSError as error:
        raise ImageUnavailable(
            f"this installation lacks {error.filename}, which the image is made of",
            hint="install skillexec again",
        ) from error
    return Context(files=tuple(sorted(files, key=lambda file: file.name)), protocol=frames.PROTOCOL)


def seccomp_profile() -> str:
    """The profile that every container gets, as the engine takes it."""
    return (shipped("images") / "seccomp.json").read_text()
