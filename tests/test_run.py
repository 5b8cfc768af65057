"""The whole path on the real engine: for every way in which a run can end, its result and its record."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from running import SYSTEM, TEAM, Place

from skillexec.errors import ConfigInvalid, StateUnusable, Usage
from skillexec.model import Confirmation, InputFile, Rule, RunRequest, Source, Status
from skillexec.result import as_document, exit_status
from skillexec.runner import Runner
from skillexec.sandbox import Cancel
from skillexec.state import State

ECHO = "import json, sys; print(json.dumps({'args': sys.argv[1:], 'input': sys.stdin.read()}))\n"
NUMBER = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    """One home for all tests of this file. Five grants are the most, so each kind of test has its own system."""
    made = Place(tmp_path_factory.mktemp("run"))
    made.skill("echo", {"scripts/echo.py": ECHO})
    made.skill("shell", {"scripts/any.sh": 'eval "$1"\n'})
    made.skill("typed", {"run.py": ECHO}, extension={"input_schema": NUMBER, "output_schema": NUMBER})
    made.skill("theirs", {"run.py": "print('ran')\n"}, source=Source.THIRD_PARTY)
    made.skill("mine", {"run.py": "print('ran')\n"}, source=Source.USER)
    return made


@pytest.fixture(scope="module")
def runner(place: Place) -> Iterator[Runner]:
    with place.runner(warm=2) as opened:
        yield opened


def _shell(runner: Runner, code: str, **request: Any) -> Any:
    return runner.run("shell", system=SYSTEM, args=(code,), **request)


def test_a_granted_skill_runs_and_the_record_tells_its_story(place: Place, runner: Runner) -> None:
    result = runner.run("echo", system=SYSTEM, args=("a", "b"), input={"n": 1})
    assert result.status is Status.OK
    assert result.output == {"args": ["a", "b"], "input": '{"n": 1}'}
    assert (result.team, result.source) == (TEAM, Source.ORG)
    assert place.story(result.run_id) == [
        ("decision.allowed", "allowed"),
        ("run.started", None),
        ("run.ended", "ok"),
    ]
    started, ended = place.records(run=result.run_id)[1:]
    assert started.data["digest"] == ended.data["digest"] == result.digest
    assert ended.data["image"] == result.image


def test_a_skill_that_was_not_granted_is_denied_and_nothing_starts(place: Place, runner: Runner) -> None:
    place.skill("stranger", {"run.py": ECHO}, grant=False)
    result = runner.run("stranger", system=SYSTEM)
    assert result.status is Status.DENIED
    assert result.decision is not None
    assert result.decision.rule is Rule.TEAM_ENVELOPE
    assert (exit_status(result), result.usage.wall_seconds) == (20, 0)
    assert place.story(result.run_id) == [("decision.denied", "denied")]


@pytest.mark.parametrize("system", ["nobody", "", "Scout", "scout\n", "scout,admin", "../scout"])
def test_an_unknown_system_is_denied_whatever_it_asks_for(place: Place, runner: Runner, system: str) -> None:
    for skill in ("echo", "no-such-skill"):
        result = runner.run(skill, system=system)
        assert result.status is Status.DENIED
        assert result.decision is not None
        assert result.decision.rule is Rule.UNKNOWN_SYSTEM
        assert place.story(result.run_id) == [("decision.denied", "denied")]


def test_an_unknown_skill_is_denied_with_its_own_exit_status(place: Place, runner: Runner) -> None:
    result = runner.run("no-such-skill", system=SYSTEM)
    assert result.status is Status.DENIED
    assert exit_status(result) == 24
    assert place.story(result.run_id) == [("decision.denied", "denied")]


def test_a_revocation_holds_at_the_next_run(place: Place, runner: Runner) -> None:
    place.skill("fleeting", {"run.py": "print(1)"}, grant=False)
    with place.admin() as admin:
        admin.add_system("guest", team=TEAM)
        admin.add_to_envelope(TEAM, ["fleeting"])
        admin.add_grants("guest", [_wish("fleeting")])
    assert runner.run("fleeting", system="guest").status is Status.OK
    with place.admin() as admin:
        admin.remove_from_envelope(TEAM, ["fleeting"])
    assert runner.run("fleeting", system="guest").status is Status.DENIED


def _wish(name: str, pin: str | None = None) -> Any:
    from skillexec.permissions.grants import Wish

    return Wish(name, Source.ORG, pin=pin)


def test_a_pinned_skill_is_denied_when_one_byte_changes(place: Place, runner: Runner) -> None:
    from skillexec.skills.bundle import take_bundle

    folder = place.skill("pinned", {"run.py": "print(1)\n"}, grant=False)
    with place.admin() as admin:
        admin.add_system("careful", team=TEAM)
        admin.add_to_envelope(TEAM, ["pinned"])
        admin.add_grants("careful", [_wish("pinned", take_bundle(folder).digest)])
    assert runner.run("pinned", system="careful").status is Status.OK
    (folder / "run.py").write_text("print(2)\n")
    result = runner.run("pinned", system="careful")
    assert result.decision is not None
    assert (result.status, result.decision.rule) == (Status.DENIED, Rule.DIGEST_CHANGED)


def test_a_failure_keeps_its_exit_code_and_both_streams(runner: Runner) -> None:
    result = _shell(runner, "echo out; echo err >&2; exit 137")
    assert (result.status, result.exit_code, result.signal) == (Status.FAILED, 137, None)
    assert (result.stdout.data, result.stderr.data) == (b"out\n", b"err\n")
    assert exit_status(result) == 10


def test_a_time_out_keeps_what_was_written(place: Place, runner: Runner) -> None:
    result = _shell(runner, "echo begun; sleep 60", timeout=4)
    assert (result.status, result.stdout.data, exit_status(result)) == (Status.TIMEOUT, b"begun\n", 11)
    assert place.story(result.run_id)[-1] == ("run.ended", "timeout")


def test_memory_beyond_the_limit_is_oom_even_when_the_script_ends_well(place: Place, runner: Runner) -> None:
    result = _shell(runner, "python3 -c 'x = bytearray(2 << 30)'; exit 0")
    assert (result.status, exit_status(result)) == (Status.OOM, 12)
    assert place.story(result.run_id)[-1] == ("run.ended", "oom")


def test_output_without_end_is_ended(runner: Runner) -> None:
    result = _shell(runner, "yes")
    assert (result.status, exit_status(result)) == (Status.OUTPUT_LIMIT, 13)
    assert result.stdout.truncated


def test_input_that_does_not_fit_is_refused_before_anything_starts(place: Place, runner: Runner) -> None:
    result = runner.run("typed", system=SYSTEM, input={"n": "one"})
    assert (result.status, exit_status(result)) == (Status.INVALID_INPUT, 23)
    assert result.error is not None
    assert "$.n" in result.error.message
    assert place.story(result.run_id) == [("decision.allowed", "allowed"), ("run.ended", "invalid_input")]


def test_output_that_does_not_fit_is_kept_and_called_so(place: Place, runner: Runner) -> None:
    result = runner.run("typed", system=SYSTEM, input={"n": 1})
    assert (result.status, exit_status(result)) == (Status.INVALID_OUTPUT, 14)
    assert result.output == {"args": [], "input": '{"n": 1}'}
    assert place.story(result.run_id)[-1] == ("run.ended", "invalid_output")


@pytest.mark.parametrize("name", ["theirs", "mine"])
def test_a_skill_that_nobody_vouches_for_needs_confirmation(place: Place, runner: Runner, name: str) -> None:
    result = runner.run(name, system=SYSTEM)
    assert (result.status, exit_status(result)) == (Status.CONFIRMATION_REQUIRED, 21)
    assert place.story(result.run_id)[-1] == ("run.ended", "confirmation_required")


def test_a_refused_confirmation_refuses_and_shows_what_was_asked(runner: Runner) -> None:
    asked: list[Confirmation] = []

    def refuse(question: Confirmation) -> bool:
        asked.append(question)
        return False

    assert runner.run("theirs", system=SYSTEM, confirm=refuse).status is Status.CONFIRMATION_REQUIRED
    assert (asked[0].skill, asked[0].source, asked[0].system) == ("theirs", Source.THIRD_PARTY, SYSTEM)


def test_a_confirmation_holds_once_and_is_on_the_record(place: Place, runner: Runner) -> None:
    result = runner.run("theirs", system=SYSTEM, confirm=lambda _: True)
    assert result.status is Status.OK
    assert place.records(run=result.run_id)[1].data["confirmation"] == "once"
    assert runner.run("theirs", system=SYSTEM).status is Status.CONFIRMATION_REQUIRED


def test_an_approval_holds_for_these_bytes_and_this_system_only(place: Place, runner: Runner) -> None:
    digest = runner.run("mine", system=SYSTEM).digest
    with place.admin() as admin:
        admin.approve(system=SYSTEM, skill="mine", digest=digest)
    result = runner.run("mine", system=SYSTEM)
    assert result.status is Status.OK
    assert place.records(run=result.run_id)[1].data["confirmation"] == "approval"
    changed = place.folder / Source.USER / "mine" / "run.py"
    changed.write_text("print('other')\n")
    assert runner.run("mine", system=SYSTEM).status is Status.CONFIRMATION_REQUIRED


def test_an_expired_approval_no_longer_holds(place: Place, runner: Runner) -> None:
    from datetime import UTC, datetime, timedelta

    digest = runner.run("theirs", system=SYSTEM).digest
    with place.admin() as admin:
        admin.approve(
            system=SYSTEM, skill="theirs", digest=digest, expires=datetime.now(UTC) - timedelta(seconds=1)
        )
    assert runner.run("theirs", system=SYSTEM).status is Status.CONFIRMATION_REQUIRED


def test_files_go_in_and_artifacts_come_out(runner: Runner) -> None:
    code = 'cp "$SKILLEXEC_IN/in put.txt" $SKILLEXEC_OUT/copy; mkdir $SKILLEXEC_OUT/sub; echo x > $SKILLEXEC_OUT/sub/y'
    result = _shell(runner, code, files=(InputFile("in put.txt", b"\x00\xff"),))
    assert {artifact.name: artifact.data for artifact in result.artifacts} == {
        "copy": b"\x00\xff",
        "sub/y": b"x\n",
    }


def test_output_arrives_while_the_script_runs(runner: Runner) -> None:
    seen: list[tuple[str, bytes, float]] = []
    _shell(
        runner,
        "echo first; sleep 2; echo second >&2",
        on_output=lambda stream, data: seen.append((stream, data, time.monotonic())),
    )
    assert [(stream, data) for stream, data, _ in seen] == [("stdout", b"first\n"), ("stderr", b"second\n")]
    assert seen[1][2] - seen[0][2] > 0.5


def test_a_run_can_be_cancelled_from_another_thread(place: Place, runner: Runner) -> None:
    cancel = Cancel()
    canceller = threading.Thread(target=cancel.cancel)
    result = _shell(runner, "echo begun; sleep 60", cancel=cancel, on_output=lambda *_: canceller.start())
    canceller.join()
    assert (result.status, result.stdout.data, exit_status(result)) == (Status.CANCELLED, b"begun\n", 130)
    assert place.story(result.run_id)[-1] == ("run.ended", "cancelled")


def test_asyncio_callers_run_side_by_side_and_cancel(place: Place, runner: Runner) -> None:
    async def both() -> None:
        first, second = await asyncio.gather(
            runner.run_async("echo", system=SYSTEM, args=("1",)),
            runner.run_async(RunRequest("echo", SYSTEM, args=("2",))),
        )
        assert (first.status, second.status) == (Status.OK, Status.OK), (first.error, second.error)
        assert (first.output["args"], second.output["args"]) == (["1"], ["2"])
        loop, begun = asyncio.get_running_loop(), asyncio.Event()
        request: dict[str, Any] = {"args": ("echo up; sleep 60",), "run_id": "cancelled-1"}
        request["on_output"] = lambda *_: loop.call_soon_threadsafe(begun.set)
        task = asyncio.create_task(runner.run_async("shell", system=SYSTEM, **request))
        await begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(both())
    assert place.story("cancelled-1")[-1] == ("run.ended", "cancelled")


def test_a_run_id_can_not_be_used_twice(place: Place, runner: Runner) -> None:
    assert runner.run("echo", system=SYSTEM, run_id="only-once").status is Status.OK
    seen: list[bytes] = []
    with pytest.raises(Usage, match="started before"):
        runner.run("echo", system=SYSTEM, run_id="only-once", on_output=lambda _, data: seen.append(data))
    assert seen == []
    assert len(place.records(run="only-once")) == 3


def test_what_an_agent_sends_is_not_on_the_record(place: Place, runner: Runner) -> None:
    canary = "canary-9f1c77"
    result = runner.run(
        "echo",
        system=SYSTEM,
        args=(canary,),
        input={canary: canary},
        files=(InputFile(canary, canary.encode()),),
    )
    assert canary in result.stdout.text
    for record in place.records():
        assert canary not in record.body


def test_the_result_is_one_versioned_json_object(runner: Runner) -> None:
    result = _shell(runner, r"printf '\377\000ok'")
    document = json.loads(json.dumps(as_document(result, with_artifacts=True)))
    assert document["version"] == 1
    assert document["status"] == "ok"
    assert document["stdout"]["exact"] is False
    assert document["stdout"]["base64"] == "/wBvaw=="
    assert set(document["timings"]) >= {"load", "authorize", "plan", "intend", "execute"}


def test_a_setting_beyond_the_bounds_stops_everything_with_40(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SKILLEXEC_SANDBOX_MEMORY", "1k")
    with pytest.raises(ConfigInvalid, match="memory is 1,024") as caught:
        place.runner(warm=0).__enter__()
    assert caught.value.exit_status == 40


def test_a_missing_image_is_an_infra_error_with_what_to_do(place: Place, tmp_path: Path) -> None:
    os.environ["SKILLEXEC_SANDBOX_IMAGE"] = "skillexec/no-such-image:none"
    try:
        with place.runner(warm=0) as other:
            result = other.run("echo", system=SYSTEM)
    finally:
        del os.environ["SKILLEXEC_SANDBOX_IMAGE"]
    assert (result.status, exit_status(result)) == (Status.INFRA_ERROR, 30)
    assert result.error is not None
    assert "image build" in result.error.hint
    assert place.story(result.run_id)[-1] == ("run.ended", "infra_error")


def test_nothing_runs_when_the_record_can_not_be_written(place: Place, runner: Runner) -> None:
    marker = InputFile("marker", b"")
    blocker = sqlite3.connect(place.home.state_file, isolation_level=None)
    blocker.execute("CREATE TRIGGER full BEFORE INSERT ON audit BEGIN SELECT RAISE(ABORT, 'disk full'); END")
    seen: list[bytes] = []
    try:
        with pytest.raises(StateUnusable) as refusal:
            _shell(runner, "echo ran", files=(marker,), on_output=lambda _, data: seen.append(data))
    finally:
        blocker.execute("DROP TRIGGER full")
        blocker.close()
    assert refusal.value.exit_status == 40
    assert seen == []


def test_a_run_whose_process_vanished_is_recorded_abandoned_by_the_next(place: Place) -> None:
    program = (
        "import os, sys; sys.path.insert(0, sys.argv[2])\n"
        "from skillexec.runner import Runner\n"
        "runner = Runner.open(sys.argv[1], warm=0)\n"
        "runner.run('shell', system='scout', args=('echo up; sleep 60',), run_id='vanished-1',\n"
        "           on_output=lambda *_: os.kill(os.getpid(), 9))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(place.home.path), str(Path(__file__).parent)],
        check=False,
        timeout=60,
    )
    assert done.returncode == -signal.SIGKILL
    assert place.story("vanished-1")[-1] == ("run.started", None)
    place.runner(warm=0).close()
    assert place.story("vanished-1")[-1] == ("run.abandoned", "abandoned")


def test_ctrl_c_ends_the_run_records_it_and_exits_130(place: Place) -> None:
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "skillexec", "run", "shell", "--as", SYSTEM, "--", "echo up; sleep 60"],
        env={"PATH": os.environ["PATH"], "SKILLEXEC_HOME": str(place.home.path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "up\n"
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130, errors
    assert "Traceback" not in errors
    assert place.records(event="run.ended")[-1].outcome == "cancelled"


def test_ctrl_c_with_json_is_still_one_object_and_keeps_what_was_written(place: Place) -> None:
    words = ("run", "shell", "--as", SYSTEM, "--json", "--", "echo up; touch $SKILLEXEC_OUT/begun; sleep 60")
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "skillexec", *words],
        env={"PATH": os.environ["PATH"], "SKILLEXEC_HOME": str(place.home.path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
        text=True,
    )
    before = len(place.records(event="run.started"))
    while len(place.records(event="run.started")) == before and process.poll() is None:
        time.sleep(0.05)
    time.sleep(1)  # for the script to begin
    process.send_signal(signal.SIGINT)
    shown, errors = process.communicate(timeout=20)
    assert (process.returncode, errors) == (130, "")
    document = json.loads(shown)
    assert (document["status"], document["stdout"]["text"]) == ("cancelled", "up\n")


@pytest.mark.parametrize(
    ("raised", "outcome"), [(KeyboardInterrupt, "cancelled"), (ZeroDivisionError, "infra_error")]
)
def test_what_breaks_off_a_run_before_it_starts_is_passed_on_and_on_the_record(
    place: Place, runner: Runner, raised: type[BaseException], outcome: str
) -> None:
    def confirm(_question: Confirmation) -> bool:
        raise raised

    with pytest.raises(raised):
        runner.run("theirs", system=SYSTEM, confirm=confirm, run_id=f"broken-{outcome}")
    story = [("decision.allowed", "allowed"), ("run.ended", outcome)]
    assert place.story(f"broken-{outcome}") == story


@pytest.mark.parametrize("more", [{"system": "other"}, {"args": ("x",)}])
def test_a_request_and_fields_beside_it_are_refused_and_not_ignored(
    runner: Runner, more: dict[str, Any]
) -> None:
    with pytest.raises(Usage, match=next(iter(more))):
        runner.run(RunRequest("echo", SYSTEM), **more)


def test_a_caller_is_told_the_limits_when_the_script_is_about_to_start(place: Place, runner: Runner) -> None:
    told: list[tuple[float, list[tuple[str, str | None]]]] = []
    result = runner.run(
        "echo",
        system=SYSTEM,
        timeout=7,
        run_id="told",
        on_start=lambda limits: told.append((limits.seconds, place.story("told"))),
    )
    assert result.ok
    assert told == [(7, [("decision.allowed", "allowed"), ("run.started", None)])]


def test_the_audit_chain_holds_after_all_of_this(place: Place, runner: Runner) -> None:
    from skillexec.audit.verify import verify

    with State.open(place.home.state_file) as state, state.read() as connection:
        assert not verify(connection).findings
