"""What tests of whole runs share: a home with skills and grants, and a runner on it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from skillexec.admin import Admin
from skillexec.audit import Record
from skillexec.audit.query import Filter, page
from skillexec.config import Root, save_roots
from skillexec.home import Home
from skillexec.init import create_home
from skillexec.model import Source
from skillexec.permissions.grants import Wish
from skillexec.runner import Runner
from skillexec.state import State
from skillexec.testing import FakeVault

SYSTEM, TEAM = "scout", "research"
_PASSED_ON = ("SKILLEXEC_SANDBOX_IMAGE", "DOCKER_HOST")


class Place:
    """A home with one root per source, one team and one system."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.home = Home(folder / "home")
        create_home(self.home, actor="tester", config="")
        roots = tuple(
            Root(folder / source, source) for source in (Source.ORG, Source.USER, Source.THIRD_PARTY)
        )
        for root in roots:
            root.path.mkdir()
        save_roots(self.home.config_file, roots)
        with self.admin() as admin:
            admin.add_team(TEAM)
            admin.add_system(SYSTEM, team=TEAM)

    @contextmanager
    def admin(self) -> Iterator[Admin]:
        with State.open(self.home.state_file) as state:
            yield Admin(state, actor="tester")

    def configure(self, text: str) -> None:
        """Add settings to the config."""
        before = self.home.config_file.read_text()
        self.home.config_file.write_text(text + "\n" + before)

    def skill(
        self,
        name: str,
        files: Mapping[str, str | bytes],
        *,
        source: Source = Source.ORG,
        extension: Mapping[str, Any] | None = None,
        grant: bool = True,
    ) -> Path:
        """Write a skill, and grant it to the system."""
        folder = self.folder / source / name
        added = f"\nmetadata:\n  cyberagent: |\n    {json.dumps(extension)}" if extension else ""
        front = f"---\nname: {name}\ndescription: A skill of a test.{added}\n---\nBody.\n"
        for path, content in {"SKILL.md": front, **files}.items():
            target = folder / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(textwrap.dedent(content).encode() if isinstance(content, str) else content)
        if grant:
            with self.admin() as admin:
                admin.add_to_envelope(TEAM, [name])
                admin.add_grants(SYSTEM, [Wish(name, source)])
        return folder

    def system(self, name: str, *skills: str, team: str = TEAM, source: Source = Source.ORG) -> None:
        """Another system, which holds these skills: five are the most that one can."""
        with self.admin() as admin:
            admin.add_team(team)
            admin.add_system(name, team=team)
            if skills:
                admin.add_to_envelope(team, list(skills))
                admin.add_grants(name, [Wish(skill, source) for skill in skills])

    def command(self, *words: str, **options: Any) -> subprocess.CompletedProcess[str]:
        """The command line in a process of its own, on this home and with a bare environment."""
        environment = {"PATH": os.environ["PATH"], "SKILLEXEC_HOME": str(self.home.path)}
        environment |= {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
        environment |= options.pop("env", {})
        options.setdefault("cwd", self.folder)
        options.setdefault("timeout", 60)
        if "input" not in options:
            options.setdefault("stdin", subprocess.DEVNULL)
        command = [sys.executable, "-P", "-m", "skillexec", *words]
        return subprocess.run(
            command, env=environment, capture_output=True, text=True, check=False, **options
        )

    def map_secret(self, name: str, reference: str, **scope: str) -> None:
        with self.admin() as admin:
            admin.map_secret(name=name, reference=reference, **scope)

    def records(self, **filters: Any) -> list[Record]:
        """The audit records, oldest first."""
        with State.open(self.home.state_file) as state, state.read() as connection:
            return list(reversed(page(connection, Filter(**filters), limit=10_000).records))

    def story(self, run: str) -> list[tuple[str, str | None]]:
        return [(record.event, record.outcome) for record in self.records(run=run)]

    def runner(self, *, backend: FakeVault | None = None, warm: int = 1, **options: Any) -> Runner:
        return Runner.open(
            self.home.path, warm=warm, actor="tester", backend=backend or FakeVault(), **options
        )
