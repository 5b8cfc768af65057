"""Whatever is done to the log afterwards shows: edits, deletions, insertions, swaps, a cut-off end, a new log."""

from __future__ import annotations

import hashlib
import json
import sqlite3
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from audit_log import a_day, put, started, tamper
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from skillexec.audit import Event
from skillexec.audit.checkpoint import (
    Checkpoint,
    check,
    create_key,
    key_id,
    load_key,
    load_public_key,
    public_path,
    read_checkpoints,
    take,
)
from skillexec.audit.query import Filter, page
from skillexec.audit.record import canonical
from skillexec.audit.verify import Finding, Report, verify
from skillexec.errors import AuditUnusable
from skillexec.state import State


@pytest.fixture
def state(tmp_path: Path) -> Iterator[State]:
    with State.open(tmp_path / "state.db", create=True) as opened:
        a_day(opened)
        yield opened


def report(state: State) -> Report:
    with state.read() as connection:
        return verify(connection)


def first(state: State) -> Finding:
    found = report(state).findings
    assert found, "nothing was found"
    return found[0]


def body_of(path: Path, seq: int) -> dict[str, Any]:
    with sqlite3.connect(path) as connection:
        text = connection.execute("SELECT body FROM audit WHERE seq = ?", (seq,)).fetchone()[0]
    return dict(json.loads(text))


def rewritten(path: Path, seq: int, **fields: Any) -> tuple[str, tuple[object, ...]]:
    """An edit by somebody who knows the format: the body is canonical and its own hash is right."""
    body = canonical({**body_of(path, seq), **fields})
    digest = hashlib.sha256(body.encode()).hexdigest()
    return "UPDATE audit SET body = ?, hash = ? WHERE seq = ?", (body, digest, seq)


def test_an_untouched_log_verifies(state: State) -> None:
    assert report(state).findings == ()
    assert report(state).records == 9


def test_an_empty_log_lacks_its_first_record(tmp_path: Path) -> None:
    with State.open(tmp_path / "empty.db", create=True) as state:
        assert first(state).seq == 1 and "the log is empty" in first(state).problem


def test_names_in_any_script_and_with_quotes_verify(state: State) -> None:
    put(state, Event("team.added", 'Ann "the\\boss" Ωμέγα 🦉', team="größe"))
    assert report(state).findings == ()


def test_an_edit_names_the_record(state: State) -> None:
    tamper(state.path, "UPDATE audit SET body = replace(body, 'git-push', 'git-pull') WHERE seq = 6")
    assert first(state) == Finding("its content is not what was written: the hash differs", 6)


def test_an_edit_with_a_new_hash_breaks_the_link_to_the_next(state: State) -> None:
    tamper(state.path, rewritten(state.path, 6, data={}))
    finding = first(state)
    assert finding.seq == 7
    assert "does not follow record 6" in finding.problem


def test_a_deletion_names_the_missing_record(state: State) -> None:
    tamper(state.path, "DELETE FROM audit WHERE seq = 6")
    assert first(state).seq == 6
    assert "missing" in first(state).problem


def test_a_deletion_with_the_rest_moved_up_breaks_the_link(state: State) -> None:
    tamper(
        state.path,
        "DELETE FROM audit WHERE seq = 6",
        "UPDATE audit SET seq = seq - 1 WHERE seq = 7",
        "UPDATE audit SET seq = seq - 1 WHERE seq = 8",
        "UPDATE audit SET seq = seq - 1 WHERE seq = 9",
    )
    assert first(state).seq == 6


def test_an_insertion_breaks_the_link(state: State) -> None:
    shift = [f"UPDATE audit SET seq = {seq + 1} WHERE seq = {seq}" for seq in (9, 8, 7, 6)]
    copy = "INSERT INTO audit SELECT 6, hash, body, kind, time, run FROM audit WHERE seq = 5"
    tamper(state.path, *shift, copy)
    assert first(state).seq == 6


def test_two_records_that_changed_places_are_found(state: State) -> None:
    swap = [(5, 99), (6, 5), (99, 6)]
    tamper(state.path, *(f"UPDATE audit SET seq = {new} WHERE seq = {old}" for old, new in swap))
    assert first(state).seq == 5
    assert "does not follow record 4" in first(state).problem


@pytest.mark.parametrize(
    ("column", "change"),
    [
        ("time", "UPDATE audit SET time = '2001-01-01T00:00:00.000000Z' WHERE seq = 6"),
        ("run", "UPDATE audit SET run = 'r1' WHERE seq = 6"),
        ("run", "UPDATE audit SET run = NULL WHERE seq = 6"),
        ("outcome", "UPDATE audit_kinds SET outcome = 'allowed' WHERE event = 'decision.denied'"),
        ("actor", "UPDATE audit SET kind = (SELECT max(id) FROM audit_kinds) WHERE seq = 6"),
    ],
)
def test_a_column_that_says_other_than_the_record_is_found(state: State, column: str, change: str) -> None:
    put(state, Event("team.added", "zoe"))  # the newest kind has another actor
    tamper(state.path, change)
    assert first(state).seq == 6
    assert f"the column {column} says" in first(state).problem


def test_a_kind_that_is_gone_is_found(state: State) -> None:
    tamper(state.path, "DELETE FROM audit_kinds WHERE event = 'decision.denied'")
    assert first(state) == Finding("its kind 6 is gone, or is not text", 6)


@pytest.mark.parametrize("value", ["CAST(skill AS BLOB)", "x''", "zeroblob(3)"])
def test_a_kind_that_no_filter_would_find_is_found(state: State, value: str) -> None:
    tamper(state.path, f"UPDATE audit_kinds SET skill = {value} WHERE event = 'decision.denied'")
    assert first(state) == Finding("its kind 6 is gone, or is not text", 6)


@pytest.mark.parametrize("seq", [0, -7])
def test_a_record_before_the_first_is_found(state: State, seq: int) -> None:
    tamper(
        state.path, f"INSERT INTO audit SELECT {seq}, hash, body, kind, time, run FROM audit WHERE seq = 5"
    )
    assert first(state) == Finding("it was put there later: the first record is number 1", seq)


def forge(path: Path, seq: int, old: str, new: str) -> None:
    """Edit a record's text, and write the hashes of all that follow anew."""
    with sqlite3.connect(path) as connection:
        bodies = connection.execute("SELECT seq, body FROM audit ORDER BY seq").fetchall()
    changes, prev = [], "0" * 64
    for number, text in bodies:
        body = canonical({**json.loads(text), "prev": prev})
        body = body.replace(old, new, 1) if number == seq else body
        prev = hashlib.sha256(body.encode()).hexdigest()
        changes.append(("UPDATE audit SET body = ?, hash = ? WHERE seq = ?", (body, prev, number)))
    tamper(path, *changes)


@pytest.mark.parametrize(
    "data",
    [
        '"data":{"event":not json,',
        '"data":{},"event":"team.added","data":{',  # which of the two is meant? Languages differ
        '"data":' + '{"a":' * 100_000 + "{",
    ],
)
def test_a_text_that_is_not_one_clear_record_is_found_though_its_hashes_are_right(
    state: State, data: str
) -> None:
    forge(state.path, 6, '"data":{', '"data":{')
    assert report(state).findings == ()
    forge(state.path, 6, '"data":{', data)
    assert first(state).seq == 6


def hide(path: Path, index: str, condition: str) -> None:
    """Make an index that lacks rows, and let it say that it lacks none."""
    with sqlite3.connect(path, isolation_level=None) as connection:
        (sql,) = connection.execute("SELECT sql FROM sqlite_master WHERE name = ?", (index,)).fetchone()
        connection.execute(f"DROP INDEX {index}")
        connection.execute(f"{sql} WHERE NOT ({condition})")
        connection.execute("PRAGMA writable_schema = ON")
        connection.execute("UPDATE sqlite_master SET sql = ? WHERE name = ?", (sql, index))


@pytest.mark.parametrize("index", ["audit_by_time", "audit_by_kind"])
def test_a_record_that_lists_do_not_show_is_found(state: State, index: str) -> None:
    hide(state.path, index, "seq = 6")
    with State.open(state.path) as reopened:
        wanted = Filter() if index == "audit_by_time" else Filter(outcome="denied")
        with reopened.read() as connection:
            assert 6 not in [record.seq for record in page(connection, wanted, limit=10).records]
        assert first(reopened).problem == f"the database contradicts itself: row 6 missing from index {index}"


def test_a_sixth_grant_put_there_by_force_is_found(state: State) -> None:
    with sqlite3.connect(state.path, isolation_level=None) as connection:
        connection.execute("PRAGMA ignore_check_constraints = ON")
        connection.execute("INSERT INTO grants VALUES ('researcher', 6, 'git-push', 'org', NULL)")
    assert first(state).problem == "the database contradicts itself: CHECK constraint failed in grants"


@pytest.mark.parametrize("value", ["x'7b7d'", "NULL || 1", "7"])
def test_something_other_than_text_is_found(state: State, value: str) -> None:
    tamper(state.path, f"UPDATE OR IGNORE audit SET body = coalesce({value}, 1) WHERE seq = 6")
    assert first(state).seq == 6


def test_a_record_that_is_no_json_is_found(state: State) -> None:
    digest = hashlib.sha256(b"nonsense").hexdigest()
    tamper(state.path, f"UPDATE audit SET body = 'nonsense', hash = '{digest}' WHERE seq = 6")
    assert first(state) == Finding("it can't be read", 6)


def test_a_missing_guard_is_a_finding_though_the_chain_is_whole(state: State) -> None:
    tamper(state.path, restore=False)
    assert "audit_no_update that keeps the log append-only is gone" in first(state).problem
    assert report(state).records == 9


def test_a_guard_that_was_weakened_is_a_finding(state: State) -> None:
    weak = "CREATE TRIGGER audit_no_delete BEFORE DELETE ON audit WHEN 0 BEGIN SELECT 1; END"
    with sqlite3.connect(state.path) as connection:
        connection.execute("DROP TRIGGER audit_no_delete")
        connection.execute(weak)
    assert "audit_no_delete" in first(state).problem


def test_a_strangers_trigger_is_a_finding(state: State) -> None:
    with sqlite3.connect(state.path) as connection:
        connection.execute(
            "CREATE TRIGGER quiet AFTER INSERT ON audit BEGIN DELETE FROM audit_open_runs; END"
        )
    assert first(state) == Finding("a trigger that is not ours is in the database: quiet")


def test_a_run_hidden_from_the_list_of_open_runs_is_a_finding(state: State) -> None:
    put(state, started("r9"))
    tamper(state.path, "DELETE FROM audit_open_runs")
    assert first(state) == Finding("the run r9 is open, and the list of open runs lacks it", 10)


def test_an_open_run_that_is_listed_with_the_record_of_another_is_a_finding(state: State) -> None:
    put(state, started("r9"), started("r10"))
    tamper(state.path, "UPDATE audit_open_runs SET seq = 11 WHERE run = 'r9'")
    assert first(state) == Finding("the run r9 is open, and the list of open runs lacks it", 10)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seq=st.integers(1, 9), place=st.floats(0, 1, exclude_max=True), letter=st.characters(codec="ascii"))
def test_no_single_character_of_any_record_can_change(
    state: State, tmp_path: Path, seq: int, place: float, letter: str
) -> None:
    copy = tmp_path / "copy.db"
    with sqlite3.connect(state.path) as source, sqlite3.connect(copy) as target:
        source.backup(target)
        body = target.execute("SELECT body FROM audit WHERE seq = ?", (seq,)).fetchone()[0]
    at = int(place * len(body))
    changed = body[:at] + letter + body[at + 1 :]
    tamper(copy, ("UPDATE audit SET body = ? WHERE seq = ?", (changed, seq)))
    with State.open(copy) as opened:
        found = report(opened).findings
    assert [finding.seq for finding in found] == ([] if changed == body else [seq])


# Checkpoints.


@pytest.fixture
def key(tmp_path: Path) -> Path:
    path = tmp_path / "audit.pem"
    create_key(path)
    return path


def checkpoint(state: State, key: Path, file: Path) -> Checkpoint:
    with state.read() as connection:
        return take(connection, load_key(key), file)


def against(state: State, key: Path, file: Path) -> tuple[Finding, ...]:
    with state.read() as connection:
        found = verify(connection)
        checks = check(
            connection, read_checkpoints(file), load_public_key(public_path(key)), newest=found.records
        )
        return (*found.findings, *checks)


def test_the_key_is_for_this_user_alone_and_never_replaced(key: Path) -> None:
    assert stat.S_IMODE(key.stat().st_mode) == 0o600
    before = key_id(key)
    with pytest.raises(AuditUnusable, match="already"):
        create_key(key)
    assert key_id(key) == before


def test_a_key_that_others_may_read_is_refused(key: Path) -> None:
    key.chmod(0o640)
    with pytest.raises(AuditUnusable, match="others may read"):
        load_key(key)


def test_a_log_agrees_with_its_checkpoints_as_it_grows(state: State, key: Path, tmp_path: Path) -> None:
    file = tmp_path / "checkpoints"
    checkpoint(state, key, file)
    put(state, started("r8"))
    second = checkpoint(state, key, file)
    put(state, started("r9"))
    assert second.count == 10
    assert len(read_checkpoints(file)) == 2
    assert against(state, key, file) == ()


def test_a_cut_off_end_shows_against_a_checkpoint_and_only_there(
    state: State, key: Path, tmp_path: Path
) -> None:
    file = tmp_path / "checkpoints"
    checkpoint(state, key, file)
    tamper(state.path, "DELETE FROM audit WHERE seq >= 6")
    assert report(state).findings == ()
    [finding] = against(state, key, file)
    assert finding.seq == 6
    assert "the log ends with record 5" in finding.problem


def test_a_log_written_anew_shows_against_a_checkpoint(state: State, key: Path, tmp_path: Path) -> None:
    file = tmp_path / "checkpoints"
    checkpoint(state, key, file)
    with State.open(tmp_path / "other.db", create=True) as forged:
        a_day(forged)
        [finding] = against(forged, key, file)
    assert finding.seq == 9
    assert "written anew" in finding.problem


def test_a_checkpoint_by_another_key_is_a_finding(state: State, key: Path, tmp_path: Path) -> None:
    other, file = tmp_path / "other.pem", tmp_path / "checkpoints"
    create_key(other)
    checkpoint(state, other, file)
    [finding] = against(state, key, file)
    assert f"not signed with the key {key_id(key)}: it names the key {key_id(other)}" in finding.problem


@pytest.mark.parametrize("field", ["count", "head", "time"])
def test_a_checkpoint_that_was_edited_is_a_finding(
    state: State, key: Path, tmp_path: Path, field: str
) -> None:
    file = tmp_path / "checkpoints"
    checkpoint(state, key, file)
    said = json.loads(file.read_text())
    said[field] = 5 if field == "count" else "2020" + said[field][4:]
    file.write_text(canonical(said) + "\n")
    [finding] = against(state, key, file)
    assert "not signed" in finding.problem


@pytest.mark.parametrize("line", ["", "{}", "[]", "nonsense", '{"count":1}', "[" * 100_000])
def test_a_line_that_is_no_checkpoint_is_named(state: State, key: Path, tmp_path: Path, line: str) -> None:
    file = tmp_path / "checkpoints"
    checkpoint(state, key, file)
    with file.open("a") as lines:
        lines.write(line + "\n")
    with pytest.raises(AuditUnusable, match="line 2"):
        read_checkpoints(file)


def test_a_log_that_does_not_verify_gets_no_checkpoint(state: State, key: Path, tmp_path: Path) -> None:
    file = tmp_path / "checkpoints"
    tamper(state.path, "UPDATE audit SET body = replace(body, 'git-push', 'git-pull') WHERE seq = 6")
    with pytest.raises(AuditUnusable, match="record 6"):
        checkpoint(state, key, file)
    assert not file.exists()


def test_a_log_that_contradicts_its_last_checkpoint_gets_no_other(
    state: State, key: Path, tmp_path: Path
) -> None:
    file = tmp_path / "checkpoints"
    checkpoint(state, key, file)
    tamper(state.path, "DELETE FROM audit WHERE seq >= 6")
    with pytest.raises(AuditUnusable, match="ends with record 5"):
        checkpoint(state, key, file)
    assert len(read_checkpoints(file)) == 1


def test_a_folder_that_is_full_or_gone_makes_no_checkpoint(state: State, key: Path, tmp_path: Path) -> None:
    with pytest.raises(AuditUnusable, match="can't write the checkpoint"):
        checkpoint(state, key, tmp_path / "nowhere" / "checkpoints")
    with pytest.raises(AuditUnusable, match="No space left"):
        checkpoint(state, key, Path("/dev/full"))
