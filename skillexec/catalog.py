"""The library of a home: its roots, the built-in skills, and a project's own folders."""

from __future__ import annotations

from pathlib import Path

from skillexec.config import Config
from skillexec.home import Home
from skillexec.model import Source
from skillexec.shipped import builtin_skills
from skillexec.skills.discovery import Library


def library_for(config: Config, home: Home, *, project: Path | None = None) -> Library:
    """What can be found from here. Indexes are kept in the home, where there is one."""
    roots = [(builtin_skills(), Source.BUILTIN)]
    roots += [(root.path, root.source) for root in config.ordered_roots()]
    cache = home.cache if home.exists else None
    return Library(roots, project=project, trusted=config.trusted, cache=cache)
