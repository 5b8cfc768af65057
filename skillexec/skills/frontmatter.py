"""The frontmatter of a SKILL.md: where it ends, and a lenient reading of its YAML.

Every scalar is text, as the author wrote it (`version: 1.10` stays `1.10`, a date stays a date's text), except
beneath the keys whose content is JSON by nature: the two schemas and metadata.cyberagent.

The YAML is read event by event from libyaml: nothing recurses, an alias is refused when it is met, and depth and
size are bounded, so that hostile input costs milliseconds.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from skillexec.errors import SkillError
from skillexec.model import Diagnostic
from skillexec.skills.rules import shown

if TYPE_CHECKING:
    from yaml.events import CollectionStartEvent, Event, ScalarEvent

MAX_BYTES = 64 << 10  # of frontmatter: sixty times the longest description that the specification allows
PREFIX_BYTES = MAX_BYTES + 256  # what a reader of metadata has to read of a file: its closing line included
MAX_DEPTH = 256  # deeper than the reference validator survives
MAX_PATH = 256

BOM = b"\xef\xbb\xbf"
_OPENING = b"---"
# Trailing blanks are let pass: in column 0 such a line can't be part of any YAML value.
_CLOSING = re.compile(rb"(\r\n|[\r\n])---[ \t]*(?:\r\n|[\r\n]|\Z)")
_BREAK = re.compile(r"\r\n|[\r\n]")
_CONTROL = re.compile("[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")

_TYPED = ("input_schema", "output_schema", "metadata.cyberagent")
_FLAT = "metadata.cyberagent."
_WORDS: dict[str, bool | None] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
_INTEGER = re.compile(r"[-+]?(?:0|[1-9][0-9]{0,99})")
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]{1,4})?")

# A line `key: value` whose value may need quotes: see _quoted.
_ENTRY = re.compile(r"[ ]*(?:- )*([A-Za-z0-9_][\w.\- ]*):[ \t]+(\S.*)")
_CLOSED_BY = {"[": "]", "{": "}", '"': '"', "'": "'"}


@dataclass(frozen=True, slots=True)
class Frontmatter:
    """The YAML between the two `---`, undecoded, and where the body starts."""

    yaml: bytes = field(repr=False)
    body_start: int


@dataclass(frozen=True, slots=True)
class Document:
    """What the YAML says. `lines` knows the line of every key by its dotted path."""

    values: dict[str, Any]
    lines: dict[str, int]
    diagnostics: tuple[Diagnostic, ...]
    duplicates: frozenset[str]  # dotted paths of keys that were given twice


class Broken(SkillError):
    """Why a skill is left out, and the line where it was seen."""

    def __init__(self, reason: str, *, line: int | None = None, hint: str = "") -> None:
        super().__init__(f"line {line}: {reason}" if line else reason, hint=hint)
        self.reason = reason
        self.line = line


class TooLong(Broken):
    """More frontmatter than we read."""

    def __init__(self) -> None:
        super().__init__(
            f"the frontmatter is longer than {MAX_BYTES >> 10} KiB", hint="move text into the body"
        )


def split(data: bytes) -> Frontmatter:
    """Find the frontmatter in a file, or in the first PREFIX_BYTES of one.

    It ends at a line that is `---`, never at `---` inside a value. A byte order mark and any line ends are fine.
    """
    start = len(BOM) if data.startswith(BOM) else 0
    if not data.startswith(_OPENING, start):
        raise Broken(
            "there is no frontmatter",
            line=1,
            hint="start the file with a line `---`, then name and description",
        )
    start += len(_OPENING)
    closing = _CLOSING.search(data, start, start + PREFIX_BYTES)
    if closing is None or closing.start() - start > MAX_BYTES:
        raise _unclosed(len(data) - start)
    return Frontmatter(data[start : closing.end(1)], closing.end())


def _unclosed(length: int) -> Broken:
    if length > MAX_BYTES:
        return TooLong()
    return Broken("the frontmatter is not closed", hint="end it with a line that is exactly `---`")


def decode(yaml: bytes) -> str:
    """The YAML as text, or the line of the first byte that is not UTF-8."""
    try:
        return yaml.decode()
    except UnicodeDecodeError as error:
        line = line_of(yaml[: error.start].decode(), error.start)
        raise Broken(
            f"byte 0x{yaml[error.start]:02x} is not UTF-8", line=line, hint="save the file as UTF-8"
        ) from None


def line_of(text: str, position: int) -> int:
    """The line, counted from 1, of a position in the text after the opening `---`."""
    return len(_BREAK.findall(text, 0, position)) + 1


def parse(frontmatter: Frontmatter) -> Document:
    """Read the YAML leniently. Raises SkillError where it can't be read at all."""
    text = decode(frontmatter.yaml)
    try:
        return _read(text)
    except _Unreadable as unreadable:
        return _read_quoted(text, unreadable)


class _Unreadable(Exception):
    """libyaml gave up; quoting may still help."""

    def __init__(self, problem: str, line: int) -> None:
        super().__init__(problem)
        self.problem = problem
        self.line = line


def _as_broken(unreadable: _Unreadable) -> Broken:
    quotes = "mapping values" in unreadable.problem
    hint = "put the value in quotes" if quotes else "correct the YAML on that line"
    return Broken(f"the YAML can't be read: {unreadable.problem}", line=unreadable.line, hint=hint)


def _read_quoted(text: str, first: _Unreadable) -> Document:
    """The second try, with quotes around values that have none and need them."""
    repaired, quoted = _quoted(text)
    if not quoted:
        raise _as_broken(first)
    try:
        document = _read(repaired)
    except _Unreadable as left:
        raise _as_broken(left) from None
    message = "the value is not valid YAML without quotes; read as text"
    found = tuple(Diagnostic("yaml-unquoted", message, "put it in quotes", line) for line in quoted)
    return Document(document.values, document.lines, found + document.diagnostics, document.duplicates)


def _quoted(text: str) -> tuple[str, list[int]]:
    """The text with quotes where they are missing, and the lines that got them."""
    lines, changed = _BREAK.sub("\n", text).split("\n"), []
    index = 0
    while index < len(lines):
        entry = _ENTRY.fullmatch(lines[index])
        end = _end_of_value(lines, index, entry.start(1)) if entry else index + 1
        if entry and _needs_quotes(" ".join([entry[2], *lines[index + 1 : end]]).rstrip()):
            changed.append(index + 1)
            lines[index:end] = [line.replace("'", "''") for line in lines[index:end]]
            lines[index] = f"{entry[0][: entry.start(2)]}'{lines[index][entry.start(2) :].rstrip()}"
            lines[end - 1] += "'"
        index = end
    return "\n".join(lines), changed


def _end_of_value(lines: list[str], start: int, column: int) -> int:
    """Where the value ends that starts on this line: before the next line that is not deeper than its key."""
    end = start + 1
    for index in range(start + 1, len(lines)):
        line = lines[index]
        if line.strip():
            if len(line) - len(line.lstrip(" ")) <= column:
                break
            end = index + 1
    return end


def _needs_quotes(value: str) -> bool:
    if value[0] in _CLOSED_BY:
        return _CLOSED_BY[value[0]] not in (value[-1], value.split(" #", maxsplit=1)[0].rstrip()[-1])
    if value[0] in "@`%*&!":
        return True
    return value[0] not in "|>#" and (": " in value or value.endswith(":") or ":\t" in value)


def _read(text: str) -> Document:
    from yaml.error import MarkedYAMLError, YAMLError

    try:
        return _Reader().read(_events(text))
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise _Unreadable(str(error.problem or error.context), mark.line + 1 if mark else 1) from None
    except YAMLError as error:
        control = _CONTROL.search(text)
        if control is None:
            raise _Unreadable(str(error), 1) from None
        line = line_of(text, control.start())
        raise Broken(f"control character U+{ord(control[0]):04X}", line=line, hint="remove it") from None


def _events(text: str) -> Iterator[Event]:
    import yaml

    # The C loader where PyYAML was built with it, which is everywhere that wheels exist.
    loader: Any = getattr(yaml, "CBaseLoader", yaml.BaseLoader)(text)
    try:
        while (event := loader.get_event()) is not None:
            yield event
    finally:
        loader.dispose()


def json_scalar(text: str) -> Any:
    """A plain scalar as JSON would have it; dates and everything else stay text."""
    if text in _WORDS:
        return _WORDS[text]
    if _INTEGER.fullmatch(text):
        return int(text)
    if _FLOAT.fullmatch(text) and math.isfinite(number := float(text)):
        return number
    return text


class _Frame:
    """A mapping or list under construction."""

    __slots__ = ("key", "path", "typed", "value")

    def __init__(self, value: dict[str, Any] | list[Any], path: str, typed: bool) -> None:
        self.value = value
        self.path = path  # dotted, of this container
        self.typed = typed
        self.key: str | None = None  # read, and waiting for its value


class _Reader:
    """Builds plain values from events, without recursion."""

    def __init__(self) -> None:
        self.frames: list[_Frame] = []
        self.root: Any = None
        self.lines: dict[str, int] = {}
        self.diagnostics: list[Diagnostic] = []
        self.duplicates: set[str] = set()
        self.documents = 0

    def read(self, events: Iterator[Event]) -> Document:
        for event in events:
            _HANDLERS[type(event).__name__](self, event)
        if not isinstance(self.root, dict):
            raise Broken(
                "the frontmatter holds no keys", line=1, hint="write `name: ...` and `description: ...`"
            )
        return Document(self.root, self.lines, tuple(self.diagnostics), frozenset(self.duplicates))

    def ignore(self, _event: Event) -> None:
        pass

    def document(self, event: Event) -> None:
        self.documents += 1
        if self.documents > 1:
            raise Broken(
                "a second YAML document", line=_line(event), hint="remove the line `...` and what follows it"
            )

    def alias(self, event: Event) -> None:
        raise Broken(
            "YAML aliases are refused",
            line=_line(event),
            hint="write the value out, or quote it if it is text",
        )

    def scalar(self, event: ScalarEvent) -> None:
        self._note_properties(event)
        frame = self.frames[-1] if self.frames else None
        if frame is not None and frame.key is None and isinstance(frame.value, dict):
            self._key(frame, event)
        elif frame is not None and frame.typed and event.implicit[0]:
            self._put(json_scalar(event.value))
        else:
            self._put(event.value)

    def start(self, event: CollectionStartEvent) -> None:
        self._note_properties(event)
        if len(self.frames) >= MAX_DEPTH:
            raise Broken(f"nested deeper than {MAX_DEPTH} levels", line=_line(event), hint="make it flatter")
        value: dict[str, Any] | list[Any] = {} if type(event).__name__ == "MappingStartEvent" else []
        if not self.frames:
            self.root = value
            self.frames.append(_Frame(value, "", False))
            return
        outer = self.frames[-1]
        if outer.key is None and isinstance(outer.value, dict):
            raise Broken("a key that is not text", line=_line(event), hint="use plain text as the key")
        path = _join(outer.path, outer.key)
        self._put(value)
        self.frames.append(_Frame(value, path, outer.typed or path in _TYPED or path.startswith(_FLAT)))

    def end(self, _event: Event) -> None:
        self.frames.pop()

    def _key(self, frame: _Frame, event: ScalarEvent) -> None:
        key = event.value
        path = _join(frame.path, key)
        if key in frame.value:
            self.duplicates.add(path)
            self._note(
                "key-duplicate",
                f"the key {shown(key)} is given twice; the last one counts",
                "remove one",
                event,
            )
        else:
            self.lines.setdefault(path, _line(event))
        frame.key = key

    def _put(self, value: Any) -> None:
        if not self.frames:
            self.root = value
            return
        frame = self.frames[-1]
        if isinstance(frame.value, list):
            frame.value.append(value)
        else:
            assert frame.key is not None
            frame.value[frame.key] = value
            frame.key = None

    def _note_properties(self, event: ScalarEvent | CollectionStartEvent) -> None:
        if event.tag is not None:
            self._note("tag-ignored", f"the YAML tag {shown(event.tag)} is ignored", "remove it", event)
        if event.anchor is not None:
            self._note(
                "anchor-ignored", f"the YAML anchor {shown(event.anchor)} is ignored", "remove it", event
            )

    def _note(self, rule: str, message: str, fix: str, event: Event) -> None:
        self.diagnostics.append(Diagnostic(rule, message, fix, _line(event)))


def _join(path: str, key: str | None) -> str:
    """A dotted path; it stops growing before many long keys could fill the memory."""
    if not path or not key:
        return (key or path)[:MAX_PATH]
    return f"{path}.{key}" if len(path) + len(key) < MAX_PATH else path


def _line(event: Any) -> int:
    return int(event.start_mark.line) + 1


# By name, so that PyYAML is imported when there is something to parse and not before.
_HANDLERS: dict[str, Any] = {
    "StreamStartEvent": _Reader.ignore,
    "DocumentStartEvent": _Reader.document,
    "ScalarEvent": _Reader.scalar,
    "AliasEvent": _Reader.alias,
    "MappingStartEvent": _Reader.start,
    "SequenceStartEvent": _Reader.start,
    "MappingEndEvent": _Reader.end,
    "SequenceEndEvent": _Reader.end,
    "DocumentEndEvent": _Reader.ignore,
    "StreamEndEvent": _Reader.ignore,
}
