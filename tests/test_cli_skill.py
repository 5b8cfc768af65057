"""`skillexec skill`: what it lists, shows, prints and refuses, and what it must not load."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from skill_folders import settle, skillexec, write_skill

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "project").mkdir()
    return tmp_path / "project"


@pytest.fixture
def skills(project: Path) -> Path:
    return project / ".skillexec/skills"


@pytest.fixture
def run(home: Path, project: Path) -> Run:
    return lambda *arguments: skillexec(*arguments, home=home, cwd=project)


def answer(done: subprocess.CompletedProcess[str]) -> Any:
    document = json.loads(done.stdout)
    assert document["version"] == 1
    return document


def test_list_works_without_a_home_and_makes_none(run: Run, home: Path, skills: Path) -> None:
    write_skill(skills, "local", description="Only here.")
    done = run("skill", "list")
    assert done.returncode == 0
    assert "local" in done.stdout
    assert "third_party" in done.stdout
    assert "web-search" in done.stdout  # built in
    assert not home.exists()


def test_list_hides_what_cant_be_granted_and_says_so(run: Run, skills: Path) -> None:
    write_skill(skills, "web-search", description="A shadow.")
    write_skill(skills, "Loud", name="LOUD")
    (skills / "bad").mkdir()
    (skills / "bad/SKILL.md").write_text("nothing")
    short, everything, broken = (run("skill", "list", *more) for more in ((), ("--all",), ("--broken",)))
    assert "LOUD" not in short.stdout
    assert "2 more" in short.stderr
    assert "1 broken" in short.stderr
    assert "LOUD" in everything.stdout
    assert "shadowed by" in everything.stdout
    assert "frontmatter" in broken.stdout
    assert "web-fetch" not in broken.stdout


def test_list_as_json_has_everything(run: Run, skills: Path) -> None:
    write_skill(skills, "web-search", description="A shadow.")
    (skills / "bad").mkdir()
    (skills / "bad/SKILL.md").write_text("nothing")
    document = answer(run("skill", "list", "--json"))
    assert {one["name"]: one["source"] for one in document["skills"]}["web-search"] == "builtin"
    assert document["collisions"][0]["shadowed"] == str(skills / "web-search")
    assert document["broken"][0]["reason"]
    assert document["problems"] == []


def test_show_says_what_would_run_and_what_it_needs(run: Run, skills: Path) -> None:
    directory = write_skill(
        skills, "tool", more="version: 2\nmetadata: {cyberagent: {required_env: [TOKEN]}}\n"
    )
    (directory / "run.py").write_text('# /// script\n# dependencies = ["rich"]\n# ///\n')
    (directory / "run.py").chmod(0o755)
    text, document = (
        run("skill", "show", "tool").stdout,
        answer(run("skill", "show", "tool", "--json"))["skill"],
    )
    for word in ("sha256:", "run.py", "executable", "TOKEN", "rich", "key-unknown"):
        assert word in text
    assert document["digest"].startswith("sha256:")
    assert document["files"][1] == {"path": "run.py", "size": 45, "executable": True}
    assert document["dependencies"][0]["requires"] == ["rich"]
    assert document["required_env"] == ["TOKEN"]


def test_show_names_the_keys_of_input_and_output(run: Run, skills: Path) -> None:
    schema = (
        "{type: object, required: [text], properties: {text: {type: string, description: What to count.},"
        " top: {type: [integer, 'null']}, unit: {enum: [words, lines]}, any: true}}"
    )
    write_skill(skills, "counter", more=f"input_schema: {schema}\noutput_schema: {{type: object}}\n")
    lines = [line.split() for line in run("skill", "show", "counter").stdout.splitlines()]
    assert ["text", "string", "required", "What", "to", "count."] in lines
    assert ["top", "integer", "or", "null"] in lines
    assert ["unit", "words", "or", "lines"] in lines
    assert ["any"] in lines
    assert ["Output"] not in lines


def test_show_of_a_skill_that_cant_be_bundled_says_why(run: Run, skills: Path) -> None:
    (write_skill(skills, "linked") / "out").symlink_to("/etc/passwd")
    done = run("skill", "show", "linked")
    assert done.returncode == 0
    assert "out is a link" in done.stdout


def test_an_unknown_skill_is_24_and_names_its_neighbour(run: Run, skills: Path) -> None:
    write_skill(skills, "spreadsheet")
    for command in (("show",), ("load",), ("prompt",)):
        done = run("skill", *command, "spreadsheat")
        assert done.returncode == 24
        assert "did you mean spreadsheet" in done.stderr
    refused = run("skill", "show", "nope", "--json")
    assert json.loads(refused.stdout)["error"]["code"] == "skill_unknown"


def test_load_prints_the_body_up_to_the_limit(run: Run, skills: Path) -> None:
    write_skill(skills, "wordy", body="first line\n" + "x" * 500)
    assert run("skill", "load", "wordy").stdout.startswith("first line\nxxx")
    cut = answer(run("skill", "load", "wordy", "--limit", "20", "--json"))
    assert (cut["text"], cut["truncated"]) == ("first line\nxxxxxxxxx", True)
    assert "[truncated" in run("skill", "load", "wordy", "--limit", "20").stdout


def test_read_prints_text_describes_binary_and_refuses_the_rest(run: Run, skills: Path) -> None:
    directory = write_skill(skills, "files")
    (directory / "note.txt").write_text("hello\n")
    (directory / "blob").write_bytes(b"\0\1")
    assert run("skill", "read", "files", "note.txt").stdout == "hello\n"
    assert "binary" in run("skill", "read", "files", "blob").stdout
    document = answer(run("skill", "read", "files", "blob", "--json"))
    assert (document["binary"], document["text"], document["size"]) == (True, None, 2)
    refused = run("skill", "read", "files", "../../../etc/passwd")
    assert refused.returncode == 24
    assert "next:" in refused.stderr


def test_prompt_takes_names_and_never_cuts_silently(run: Run, skills: Path) -> None:
    for number in range(6):
        write_skill(skills, f"s{number}")
    refused = run("skill", "prompt")
    assert refused.returncode == 2
    assert "skill prompt NAME" in refused.stderr
    assert run("skill", "prompt", "s1", "s2", "s1").stdout.count("<skill>") == 2
    assert run("skill", "prompt", *(f"s{number}" for number in range(6))).returncode == 2
    document = answer(run("skill", "prompt", "s1", "--format", "json", "--location", "--json"))
    assert json.loads(document["prompt"])["available_skills"][0]["location"].endswith("s1/SKILL.md")


def test_prompt_as_a_system_offers_only_what_it_may_run_as_it_is_now(run: Run, skills: Path) -> None:
    write_skill(skills, "pinned")
    write_skill(skills, "open")
    for command in (
        "init",
        "team add research",
        "system add reader --team research",
        "envelope add research pinned open web-fetch",
    ):
        assert run(*command.split()).returncode == 0, command
    assert run("skill", "prompt", "--as", "reader").stdout == ""
    assert run("grant", "add", "reader", "open").returncode == 0
    assert run("grant", "add", "reader", "pinned", "--pin").returncode == 0
    both = answer(run("skill", "prompt", "--as", "reader", "--json"))
    assert both["skills"] == ["open", "pinned"]
    (skills / "pinned/SKILL.md").write_text("---\nname: pinned\ndescription: Changed.\n---\n")
    assert answer(run("skill", "prompt", "--as", "reader", "--json"))["skills"] == ["open"]
    unknown = run("skill", "prompt", "--as", "nobody")
    assert unknown.returncode == 20
    assert "system add" in unknown.stderr
    assert run("skill", "prompt", "open", "--as", "reader").returncode == 2


def test_nothing_that_an_author_wrote_controls_the_terminal(project: Path, home: Path, skills: Path) -> None:
    directory = write_skill(
        skills, "evil", description='"red \\e[31m \\x9b31m alert \\a"', body="body \x1b[2J\n"
    )
    (directory / "x\x1b[31m.txt").write_text("y")
    (skills / "bad\x1b[31m").mkdir()
    (skills / "bad\x1b[31m/SKILL.md").write_text("---\nname: \x1b[31m\n---\n")
    for command in ("list", "list --all", "list --broken", "show evil", "load evil", "prompt evil"):
        shown = _on_a_terminal(f"skill {command}", home=home, cwd=project)
        assert "\x1b[31m" not in shown
        assert "\x1b[2J" not in shown
        assert "\x9b" not in shown
    exact = skillexec("skill", "load", "evil", home=home, cwd=project)  # in a pipe
    assert exact.stdout == "body \x1b[2J\n"


def _on_a_terminal(command: str, *, home: Path, cwd: Path) -> str:
    leader, follower = pty.openpty()
    environment = {"PATH": os.environ["PATH"], "SKILLEXEC_HOME": str(home), "TERM": "dumb"}
    with subprocess.Popen(
        [sys.executable, "-P", "-m", "skillexec", *command.split()],
        stdin=follower, stdout=follower, stderr=follower, cwd=cwd, env=environment,
    ):  # fmt: skip
        os.close(follower)
        shown = b""
        try:
            while part := os.read(leader, 65536):
                shown += part
        except OSError:  # the other end is closed
            pass
    os.close(leader)
    assert shown
    return shown.decode()


LOADED = """
import os, sys
from skillexec.__main__ import main
try:
    main(sys.argv[1:])
except SystemExit:
    pass
print([name for name in ("yaml", "pydantic", "rich", "sqlalchemy", "casbin", "docker", "sqlite3", "tempfile", "asyncio")
       if name in sys.modules], file=sys.stderr)
"""


def _loaded(*arguments: str, home: Path, cwd: Path) -> str:
    environment = {"PATH": os.environ["PATH"], "SKILLEXEC_HOME": str(home)}
    done = subprocess.run(
        [sys.executable, "-P", "-c", LOADED, *arguments],
        env=environment,
        cwd=cwd,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout
    return done.stderr.splitlines()[-1]


def test_help_and_a_warm_list_load_no_heavy_library(
    run: Run, home: Path, project: Path, skills: Path
) -> None:
    assert run("init").returncode == 0
    for number in range(10):
        write_skill(skills, f"s{number}")
    settle()
    assert "yaml" in _loaded(
        "skill", "list", home=home, cwd=project
    )  # the control: the first list reads YAML
    for command in (("--help",), ("skill", "list"), ("skill", "list", "--json"), ("skill", "prompt", "s1")):
        assert _loaded(*command, home=home, cwd=project) == "[]"


def test_validate_is_one_of_the_commands(run: Run, skills: Path) -> None:
    write_skill(skills, "fine")
    assert "validate" in run("skill", "--help").stdout
    assert run("skill", "validate", str(skills / "fine")).returncode == 0
