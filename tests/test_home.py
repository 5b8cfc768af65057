"""The home is this user's alone, and never found from the working directory."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from skillexec.audit.checkpoint import create_key
from skillexec.audit.query import Filter, stream
from skillexec.errors import StateUnusable
from skillexec.home import Home, find_home
from skillexec.init import create_home
from skillexec.state import State


def test_the_option_wins_then_the_variable_then_the_data_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SKILLEXEC_HOME", str(tmp_path / "variable"))
    assert find_home(tmp_path / "option").path == tmp_path / "option"
    assert find_home().path == tmp_path / "variable"
    monkeypatch.delenv("SKILLEXEC_HOME")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    assert find_home().path == tmp_path / "data" / "skillexec"


def test_a_project_can_not_bring_its_own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SKILLEXEC_HOME", str(tmp_path / "mine"))
    project = tmp_path / "project"
    (project / ".skillexec").mkdir(parents=True)
    (project / ".skillexec" / "state.db").touch()
    monkeypatch.chdir(project)
    assert find_home().path == tmp_path / "mine"


def test_a_new_home_is_for_this_user_alone(tmp_path: Path) -> None:
    home = Home(tmp_path / "a" / "home")
    home.create()
    home.create()
    home.check()
    for folder in (home.path, home.audit_key.parent, home.logs, home.cache):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700


@pytest.mark.parametrize("mode", [0o777, 0o770, 0o702])
def test_a_home_that_others_may_write_is_refused(tmp_path: Path, mode: int) -> None:
    home = Home(tmp_path / "home")
    home.create()
    home.path.chmod(mode)
    with pytest.raises(StateUnusable, match="others may write") as refusal:
        home.check()
    assert "chmod 0700" in refusal.value.hint


def test_a_missing_home_says_how_to_make_that_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = Home(tmp_path / "no ne")
    with pytest.raises(StateUnusable) as refusal:
        home.check()
    assert refusal.value.hint == f"run `skillexec init --home '{home.path}'`"
    monkeypatch.setenv("SKILLEXEC_HOME", str(home.path))
    with pytest.raises(StateUnusable) as refusal:
        home.check()
    assert refusal.value.hint == "run `skillexec init`"


def test_a_file_in_the_homes_place_is_refused(tmp_path: Path) -> None:
    (tmp_path / "home").touch()
    with pytest.raises(StateUnusable):
        Home(tmp_path / "home").check()
    with pytest.raises(StateUnusable):
        Home(tmp_path / "home").create()


def test_an_init_that_was_cut_short_is_put_on_the_record_by_the_next_one(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    home.create()
    create_key(home.audit_key)
    State.open(home.state_file, create=True).close()
    for _ in range(2):
        create_home(home, actor="ann", config="")
    with State.open(home.state_file) as state, state.read() as connection:
        assert [record.event for record in stream(connection, Filter())] == ["home.created"]
