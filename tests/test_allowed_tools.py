"""allowed-tools: off unless asked for; then a hard allowlist."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from skill_folders import skillexec, write_skill

from skillexec.errors import SkillError
from skillexec.model import Skill, Source
from skillexec.skills.tools import permitted_tools

TOOLS = ("Bash", "Read", "Write", "web_search", "mcp_git_log", "mcp_git_push")


def _skill(*allowed: str) -> Skill:
    return Skill("reader", "Reads.", Source.ORG, Path("/skills/reader"), allowed_tools=allowed)


def test_the_list_restricts_nothing_unless_the_operator_asks_for_it() -> None:
    assert permitted_tools(_skill("Read"), TOOLS) == TOOLS


def test_enforced_only_what_is_named_is_left() -> None:
    assert permitted_tools(_skill("Read", "Bash(git:*)"), TOOLS, mode="enforce") == ("Bash", "Read")


def test_globs_match_whole_names_and_a_dot_is_an_underscore() -> None:
    listed = _skill("mcp.git.*", "web.search")
    assert permitted_tools(listed, TOOLS, mode="enforce") == ("web_search", "mcp_git_log", "mcp_git_push")
    assert permitted_tools(_skill("Rea", "ead", "Write"), TOOLS, mode="enforce") == ("Write",)


def test_names_are_exact_also_in_case() -> None:
    assert permitted_tools(_skill("read", "Write"), TOOLS, mode="enforce") == ("Write",)


def test_the_baseline_is_always_left() -> None:
    assert permitted_tools(_skill("Read"), TOOLS, mode="enforce", baseline=("Write",)) == ("Read", "Write")


def test_a_skill_without_a_list_restricts_nothing() -> None:
    assert permitted_tools(_skill(), TOOLS, mode="enforce") == TOOLS


def test_a_list_that_names_nothing_there_is_an_error_ignored_or_enforced() -> None:
    listed = _skill("Telescope")
    with pytest.raises(SkillError, match="Telescope"):
        permitted_tools(listed, TOOLS, mode="enforce")
    assert permitted_tools(listed, TOOLS, mode="enforce", unmatched="ignore") == TOOLS
    assert permitted_tools(listed, TOOLS, mode="enforce", unmatched="enforce", baseline=("Read",)) == (
        "Read",
    )


def test_the_command_follows_the_settings(tmp_path: Path) -> None:
    home, project = tmp_path / "home", tmp_path / "project"
    write_skill(project / ".skillexec" / "skills", "reader", more="allowed-tools: Read Grep\n")
    assert skillexec("init", home=home, cwd=project).returncode == 0
    free = skillexec("skill", "tools", "reader", "Read", "Write", "--json", home=home, cwd=project)
    assert json.loads(free.stdout)["permitted"] == ["Read", "Write"]
    (home / "config.toml").write_text('[trust]\nallowed_tools = "enforce"\n')
    bound = skillexec("skill", "tools", "reader", "Read", "Write", "--json", home=home, cwd=project)
    assert json.loads(bound.stdout)["permitted"] == ["Read"]
    none = skillexec("skill", "tools", "reader", "Write", home=home, cwd=project)
    assert none.returncode == 24
    assert "trust.unmatched" in none.stderr
