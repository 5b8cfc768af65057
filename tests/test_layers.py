"""Imports point one way (DESIGN 3). A module may import from layers below its own, never beside or above."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "skillexec"

# From the bottom up. Within one layer only modules of the same package may import each other.
LAYERS = (
    {"errors", "model", "shipped", "process"},
    {"schema", "home"},
    {"statements"},
    {"state", "config"},
    {"skills", "permissions", "vault", "redact", "sandbox", "audit", "schemas", "arguments"},
    {"result", "payload", "plan", "stopwatch"},
    {"testing", "images", "admin", "attempt", "journal", "catalog", "disclosure", "init", "secrets"},
    {"runner"},
    {"health"},
    {"cli", "mcp_server"},
    {"__main__", "__init__"},
)
# Stages take plain arguments: what a stage needs is handed to it.
NOT_FOR_STAGES = {"config", "home", "state"}
THIRD_PARTY = {
    "casbin": {"permissions"},
    "onepassword": {"vault"},
    "docker": {"images"},
    "click": {"cli", "__main__"},
    "rich": {"cli"},
    "mcp": {"mcp_server"},
    "sqlalchemy": {"schema", "statements", "state", "permissions", "audit", "secrets"},
    "ahocorasick_rs": {"redact"},
    "jsonschema_rs": {"schemas"},
    "pydantic": {"payload"},
}
MODULES = sorted(path for path in PACKAGE.rglob("*.py") if "builtin_skills" not in path.parts)


def _top(path: Path) -> str:
    return path.relative_to(PACKAGE).with_suffix("").parts[0]


def _layer(name: str) -> int:
    return next(level for level, names in enumerate(LAYERS) if name in names)


def _imports(path: Path) -> set[str]:
    """Every module that is imported anywhere in the file, also inside functions and for types only."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module == "skillexec":
            found.update(f"skillexec.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module)
    return found


def _own(path: Path) -> set[str]:
    names = {name.split(".")[1] for name in _imports(path) if name.startswith("skillexec.")}
    return {name for name in names if name != "__version__"} - {_top(path)}


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_a_module_imports_only_from_layers_below(path: Path) -> None:
    wrong = {name for name in _own(path) if _layer(name) >= _layer(_top(path))}
    assert not wrong, f"{path.name} reaches sideways or up to {sorted(wrong)}"


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_a_library_is_imported_only_where_it_belongs(path: Path) -> None:
    libraries = {name.split(".")[0] for name in _imports(path)} & set(THIRD_PARTY)
    wrong = {library for library in libraries if _top(path) not in THIRD_PARTY[library]}
    assert not wrong


@pytest.mark.parametrize("path", [p for p in MODULES if _layer(_top(p)) == 4], ids=lambda path: path.name)
def test_a_stage_takes_plain_arguments_and_not_the_config(path: Path) -> None:
    assert not _own(path) & NOT_FOR_STAGES


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_no_module_keeps_state(path: Path) -> None:
    assert not [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Global)]


HEAVY = ("docker", "casbin", "onepassword", "sqlalchemy", "pydantic", "rich", "mcp", "yaml", "asyncio")


@pytest.mark.parametrize("arguments", [["--help"], ["--version"]])
def test_the_command_line_starts_without_what_it_does_not_need(arguments: list[str]) -> None:
    program = (
        "import sys\n"
        "from skillexec.__main__ import main\n"
        f"try: main({arguments!r})\n"
        f"finally: print([name for name in {HEAVY!r} if name in sys.modules], file=sys.stderr)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stderr.strip() == "[]"
