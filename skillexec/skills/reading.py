"""From the bytes of a SKILL.md to a Skill: lenient, with a diagnostic for everything that was let pass."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from skillexec.errors import SkillError
from skillexec.model import Bundle, Diagnostic, Severity, Skill, Source
from skillexec.skills import rules
from skillexec.skills.bundle import file_in
from skillexec.skills.extension import Extension, read_extension
from skillexec.skills.frontmatter import PREFIX_BYTES, Broken, Document, parse, split
from skillexec.skills.regular import FILE_NAMES, read_regular, skill_file
from skillexec.skills.rules import Finding, finding, shown

_OURS = frozenset({"allowed_tools", "input_schema", "output_schema"})
_KNOWN = rules.KEYS | _OURS
# Keys whose value decides what runs, or under which name: twice is once too often.
_DECISIVE = ("name", "allowed-tools", "allowed_tools", "metadata", *_OURS)


def _refuse_ambiguity(document: Document) -> None:
    for path in sorted(document.duplicates):
        if path in _DECISIVE or path.startswith(("metadata.cyberagent", "input_schema.", "output_schema.")):
            message = f"the key {shown(path)} is given twice"
            raise Broken(message, line=document.lines.get(path), hint="remove one of them")


def _description(document: Document) -> str:
    value = document.values.get("description")
    line = document.lines.get("description", 1)
    if value is not None and not isinstance(value, str):
        raise Broken("the description is not text", line=line, hint="write it as one text")
    if value is None or not value.strip():
        raise Broken("there is no description", line=line, hint="add `description: ...` to SKILL.md")
    return value.strip()


def _name(document: Document, directory: Path) -> str:
    """The name, or else the folder's, so that the skill can at least be read."""
    value = document.values.get("name", "")
    if not isinstance(value, str):
        raise Broken("the name is not text", line=document.lines["name"], hint="write it as one text")
    return value.strip() or directory.name


def split_tools(text: str) -> tuple[str, ...]:
    """Tools with blanks or commas between; parentheses hold an entry together, as in `Bash(git add:*, git rm:*)`."""
    entries: list[str] = []
    start, depth = 0, 0
    for position, character in enumerate(text + ","):
        depth += (character == "(") - (character == ")" and depth > 0)
        at_end = position == len(text)
        if at_end or (depth == 0 and (character.isspace() or character == ",")):
            entries.append(text[start:position].strip())
            start = position + 1
    return tuple(entry for entry in entries if entry)


def _allowed_tools(document: Document) -> tuple[str, ...]:
    """Raises where the list can't be understood: no list at all would allow more."""
    key = "allowed-tools" if "allowed-tools" in document.values else "allowed_tools"
    value = document.values.get(key, "")
    if isinstance(value, str):
        return split_tools(value)
    if not isinstance(value, list) or not all(isinstance(entry, str) for entry in value):
        raise Broken(
            f"{key} is neither text nor a list of texts",
            line=document.lines[key],
            hint="write `- Tool` a line",
        )
    return tuple(entry.strip() for entry in value if entry.strip())


def _text(document: Document, key: str) -> str | None:
    value = document.values.get(key)
    return value.strip() or None if isinstance(value, str) else None


def _extra(document: Document) -> dict[str, Any]:
    """What has no field of its own: unknown keys, and known ones of a type that their field can't hold."""
    kept = {key: value for key, value in document.values.items() if key not in _KNOWN}
    for key in ("license", "compatibility"):
        if key in document.values and not isinstance(document.values[key], str):
            kept[key] = document.values[key]
    if document.values.get("metadata") and not isinstance(document.values["metadata"], dict):
        kept["metadata"] = document.values["metadata"]
    return kept


def _about_name(skill: Skill, document: Document) -> Iterator[Diagnostic]:
    line = document.lines.get("name")
    if not _text(document, "name"):
        yield Diagnostic("name-missing", "there is no name; the folder's is used", "add `name: ...`", line)
    problems = list(rules.name_problems(skill.name, line))
    yield from problems
    for mismatch in rules.name_mismatch(skill.name, skill.directory.name, line):
        yield replace(mismatch, severity=Severity.WARNING)
    if not problems and not skill.runnable:
        message = f"the name {shown(skill.name)} can be read, but not granted or run"
        yield Diagnostic("name-not-runnable", message, "use only a-z, 0-9 and single hyphens", line)


def _about_lengths(skill: Skill, document: Document) -> Iterator[Diagnostic]:
    lines = document.lines
    long = [
        *rules.length_problems(
            "description-long", skill.description, rules.DESCRIPTION_MAX, lines["description"]
        ),
        *rules.length_problems(
            "compatibility-long",
            skill.compatibility or "",
            rules.COMPATIBILITY_MAX,
            lines.get("compatibility"),
        ),
    ]
    yield from (replace(diagnostic, severity=Severity.WARNING) for diagnostic in long)


def _about_keys(skill: Skill, document: Document) -> Iterator[Diagnostic]:
    for key in skill.extra:
        line = document.lines.get(key)
        if key in rules.KEYS:
            yield Diagnostic(
                f"{key}-type", f"{key} has an unexpected type; kept as it is", "see the specification", line
            )
        else:
            message = f"{shown(key)} is not a key of the specification; kept"
            yield Diagnostic("key-unknown", message, "move it beneath `metadata`", line)
    if {"allowed-tools", "allowed_tools"} <= document.values.keys():
        message = "allowed_tools is ignored beside allowed-tools"
        yield Diagnostic("key-unknown", message, "remove it", document.lines["allowed_tools"])
    for key, value in skill.metadata.items():
        if not isinstance(value, str):
            line = document.lines.get(f"metadata.{key}")
            message = f"the metadata {shown(key)} is not text; kept as it is"
            yield Diagnostic("metadata-nested", message, "flatten it: `outer.inner: value`", line)


def _skill(document: Document, extension: Extension, directory: Path, file: str, source: Source) -> Skill:
    metadata = document.values.get("metadata")
    return Skill(
        name=_name(document, directory),
        description=_description(document),
        source=source,
        directory=directory,
        file=file,
        license=_text(document, "license"),
        compatibility=_text(document, "compatibility"),
        allowed_tools=_allowed_tools(document),
        metadata=metadata if isinstance(metadata, dict) else {},
        extra=_extra(document),
        tool=extension.tool,
        subcommand=extension.subcommand,
        required_env=extension.required_env,
        timeout_class=extension.timeout_class,
        network=extension.network,
        input_schema=extension.input_schema,
        output_schema=extension.output_schema,
    )


def read_skill(data: bytes, *, directory: Path, file: str, source: Source) -> Skill:
    """The skill that a SKILL.md describes; the first PREFIX_BYTES of it are enough.

    Raises SkillError with the reason where it is broken: no frontmatter, YAML that can't be read, no description, or
    settings of skillexec's own that can't be understood.
    """
    document = parse(split(data))
    _refuse_ambiguity(document)
    extension = read_extension(document)
    skill = _skill(document, extension, directory, file, source)
    found = (
        *document.diagnostics,
        *_about_name(skill, document),
        *_about_lengths(skill, document),
        *_about_keys(skill, document),
        *extension.diagnostics,
    )
    return replace(skill, diagnostics=found) if found else skill


def skill_in(bundle: Bundle, found: Skill) -> Skill:
    """The skill as the SKILL.md in its own bundle describes it.

    `found` is what the library knew before the bundle was taken, and its folder may have changed in between: what
    decides how a skill runs comes out of the same bytes as the digest that was granted, approved and recorded.
    """
    for file in FILE_NAMES:
        data = file_in(bundle, file)
        if data is not None:
            break
    else:
        raise SkillError(f"{found.directory} holds no SKILL.md any more", hint="try again")
    skill = read_skill(data[:PREFIX_BYTES], directory=found.directory, file=file, source=found.source)
    if skill.name != found.name:
        raise SkillError(f"{found.location} is no longer called {found.name}", hint="try again")
    return skill


def read_body(data: bytes) -> str:
    """The instructions after the frontmatter. Bytes that are not UTF-8 become U+FFFD."""
    return data[split(data).body_start :].decode("utf-8", "replace").strip()


def broken_finding(file: Path, error: SkillError) -> Finding:
    """The error that makes a skill broken, as a finding."""
    if isinstance(error, Broken):
        return Finding(file, "skill-broken", error.reason, error.hint, error.line)
    return Finding(file, "skill-broken", error.message, error.hint)


def validate_lenient(directory: Path) -> list[Finding]:
    """What loading the skill in this folder would say; it loads where none is an error."""
    file = directory / "SKILL.md"
    try:
        file = skill_file(directory)
        data = read_regular(file, PREFIX_BYTES)
        skill = read_skill(data, directory=directory, file=file.name, source=Source.USER)
    except SkillError as error:
        return [broken_finding(file, error)]
    return [finding(file, diagnostic) for diagnostic in skill.diagnostics]
