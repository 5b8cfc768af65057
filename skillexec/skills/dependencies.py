"""What a skill's scripts ask for beyond themselves: PEP 723 blocks, requirements.txt, package.json.

Found in the bundle, so it is said of the bytes that would run. Nothing is installed.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from skillexec.model import Bundle
from skillexec.skills.bundle import bundle_contents

_OPENING, _CLOSING = "# /// script", "# ///"
_MAX_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Dependencies:
    """What one file asks for; `problem` where it can't be understood."""

    file: str
    kind: str  # pep723, requirements or package.json
    requires: tuple[str, ...] = ()
    python: str | None = None
    problem: str = ""


def _blocks(text: str) -> Iterator[str]:
    """The `script` blocks of PEP 723, without their comment signs."""
    lines = iter(text.splitlines())
    for line in lines:
        if line != _OPENING:
            continue
        block: list[str] = []
        closed = None
        for line in lines:  # noqa: PLW2901 - one pass: the block goes on where the search stopped
            if line != "#" and not line.startswith("# "):
                break
            if line == _CLOSING:
                closed = len(block)  # the last one closes: a line of TOML may look like one
            block.append(line[2:])
        if closed is not None:
            yield "\n".join(block[:closed])


def _texts(value: Any) -> tuple[str, ...]:
    return tuple(item for item in value if isinstance(item, str)) if isinstance(value, list) else ()


def _pep723(file: str, text: str) -> Dependencies | None:
    if _OPENING not in text:
        return None
    blocks = list(_blocks(text))
    if not blocks:
        return None
    if len(blocks) > 1:
        return Dependencies(file, "pep723", problem="more than one script block")
    import tomllib

    try:
        table = tomllib.loads(blocks[0])
    except (ValueError, RecursionError) as error:  # ValueError itself: an integer of 5,000 digits
        return Dependencies(file, "pep723", problem=str(error) or "nested too deeply")
    python = table.get("requires-python")
    return Dependencies(
        file, "pep723", _texts(table.get("dependencies")), python if isinstance(python, str) else None
    )


def _requirements(file: str, text: str) -> Dependencies:
    lines = (line.split(" #")[0].strip() for line in text.splitlines())
    return Dependencies(
        file, "requirements", tuple(line for line in lines if line and not line.startswith("#"))
    )


def _package(file: str, text: str) -> Dependencies:
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        return Dependencies(file, "package.json", problem=str(error))
    wanted = document.get("dependencies") if isinstance(document, dict) else None
    found = wanted.items() if isinstance(wanted, dict) else ()
    return Dependencies(file, "package.json", tuple(f"{name} {version}" for name, version in found))


def _of(path: str, data: bytes) -> Dependencies | None:
    name = path.rpartition("/")[2]
    text = data.decode("utf-8", "replace")
    if name == "requirements.txt":
        return _requirements(path, text)
    if name == "package.json":
        return _package(path, text)
    return _pep723(path, text)


def _wanted(path: str) -> bool:
    *folders, name = path.split("/")
    return "node_modules" not in folders and (
        name in ("requirements.txt", "package.json") or name.endswith(".py")
    )


def find_dependencies(bundle: Bundle) -> tuple[Dependencies, ...]:
    """What the files of a bundle say that they need, in the order of their paths."""
    found = (
        _of(path, data) for path, data in bundle_contents(bundle) if _wanted(path) and len(data) <= _MAX_BYTES
    )
    return tuple(one for one in found if one is not None)
