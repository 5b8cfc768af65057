"""The home: where state, config and keys live. Never found from the working directory (DESIGN 9)."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from pathlib import Path
from shlex import quote

from skillexec.errors import StateUnusable

ENVIRONMENT = "SKILLEXEC_HOME"


@dataclass(frozen=True, slots=True)
class Home:
    """The paths of one home. Making this value touches nothing."""

    path: Path

    @property
    def config_file(self) -> Path:
        return self.path / "config.toml"

    @property
    def state_file(self) -> Path:
        return self.path / "state.db"

    @property
    def audit_key(self) -> Path:
        return self.path / "keys" / "audit.pem"

    @property
    def cache(self) -> Path:
        """What can be deleted at any time: the indexes of roots."""
        return self.path / "cache"

    @property
    def logs(self) -> Path:
        return self.path / "logs"

    @property
    def exists(self) -> bool:
        try:
            return self.path.is_dir()
        except OSError:  # not ours to look at, or no possible path: whoever opens what is in it will say so
            return False

    def check(self) -> None:
        """Refuse a home that is missing or that others may write: it holds the grants."""
        try:
            info = self.path.stat()
        except FileNotFoundError as error:
            raise StateUnusable(
                f"there is no home at {self.path}", hint=f"run `skillexec init{self._option()}`"
            ) from error
        except OSError as error:
            raise StateUnusable(
                f"no home at {self.path}: {error.strerror}", hint="choose another with --home"
            ) from error
        if not stat.S_ISDIR(info.st_mode):
            raise StateUnusable(f"the home {self.path} is not a folder", hint="choose another with --home")
        if info.st_uid not in (os.geteuid(), 0):
            raise StateUnusable(
                f"the home {self.path} belongs to user {info.st_uid}",
                hint="use a home of your own with --home",
            )
        if info.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            raise StateUnusable(
                f"others may write to the home {self.path}", hint=f"chmod 0700 {quote(str(self.path))}"
            )

    def _option(self) -> str:
        """What a command has to say to mean this home; nothing where it is the one that is taken anyway."""
        return "" if find_home() == self else f" --home {quote(str(self.path))}"

    def create(self) -> None:
        """Make the folders, for this user alone. Does nothing where they are."""
        try:
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            for folder in (self.audit_key.parent, self.cache, self.logs):
                folder.mkdir(mode=0o700, exist_ok=True)
        except OSError as error:
            raise StateUnusable(
                f"can't make the home {self.path}: {error.strerror}", hint="choose another with --home"
            ) from error


def _expanded(path: Path) -> Path:
    try:
        return path.expanduser()
    except RuntimeError as error:  # ~somebody, where there is no such user
        raise StateUnusable(f"no home at {path}: {error}", hint="choose another with --home") from error


def find_home(option: str | os.PathLike[str] | None = None) -> Home:
    """The home: what the caller says, else $SKILLEXEC_HOME, else the user's data folder."""
    named = option or os.environ.get(ENVIRONMENT)
    if named:
        return Home(_expanded(Path(named)).absolute())
    import platformdirs

    return Home(Path(platformdirs.user_data_dir("skillexec")))
