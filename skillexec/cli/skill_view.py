"""How skills are shown: as JSON for programs, as text for people. What authors wrote never reaches a terminal raw."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from skillexec.cli.context import stdout_is_terminal
from skillexec.cli.table import print_table, printable

if TYPE_CHECKING:
    from skillexec.model import Bundle, Skill
    from skillexec.skills.dependencies import Dependencies
    from skillexec.skills.discovery import Skills
    from skillexec.skills.root import Broken, Problem

_WIDTH = 80  # of a description in a list; the whole is in `skill show` and in --json


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _WIDTH else line[: _WIDTH - 1] + "…"


def summary(skill: Skill) -> dict[str, Any]:
    """A skill in a list, as JSON."""
    return {
        "name": skill.name,
        "description": skill.description,
        "source": str(skill.source),
        "directory": str(skill.directory),
        "runnable": skill.runnable,
        "diagnostics": len(skill.diagnostics),
    }


def _trouble(items: Iterable[Broken | Problem]) -> list[dict[str, Any]]:
    return [{key: str(value) for key, value in asdict(item).items()} for item in items]


def catalogue(found: Skills) -> dict[str, Any]:
    """Everything that a scan found, as JSON."""
    return {
        "skills": [summary(skill) for skill in found.skills.values()],
        "collisions": [
            {"name": one.name, "kept": str(one.kept.directory), "shadowed": str(one.shadowed.directory)}
            for one in found.collisions
        ],
        "broken": _trouble(found.broken),
        "problems": _trouble(found.problems),
    }


def _notes(found: Skills, hidden: int) -> Iterable[str]:
    if hidden:
        yield f"{hidden} more, shadowed or with a name that can't be granted: `skillexec skill list --all`"
    if found.broken:
        yield f"{len(found.broken)} broken: `skillexec skill list --broken`"
    for problem in found.problems:
        yield f"{problem.path}: {problem.message} ({problem.hint})"


def print_list(found: Skills) -> None:
    """The skills that can be granted and run."""
    skills = [skill for skill in found.skills.values() if skill.runnable]
    rows = [(skill.name, skill.source, _short(skill.description)) for skill in skills]
    print_table(("name", "source", "description"), rows, empty="no skills")
    for note in _notes(found, len(found.skills) - len(skills) + len(found.collisions)):
        click.echo(printable(note), err=True)


def print_all(found: Skills) -> None:
    """Every skill that could be read, and what keeps it from being used."""
    rows = [
        (skill.name, skill.source, "" if skill.runnable else "the name can't be granted", skill.directory)
        for skill in found.skills.values()
    ]
    rows += [
        (one.name, one.shadowed.source, f"shadowed by {one.kept.directory}", one.shadowed.directory)
        for one in found.collisions
    ]
    print_table(("name", "source", "state", "folder"), rows, empty="no skills")
    for note in _notes(found, 0):
        click.echo(printable(note), err=True)


def print_broken(found: Skills) -> None:
    """What can't be used, and why."""
    rows = [(one.directory / one.file, str(one.source), one.reason, one.hint) for one in found.broken]
    rows += [(one.path, "", one.message, one.hint) for one in found.problems]
    print_table(("where", "source", "reason", "what to do"), rows, empty="nothing is broken")


def details(
    skill: Skill, bundle: Bundle | None, needs: Sequence[Dependencies], problem: str
) -> dict[str, Any]:
    """All that is known of one skill, as JSON."""
    return {
        **summary(skill),
        "location": str(skill.location),
        "license": skill.license,
        "compatibility": skill.compatibility,
        "allowed_tools": skill.allowed_tools,
        "tool": skill.tool,
        "subcommand": skill.subcommand,
        "required_env": skill.required_env,
        "timeout_class": str(skill.timeout_class),
        "network": skill.network,
        "input_schema": skill.input_schema,
        "output_schema": skill.output_schema,
        "metadata": skill.metadata,
        "extra": skill.extra,
        "digest": bundle.digest if bundle else None,
        "files": [asdict(file) for file in bundle.files] if bundle else [],
        "dependencies": [asdict(one) for one in needs],
        "diagnostics": [asdict(one) for one in skill.diagnostics],
        "problem": problem,
    }


_FACTS = {
    "source": "source",
    "location": "file",
    "digest": "digest",
    "license": "license",
    "compatibility": "needs",
    "tool": "tool",
    "subcommand": "subcommand",
    "required_env": "secrets",
    "timeout_class": "timeout",
    "network": "network",
    "allowed_tools": "allowed tools",
    "problem": "can't be run",
}


def _fact(value: Any) -> str:
    return " ".join(map(str, value)) if isinstance(value, tuple) else str(value)


def _section(title: str, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    if rows:
        click.echo(f"\n{title}")
        print_table(columns, rows)


def _fields(schema: Mapping[str, Any] | None) -> list[tuple[object, ...]]:
    """The keys that a schema speaks of; the whole schema is in --json."""
    properties = (schema or {}).get("properties")
    required = (schema or {}).get("required")
    if not isinstance(properties, Mapping):
        return []
    needed = required if isinstance(required, list) else []
    rows: list[tuple[object, ...]] = []
    for key, about in properties.items():
        told = about if isinstance(about, Mapping) else {}
        kind = told.get("type", told.get("enum", ""))
        types = " or ".join(map(str, kind)) if isinstance(kind, list) else kind
        rows.append(
            (key, types, "required" if key in needed else "", _short(str(told.get("description", ""))))
        )
    return rows


def print_details(shown: Mapping[str, Any]) -> None:
    """All that is known of one skill, for a person."""
    click.echo(f"{click.style(printable(shown['name']), bold=True)}\n{printable(shown['description'])}\n")
    for key, label in _FACTS.items():
        if shown[key]:
            click.echo(f"{label:14}{' '.join(printable(_fact(shown[key])).split())}")
    files = [(one["path"], one["size"], "executable" if one["executable"] else "") for one in shown["files"]]
    for title in ("input", "output"):
        _section(title.capitalize(), ("key", "type", "", "meaning"), _fields(shown[f"{title}_schema"]))
    _section("Files", ("path", "bytes", ""), files)
    needs = [
        (one["file"], one["kind"], one["problem"] or ", ".join(one["requires"]), one["python"] or "")
        for one in shown["dependencies"]
    ]
    _section("Dependencies", ("file", "kind", "asks for", "python"), needs)
    found = [(one["line"], one["rule"], one["message"], one["fix"]) for one in shown["diagnostics"]]
    _section("Findings", ("line", "rule", "what", "what to do"), found)


def print_text(text: str, notice: str) -> None:
    """A file's text as it is; on a terminal without what could control it. The notice comes last, on its own line."""
    shown = printable(text) if stdout_is_terminal() else text
    click.echo(
        shown, nl=not text.endswith("\n"), color=True
    )  # without color, echo would drop bytes of a file
    if notice:
        click.echo(printable(notice))
