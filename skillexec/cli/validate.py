"""`skillexec skill validate`: what is wrong with skills, one line per finding."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from skillexec.cli.context import App, Command, pass_app, working_directory
from skillexec.errors import SkillError
from skillexec.model import Severity

if TYPE_CHECKING:
    from skillexec.skills.comparison import Comparison
    from skillexec.skills.rules import Finding

_COLOURS = {Severity.ERROR: "red", Severity.WARNING: "yellow"}


@dataclass(frozen=True, slots=True)
class _Result:
    """All that is said about one skill."""

    directory: Path
    findings: Sequence[Finding]
    comparison: Comparison | None

    @property
    def valid(self) -> bool:
        return all(found.severity is not Severity.ERROR for found in self.findings)


def _folders(path: Path) -> list[Path]:
    """The skills that a path stands for: a folder, its SKILL.md, or a folder of such folders."""
    from skillexec.skills.regular import FILE_NAMES, holds_skill, is_closed

    # Absolute, because a skill's name has to be its folder's, and `.` has none.
    try:
        path = Path(os.path.abspath(path))  # noqa: PTH100 - pathlib's own would follow links
        if path.name in FILE_NAMES and not path.is_dir():
            return [path.parent]
        if holds_skill(path) or is_closed(path) or not path.is_dir():
            return [path]
        # A folder that can't be looked into may hold one: that is said, not passed over.
        return sorted(child for child in path.iterdir() if holds_skill(child) or is_closed(child)) or [path]
    except OSError as error:
        raise SkillError(f"{path} can't be read: {error.strerror}", hint="check who may read it") from error


def _check(directory: Path, strict: bool, with_skills_ref: bool) -> _Result:
    from skillexec.skills.comparison import compare
    from skillexec.skills.reading import validate_lenient
    from skillexec.skills.strict import validate_strict

    findings = validate_strict(directory) if strict else validate_lenient(directory)
    return _Result(directory, findings, compare(directory) if with_skills_ref else None)


def _printable(text: object) -> str:
    """One line, no control characters: paths and messages may come from a stranger's archive."""
    return "".join(character if character.isprintable() else "�" for character in str(text))


def _place(path: Path) -> str:
    """Relative where it lies beneath the working directory, as compilers and editors have it."""
    here = working_directory()
    return _printable(path.relative_to(here) if here and path.is_relative_to(here) else path)


def _line(found: Finding) -> str:
    place = _place(found.file) + (f":{found.line}" if found.line else "")
    severity = click.style(found.severity, fg=_COLOURS[found.severity])
    fix = f" (fix: {found.fix})" if found.fix else ""
    return f"{place}: {severity} {found.rule}: {_printable(found.message + fix)}"


def _difference(comparison: Comparison) -> str:
    folder = _place(comparison.directory)
    if comparison.ours is comparison.theirs:
        return f"{folder}: skills-ref {comparison.theirs} it too"
    said = f": {_printable(comparison.errors[0].splitlines()[0])}" if comparison.errors else ""
    return f"{folder}: skills-ref {comparison.theirs}, --strict {comparison.ours} ({comparison.why}){said}"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _summary(results: Sequence[_Result]) -> str:
    invalid = sum(not result.valid for result in results)
    warnings = sum(found.severity is Severity.WARNING for result in results for found in result.findings)
    verdicts = f"{len(results) - invalid} valid, {invalid} invalid"
    return f"{_count(len(results), 'skill')}: {verdicts}, {_count(warnings, 'warning')}"


def _print(results: Sequence[_Result]) -> None:
    for result in results:
        for found in result.findings:
            click.echo(_line(found))
        if result.comparison is not None:
            click.echo(_difference(result.comparison))
    click.echo(_summary(results))


def _document(results: Sequence[_Result]) -> dict[str, Any]:
    return {
        "valid": all(result.valid for result in results),
        "skills": [
            {
                "directory": str(result.directory),
                "valid": result.valid,
                "findings": [asdict(found) for found in result.findings],
                **({"skills_ref": asdict(result.comparison)} if result.comparison else {}),
            }
            for result in results
        ],
    }


@click.command(cls=Command)
@click.argument(
    "paths", metavar="PATH...", nargs=-1, required=True, type=click.Path(readable=False, path_type=Path)
)
@click.option("--strict", is_flag=True, help="Be exactly as strict as the reference validator, skills-ref.")
@click.option(
    "--with-skills-ref", is_flag=True, help="Run skills-ref too, and say where --strict differs from it."
)
@pass_app
def validate(app: App, paths: tuple[Path, ...], strict: bool, with_skills_ref: bool) -> None:
    """Say what is wrong with skills, and how to put it right.

    PATH is a skill's folder, its SKILL.md, or a folder of skills. Without --strict it is an error only if the skill
    could not be loaded, granted or run. The exit status is 24 where there is an error.
    """
    folders = dict.fromkeys(folder for path in paths for folder in _folders(path))
    results = [_check(folder, strict, with_skills_ref) for folder in folders]
    app.answer(_document(results), lambda: _print(results))
    if not all(result.valid for result in results):
        click.get_current_context().exit(SkillError.exit_status)
