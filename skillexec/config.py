"""Settings, from the home's config.toml and the environment, validated once.

Every setting can be given as an environment variable too: `[sandbox] memory` is SKILLEXEC_SANDBOX_MEMORY. A file or
a variable that can't be understood stops the command: there are no open defaults to fall back to.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from skillexec.errors import ConfigInvalid, Usage
from skillexec.model import Limits, Source

if TYPE_CHECKING:
    import tomlkit

_LIMITS = Limits()
_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}
_SIZE = re.compile(r"(\d+)\s*([kmg]?)i?b?", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Root:
    """A folder whose immediate subfolders are skills."""

    path: Path
    source: Source


@dataclass(frozen=True, slots=True)
class Timeouts:
    """Seconds of each timeout class."""

    short: float = 30.0
    standard: float = 60.0
    long: float = 180.0


@dataclass(frozen=True, slots=True)
class Sandbox:
    """How containers are made. Sizes are bytes; the file may say "512m"."""

    image: str = "skillexec/cli-tools:current"
    runtime: str = ""  # "" is the engine's own; "runsc" is gVisor
    memory: int = _LIMITS.memory
    cpus: float = _LIMITS.cpus
    pids: int = _LIMITS.pids
    tmpfs: int = _LIMITS.tmpfs
    output: int = _LIMITS.output
    output_total: int = _LIMITS.output_total
    file_size: int = _LIMITS.file_size
    open_files: int = _LIMITS.open_files
    artifacts: int = _LIMITS.artifacts
    artifact_bytes: int = _LIMITS.artifact_bytes
    concurrent: int = 8  # containers at work at once; more wait their turn
    warm: int = 2  # containers kept waiting
    idle_seconds: float = 300.0  # after which the pool shrinks
    fork_python: bool = True  # Python scripts in the launcher's own interpreter


@dataclass(frozen=True, slots=True)
class Secrets:
    """How 1Password is asked."""

    deadline: float = 10.0
    ttl: float = 30.0
    account: str = ""  # the desktop app's account, where there is no service account token


@dataclass(frozen=True, slots=True)
class Trust:
    """What confirmation and allowed-tools mean here (DESIGN 5)."""

    allowed_tools: str = "off"  # off | enforce
    unmatched: str = "error"  # ignore | enforce | error: for a list that matches nothing
    baseline_tools: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Config:
    """Everything that can be set."""

    roots: tuple[Root, ...] = ()
    trusted: tuple[Path, ...] = ()
    timeouts: Timeouts = Timeouts()
    sandbox: Sandbox = Sandbox()
    secrets: Secrets = Secrets()
    trust: Trust = field(default_factory=Trust)

    def ordered_roots(self) -> tuple[Root, ...]:
        """The roots as discovery takes them: most trusted first, then in the operator's order."""
        return tuple(sorted(self.roots, key=lambda root: root.source.rank))


_SECTIONS: Mapping[str, type] = {"timeouts": Timeouts, "sandbox": Sandbox, "secrets": Secrets, "trust": Trust}
_CHOICES = {
    ("trust", "allowed_tools"): ("off", "enforce"),
    ("trust", "unmatched"): ("ignore", "enforce", "error"),
}
_MAY_BE_ZERO = {
    ("sandbox", "warm"),
    ("sandbox", "output_total"),
    ("secrets", "ttl"),
    ("sandbox", "idle_seconds"),
}


def _number(value: Any, *, whole: bool) -> float | int | None:
    if isinstance(value, str) and whole and (match := _SIZE.fullmatch(value.strip())):
        return int(match[1]) * _UNITS[match[2].lower()]
    if isinstance(value, str):
        try:
            value = float(value)
        except ValueError:
            return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    if whole and int(value) != value:
        return None
    return int(value) if whole else float(value)


def _boolean(value: Any) -> bool | None:
    words = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}
    if isinstance(value, bool):
        return value
    return words.get(value.lower()) if isinstance(value, str) else None


def _strings(value: Any) -> tuple[str, ...] | None:
    if isinstance(value, str):
        return tuple(value.split())
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return tuple(value)
    return None


def _convert(where: str, section: str, key: str, value: Any, default: Any) -> Any:
    converted: Any
    if isinstance(default, bool):
        converted = _boolean(value)
    elif isinstance(default, int | float):
        converted = _number(value, whole=isinstance(default, int))
        lowest_ok = converted is not None and (
            converted > 0 or (converted == 0 and (section, key) in _MAY_BE_ZERO)
        )
        converted = converted if lowest_ok else None
    elif isinstance(default, tuple):
        converted = _strings(value)
    else:
        choices = _CHOICES.get((section, key))
        converted = value if isinstance(value, str) and (choices is None or value in choices) else None
    if converted is None:
        expected = " or ".join(_CHOICES.get((section, key), ())) or f"something like {default!r}"
        raise ConfigInvalid(f"{where}: {section}.{key} is {value!r}", hint=f"give {expected}")
    return converted


def _defaults(kind: type) -> dict[str, Any]:
    return {f.name: f.default for f in fields(kind) if f.default is not MISSING}


def _section(where: str, name: str, table: Any, environment: Mapping[str, str]) -> Any:
    kind = _SECTIONS[name]
    defaults = _defaults(kind)
    if not isinstance(table, dict):
        raise ConfigInvalid(
            f"{where}: {name} is not a table", hint=f"write [{name}] and its settings below it"
        )
    unknown = sorted(set(table) - set(defaults))
    if unknown:
        raise ConfigInvalid(
            f"{where}: unknown setting {name}.{unknown[0]}", hint=f"known: {', '.join(defaults)}"
        )
    values = {key: _convert(where, name, key, value, defaults[key]) for key, value in table.items()}
    known = {f"SKILLEXEC_{name}_{key}".upper(): key for key in defaults}
    for variable in environment:
        if variable.startswith(f"SKILLEXEC_{name.upper()}_") and variable not in known:
            raise ConfigInvalid(f"${variable} is no setting", hint=f"known: {', '.join(known)}")
    for variable, key in known.items():
        if variable in environment:
            values[key] = _convert(f"${variable}", name, key, environment[variable], defaults[key])
    return kind(**values)


def _root(where: str, table: Any) -> Root:
    try:
        path, source = Path(table["path"]), Source(table["source"])
    except (KeyError, TypeError, ValueError) as error:
        raise ConfigInvalid(
            f"{where}: a root needs path and source: {error}", hint=f"sources: {', '.join(Source)}"
        ) from error
    if set(table) != {"path", "source"} or not path.is_absolute():
        raise ConfigInvalid(f"{where}: a root has an absolute path and a source, nothing else: {dict(table)}")
    return Root(path, source)


def _list(where: str, document: Mapping[str, Any], key: str) -> list[Any]:
    value = document.get(key, [])
    if not isinstance(value, list):
        raise ConfigInvalid(f"{where}: {key} is not a list")
    return value


def parse_config(document: Mapping[str, Any], *, where: str, environment: Mapping[str, str]) -> Config:
    """A config from what the file says and what the environment says; the environment wins."""
    unknown = sorted(set(document) - set(_SECTIONS) - {"roots", "trusted"})
    if unknown:
        raise ConfigInvalid(
            f"{where}: unknown key {unknown[0]}", hint=f"known: roots, trusted, {', '.join(_SECTIONS)}"
        )
    trusted = _list(where, document, "trusted")
    if not all(isinstance(path, str) and path.startswith("/") for path in trusted):
        raise ConfigInvalid(f"{where}: trusted holds absolute paths")
    sections = {name: _section(where, name, document.get(name, {}), environment) for name in _SECTIONS}
    return Config(
        roots=tuple(_root(where, table) for table in _list(where, document, "roots")),
        trusted=tuple(Path(path) for path in trusted),
        **sections,
    )


def load_config(path: Path, *, environment: Mapping[str, str] | None = None) -> Config:
    """Read and validate the config. A missing file means the defaults."""
    environment = os.environ if environment is None else environment
    try:
        raw = path.read_bytes()
    except FileNotFoundError:
        return parse_config({}, where=str(path), environment=environment)
    except OSError as error:
        raise ConfigInvalid(f"can't read {path}: {error.strerror}") from error
    import tomllib

    try:
        document = tomllib.loads(raw.decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigInvalid(
            f"{path}: {error}", hint="mend the file; nothing runs on a config that can't be read"
        ) from error
    return parse_config(document, where=str(path), environment=environment)


def _save(path: Path, document: tomlkit.TOMLDocument) -> None:
    """Replace the file in one step, so that a crash leaves the old one or the new one."""
    import tempfile

    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=".config-")
    try:
        with os.fdopen(descriptor, "w") as file:
            file.write(document.as_string())
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def _edit(path: Path, key: str, value: Any) -> None:
    import tomlkit

    document = tomlkit.parse(path.read_text()) if path.exists() else tomlkit.document()
    document[key] = value
    parse_config(document.unwrap(), where=str(path), environment={})  # never write what we could not read
    _save(path, document)


def save_roots(path: Path, roots: tuple[Root, ...]) -> None:
    """Write the roots, in this order, and leave the rest of the file as it is."""
    import tomlkit

    tables = tomlkit.aot()
    for root in roots:
        table = tomlkit.table()
        table.update({"path": str(root.path), "source": str(root.source)})
        tables.append(table)
    _edit(path, "roots", tables)


def save_trusted(path: Path, trusted: tuple[Path, ...]) -> None:
    """Write which projects are trusted, and leave the rest of the file as it is."""
    _edit(path, "trusted", [str(project) for project in trusted])


def moved(roots: tuple[Root, ...], path: Path, position: int) -> tuple[Root, ...]:
    """The roots with one of them at another place, counted from 1."""
    found = [root for root in roots if root.path == path]
    if not found:
        raise Usage(f"no root {path}", hint="`skillexec root list` shows them")
    rest = [root for root in roots if root.path != path]
    place = min(max(position, 1), len(roots)) - 1
    return tuple(rest[:place] + found + rest[place:])


def limits_for(config: Config, seconds: float) -> Limits:
    """The limits of a run that may take this long."""
    box = config.sandbox
    return replace(
        Limits(seconds=seconds),
        memory=box.memory,
        cpus=box.cpus,
        pids=box.pids,
        tmpfs=box.tmpfs,
        output=box.output,
        output_total=box.output_total,
        file_size=box.file_size,
        open_files=box.open_files,
        artifacts=box.artifacts,
        artifact_bytes=box.artifact_bytes,
    )
