"""Skills: found, read, checked and disclosed. The public names, each loaded when it is first used."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from skillexec.skills.bundle import bundle_contents, take_bundle
    from skillexec.skills.dependencies import Dependencies, find_dependencies
    from skillexec.skills.discovery import Collision, Library, Skills
    from skillexec.skills.invocation import Invocation, parse_invocation
    from skillexec.skills.prompt import render_prompt
    from skillexec.skills.reading import read_body, read_skill
    from skillexec.skills.resources import Body, Resource, list_files, load_body, read_resource
    from skillexec.skills.root import Broken, Listed, Problem
    from skillexec.skills.tools import permitted_tools

__all__ = [
    "Body",
    "Broken",
    "Collision",
    "Dependencies",
    "Invocation",
    "Library",
    "Listed",
    "Problem",
    "Resource",
    "Skills",
    "bundle_contents",
    "find_dependencies",
    "list_files",
    "load_body",
    "parse_invocation",
    "permitted_tools",
    "read_body",
    "read_resource",
    "read_skill",
    "render_prompt",
    "take_bundle",
]

_HOMES = {
    "bundle": ("bundle_contents", "take_bundle"),
    "dependencies": ("Dependencies", "find_dependencies"),
    "discovery": ("Collision", "Library", "Skills"),
    "invocation": ("Invocation", "parse_invocation"),
    "prompt": ("render_prompt",),
    "reading": ("read_body", "read_skill"),
    "resources": ("Body", "Resource", "list_files", "load_body", "read_resource"),
    "root": ("Broken", "Listed", "Problem"),
    "tools": ("permitted_tools",),
}


def __getattr__(name: str) -> Any:
    for module, names in _HOMES.items():
        if name in names:
            from importlib import import_module

            return getattr(import_module(f"{__name__}.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
