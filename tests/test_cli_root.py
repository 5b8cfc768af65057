"""`skillexec root` and `skillexec trust`: where skills come from, in which order, and how far they are trusted."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from skill_folders import skillexec, write_skill

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    (tmp_path / "project").mkdir()
    return lambda *arguments: skillexec(*arguments, home=tmp_path / "home", cwd=tmp_path / "project")


@pytest.fixture
def ready(run: Run) -> Run:
    assert run("init").returncode == 0
    return run


@pytest.fixture
def folders(tmp_path: Path) -> dict[str, Path]:
    made = {name: tmp_path / name for name in ("one", "two", "three")}
    for name, path in made.items():
        write_skill(path, "same", description=f"from {name}")
    return made


def roots(run: Run) -> list[tuple[int, str, str]]:
    listed: list[dict[str, Any]] = json.loads(run("root", "list", "--json").stdout)["roots"]
    return [(one["position"], one["source"], Path(one["path"]).name) for one in listed if one["position"]]


def test_roots_count_by_trust_and_then_by_position(ready: Run, folders: dict[str, Path]) -> None:
    assert ready("root", "add", str(folders["one"]), "--source", "third-party").returncode == 0
    assert ready("root", "add", str(folders["two"]), "--source", "org").returncode == 0
    assert ready("root", "add", "../three", "--source", "org").returncode == 0  # relative to where one is
    assert roots(ready) == [(1, "org", "two"), (2, "org", "three"), (3, "third_party", "one")]
    assert "from two" in ready("skill", "list").stdout
    assert ready("root", "move", str(folders["three"]), "1").returncode == 0
    assert roots(ready) == [(1, "org", "three"), (2, "org", "two"), (3, "third_party", "one")]
    assert "from three" in ready("skill", "list").stdout


def test_no_position_puts_a_stranger_before_a_more_trusted_root(ready: Run, folders: dict[str, Path]) -> None:
    ready("root", "add", str(folders["one"]), "--source", "org")
    ready("root", "add", str(folders["two"]), "--source", "third-party", "--first")
    moved = ready("root", "move", str(folders["two"]), "1")
    assert "position 2: roots of a more trusted source come first" in moved.stdout
    assert roots(ready) == [(1, "org", "one"), (2, "third_party", "two")]
    assert "from one" in ready("skill", "list").stdout


def test_a_root_without_a_source_is_told_the_sources_in_one_line(
    ready: Run, folders: dict[str, Path]
) -> None:
    done = ready("root", "add", str(folders["one"]))
    assert done.returncode == 2
    assert "Choose from builtin, org, user, third-party.\n" in done.stderr
    assert ready("root", "add", str(folders["one"]), "--source", "third_party").returncode == 0


def test_first_puts_a_root_before_those_of_its_source(ready: Run, folders: dict[str, Path]) -> None:
    for name in ("one", "two"):
        ready("root", "add", str(folders[name]), "--source", "user")
    ready("root", "add", str(folders["three"]), "--source", "user", "--first")
    assert [name for _, _, name in roots(ready)] == ["three", "one", "two"]


def test_adding_twice_changes_nothing_and_another_source_changes_the_source(
    ready: Run, folders: dict[str, Path]
) -> None:
    add = ("root", "add", str(folders["one"]), "--json", "--source")
    assert json.loads(ready(*add, "user").stdout)["changed"] is True
    assert json.loads(ready(*add, "user").stdout)["changed"] is False
    assert json.loads(ready(*add, "org").stdout)["changed"] is True
    assert roots(ready) == [(1, "org", "one")]


def test_a_root_that_is_gone_is_listed_as_missing_and_can_be_removed(
    ready: Run, folders: dict[str, Path]
) -> None:
    ready("root", "add", str(folders["one"]), "--source", "org")
    folders["one"].rename(folders["one"].with_name("away"))
    assert "missing" in ready("root", "list").stdout
    listed = ready("skill", "list")
    assert listed.returncode == 0
    assert "root remove" in listed.stderr
    assert ready("root", "remove", str(folders["one"])).returncode == 0
    assert roots(ready) == []


@pytest.mark.parametrize("arguments", [("remove", "/nowhere"), ("move", "/nowhere", "1")])
def test_a_root_that_is_none_is_refused_with_what_to_do(ready: Run, arguments: tuple[str, ...]) -> None:
    done = ready("root", *arguments)
    assert done.returncode == 2
    assert "root list" in done.stderr


def test_a_path_that_is_no_folder_is_refused_with_what_to_do(ready: Run, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for path, hint in (("file", "name the folder"), ("missing", "mkdir")):
        done = ready("root", "add", str(tmp_path / path), "--source", "org")
        assert done.returncode == 2
        assert hint in done.stderr
    assert ready("root", "add", str(tmp_path), "--source", "friends").returncode == 2
    assert ready("root", "move", str(tmp_path), "0").returncode == 2


@pytest.mark.parametrize("path", ["", "~no-such-user/skills", "x" * 300, "x/" * 3000, "loop", "loop/x"])
def test_a_path_that_can_be_no_folder_is_refused_in_every_place(
    ready: Run, tmp_path: Path, path: str
) -> None:
    (tmp_path / "project/loop").symlink_to("loop")
    commands = (("root", "add", "--source", "org"), ("root", "remove"), ("trust",))
    assert [ready(*command, path).returncode for command in commands] == [2, 2, 2]
    assert ready("trust", "--remove", path).returncode in (0, 2)  # it may have been one once
    assert roots(ready) == []


def test_without_a_home_changes_are_refused_and_lists_still_work(run: Run, tmp_path: Path) -> None:
    for command in (("root", "add", ".", "--source", "org"), ("root", "remove", "."), ("trust", ".")):
        done = run(*command)
        assert done.returncode == 40
        assert "skillexec init" in done.stderr
    assert run("root", "list").returncode == 0
    assert not (tmp_path / "home").exists()


def test_a_project_is_trusted_until_it_is_not_and_only_that_one(ready: Run, tmp_path: Path) -> None:
    write_skill(tmp_path / "project/.agents/skills", "local")

    def source() -> str:
        listed = json.loads(ready("skill", "list", "--json").stdout)["skills"]
        return next(str(one["source"]) for one in listed if one["name"] == "local")

    assert source() == "third_party"
    assert ready("trust", str(tmp_path)).returncode == 0  # the folder above is another project
    assert source() == "third_party"
    assert json.loads(ready("trust", ".", "--json").stdout)["changed"] is True
    assert json.loads(ready("trust", ".", "--json").stdout)["changed"] is False
    assert source() == "user"
    assert ready("trust", ".", "--remove").returncode == 0
    assert source() == "third_party"
    assert "was not trusted" in ready("trust", ".", "--remove").stdout


def test_the_rest_of_the_config_stays_as_the_operator_wrote_it(
    ready: Run, tmp_path: Path, folders: dict[str, Path]
) -> None:
    config = tmp_path / "home/config.toml"
    config.write_text("# mine\n[sandbox]\nmemory = '256m' # small\n")
    ready("root", "add", str(folders["one"]), "--source", "org")
    ready("trust", ".")
    text = config.read_text()
    assert "# mine" in text
    assert "memory = '256m' # small" in text
    assert roots(ready) == [(1, "org", "one")]


def test_doctor_says_what_is_wrong_with_skills_and_roots_on_one_line_each(ready: Run, tmp_path: Path) -> None:
    root = tmp_path / "odd"
    (root / "x\n  ok  state    all is well\x1b[2J").mkdir(parents=True)
    next(root.iterdir()).joinpath("SKILL.md").write_text("no frontmatter")
    (tmp_path / "gone").mkdir()
    for folder in (root, tmp_path / "gone"):
        ready("root", "add", str(folder), "--source", "org")
    (tmp_path / "gone").rmdir()
    shown = ready("doctor").stdout
    assert "\x1b" not in shown
    assert not any(line.startswith("  ok  state    all is well") for line in shown.splitlines())
    assert f"{tmp_path / 'gone'}: the root can't be opened" in shown
    assert f"next: bring the folder back, or `skillexec root remove {tmp_path / 'gone'}`" in shown
