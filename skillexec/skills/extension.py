"""What skillexec adds to a skill: `metadata.cyberagent`, and the two schemas.

Three spellings mean the same: a mapping, a text that holds that mapping as JSON, and flat keys such as
`cyberagent.timeout_class: long`, with which a skill stays within the specification's text-to-text metadata.

These keys decide how a skill runs. So nothing here is guessed: a value that can't be understood, or a key that is
given in two ways, makes the skill broken. Keys that are not known are let pass with a diagnostic.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from skillexec.model import ENV_NAME, RESERVED_ENV, Diagnostic, TimeoutClass
from skillexec.skills.frontmatter import MAX_DEPTH, Broken, Document
from skillexec.skills.rules import shown

NAMESPACE = "cyberagent"
_PREFIX = NAMESPACE + "."
_SCHEMAS = ("input_schema", "output_schema")
_KEYS = frozenset({"tool", "subcommand", "required_env", "timeout_class", "network", *_SCHEMAS})
_MAX_ENTRIES = 64

# An executable of the image, found on its PATH: never a path, never an option.
_WORD = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,63}")
_LABEL = r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?"
_HOST = re.compile(rf"(?=.{{1,253}}(?::|$)){_LABEL}(?:\.{_LABEL})*(?::[0-9]{{1,5}})?")
_NOTHING = (None, False, "", "none")


@dataclass(frozen=True, slots=True)
class Extension:
    """The keys, understood."""

    tool: str | None = None
    subcommand: str | None = None
    required_env: tuple[str, ...] = ()
    timeout_class: TimeoutClass = TimeoutClass.STANDARD
    network: tuple[str, ...] = ()
    input_schema: Mapping[str, Any] | None = None
    output_schema: Mapping[str, Any] | None = None
    diagnostics: tuple[Diagnostic, ...] = ()


@dataclass(frozen=True, slots=True)
class _Given:
    """One key as it was written, and where."""

    key: str
    value: Any
    line: int | None

    def wrong(self, expected: str) -> Broken:
        message = f"{self.key} must be {expected}, not {shown(_written(self.value))}"
        return Broken(message, line=self.line, hint=f"correct `{self.key}` in SKILL.md")


class _Unsound(Exception):
    """JSON that Python's decoder takes, and that we don't."""


def _written(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise _Unsound(f"{shown(text)} is not a number of JSON")
    return number


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise _Unsound(f"the key {shown(key)} is given twice")
        found[key] = value
    return found


def _depth(value: Any) -> int:
    """How deep a value is nested, found without recursion."""
    level, depth = [value], 0
    while level := [one for one in level if isinstance(one, dict | list)]:
        depth += 1
        level = [inner for one in level for inner in (one.values() if isinstance(one, dict) else one)]
    return depth


def _json(given: _Given, expected: str) -> Any:
    """The JSON that a text holds, held to what YAML is: no key twice, and a depth that those who read it survive."""
    try:
        value = json.loads(
            str(given.value), object_pairs_hook=_once, parse_float=_finite, parse_constant=_finite
        )
        if _depth(value) > MAX_DEPTH:
            raise _Unsound(f"nested deeper than {MAX_DEPTH} levels")
    except _Unsound as unsound:
        raise Broken(f"{given.key}: {unsound}", line=given.line, hint=f"correct `{given.key}`") from None
    except (ValueError, RecursionError):
        raise given.wrong(expected) from None
    return value


def _mapping(given: _Given) -> Mapping[str, Any]:
    expected = "a mapping, or a text that holds one as JSON"
    value = _json(given, expected) if isinstance(given.value, str) else given.value
    if not isinstance(value, dict):
        raise given.wrong(expected)
    return value


def _spelled(document: Document) -> Iterator[_Given]:
    """Every key in each of the spellings."""
    metadata = document.values.get("metadata")
    metadata = metadata if isinstance(metadata, dict) else {}
    for key in metadata:
        path = f"metadata.{key}"
        line = document.lines.get(path)
        if key == NAMESPACE and metadata[key] not in ("", None):
            nested = _mapping(_Given(path, metadata[key], line))
            yield from (
                _Given(inner, nested[inner], document.lines.get(f"{path}.{inner}", line)) for inner in nested
            )
        elif key.startswith(_PREFIX):
            yield _Given(key.removeprefix(_PREFIX), metadata[key], line)
    yield from (
        _Given(key, document.values[key], document.lines[key]) for key in _SCHEMAS if key in document.values
    )


def _collect(document: Document) -> dict[str, _Given]:
    found: dict[str, _Given] = {}
    for given in _spelled(document):
        if given.key in found:
            raise Broken(f"{given.key} is given in two ways", line=given.line, hint="keep one of them")
        found[given.key] = given
    return found


def _word(given: _Given | None) -> str | None:
    if given is None or given.value in ("", None):
        return None
    if not isinstance(given.value, str) or _WORD.fullmatch(given.value) is None:
        raise given.wrong("one word of letters, digits and `._+-`")
    return given.value


def _entries(given: _Given, expected: str) -> tuple[str, ...]:
    """A list of texts, or one text with blanks or commas between; in order, each once."""
    value = given.value.replace(",", " ").split() if isinstance(given.value, str) else given.value
    if (
        not isinstance(value, list)
        or len(value) > _MAX_ENTRIES
        or not all(isinstance(entry, str) for entry in value)
    ):
        raise given.wrong(expected)
    return tuple(dict.fromkeys(value))


def _required_env(given: _Given | None) -> tuple[str, ...]:
    if given is None or given.value is None:
        return ()
    expected = "a list of names of environment variables"
    names = _entries(given, expected)
    if not all(ENV_NAME.fullmatch(name) for name in names):
        raise given.wrong(expected)
    reserved = [name for name in names if RESERVED_ENV.fullmatch(name)]
    if reserved:
        raise given.wrong(f"names that programs do not read for themselves, as they do {reserved[0]}")
    return names


def _network(given: _Given | None) -> tuple[str, ...]:
    if given is None or given.value in _NOTHING:
        return ()
    expected = "a list of hosts, each with an optional port"
    hosts = tuple(host.lower() for host in _entries(given, expected))
    if not all(_HOST.fullmatch(host) for host in hosts):
        raise given.wrong(expected)
    return hosts


def _timeout_class(given: _Given | None) -> TimeoutClass:
    if given is None or given.value in ("", None):
        return TimeoutClass.STANDARD
    if given.value not in list(TimeoutClass):
        raise given.wrong("short, standard or long")
    return TimeoutClass(given.value)


def _schema(given: _Given | None) -> Mapping[str, Any] | None:
    return None if given is None or given.value in ("", None) else _mapping(given)


def _unknown(found: Mapping[str, _Given]) -> tuple[Diagnostic, ...]:
    return tuple(
        Diagnostic(
            "cyberagent-unknown", f"{shown(key)} is not a key of skillexec's", "remove it", found[key].line
        )
        for key in found
        if key not in _KEYS
    )


def _is_given(document: Document) -> bool:
    metadata = document.values.get("metadata")
    in_metadata = isinstance(metadata, dict) and any(key.split(".")[0] == NAMESPACE for key in metadata)
    return in_metadata or any(key in document.values for key in _SCHEMAS)


def read_extension(document: Document) -> Extension:
    """Understand the keys. Raises SkillError where one of them is wrong."""
    if not _is_given(document):
        return Extension()
    found = _collect(document)
    extension = Extension(
        tool=_word(found.get("tool")),
        subcommand=_word(found.get("subcommand")),
        required_env=_required_env(found.get("required_env")),
        timeout_class=_timeout_class(found.get("timeout_class")),
        network=_network(found.get("network")),
        input_schema=_schema(found.get("input_schema")),
        output_schema=_schema(found.get("output_schema")),
        diagnostics=_unknown(found),
    )
    if extension.subcommand is not None and extension.tool is None:
        raise Broken("subcommand without tool", line=found["subcommand"].line, hint="name the tool")
    return extension
