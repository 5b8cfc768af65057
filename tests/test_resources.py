"""Bodies and files of skills: up to a limit, as text or named as binary, and nothing from outside."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest
from skill_folders import open_files, write_skill

from skillexec.errors import PathRefused, Usage
from skillexec.model import Skill, Source
from skillexec.skills.discovery import Library
from skillexec.skills.resources import MAX_LIMIT, list_files, load_body, read_resource


@pytest.fixture
def skill(tmp_path: Path) -> Skill:
    (tmp_path / "secret.txt").write_text("SECRET")
    directory = write_skill(tmp_path / "root", "reader", body="# Title\n\nDo this.\n")
    (directory / "scripts/office").mkdir(parents=True)
    (directory / "scripts/office/unpack.py").write_text("print('hi')\n")
    (directory / "logo.png").write_bytes(b"\x89PNG\r\n\x1a\n\0\0\0")
    (directory / ".git").mkdir()
    (directory / ".git/config").write_text("token")
    return Library([(tmp_path / "root", Source.ORG)]).get("reader")


def test_a_nested_file_is_read_as_text(skill: Skill) -> None:
    found = read_resource(skill, "scripts/office/unpack.py")
    assert (found.text, found.size, found.truncated, found.binary) == ("print('hi')\n", 12, False, False)
    assert found.mime == "text/x-python"


def test_dots_that_go_nowhere_are_let_pass(skill: Skill) -> None:
    assert read_resource(skill, "./scripts//office/./unpack.py").text == "print('hi')\n"


def test_a_binary_file_is_named_as_such_with_size_and_type(skill: Skill) -> None:
    found = read_resource(skill, "logo.png")
    assert (found.text, found.binary, found.size, found.mime) == (None, True, 11, "image/png")


def test_bytes_that_are_not_utf_8_are_binary(skill: Skill) -> None:
    (skill.directory / "latin.txt").write_bytes(b"caf\xe9 au lait")
    assert read_resource(skill, "latin.txt").binary


def test_text_past_the_limit_is_cut_between_characters_and_says_so(skill: Skill) -> None:
    (skill.directory / "long.md").write_text("é" * 100)
    found = read_resource(skill, "long.md", limit=51)
    assert found.text == "é" * 25
    assert found.truncated
    assert "first 51 of 200 bytes" in found.notice
    assert "--limit 200" in found.notice
    assert not read_resource(skill, "long.md", limit=200).truncated
    first = read_resource(skill, "long.md", limit=1)
    assert (first.text, first.truncated) == ("", True)
    assert first.notice


def test_commands_in_notices_and_hints_are_safe_to_paste(skill: Skill) -> None:
    odd = replace(skill, name="x; touch owned")
    (skill.directory / "$(id).md").write_text("text")
    notice = read_resource(odd, "$(id).md", limit=2).notice
    assert "read 'x; touch owned' '$(id).md' --limit" in notice
    assert "load 'x; touch owned' --limit" in load_body(odd, limit=1).notice
    with pytest.raises(PathRefused) as caught:
        read_resource(odd, "none")
    assert "show 'x; touch owned'" in caught.value.hint


@pytest.mark.parametrize(
    "path",
    [
        "/etc/passwd",
        "../../secret.txt",
        "scripts/../../../secret.txt",
        "scripts/..",
        "..",
        "",
        ".",
        "./",
        "a\0b",
        "SKILL.md\0.txt",
        "scripts",
        "scripts/",
        "missing.md",
        "SKILL.md/x",
        ".git/config",
        "x" * 300,
    ],
)
def test_a_path_that_breaks_the_rules_is_refused(skill: Skill, path: str) -> None:
    with pytest.raises(PathRefused):
        read_resource(skill, path)


@pytest.mark.parametrize("path", ["%2e%2e/secret.txt", "..\\secret.txt", "scripts%2foffice"])
def test_escapes_and_backslashes_are_taken_literally(skill: Skill, path: str) -> None:
    with pytest.raises(PathRefused, match="No such file"):
        read_resource(skill, path)
    (skill.directory / path).parent.mkdir(exist_ok=True)
    (skill.directory / path).write_text("literally")
    assert read_resource(skill, path).text == "literally"


@pytest.mark.parametrize("target", ["../../secret.txt", "/etc/passwd", "scripts/../../../secret.txt", "self"])
def test_links_that_leave_the_skill_or_go_in_circles_are_refused(skill: Skill, target: str) -> None:
    (skill.directory / "self").symlink_to(target)
    with pytest.raises(PathRefused, match=r"leaves|circle"):
        read_resource(skill, "self")


def test_a_folder_link_that_leaves_the_skill_is_refused(skill: Skill) -> None:
    (skill.directory / "up").symlink_to("../..")
    with pytest.raises(PathRefused, match="leaves"):
        read_resource(skill, "up/secret.txt")


def test_a_link_that_stays_inside_is_followed(skill: Skill) -> None:
    (skill.directory / "run.py").symlink_to("scripts/office/unpack.py")
    (skill.directory / "abs").symlink_to(skill.directory / "scripts")
    assert read_resource(skill, "run.py").text == "print('hi')\n"
    assert read_resource(skill, "abs/office/unpack.py").text == "print('hi')\n"


def test_a_link_inside_does_not_open_what_is_left_out(skill: Skill) -> None:
    (skill.directory / "innocent").symlink_to(".git/config")
    with pytest.raises(PathRefused, match="no part of a skill"):
        read_resource(skill, "innocent")


def test_fifos_and_devices_are_refused_at_once(skill: Skill) -> None:
    os.mkfifo(skill.directory / "pipe")
    with pytest.raises(PathRefused, match="FIFO"):
        read_resource(skill, "pipe")


@pytest.mark.parametrize("limit", [0, -1, MAX_LIMIT + 1])
def test_a_limit_that_makes_no_sense_is_refused(skill: Skill, limit: int) -> None:
    with pytest.raises(Usage):
        read_resource(skill, "SKILL.md", limit=limit)
    with pytest.raises(Usage):
        load_body(skill, limit=limit)


def test_the_body_comes_without_the_frontmatter(skill: Skill) -> None:
    body = load_body(skill)
    assert (body.text, body.truncated, body.notice) == ("# Title\n\nDo this.", False, "")


@pytest.mark.parametrize("size", [100, 70_000, 3_000_000])
def test_a_long_body_is_cut_at_the_limit_and_says_so(tmp_path: Path, size: int) -> None:
    write_skill(tmp_path, "wordy", body="ü" * (size // 2))
    body = load_body(Library([(tmp_path, Source.ORG)]).get("wordy"), limit=51)
    assert body.text == "ü" * 25
    assert body.truncated
    assert "skillexec skill load wordy --limit" in body.notice


def test_the_files_listed_are_those_of_the_bundle(skill: Skill) -> None:
    assert [file.path for file in list_files(skill)] == ["SKILL.md", "logo.png", "scripts/office/unpack.py"]


def test_nothing_stays_open(skill: Skill) -> None:
    before = open_files()
    read_resource(skill, "SKILL.md")
    load_body(skill)
    for path in ("missing", "scripts", "/x", ".git/config"):
        with pytest.raises(PathRefused):
            read_resource(skill, path)
    assert open_files() == before
