"""Where the files that ship with the package are: in a wheel, or in a checkout."""

from __future__ import annotations

from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent


def shipped(name: str) -> Path:
    """The folder `name` ("images" or "policies") of this installation."""
    packed = _PACKAGE / "_shipped" / name
    return packed if packed.is_dir() else _PACKAGE.parent / name


def builtin_skills() -> Path:
    """The folder that holds the built-in skills."""
    return _PACKAGE / "builtin_skills"
