"""skillexec audit, as a person and as a program use it."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import sqlite3
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from audit_log import a_day, ended, put, started, tamper

from skillexec.audit import Event
from skillexec.audit.checkpoint import create_key, public_path
from skillexec.home import Home
from skillexec.state import State


@pytest.fixture
def home(tmp_path: Path) -> Home:
    """A home with nine records."""
    home = Home(tmp_path / "home")
    home.create()
    create_key(home.audit_key)
    with State.open(home.state_file, create=True) as state:
        a_day(state)
    return home


def command(home: Home, *arguments: str) -> list[str]:
    return [sys.executable, "-m", "skillexec", "--home", str(home.path), "audit", *arguments]


def run(home: Home, *arguments: str, status: int = 0) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(command(home, *arguments), capture_output=True, text=True, timeout=60)
    assert done.returncode == status, done.stderr
    return done


def answer(home: Home, *arguments: str, status: int = 0) -> dict[str, Any]:
    document = json.loads(run(home, *arguments, "--json", status=status).stdout)
    assert document.pop("version") == 1
    return dict(document)


def on_a_terminal(home: Home, *arguments: str, columns: int = 160) -> str:
    """What a person sees."""
    leader, follower = pty.openpty()
    environment = {**os.environ, "COLUMNS": str(columns), "TERM": "xterm-256color"}
    process = subprocess.Popen(
        command(home, *arguments), stdout=follower, stderr=follower, stdin=follower, env=environment
    )
    os.close(follower)
    seen = b""
    while True:
        try:
            chunk = os.read(leader, 65536)
        except OSError:  # the other end is closed
            break
        if not chunk:
            break
        seen += chunk
    os.close(leader)
    assert process.wait(timeout=60) == 0, seen
    return seen.decode()


def test_list_filters_and_pages_with_the_number_it_names(home: Home) -> None:
    first = answer(home, "list", "--system", "researcher", "--limit", "3")
    assert [record["seq"] for record in first["records"]] == [9, 8, 7]
    second = answer(home, "list", "--system", "researcher", "--limit", "10", "--before", str(first["before"]))
    assert [record["seq"] for record in second["records"]] == [6, 5, 4, 3, 2]
    assert second["before"] is None


def test_list_as_text_has_a_line_for_each_record_and_says_how_to_go_on(home: Home) -> None:
    done = run(home, "list", "--limit", "2", "--since", "1h", "--actor", "ann")
    lines = done.stdout.splitlines()
    assert len(lines) == 3
    assert lines[1].split()[0] == "9"
    assert done.stderr == "older ones: add --before 8\n"
    assert run(home, "list", "--actor", "bob").stdout == "no such records\n"


def test_list_draws_a_table_on_a_terminal(home: Home) -> None:
    seen = on_a_terminal(home, "list", "--outcome", "denied")
    assert "─" in seen
    assert "git-push" in seen


def test_in_80_columns_a_list_breaks_no_time_no_event_and_no_name_apart(home: Home) -> None:
    seen = on_a_terminal(home, "list", columns=80)
    assert max(len(line) for line in re.sub(r"\x1b\[[0-9;]*m", "", seen).splitlines()) <= 80
    for record in answer(home, "list")["records"]:
        words = [record["time"][5:19].replace("T", " "), record["event"], record["system"], record["skill"]]
        assert all(word in seen for word in words if word), record
    assert f"{record['time'][:4]} (UTC)" in seen


@pytest.mark.parametrize(
    ("arguments", "next_step"),
    [
        (["list", "--event", "grants"], "grant.*"),
        (["list", "--outcome", "okay"], "ok"),
        (["list", "--since", "yesterday"], "7d"),
        (["list", "--since", ""], "7d"),
        (["list", "--before", "99"], "skillexec audit list"),
        (["show", "99"], "skillexec audit list"),
        (["show", "nobody"], "skillexec audit list"),
        (["checkpoint"], "--help"),
        (["verify", "--checkpoint", "/no/such/file"], "skillexec audit checkpoint --to"),
        (["verify", "--key", __file__], "--checkpoint FILE"),
    ],
)
def test_a_mistake_is_answered_with_the_next_step(home: Home, arguments: list[str], next_step: str) -> None:
    error = answer(home, *arguments, status=2)["error"]
    assert error["code"] == "usage"
    assert next_step in error["hint"]


def test_show_prints_a_record_with_its_hash(home: Home) -> None:
    record = answer(home, "show", "6")["record"]
    text = run(home, "show", "6").stdout
    assert text.startswith("record 6: decision.denied by ann")
    assert record["hash"] in text
    assert record["prev"] in text


def test_show_tells_a_run_from_the_decision_to_its_end(home: Home) -> None:
    text = run(home, "show", "r3").stdout
    order = [text.index(word) for word in ("decision.allowed", "run.started", "run.ended: failed")]
    assert order == sorted(order)
    assert text.endswith("ended failed after 250 ms\n")
    assert run(home, "show", "r2").stdout.endswith("denied: nothing ran\n")
    assert answer(home, "show", "r3")["records"][0]["event"] == "decision.allowed"


def test_show_says_when_no_end_is_on_record(home: Home) -> None:
    with State.open(home.state_file) as state:
        put(state, started("r5"))
    assert "no end is on record" in run(home, "show", "r5").stdout


def test_nothing_in_the_log_can_move_a_terminals_cursor(home: Home) -> None:
    body = '{"actor":"\\u001b[2J\\u202e","data":{},"event":"team.added","outcome":null,"prev":"","run":"r7",'
    body += '"seq":10,"skill":null,"system":null,"team":null,"time":"2026-07-28T10:30:00.125000Z","v":1}'
    row = ("INSERT INTO audit VALUES (10, '', ?, 1, '2026-07-28T10:30:00.125000Z', 'r7')", (body,))
    tamper(home.state_file, row)
    for arguments in (["list"], ["show", "10"], ["show", "r7"], ["export"]):
        text = run(home, *arguments).stdout
        assert not set(text) & {"\x1b", "\u202e"}


def test_export_prints_lines_that_programs_read(home: Home) -> None:
    lines = [json.loads(line) for line in run(home, "export", "--event", "run.*").stdout.splitlines()]
    assert [line["seq"] for line in lines] == [4, 5, 8, 9]
    [event] = map(
        json.loads, run(home, "export", "--format", "cloudevents", "--run", "r2").stdout.splitlines()
    )
    assert (event["type"], event["subject"]) == ("skillexec.decision.denied", "researcher/git-push")


def test_stats_count_and_draw_bars_on_a_terminal_only(home: Home) -> None:
    [runs, denials] = answer(home, "stats")["stats"]
    assert (runs["runs"], runs["failures"], runs["p50_us"], runs["p95_us"]) == (2, 1, 250_000, 1_500_000)
    assert (denials["skill"], denials["denials"]) == ("git-push", 1)
    assert "█" not in run(home, "stats").stdout
    seen = on_a_terminal(home, "stats")
    assert "█" in seen
    assert "▒" in seen


def test_in_80_columns_stats_break_no_name_apart(home: Home) -> None:
    with State.open(home.state_file) as state:
        put(state, started("long", system="night-shift", skill="skillexec-conformance"))
    seen = on_a_terminal(home, "stats", columns=80)
    for name in ("skillexec-conformance", "night-shift", "web-search", "researcher", "git-push", "failures"):
        assert name in seen


def test_show_calls_the_names_of_secrets_by_what_they_are(home: Home) -> None:
    with State.open(home.state_file) as state:
        event = replace(started("keyed"), data={"rule": "system_grant", "names": ["API_KEY"]})
        put(state, event)
    assert re.search(r"secrets +API_KEY", run(home, "show", "keyed").stdout)


def test_show_of_a_run_that_never_started_says_so(home: Home) -> None:
    with State.open(home.state_file) as state:
        put(state, ended("bad", outcome="invalid_input", duration=0))
    assert run(home, "show", "bad").stdout.endswith("ended invalid_input: nothing ran\n")


def test_verify_says_which_file_it_wants_instead(home: Home, tmp_path: Path) -> None:
    other = tmp_path / "notes.md"
    for text in ("no checkpoint · at all", "nor here"):
        other.write_text(text)
        error = answer(home, "verify", "--checkpoint", str(other), status=40)["error"]
        assert "codec" not in error["message"]
        assert "skillexec audit checkpoint --to FILE" in error["hint"]


def test_verify_says_that_all_is_well_and_what_only_a_checkpoint_shows(home: Home) -> None:
    assert answer(home, "verify")["records"] == 9
    assert "--checkpoint FILE" in run(home, "verify").stdout
    assert "9 records" in on_a_terminal(home, "verify")


def test_verify_names_the_first_bad_record_and_exits_with_40(home: Home) -> None:
    tamper(home.state_file, "UPDATE audit SET body = replace(body, 'git-push', 'git-pull') WHERE seq = 6")
    error = answer(home, "verify", status=40)["error"]
    assert error["code"] == "audit_unusable"
    assert "record 6: its content is not what was written" in error["message"]


def test_a_checkpoint_shows_a_cut_off_end_with_the_public_key_kept_elsewhere(
    home: Home, tmp_path: Path
) -> None:
    file, key = tmp_path / "checkpoints", tmp_path / "audit.pub"
    key.write_bytes(public_path(home.audit_key).read_bytes())
    assert answer(home, "checkpoint", "--to", str(file))["checkpoint"]["count"] == 9
    assert answer(home, "verify", "--checkpoint", str(file), "--key", str(key))["checkpoints"] == 1
    [made] = answer(home, "list", "--event", "checkpoint.made")["records"]
    assert made["data"]["count"] == 9
    tamper(home.state_file, "DELETE FROM audit WHERE seq > 7")
    assert answer(home, "verify", "--checkpoint", str(file), status=40)["error"]["message"].startswith(
        "the audit log does not verify: record 8: is missing: the log ends with record 7"
    )


def test_a_team_that_can_not_be_recorded_is_not_added_and_the_status_is_40(home: Home) -> None:
    with sqlite3.connect(home.state_file) as connection:
        connection.execute(
            "CREATE TRIGGER broken BEFORE INSERT ON audit BEGIN SELECT RAISE(ABORT, 'broken'); END"
        )
    program = [sys.executable, "-m", "skillexec", "--home", str(home.path), "team", "add", "blue", "--json"]
    done = subprocess.run(program, capture_output=True, text=True, timeout=60)
    assert (done.returncode, json.loads(done.stdout)["error"]["code"]) == (40, "audit_unusable")
    with sqlite3.connect(home.state_file) as connection:
        assert connection.execute("SELECT count(*) FROM teams").fetchone() == (0,)


def test_follow_shows_new_records_as_they_come_and_ends_cleanly(home: Home) -> None:
    process = subprocess.Popen(
        command(home, "follow", "--json", "--last", "1", "--event", "team.*"),
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    earlier = json.loads(process.stdout.readline())
    with State.open(home.state_file) as state:
        put(state, started("r6"), Event("team.added", "ann", team="blue"))
    new = json.loads(process.stdout.readline())
    assert [earlier["record"]["seq"], new["record"]["seq"]] == [1, 11]
    assert new["version"] == 1
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=20) == 0
    assert process.stdout.read() == ""


def test_help_names_every_command(home: Home) -> None:
    text = run(home, "--help").stdout
    for name in ("list", "show", "follow", "verify", "checkpoint", "export", "stats"):
        assert f"\n  {name} " in text
