"""The command line as a whole: help, the options that work everywhere, errors that say what to do, init."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import click
import pytest

from skillexec.cli import COMMANDS, cli


def skillexec(
    *arguments: str, home: Path, cwd: Path | None = None, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run the real command in a process of its own."""
    return subprocess.run(
        [sys.executable, "-P", "-m", "skillexec", *arguments],
        env={
            "PATH": os.environ["PATH"],
            "SKILLEXEC_HOME": str(home),
            "SKILLEXEC_ACTOR": "tester",
            **environment,
        },
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        stdin=subprocess.DEVNULL,
    )


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


def _leaves(
    command: click.Command, path: tuple[str, ...] = ()
) -> list[tuple[tuple[str, ...], click.Command]]:
    if not isinstance(command, click.Group):
        return [(path, command)]
    context = click.Context(command)
    return [
        leaf
        for name in command.list_commands(context)
        if (below := command.get_command(context, name)) is not None
        for leaf in _leaves(below, (*path, name))
    ]


LEAVES = _leaves(cli)


def test_help_lists_every_noun_in_words_of_effect(home: Path) -> None:
    done = skillexec("--help", home=home)
    assert done.returncode == 0
    for name, (_, line) in COMMANDS.items():
        assert name in done.stdout
        assert line in done.stdout


def test_the_line_in_the_top_help_is_the_commands_own(home: Path) -> None:
    context = click.Context(cli)
    for name, (_, line) in COMMANDS.items():
        command = cli.get_command(context, name)
        assert command is not None
        assert command.help, name
        assert line.split()[0], name


@pytest.mark.parametrize(("path", "command"), LEAVES, ids=[" ".join(path) for path, _ in LEAVES])
def test_home_actor_and_json_work_everywhere(path: tuple[str, ...], command: click.Command) -> None:
    names = {option for parameter in command.params for option in parameter.opts}
    assert {"--home", "--actor", "--json"} <= names
    assert command.help, "a command without help"


def test_version(home: Path) -> None:
    assert skillexec("--version", home=home).stdout.startswith("skillexec 0.")


def test_options_work_before_and_after_the_command(home: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    before = skillexec("--home", str(other), "--json", "init", home=home)
    after = skillexec("init", "--home", str(other), "--json", home=home)
    assert json.loads(before.stdout) == {"version": 1, "home": str(other), "created": True}
    assert json.loads(after.stdout)["created"] is False
    assert not home.exists()


@pytest.mark.parametrize(
    "arguments", [["bogus"], ["run"], ["--bogus"], ["init", "extra"], ["grant", "bogus"]]
)
def test_wrong_usage_exits_2_and_names_the_help(home: Path, arguments: list[str]) -> None:
    done = skillexec(*arguments, home=home)
    assert done.returncode == 2
    assert "--help" in done.stderr
    assert done.stdout == ""


def test_an_error_with_json_is_one_object_on_stdout(home: Path) -> None:
    done = skillexec("--json", "team", "list", home=home)
    assert done.returncode == 40
    problem = json.loads(done.stdout)
    assert problem["error"]["code"] == "state_unusable"
    assert "skillexec init" in problem["error"]["hint"]


@pytest.mark.parametrize(
    "arguments",
    [["bogus", "--json"], ["skill", "bogus", "--json"], ["skill", "show", "x", "--bogus", "--json"]],
)
def test_json_that_stands_after_the_mistake_counts_too(home: Path, arguments: list[str]) -> None:
    done = skillexec(*arguments, home=home)
    assert done.returncode == 2
    assert json.loads(done.stdout)["error"]["code"] == "usage"


def test_json_of_a_script_is_not_ours(home: Path) -> None:
    done = skillexec("bogus", "--", "--json", home=home)
    assert (done.returncode, done.stdout) == (2, "")


IN_A_FOLDER_THAT_IS_GONE = """
import os, sys
os.rmdir(os.getcwd())
from skillexec.cli.boundary import main
main(sys.argv[1:])
"""


@pytest.mark.parametrize(
    ("arguments", "status"),
    [
        (["skill", "list"], 0),
        (["root", "list"], 0),
        (["skill", "show", "web-search"], 0),
        (["skill", "validate", "x"], 24),
        (["root", "add", "x", "--source", "org"], 2),
    ],
)
def test_a_working_directory_that_is_gone_is_no_project_and_no_bug(
    home: Path, tmp_path: Path, arguments: list[str], status: int
) -> None:
    assert skillexec("init", home=home).returncode == 0
    (tmp_path / "gone").mkdir()
    done = subprocess.run(
        [sys.executable, "-P", "-c", IN_A_FOLDER_THAT_IS_GONE, *arguments],
        env={"PATH": os.environ["PATH"], "SKILLEXEC_HOME": str(home)},
        cwd=tmp_path / "gone",
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == status, done.stderr


@pytest.mark.parametrize("command", [["init"], ["skill", "list"], ["root", "list"], ["team", "list"]])
def test_a_home_that_can_be_none_is_refused(tmp_path: Path, command: list[str]) -> None:
    assert skillexec(*command, home=tmp_path / ("x" * 300)).returncode == 40


def test_init_makes_a_home_for_this_user_alone_and_again_changes_nothing(home: Path) -> None:
    assert skillexec("init", home=home).returncode == 0
    for path in [home, *home.rglob("*")]:
        assert (
            stat.S_IMODE(path.stat().st_mode) & 0o077 == 0
            or path.suffix == ".pub"
            or path.name == "audit.pub.pem"
        ), path
    before = (home / "keys" / "audit.pem").read_bytes(), (home / "config.toml").read_text()
    (home / "config.toml").write_text("# mine\n")
    assert skillexec("init", home=home).returncode == 0
    assert (home / "keys" / "audit.pem").read_bytes() == before[0]
    assert (home / "config.toml").read_text() == "# mine\n"


def test_init_is_on_the_record(home: Path) -> None:
    skillexec("init", home=home)
    done = skillexec("audit", "list", "--json", home=home)
    assert "home.created" in done.stdout
    assert "tester" in done.stdout


def test_a_home_that_others_may_write_stops_every_command(home: Path) -> None:
    skillexec("init", home=home)
    home.chmod(0o777)
    for command in (["team", "list"], ["skill", "list"], ["audit", "list"], ["grant", "list", "--all"]):
        done = skillexec(*command, home=home)
        assert done.returncode == 40, command
        assert "chmod 0700" in done.stderr


def test_a_config_that_can_not_be_read_stops_every_command_that_needs_it(home: Path) -> None:
    skillexec("init", home=home)
    (home / "config.toml").write_text("[sandbox]\nmemory = 'lots'\n")
    done = skillexec("skill", "list", home=home)
    assert done.returncode == 40
    assert "sandbox.memory" in done.stderr


def test_a_bug_of_ours_exits_70_and_says_where_the_traceback_is(home: Path) -> None:
    skillexec("init", home=home)
    # A state whose tables are gone is nothing that any code of ours expects to meet in this place.
    program = (
        "import sys; from skillexec import home\n"
        "home.find_home = None\n"
        "from skillexec.__main__ import main; main(['init'])"
    )
    done = subprocess.run(
        [sys.executable, "-P", "-c", program],
        env={"PATH": os.environ["PATH"], "TMPDIR": str(home.parent)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 70, done.stderr
    assert "Traceback" not in done.stderr
    named = done.stderr.split("the traceback is in ")[1].split(":")[0]
    assert "TypeError" in Path(named).read_text()
    assert stat.S_IMODE(Path(named).stat().st_mode) == 0o600


def test_a_reader_that_leaves_early_is_no_error(home: Path) -> None:
    command = '"$0" -P -m skillexec --help | head -c 1; exit ${PIPESTATUS[0]}'
    done = subprocess.run(
        ["bash", "-c", command, sys.executable], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0
    assert done.stderr == ""
