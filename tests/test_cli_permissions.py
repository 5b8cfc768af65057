"""The operator's commands, as a person and as a program uses them, on a real home with real skills."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from skillexec import schema
from skillexec.__main__ import main
from skillexec.cli import picture
from skillexec.cli.table import print_table
from skillexec.cli.tree import Node, print_tree


class Shell:
    """Runs commands in one home, whose root `skills/` holds four skills of source org."""

    def __init__(self, home: Path, capture: pytest.CaptureFixture[str]) -> None:
        self.home = home
        self._capture = capture

    def __call__(self, *words: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as end:
            main(["--home", str(self.home), "--actor", "olga", *words])
        said = self._capture.readouterr()
        return int(end.value.code or 0), said.out, said.err

    def say(self, *words: str) -> str:
        status, out, err = self(*words)
        assert status == 0, err
        return out

    def json(self, *words: str) -> Any:
        status, out, _ = self(*words, "--json")
        document = json.loads(out)
        assert document["version"] == 1
        return document if status == 0 else (status, document["error"])


@pytest.fixture
def shell(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Iterator[Shell]:
    monkeypatch.chdir(tmp_path)
    for name in ("alpha", "beta", "gamma", "delta", "epsilon", "zeta"):
        folder = tmp_path / "skills" / name
        folder.mkdir(parents=True)
        (folder / "SKILL.md").write_text(f"---\nname: {name}\ndescription: For tests.\n---\nBody.\n")
    made = Shell(tmp_path / "home", capsys)
    made.say("init")
    config = made.home / "config.toml"
    config.write_text(f'{config.read_text()}\n[[roots]]\npath = "{tmp_path / "skills"}"\nsource = "org"\n')
    made.say("team", "add", "research")
    made.say("system", "add", "planner", "--team", "research")
    made.say("envelope", "add", "research", "alpha", "beta", "gamma", "delta", "epsilon", "zeta")
    yield made


def test_a_grant_remembers_where_the_skill_was_found(shell: Shell) -> None:
    assert shell.say("grant", "add", "planner", "alpha") == "+ grant to planner: alpha\n"
    assert shell.json("system", "show", "planner")["system"]["grants"] == [
        {"slot": 1, "skill": "alpha", "source": "org", "pin": None}
    ]


def test_a_skill_that_is_not_found_is_not_granted_unless_its_source_is_said(shell: Shell) -> None:
    shell.say("envelope", "add", "research", "ghost")
    status, _, err = shell("grant", "add", "planner", "ghost")
    assert status == 24 and "--source" in err
    assert shell.say("grant", "add", "planner", "ghost", "--source", "user") == "+ grant to planner: ghost\n"
    status, _, err = shell("grant", "add", "planner", "alpah")
    assert status == 24 and "did you mean alpha? Or say --source" in err


@pytest.mark.parametrize("spelling", ["third-party", "third_party"])
def test_both_spellings_of_third_party_are_taken(shell: Shell, spelling: str) -> None:
    shell.say("grant", "add", "planner", "alpha", "--source", spelling)
    assert shell.json("system", "show", "planner")["system"]["grants"][0]["source"] == "third_party"


def test_the_sixth_grant_names_the_five_and_the_command_that_frees_a_slot(shell: Shell) -> None:
    shell.say("grant", "add", "planner", "alpha", "beta", "gamma", "delta", "epsilon")
    status, _, err = shell("grant", "add", "planner", "zeta")
    assert status == 2
    assert "5 of 5 skills (alpha, beta, delta, epsilon, gamma): no room for zeta" in err
    assert "skillexec grant remove planner alpha" in err
    problem = shell.json("grant", "add", "planner", "zeta")
    assert problem[0] == 2 and problem[1]["code"] == "refused"


def test_why_explains_a_pin_that_no_longer_fits_and_pinning_again_mends_it(
    shell: Shell, tmp_path: Path
) -> None:
    shell.say("grant", "add", "planner", "alpha", "--pin")
    assert shell.json("why", "planner", "alpha")["allowed"] is True
    (tmp_path / "skills" / "alpha" / "SKILL.md").write_text(
        "---\nname: alpha\ndescription: Changed.\n---\nBody.\n"
    )
    said = shell.say("why", "planner", "alpha")
    assert "planner may not run alpha" in said and "[digest_changed]" in said
    assert "next: look at the skill, then `skillexec grant add planner alpha --pin`" in said
    assert shell.json("why", "planner", "alpha")["rule"] == "digest_changed"
    assert "pinned to sha256:" in shell.say("grant", "add", "planner", "alpha", "--pin")
    assert shell.json("why", "planner", "alpha")["allowed"] is True
    assert "no longer pinned" in shell.say("grant", "add", "planner", "alpha", "--no-pin")


def test_why_notices_a_skill_that_now_comes_from_a_less_trusted_source(shell: Shell) -> None:
    shell.say("grant", "add", "planner", "alpha")
    config = shell.home / "config.toml"
    config.write_text(config.read_text().replace('source = "org"', 'source = "third_party"'))
    assert shell.json("why", "planner", "alpha")["rule"] == "source_changed"
    assert "now covers third_party" in shell.say("grant", "add", "planner", "alpha")
    assert shell.json("why", "planner", "alpha")["allowed"] is True


def test_why_says_of_a_skill_that_can_not_be_loaded_what_a_run_would_say(
    shell: Shell, tmp_path: Path
) -> None:
    shell.say("envelope", "add", "research", "ghost")
    shell.say("grant", "add", "planner", "ghost", "--source", "org")
    said = shell.say("why", "planner", "ghost")
    assert "  yes  ghost is granted to planner\n" in said and "  no   no skill 'ghost'\n" in said
    assert "planner may not run ghost: no skill 'ghost' [unknown_skill]" in said
    answer = shell.json("why", "planner", "ghost")
    assert (answer["allowed"], answer["rule"], answer["steps"][-1]["ok"]) == (False, "unknown_skill", False)
    shell.say("grant", "remove", "planner", "ghost")
    said = shell.say("why", "planner", "ghost")
    assert (
        "not granted to planner [system_grant]" in said
        and "its bytes and its source were not looked at" in said
    )
    assert "[unknown_system]" in shell.say("why", "nobody", "alpha")


def test_the_picture_shows_envelope_systems_grants_and_what_recursion_brings(shell: Shell) -> None:
    shell.say("grant", "add", "planner", "alpha", "beta")
    shell.say("team", "recurse", "scouts", "--origin", "planner")
    shell.say("system", "add", "scout", "--team", "scouts")
    shell.say("system", "disable", "scout")
    assert shell.say("team", "show", "research").splitlines() == [
        "team research",
        "├── envelope: alpha, beta, delta, epsilon, gamma, zeta",
        "└── system planner 2/5: alpha, beta",
        "    └── team scouts (spawned from planner, inherits)",
        "        ├── envelope (what planner may run): alpha, beta",
        "        └── system scout (disabled) 0/5: nothing",
    ]
    shell.say("system", "enable", "scout")
    assert "inherits: alpha, beta" in shell.say("system", "show", "scout")
    nested = shell.json("team", "show", "research")["team"]["systems"][0]["spawned"][0]
    assert nested["name"] == "scouts" and nested["systems"][0]["permitted"] == ["alpha", "beta"]


def test_the_matrix_of_all_grants_tells_held_inherited_pinned_and_blocked(shell: Shell) -> None:
    shell.say("grant", "add", "planner", "alpha")
    shell.say("grant", "add", "planner", "beta", "--pin")
    shell.say("team", "recurse", "scouts", "--origin", "planner")
    shell.say("system", "add", "scout", "--team", "scouts")
    shell.say("grant", "add", "scout", "alpha")
    shell.say("grant", "remove", "planner", "alpha")
    matrix = shell.json("grant", "list", "--all")
    assert matrix["skills"] == ["alpha", "beta"]
    assert matrix["systems"] == {
        "planner": {"alpha": "-", "beta": "pinned"},
        "scout": {"alpha": "blocked", "beta": "inherited"},
    }
    lines = shell.say("grant", "list", "--all").splitlines()
    assert re.split(r"\s{2,}", lines[2]) == ["scout", "scouts", "1/5", "blocked", "inherited"]
    assert "granted, but may not run now: alpha" in shell.say("system", "show", "scout")


def test_listing_wants_a_system_or_all(shell: Shell) -> None:
    assert shell("grant", "list")[0] == 2
    assert shell("grant", "list", "planner", "--all")[0] == 2
    assert "no grants yet" in shell.say("grant", "list", "planner")


def test_removal_with_dependants_is_refused_with_the_list_unless_cascade(shell: Shell) -> None:
    shell.say("team", "recurse", "scouts", "--origin", "planner")
    shell.say("system", "add", "scout", "--team", "scouts")
    status, _, err = shell("team", "remove", "research")
    assert status == 2 and "--cascade" in err
    assert "team research still has system planner, team scouts, system scout\n" in err
    status, _, err = shell("system", "remove", "planner")
    assert status == 2 and "spawned from system planner: team scouts, system scout\n" in err
    assert "- team research" in shell.say("team", "remove", "research", "--cascade")
    assert shell.json("team", "list")["teams"] == []
    assert shell.say("team", "remove", "research") == "there is no team research\n"


COMMANDS: list[tuple[str, ...]] = [
    ("team", "add", "research"),
    ("team", "recurse", "scouts", "--origin", "planner", "--no-inherit"),
    ("team", "enable", "research"),
    ("system", "add", "planner", "--team", "research"),
    ("envelope", "add", "research", "alpha"),
    ("envelope", "remove", "research", "ghost"),
    ("envelope", "set", "research", "alpha", "beta"),
    ("grant", "add", "planner", "alpha", "beta"),
    ("grant", "remove", "planner", "gamma"),
    ("grant", "set", "planner", "alpha"),
    ("system", "disable", "planner"),
    ("team", "detach", "scouts"),
]


def test_every_change_again_changes_nothing_and_says_so_to_people_and_programs(shell: Shell) -> None:
    for command in COMMANDS:
        shell.say(*command)
        again = shell.json(*command)
        assert (again["changed"], again["changes"]) == (False, []), command
        assert "already" in (words := shell.say(*command)) or "none" in words or "not spawned" in words, (
            command
        )


def test_changes_are_events_for_programs(shell: Shell) -> None:
    answer = shell.json("grant", "add", "planner", "alpha", "beta")
    assert [(change["event"], change["system"], change["skill"]) for change in answer["changes"]] == [
        ("grant.added", "planner", "alpha"),
        ("grant.added", "planner", "beta"),
    ]
    shell.say("team", "recurse", "scouts", "--origin", "planner")
    teams = [(row["name"], row["envelope"]) for row in shell.json("team", "list")["teams"]]
    assert teams == [("research", 6), ("scouts", None)]
    assert shell.json("system", "list", "--team", "research")["systems"][0]["grants"] == 2
    assert shell.json("envelope", "list", "research")["envelope"]["alpha"] == ["planner"]


def test_plan_apply_and_export_go_round(shell: Shell, tmp_path: Path) -> None:
    shell.say("grant", "add", "planner", "alpha")
    file = tmp_path / "policy.yaml"
    shell.say("policy", "export", str(file))
    assert shell.say("policy", "plan", str(file)) == "nothing to change\n"
    file.write_text(file.read_text().replace("- skill: alpha\n          source: org", "- beta"))
    planned = shell.say("policy", "plan", str(file))
    assert planned == "- grant to planner: alpha\n+ grant to planner: beta\n"
    assert "nothing was changed yet" in shell("policy", "plan", str(file))[2]
    assert shell.say("policy", "apply", str(file)) == planned
    assert shell.json("policy", "apply", str(file))["changed"] is False
    rules = shell.say("policy", "export", "--casbin")
    assert "p, planner, beta, research, *, org, allow\n" in rules
    file.write_text("version: 1\nteems: {}\n")
    status, _, err = shell("policy", "apply", str(file))
    assert status == 2 and f"{file}:2: the policy has the unknown key 'teems'" in err
    assert shell("policy", "plan", str(tmp_path / "none.yaml"))[0] == 2


def test_a_policy_that_is_too_long_is_not_read_in_half(shell: Shell, tmp_path: Path) -> None:
    from skillexec.permissions.policy_file import MAX_BYTES

    shell.say("grant", "add", "planner", "alpha")
    start = "version: 1\nteams:\n  research:\n    envelope: [alpha]\n# "
    filler = "\u00e9" * (MAX_BYTES // 2)  # fewer characters than bytes
    file = tmp_path / "policy.yaml"
    file.write_text(f"{start}{filler}\n    systems:\n      planner: {{grants: [alpha]}}\n", "utf-8")
    status, _, err = shell("policy", "apply", str(file))
    assert status == 2 and f"{file}:1: larger than" in err
    assert shell.json("system", "show", "planner")["system"]["permitted"] == ["alpha"]


def test_help_imports_no_database() -> None:
    """Help answers in the time of a shell, and SQLAlchemy alone takes five times that."""
    code = """
import contextlib, io, sys
from skillexec.cli import cli
for noun in ("team", "system", "envelope", "grant", "policy", "why"):
    with contextlib.redirect_stdout(io.StringIO()) as out:
        cli.main([noun, "--help"], standalone_mode=False)
    assert "Usage" in out.getvalue()
print(sorted({"sqlalchemy", "casbin", "yaml", "rich"} & set(sys.modules)))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout == "[]\n", done.stderr


def test_without_a_home_the_next_command_is_init(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, _, err = Shell(tmp_path / "nowhere", capsys)("team", "list")
    assert status == 40 and "skillexec init" in err


def test_the_picture_counts_to_the_same_five_as_the_table() -> None:
    assert picture.MAX_GRANTS == schema.MAX_GRANTS


def test_a_matrix_too_wide_for_the_terminal_is_drawn_in_parts_that_name_the_systems(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("skillexec.cli.table.stdout_is_terminal", lambda: True)
    monkeypatch.setenv("COLUMNS", "80")
    skills = [f"a-skill-of-some-length-{number}" for number in range(5)]
    print_table(["system", *skills], [["incident-responder", *["granted"] * 5]], repeat=1)
    seen = capsys.readouterr().out
    assert all(f"{skill} " in f"{seen} ".replace("\n", " ") for skill in skills)
    assert seen.count("incident-responder") == 3 and seen.count("granted") == 5
    assert max(map(len, seen.splitlines())) <= 80


def test_a_tree_is_drawn_on_a_terminal_too(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("skillexec.cli.tree.stdout_is_terminal", lambda: True)
    print_tree(Node("top", (Node("[bold]not markup[/bold]"), Node("last", (Node("leaf"),)))))
    assert capsys.readouterr().out.split("\n")[:4] == [
        "top",
        "├── [bold]not markup[/bold]",
        "└── last",
        "    └── leaf",
    ]
