"""Validation that is exactly as strict as the reference validator, `skills-ref`, and without its bugs.

It accepts and rejects the same skills, with four differences, each a bug on the other side: `---` inside a value
does not end the frontmatter, a byte order mark is fine, what makes it crash gives a finding, and nested metadata,
which it turns into the source text of a Python dict, gives a warning. And one bound of our own: frontmatter of more
than 64 KiB is refused, so that no file takes longer than a second.
"""

from __future__ import annotations

import codecs
from collections.abc import Iterator
from pathlib import Path

from skillexec.errors import SkillError
from skillexec.model import Diagnostic, Severity
from skillexec.skills import frontmatter, reference, rules
from skillexec.skills.reading import broken_finding
from skillexec.skills.reference import Mapping, Node, Refused, Scalar
from skillexec.skills.regular import MAX_FILE, read_regular, skill_file
from skillexec.skills.rules import Finding


def _error(rule: str, message: str, fix: str, line: int | None = None) -> Diagnostic:
    return Diagnostic(rule, message, fix, line, Severity.ERROR)


def _text(data: bytes) -> str:
    """The file as text with LF line ends. All of it has to be UTF-8, not only the frontmatter."""
    try:
        decoder = codecs.getincrementaldecoder("utf-8-sig")()
        text = decoder.decode(data, final=len(data) < MAX_FILE)
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise Refused(
            "encoding", f"byte 0x{data[error.start]:02x} is not UTF-8", "save it as UTF-8", line
        ) from None
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _root(data: bytes) -> Mapping:
    parts = frontmatter.split(_text(data).encode())
    root = reference.load(frontmatter.decode(parts.yaml))
    if not isinstance(root, Mapping):
        raise Refused(
            "frontmatter", "the frontmatter holds no keys", "write `name: ...` and `description: ...`", 1
        )
    return root


def _required(fields: dict[str, tuple[int, Node]], key: str) -> tuple[str | None, Diagnostic | None]:
    """The text of a field that has to be there, or what is wrong."""
    if key not in fields:
        return None, _error(f"{key}-missing", f"there is no {key}", f"add `{key}: ...`", 1)
    line, node = fields[key]
    text = node.text if isinstance(node, Scalar) else None
    if text is None or not text.strip():
        return None, _error(f"{key}-text", f"{key} must be text that is not empty", "write some", line)
    return text, None


def _unknown(fields: dict[str, tuple[int, Node]]) -> Iterator[Diagnostic]:
    for key in sorted(set(fields) - rules.KEYS):
        message = f"{rules.shown(key)} is not a key of the specification"
        yield _error("key-unknown", message, "move it beneath `metadata`, or remove it", fields[key][0])


def _name(fields: dict[str, tuple[int, Node]], folder: str) -> Iterator[Diagnostic]:
    name, problem = _required(fields, "name")
    if problem is not None:
        yield problem
    if name is not None:
        yield from rules.name_problems(name, fields["name"][0])
        yield from rules.name_mismatch(name, folder, fields["name"][0])


def _description(fields: dict[str, tuple[int, Node]]) -> Iterator[Diagnostic]:
    text, problem = _required(fields, "description")
    if problem is not None:
        yield problem
    if text is not None:
        yield from rules.length_problems(
            "description-long", text, rules.DESCRIPTION_MAX, fields["description"][0]
        )


def _compatibility(fields: dict[str, tuple[int, Node]]) -> Iterator[Diagnostic]:
    if "compatibility" not in fields:
        return
    line, node = fields["compatibility"]
    text = node.text if isinstance(node, Scalar) else None
    if text is None:
        yield _error("compatibility-text", "compatibility must be text", "write it as one text", line)
    else:
        yield from rules.length_problems("compatibility-long", text, rules.COMPATIBILITY_MAX, line)


def _metadata(fields: dict[str, tuple[int, Node]]) -> Iterator[Diagnostic]:
    """Warnings only: the reference validator lets these pass."""
    if "metadata" not in fields:
        return
    line, node = fields["metadata"]
    if not isinstance(node, Mapping):
        if not isinstance(node, Scalar) or node.value:
            yield Diagnostic(
                "metadata-type", "metadata should be a mapping of text to text", "write `key: value`", line
            )
        return
    for key, value in node.pairs:
        if not isinstance(value, Scalar):
            message = (
                "metadata should be text to text; other readers see this value as one text, or not at all"
            )
            yield Diagnostic("metadata-nested", message, "flatten it: `outer.inner: value`", key.line)


def _diagnostics(root: Mapping, folder: str) -> Iterator[Diagnostic]:
    fields = {key.value: (key.line, value) for key, value in root.pairs if isinstance(key, Scalar)}
    yield from _unknown(fields)
    yield from _name(fields, folder)
    yield from _description(fields)
    yield from _compatibility(fields)
    yield from _metadata(fields)


def validate_strict(directory: Path) -> list[Finding]:
    """Everything that is wrong with the skill in this folder; it is valid where none is an error."""
    file = directory / "SKILL.md"
    try:
        file = skill_file(directory)
        found = list(_diagnostics(_root(read_regular(file)), directory.name))
    except Refused as refused:
        found = [_error(refused.rule, refused.message, refused.fix, refused.line)]
    except SkillError as error:
        return [broken_finding(file, error)]
    return [rules.finding(file, diagnostic) for diagnostic in found]
