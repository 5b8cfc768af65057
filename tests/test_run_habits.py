"""How published skills are really made, and how people really call them: each habit on the real path."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from running import SYSTEM, Place

from skillexec.model import InputFile, RunResult, Source, Status
from skillexec.permissions.grants import Wish
from skillexec.runner import Runner

TOOLS = ("file-reader", "web-search", "web-fetch", "git-readonly-sync")
HABITS: dict[str, str | bytes] = {
    "scripts/office/unpack.py": "import sys; from helpers import shout; print(shout(sys.argv[1]))",
    "scripts/office/helpers.py": "def shout(text): return text.upper()",
    "scripts/__init__.py": "",
    "scripts/main.py": "import os; from scripts.office import helpers; print(helpers.shout(os.getcwd()))",
    "tools/outside.py": "print(open('references/notes.md').read(), end='')",
    "references/notes.md": "what to know\n",
    "windows.py": b"#!/usr/bin/env python3\r\nprint('carriage')\r\n",
    "windows.sh": b"#!/bin/bash\r\necho carriage\r\n",
    "latin.py": "import sys; sys.stdout.buffer.write(b'caf\\xe9\\n')",
    "node.js": "const p = require('path'); console.log(JSON.stringify({base: p.basename(__filename)}))",
    "noexec": "#!/usr/bin/env bash\necho by shebang\n",
    "any.sh": 'eval "$1"\n',
    "old.py": "#!/usr/bin/python\nimport sys; print(sys.version_info.major)\n",
}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    made = Place(tmp_path_factory.mktemp("habits"))
    made.skill("habits", HABITS)
    made.skill("echo", {"run.py": "import sys; print(sys.argv[1:], sys.stdin.read())"})
    made.skill("theirs", {"run.py": "print('ran')"}, source=Source.THIRD_PARTY)
    made.skill("show", {"any.sh": 'eval "$1"\n'})
    made.system("reader", *TOOLS, source=Source.BUILTIN)
    return made


@pytest.fixture(scope="module")
def runner(place: Place) -> Iterator[Runner]:
    with place.runner(warm=2) as opened:
        yield opened


def _habit(runner: Runner, script: str, *args: str) -> RunResult:
    return runner.run("habits", system=SYSTEM, script=script, args=args)


# -- scripts as they are


@pytest.mark.parametrize(
    ("script", "args", "printed"),
    [
        ("scripts/office/unpack.py", ("deep",), b"DEEP\n"),  # nested, and imports its neighbour
        ("tools/outside.py", (), b"what to know\n"),  # outside scripts/, reads by a relative path
        ("windows.py", (), b"carriage\n"),
        ("noexec", (), b"by shebang\n"),  # neither an exec bit nor an extension
        ("latin.py", (), b"caf\xe9\n"),
        ("node.js", (), b'{"base":"node.js"}\n'),
        ("any.sh", ("[[ x == x ]] && echo bash",), b"bash\n"),
        ("old.py", (), b"3\n"),
    ],
)
def test_a_script_runs_as_its_author_meant(
    runner: Runner, script: str, args: tuple[str, ...], printed: bytes
) -> None:
    result = _habit(runner, script, *args)
    assert (result.status, result.stdout.data) == (Status.OK, printed), (result.error, result.stderr.text)


def test_a_shell_script_with_windows_line_ends_is_found_by_its_shebang(runner: Runner) -> None:
    """bash itself takes the carriage return for a part of the last word; the interpreter is found all the same."""
    result = _habit(runner, "windows.sh")
    assert (result.status, result.stdout.data) == (Status.OK, b"carriage\r\n"), result.error


def test_a_module_runs_with_the_skill_as_its_root(runner: Runner) -> None:
    result = runner.run("habits", system=SYSTEM, module="scripts.main")
    assert (result.status, result.stdout.data) == (Status.OK, b"/SKILL\n"), result.stderr.text


def test_a_skill_can_not_write_to_itself(runner: Runner) -> None:
    result = _habit(runner, "any.sh", "echo x > references/notes.md || exit 3")
    assert (result.status, result.exit_code) == (Status.FAILED, 3)


# -- the tools of the image


def test_the_file_reader_reads_a_range_of_an_input_file(runner: Runner) -> None:
    lines = "".join(f"line {number}\n" for number in range(100))
    result = runner.run(
        "file-reader",
        system="reader",
        input={"path": "log.txt", "offset": 40, "limit": 2},
        files=(InputFile("log.txt", lines.encode()),),
    )
    assert result.status is Status.OK, (result.error, result.stderr.text)
    assert result.output["path"] == "log.txt"
    assert "line 40\nline 41" in json.dumps(result.output).replace("\\n", "\n")
    assert "line 42" not in json.dumps(result.output)


@pytest.mark.parametrize(
    ("skill", "given"),
    [
        ("web-search", {"query": "agent skills"}),
        ("web-fetch", {"url": "https://example.org/"}),
        ("git-readonly-sync", {"url": "https://github.com/example/example"}),
    ],
)
def test_a_tool_that_needs_the_network_says_that_it_has_none(
    place: Place, runner: Runner, skill: str, given: dict[str, Any]
) -> None:
    if skill == "web-search":
        from skillexec.testing import FakeVault

        place.map_secret("BRAVE_API_KEY", "op://agents/brave/key")
        with place.runner(backend=FakeVault({"op://agents/brave/key": "not-a-real-key"}), warm=0) as other:
            result = other.run(skill, system="reader", input=given)
    else:
        result = runner.run(skill, system="reader", input=given)
    assert (result.status, result.exit_code) == (Status.FAILED, 3), (result.error, result.stderr.text)
    assert "no network granted" in result.stdout.text + result.stderr.text


def test_input_that_a_tool_does_not_know_is_refused(runner: Runner) -> None:
    result = runner.run("file-reader", system="reader", input={"path": "x", "shell": "rm"})
    assert result.status is Status.INVALID_INPUT


# -- the command line


def test_json_is_one_object_and_nothing_else(place: Place) -> None:
    done = place.command("run", "show", "--as", SYSTEM, "--json", "--", "echo out; echo err >&2; exit 7")
    assert done.returncode == 10
    assert done.stderr == ""
    assert done.stdout.count("\n") == 1
    document = json.loads(done.stdout)
    assert (document["version"], document["status"], document["exit_code"]) == (1, "failed", 7)
    assert (document["stdout"]["text"], document["stderr"]["text"]) == ("out\n", "err\n")
    assert place.records(run=document["run_id"])[-1].outcome == "failed"


def test_without_json_both_streams_pass_through_and_the_last_line_says_how_it_went(place: Place) -> None:
    done = place.command("run", "show", "--as", SYSTEM, "--", "echo out; echo err >&2")
    assert (done.returncode, done.stdout) == (0, "out\n")
    assert re.fullmatch(r"err\nok · \d+ ms · [\d.]+ [KM]iB · run \w+\n", done.stderr), done.stderr


def test_input_comes_as_text_from_a_file_or_from_standard_input(place: Place, tmp_path: Path) -> None:
    (tmp_path / "in.json").write_text('{"n": 2}')
    for option, sent in ((['{"n": 2}'], None), ([f"@{tmp_path}/in.json"], None), (["-"], '{"n": 2}')):
        options: dict[str, Any] = {"input": sent} if sent else {}
        done = place.command("run", "echo", "--as", SYSTEM, "--input", *option, "--", "a b", "--c", **options)
        assert done.stdout == "['a b', '--c'] {\"n\": 2}\n", done.stderr


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        (["--input", "{"], 23, "not JSON"),
        (["--input", "@/no/such/file"], 23, "can't read"),
        (["--file", "/no/such/file"], 23, "can't read"),
        (["--script", "scripts/none.py"], 23, "no file"),
        (["--timeout", "-1"], 23, "time-out"),
        (["--timeout", "soon"], 2, "--timeout"),
        (["--no-such-option"], 2, "no-such-option"),
    ],
)
def test_a_call_that_makes_no_sense_has_its_exit_status_and_says_why(
    place: Place, words: list[str], status: int, said: str
) -> None:
    done = place.command("run", "echo", "--as", SYSTEM, *words)
    assert done.returncode == status, done.stderr
    assert said in done.stderr
    assert "next:" in done.stderr


def test_files_go_in_by_name_and_artifacts_come_out(place: Place, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("first")
    (tmp_path / "b:c.txt").write_text("second")
    out = tmp_path / "out"
    code = "cd $SKILLEXEC_OUT; cp $SKILLEXEC_IN/renamed one; mkdir d; cp $SKILLEXEC_IN/b:c.txt d/two"
    words = ["--file", f"{tmp_path}/a.txt:renamed", "--file", f"{tmp_path}/b:c.txt", "--out", str(out)]
    done = place.command("run", "show", "--as", SYSTEM, *words, "--", code)
    assert done.returncode == 0, done.stderr
    assert ((out / "one").read_text(), (out / "d" / "two").read_text()) == ("first", "second")
    assert f"wrote {out / 'one'}" in done.stderr


@pytest.mark.parametrize("planted", ["file", "folder"])
def test_artifacts_are_not_written_through_a_link_that_lies_there(
    place: Place, tmp_path: Path, planted: str
) -> None:
    out, elsewhere = tmp_path / "out", tmp_path / "elsewhere"
    out.mkdir()
    elsewhere.mkdir()
    if planted == "file":
        (elsewhere / "one").write_text("untouched")
        (out / "one").symlink_to(elsewhere / "one")
    else:
        (out / "d").symlink_to(elsewhere)
    code = "echo x > $SKILLEXEC_OUT/one; mkdir $SKILLEXEC_OUT/d; echo x > $SKILLEXEC_OUT/d/two"
    done = place.command("run", "show", "--as", SYSTEM, "--out", str(out), "--", code)
    assert done.returncode == 2, done.stderr
    assert "can't write artifacts" in done.stderr
    assert not (elsewhere / "two").exists()
    if planted == "file":
        assert (elsewhere / "one").read_text() == "untouched"


def test_artifacts_that_can_not_be_written_do_not_take_the_result_with_them(
    place: Place, tmp_path: Path
) -> None:
    (tmp_path / "b").mkdir()
    code = "echo out; cd $SKILLEXEC_OUT; echo 1 > a; echo 2 > b"
    done = place.command("run", "show", "--as", SYSTEM, "--out", str(tmp_path), "--json", "--", code)
    document = json.loads(done.stdout)
    assert (done.returncode, document["status"], document["stdout"]["text"]) == (2, "ok", "out\n")
    assert "can't write artifacts" in document["notes"][-1]
    assert document["saved"] == [str(tmp_path / "a")]
    assert document["artifacts"][1]["base64"] == "Mgo="


@pytest.mark.parametrize(
    ("redirection", "status", "outcome"),
    [(">/dev/full", 30, "infra_error"), (">&- <&- 2>&-", 0, "ok"), ("| true", 1, "cancelled")],
)
def test_an_output_that_nobody_takes_is_no_bug_of_ours_and_on_the_record(
    place: Place, redirection: str, status: int, outcome: str
) -> None:
    code = f'"$0" -P -m skillexec run show --as {SYSTEM} -- "sleep 0.5; echo out" {redirection}'
    environment = {"PATH": os.environ["PATH"], "SKILLEXEC_HOME": str(place.home.path)}
    done = subprocess.run(
        ["bash", "-c", f"{code}; exit ${{PIPESTATUS[0]}}", sys.executable],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == status, done.stderr
    assert "bug" not in done.stderr
    assert "Traceback" not in done.stderr
    assert place.records(event="run.ended")[-1].outcome == outcome


def test_a_time_out_by_option_ends_with_11_and_what_was_printed(place: Place) -> None:
    done = place.command("run", "show", "--as", SYSTEM, "--timeout", "5", "--", "echo begun; sleep 60")
    assert (done.returncode, done.stdout) == (11, "begun\n")


def test_a_stranger_skill_needs_a_word_and_yes_gives_it_once(place: Place) -> None:
    refused = place.command("run", "theirs", "--as", SYSTEM)
    assert refused.returncode == 21
    assert "skillexec approve theirs --as scout" in refused.stderr
    assert place.command("run", "theirs", "--as", SYSTEM, "--yes").stdout == "ran\n"
    assert place.records(event="run.started")[-1].data["confirmation"] == "once"
    assert place.command("run", "theirs", "--as", SYSTEM).returncode == 21


def test_an_approval_ends_by_time_or_by_revocation(place: Place) -> None:
    approved = place.command("approve", "theirs", "--as", SYSTEM, "--until", "1h", "--json")
    assert approved.returncode == 0
    assert datetime.fromisoformat(json.loads(approved.stdout)["expires"]) > datetime.now(UTC)
    assert place.command("run", "theirs", "--as", SYSTEM).stdout == "ran\n"
    assert "revoked 1" in place.command("approve", "theirs", "--as", SYSTEM, "--revoke").stdout
    assert place.command("run", "theirs", "--as", SYSTEM).returncode == 21
    for when in ("yesterday", "2001-01-01", "0h", "99999999999d"):
        refused = place.command("approve", "theirs", "--as", SYSTEM, "--until", when)
        assert refused.returncode == 2, (when, refused.stdout, refused.stderr)
        assert "next:" in refused.stderr


@pytest.mark.parametrize("words", [["run", "echo", "--as", "nobody"], ["run", "file-reader", "--as", SYSTEM]])
def test_a_denial_ends_with_20_and_shows_the_rule(place: Place, words: list[str]) -> None:
    done = place.command(*words, "--json")
    document = json.loads(done.stdout)
    assert (done.returncode, document["status"], document["decision"]["allowed"]) == (20, "denied", False)
    assert document["error"]["hint"]


def test_an_unknown_skill_ends_with_24(place: Place) -> None:
    assert place.command("run", "no-such-skill", "--as", SYSTEM).returncode == 24


def test_a_home_that_was_never_made_ends_with_40_and_says_init(place: Place, tmp_path: Path) -> None:
    done = place.command("run", "echo", "--as", SYSTEM, "--home", str(tmp_path / "none"))
    assert done.returncode == 40
    assert "skillexec init" in done.stderr


def test_a_dead_engine_ends_with_30_and_is_on_the_record(place: Place) -> None:
    done = place.command("run", "echo", "--as", SYSTEM, env={"DOCKER_HOST": "unix:///no/such.sock"})
    assert done.returncode == 30, done.stderr
    assert "dockerd" in done.stderr
    assert place.records()[-1].outcome == "infra_error"


# -- on a terminal


def _on_terminal(
    place: Place, *words: str, answer: bytes = b"", after: float = 0.0
) -> tuple[int, str, list[float]]:
    """Run the command on a pseudo terminal: its exit status, all that it showed, and when each part came."""
    master, slave = pty.openpty()
    environment = {"PATH": os.environ["PATH"], "SKILLEXEC_HOME": str(place.home.path), "TERM": "xterm"}
    if "SKILLEXEC_SANDBOX_IMAGE" in os.environ:
        environment["SKILLEXEC_SANDBOX_IMAGE"] = os.environ["SKILLEXEC_SANDBOX_IMAGE"]
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "skillexec", *words],
        stdin=slave,
        stdout=slave,
        stderr=slave,
        env=environment,
        start_new_session=True,
    )
    os.close(slave)
    threading.Timer(after, os.write, (master, answer)).start()
    shown, moments = b"", []
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and select.select([master], [], [], 60)[0]:
        try:
            part = os.read(master, 65536)
        except OSError:  # how Linux says that nobody holds the other end any more
            break
        shown += part
        moments.append(time.monotonic())
    os.close(master)
    return process.wait(60), shown.decode("utf-8", "replace"), moments


def test_on_a_terminal_output_is_live_the_clock_runs_and_a_closing_line_ends_it(place: Place) -> None:
    status, shown, moments = _on_terminal(
        place, "run", "show", "--as", SYSTEM, "--", "echo first; sleep 4; echo second"
    )
    assert status == 0
    assert re.search(r"first.*running [\d.]+ s of 60 s.*second", shown, re.DOTALL), shown
    assert moments[-1] - moments[0] > 1
    assert re.search(r"ok.* · \d+ ms · [\d.]+ .iB · run \w+\r\n$", shown), shown


def test_escape_sequences_of_a_script_do_not_reach_the_terminal(place: Place) -> None:
    code = r"printf '\033]0;owned\007\033[2J\033[31mred\302\233' ; printf '\033[1A' >&2"
    status, shown, _ = _on_terminal(place, "run", "show", "--as", SYSTEM, "--", code)
    assert status == 0
    assert "red" in shown
    for sequence in ("\x1b]0;", "\x1b[2J", "\x1b[31mred", "\x07", "\x9b", "\x1b[1A"):
        assert sequence not in shown


def test_an_error_text_does_not_reach_the_terminal_with_escapes_either(place: Place) -> None:
    place.skill(
        "evil",
        {"run.py": "print('{}')"},
        extension={"output_schema": {"required": ["\x1b[2Jx"]}},
        grant=False,
    )
    place.system("brave", "evil", "show")
    status, shown, _ = _on_terminal(place, "run", "evil", "--as", "brave")
    assert status == 14
    assert "\x1b[2J" not in shown
    code = "touch \"$SKILLEXEC_OUT/$(printf 'a\\033[2Jb')\""
    status, shown, _ = _on_terminal(place, "run", "show", "--as", "brave", "--", code)
    assert "left out" in shown
    assert "\x1b[2J" not in shown


def test_on_a_terminal_lines_and_characters_stay_whole(place: Place) -> None:
    code = r"printf 'one\r\n10%%\r20%%\n'; printf 'caf\303'; sleep 1.6; printf '\251 no end'"
    status, shown, _ = _on_terminal(place, "run", "show", "--as", SYSTEM, "--", code)
    assert status == 0
    assert "one\r\n10%\r\n20%\r\ncaf\r\n" in shown
    assert re.search("é no end\r\n.*ok", shown), shown
    assert "\ufffd" not in shown


def test_no_clock_writes_over_the_question_while_a_person_thinks(place: Place) -> None:
    status, shown, _ = _on_terminal(place, "run", "theirs", "--as", SYSTEM, answer=b"y\n", after=4)
    assert status == 0
    assert "running" not in shown
    assert "\x1b[K" not in shown[shown.index("nobody vouches") :]


def test_ctrl_c_at_the_question_ends_with_130_and_is_on_the_record(place: Place) -> None:
    status, shown, _ = _on_terminal(
        place, "run", "theirs", "--as", SYSTEM, "--run-id", "unasked", answer=b"\x04", after=3
    )
    assert status == 130
    assert "interrupted" in shown
    assert place.story("unasked") == [("decision.allowed", "allowed"), ("run.ended", "cancelled")]


def test_on_a_terminal_a_person_is_asked_and_no_means_no(place: Place) -> None:
    status, shown, _ = _on_terminal(place, "run", "theirs", "--as", SYSTEM, answer=b"n\n")
    assert status == 21
    assert "third_party" in shown
    assert "network  none" in shown
    assert "ran\r\n" not in shown
    status, shown, _ = _on_terminal(place, "run", "theirs", "--as", SYSTEM, answer=b"y\n")
    assert status == 0
    assert "ran\r\n" in shown


# -- doctor


def test_doctor_finds_nothing_wrong_here_and_proves_it_from_inside(place: Place) -> None:
    done = place.command("doctor", "--deep", "--json")
    document = json.loads(done.stdout)
    failed = [check for check in document["checks"] if check["mark"] == "failed"]
    assert (done.returncode, failed) == (0, [])
    subjects = [check["subject"] for check in document["checks"]]
    assert subjects.count("deep") == 3
    assert {"engine", "image", "state", "skills", "secrets"} <= set(subjects)


@pytest.mark.parametrize("deep", [[], ["--deep"]])
def test_doctor_with_a_dead_engine_says_so_checks_the_rest_and_ends_with_30(
    place: Place, deep: list[str]
) -> None:
    done = place.command("doctor", *deep, env={"DOCKER_HOST": "unix:///no/such.sock"})
    assert done.returncode == 30, done.stdout + done.stderr
    assert "no Docker engine at /no/such.sock" in done.stdout
    assert "dockerd" in done.stdout
    assert re.search(r"ok +state", done.stdout)
    assert "image build" not in done.stdout
    assert "Traceback" not in done.stderr


def test_doctor_with_a_config_that_can_not_be_read_is_still_one_object_and_names_the_file(
    tmp_path: Path,
) -> None:
    place = Place(tmp_path)
    place.home.config_file.write_text("nonsense = [")
    done = place.command("doctor", "--deep", "--json")
    assert done.returncode == 40
    checks = json.loads(done.stdout)["checks"]
    assert {check["subject"] for check in checks} == {"config", "deep"}
    assert all(str(place.home.config_file) in check["finding"] for check in checks)


def test_doctor_without_a_home_says_init(place: Place, tmp_path: Path) -> None:
    done = place.command("doctor", "--home", str(tmp_path / "none"))
    assert done.returncode == 40
    assert "skillexec init" in done.stdout


def test_a_system_of_another_team_does_not_gain_by_any_of_this(place: Place) -> None:
    with place.admin() as admin:
        admin.add_team("outsiders")
        admin.add_system("outsider", team="outsiders")
        admin.add_to_envelope("outsiders", ["echo"])
        admin.add_grants("outsider", [Wish("echo", Source.ORG)])
    assert place.command("run", "echo", "--as", "outsider").returncode == 0
    assert place.command("run", "show", "--as", "outsider", "--", "id").returncode == 20
