"""The launcher as PID 1 of real containers: what it runs, what it ends, and what no script can do to it."""

from __future__ import annotations

import ast
import io
import json
import os
import re
import subprocess
import sys
import tarfile
import textwrap
import time
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from launching import Container, Run, job, run_job, run_jobs

from skillexec.model import Command, InputFile, Interpreter, Limits
from skillexec.sandbox import frames, session
from skillexec.sandbox.delivery import Delivery
from skillexec.sandbox.frames import Frame, FrameError
from skillexec.sandbox.supervision import Supervisor
from skillexec.sandbox.wire import Wire


def python(source: str, *args: str, fork: bool = False, **more: object) -> Run:
    return run_job(job({"x.py": source}, "x.py", args, fork=fork, **more))  # type: ignore[arg-type]


def shell(source: str, **more: object) -> Run:
    return run_job(job({"x.sh": source}, "x.sh", **more))  # type: ignore[arg-type]


# What is run, and how.


def test_it_says_what_holds_the_script_and_that_there_is_no_network() -> None:
    with Container() as container:
        ready = container.wait_ready()
    assert ready.landlock >= 2
    assert ready.fork_python
    assert ready.network == ()


INTERPRETERS: dict[str, tuple[str, bytes]] = {
    "plain.py": ("import sys; print('python', sys.argv[1:])", b"python ['a b', '']\n"),
    "deep/er/plain.py": ("import sys; print(sys.argv[0], sys.path[0])", b"deep/er/plain.py /skill/deep/er\n"),
    "plain.sh": ('[[ 1 == 1 ]] && echo "$0|$1|$2|$#"', b"plain.sh|a b||2\n"),
    "plain.js": ("console.log(process.argv.length, process.argv[2])", b"4 a b\n"),
    "plain.mjs": ("import fs from 'node:fs'; console.log(typeof fs.readFileSync)", b"function\n"),
    "plain.cjs": ("console.log(typeof require)", b"function\n"),
    "env": ("#!/usr/bin/env python3\nprint('by env')", b"by env\n"),
    "crlf": ("#!/usr/bin/env python3\r\nprint('crlf')\r\n", b"crlf\n"),
    "split": ("#!/usr/bin/env -S python3 -u -X utf8\nimport sys; print(sys.flags.utf8_mode)", b"1\n"),
    "absolute": ("#!/bin/sh\necho sh", b"sh\n"),
    "spaced": ("#! /bin/bash -e\nfalse; echo never", b""),
    "elsewhere.py": ("#!/opt/homebrew/bin/python3.99\nprint('by extension')", b"by extension\n"),
    "elsewhere": ("#!/usr/local/bin/bash\necho $BASH", b"/usr/bin/bash\n"),
    "unversioned": ("#!/usr/bin/env python\nprint('python3 will do')", b"python3 will do\n"),
    "uv.py": ("#!/usr/bin/env -S uv run --script\nprint('uv is not here')", b"uv is not here\n"),
    "-dash.py": ("print('a name like an option')", b"a name like an option\n"),
    "ünï.py": ("print(__file__)", "/skill/ünï.py\n".encode()),
}


@pytest.fixture(scope="module")
def interpreted() -> dict[str, Run]:
    contents: dict[str, str | bytes] = {name: source for name, (source, _) in INTERPRETERS.items()}
    runs = run_jobs([job(contents, target, ["a b", ""]) for target in INTERPRETERS])
    return dict(zip(INTERPRETERS, runs, strict=True))


@pytest.mark.parametrize("target", list(INTERPRETERS))
def test_a_script_runs_by_shebang_then_by_extension(target: str, interpreted: dict[str, Run]) -> None:
    run = interpreted[target]
    assert (run.stdout, run.stderr, run.ended.reason) == (INTERPRETERS[target][1], b"", "exited")
    assert run.ended.exit_code == (1 if target == "spaced" else 0)


def test_a_tool_is_found_on_the_path_of_the_image_and_a_module_in_the_skill() -> None:
    tool = run_job(job({}, "sh", ["-c", "echo $0 $1; pwd", "zero", "one"], kind=Interpreter.TOOL))
    assert tool.stdout == b"zero one\n/skill\n"
    module = run_job(job({"pkg/tool.py": "import sys; print(sys.argv[1], sys.path[0])"}, "pkg.tool", ["x"], kind=Interpreter.MODULE))  # fmt: skip
    assert module.stdout == b"x /skill\n"


REFUSED: dict[str, tuple[Interpreter, str, str]] = {
    "a script that is not there": (Interpreter.SCRIPT, "nonesuch.py", "no such script"),
    "a folder": (Interpreter.SCRIPT, "folder", "no such script"),
    "an absolute path": (Interpreter.SCRIPT, "/bin/sh", "leaves its folder"),
    "a path that leaves": (Interpreter.SCRIPT, "../bin/sh", "leaves its folder"),
    "no target": (Interpreter.SCRIPT, "", "no such script"),
    "a NUL": (Interpreter.SCRIPT, "x\0.py", "leaves its folder"),
    "no interpreter": (Interpreter.SCRIPT, "script.rb", "neither a shebang nor a known extension"),
    "an interpreter that is not there": (Interpreter.SCRIPT, "ruby", "asks for '/usr/bin/env ruby'"),
    "a tool that is not there": (Interpreter.TOOL, "nonesuch", "no tool 'nonesuch'"),
    "a tool by its path": (Interpreter.TOOL, "/bin/sh", "no tool '/bin/sh'"),
    "an option as a module": (Interpreter.MODULE, "-c", "not the name of a module"),
}


@pytest.mark.parametrize("what", list(REFUSED))
def test_what_can_not_be_run_is_refused_with_the_reason(what: str) -> None:
    kind, target, error = REFUSED[what]
    contents: dict[str, str | bytes] = {
        "script.rb": "puts 1",
        "ruby": "#!/usr/bin/env ruby\n",
        "folder/x": "",
    }
    run = run_job(job(contents, target, kind=kind))
    assert run.ended.reason == "refused"
    assert error in run.ended.error
    assert (run.ended.exit_code, run.ended.signal, run.stdout, run.status) == (None, None, b"", 0)


# The surroundings of a script.


def test_the_environment_is_what_the_contract_says_and_nothing_else() -> None:
    run = python(
        "import os, json; print(json.dumps(dict(os.environ)))", env={"TOKEN": "s3cret", "X": "\udcff"}
    )
    assert json.loads(run.stdout) == {
        "PATH": "/usr/local/bin:/usr/bin:/bin",
        "HOME": "/work/home",
        "TMPDIR": "/tmp",
        "LANG": "C.UTF-8",
        "SKILLEXEC_IN": "/work/in",
        "SKILLEXEC_OUT": "/work/out",
        "SKILLEXEC_SKILL": "/skill",
        "TOKEN": "s3cret",
        "X": "\udcff",
    }


READ_ONLY = """
import os
def attempt(what):
    try: what()
    except OSError as error: print(error.strerror)
    else: print('done')
attempt(lambda: open('/skill/new', 'w'))
os.chmod('/skill', 0o777); os.chmod('/skill/data', 0o777); os.chmod('/skill/data/file', 0o666)
attempt(lambda: open('/skill/new', 'w'))
attempt(lambda: open('/skill/data/file', 'a'))
attempt(lambda: os.truncate('/skill/data/file', 0))
attempt(lambda: os.unlink('/skill/data/file'))
attempt(lambda: os.rename('/skill/data', '/skill/other'))
attempt(lambda: os.symlink('/tmp', '/skill/link'))
attempt(lambda: open('/proc/self/oom_score_adj', 'w').write('0'))
for folder in ('/work/home', '/work/out', '/tmp', '/dev/shm'):
    attempt(lambda: (os.mkdir(folder + '/a'), os.mkdir(folder + '/b'), open(folder + '/a/x', 'w').close(), os.rename(folder + '/a/x', folder + '/b/x')))
attempt(lambda: print(open('/dev/stdout', 'w').write(''), open('/dev/null', 'w').write('x')))
"""


@pytest.mark.parametrize("fork", [False, True])
def test_the_skill_folder_is_read_only_even_for_a_script_that_changes_its_modes(fork: bool) -> None:
    run = run_job(job({"x.py": READ_ONLY, "data/file": "content"}, "x.py", fork=fork))
    assert run.stderr == b""
    assert run.stdout.decode().splitlines() == ["Permission denied"] * 8 + ["done"] * 4 + ["0 1", "done"]


def test_modes_tell_programs_from_data() -> None:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for name, mode in (("x.sh", 0o755), ("data", 0o600), ("long/" + "n" * 120 + "/ü" + "m" * 90, 0o644)):
            entry = tarfile.TarInfo(name)
            entry.mode, entry.size = mode, 0
            source = b'stat -c "%a %F" x.sh data long . && find long -type f | wc -c'
            if name == "x.sh":
                entry.size = len(source)
            archive.addfile(entry, io.BytesIO(source))
    run = run_job(session.Job(Command(Interpreter.SCRIPT, "x.sh"), buffer.getvalue(), 20))
    assert run.stdout.decode().splitlines() == [
        "555 regular file",
        "444 regular empty file",
        "555 directory",
        "555 directory",
        str(len("long/" + "n" * 120 + "/ü" + "m" * 90) + 2),
    ]


def test_inputs_and_stdin_arrive_whole() -> None:
    source = """
import sys, os, hashlib
for folder, _, names in sorted(os.walk(os.environ['SKILLEXEC_IN'])):
    for name in sorted(names):
        print(name, hashlib.sha256(open(os.path.join(folder, name), 'rb').read()).hexdigest())
print('stdin', hashlib.sha256(sys.stdin.buffer.read()).hexdigest())
"""
    big, stdin = os.urandom(300_000), os.urandom(2_000_000)
    inputs = [InputFile("big.bin", big), InputFile("empty", b""), InputFile("sub/small", b"s")]
    run = python(source, inputs=inputs, stdin=stdin)
    expected = [("big.bin", big), ("empty", b""), ("small", b"s"), ("stdin", stdin)]
    assert run.stdout.decode().splitlines() == [
        f"{name} {sha256(data).hexdigest()}" for name, data in expected
    ]


def test_a_script_that_does_not_read_its_stdin_hangs_nobody() -> None:
    run = shell("exec 0<&-; echo done", stdin=bytes(1 << 20))
    assert run.result == (b"done\n", b"", 0, None)


def test_without_stdin_there_is_dev_null() -> None:
    assert shell("readlink /proc/self/fd/0; wc -c").stdout == b"/dev/null\n0\n"


def test_limits_and_session_are_the_scripts_own() -> None:
    limits = Limits(file_size=1 << 20, open_files=99)
    run = shell("ulimit -c; ulimit -n; ulimit -f; umask; cut -d' ' -f6 /proc/$$/stat; echo $$", limits=limits)
    core, files, blocks, mask, sid, pid = run.stdout.decode().split()
    assert (core, files, int(blocks) * 1024, mask, sid) == ("0", "99", 1 << 20, "0022", pid)


def test_an_exit_code_is_the_scripts_own() -> None:
    codes = [0, 1, 124, 125, 126, 127, 137, 255]
    runs = run_jobs([job({"x.sh": f"echo out; echo err >&2; exit {code}"}, "x.sh") for code in codes])
    assert [run.result for run in runs] == [(b"out\n", b"err\n", code, None) for code in codes]
    assert {run.ended.reason for run in runs} == {"exited"}


def test_a_signal_is_told_from_an_exit_code() -> None:
    run = shell("kill -SEGV $$")
    assert (run.ended.exit_code, run.ended.signal, run.ended.reason) == (None, 11, "exited")


# The end of everything.

DAEMON = """
import os, sys, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        for number in range(1, 65):
            try: __import__('signal').signal(number, __import__('signal').SIG_IGN)
            except (OSError, ValueError): pass
        while True:
            print('still here', flush=True); time.sleep(0.05)
    os._exit(0)
time.sleep(0.3)
print('main ends', flush=True)
"""


def timed(action: Callable[[], Run]) -> tuple[Run, float]:
    started = time.monotonic()
    return action(), time.monotonic() - started


def test_a_daemon_that_holds_the_streams_does_not_outlive_its_script() -> None:
    run, seconds = timed(lambda: python(DAEMON))
    assert (run.ended.reason, run.ended.exit_code, run.status) == ("exited", 0, 0)
    assert b"main ends\n" in run.stdout
    assert seconds < 60


@pytest.mark.parametrize("fork", [False, True])
def test_the_deadline_ends_everything_and_keeps_what_was_written(fork: bool) -> None:
    run = python(DAEMON + "time.sleep(60)\n", seconds=4, fork=fork)
    assert (run.ended.reason, run.ended.exit_code, run.ended.signal) == ("timeout", None, 9)
    assert b"main ends\n" in run.stdout
    assert run.ended.wall_us < 8_000_000


def test_a_cancel_ends_everything() -> None:
    with Container() as container:
        container.send(job({"x.py": DAEMON + "time.sleep(60)\n"}, "x.py"))
        events = container.events()
        while not isinstance(next(events), session.Output):
            pass
        container.write(session.CANCEL)
        run = container.finish()
    assert (run.ended.reason, run.ended.signal) == ("cancelled", 9)


def test_when_the_host_is_gone_so_is_the_container() -> None:
    with Container() as container:
        container.send(job({"x.py": DAEMON + "time.sleep(60)\n"}, "x.py"))
        while not isinstance(next(container.events()), session.Output):
            pass
        assert container.process.stdin is not None
        container.process.stdin.close()
        assert container.process.wait(60) == 3


def test_a_host_that_waits_with_a_job_and_goes_leaves_nothing() -> None:
    with Container() as container:
        container.wait_ready()
        container.write(next(iter(session.encode_job(job({"x.py": ""}, "x.py")))))
        assert container.process.stdin is not None
        container.process.stdin.close()
        assert container.process.wait(60) == 3


def test_a_host_that_does_not_read_is_no_reason_to_miss_the_deadline() -> None:
    with Container() as container:
        container.send(job({"x.sh": "yes"}, "x.sh", seconds=1, limits=Limits(output_total=0)))
        time.sleep(2.5)
        run = container.finish()
    assert (run.ended.reason, run.ended.signal) == ("timeout", 9)
    assert run.ended.wall_us < 5_000_000
    assert set(run.stdout) == set(b"y\n")


def test_output_ends_at_exactly_its_limit() -> None:
    limits = Limits(output_total=100_000)
    run = shell("echo kept >&2; yes", limits=limits)
    assert (run.ended.reason, len(run.stdout), run.stderr) == ("output_limit", 100_000, b"kept\n")
    exact = python("print('x' * 99_999)", limits=limits)
    assert (exact.ended.reason, len(exact.stdout)) == ("exited", 100_000)
    late = python("import sys; sys.stdout.write('x' * 100_001)", limits=limits)
    assert (late.ended.reason, len(late.stdout)) == ("output_limit", 100_000)


def test_every_byte_arrives_as_it_was_written() -> None:
    run = python(
        "import sys, os\nfor n in range(256): os.write(1, bytes([n]) * 1000); os.write(2, bytes([255 - n]))"
    )
    assert run.stdout == b"".join(bytes([n]) * 1000 for n in range(256))
    assert run.stderr == bytes(range(255, -1, -1))


def test_orphans_are_reaped_while_the_script_runs() -> None:
    # Ten at a time, until they are gone: of 64 pids, zombies would soon use up all.
    source = """
        for i in $(seq 30); do
            for j in $(seq 10); do (true &); done
            while set -- /proc/[0-9]*; [ $# -gt 9 ]; do sleep 0.02; done
        done
        echo none left
    """
    run = shell(source, seconds=60)
    assert (run.stdout, run.stderr) == (b"none left\n", b"")


def test_usage_is_measured() -> None:
    run = python(
        "x = bytearray(50 << 20)\nimport time\nend = time.process_time() + 0.3\nwhile time.process_time() < end: pass"
    )
    assert 300_000 <= run.ended.cpu_us < 2_000_000
    assert run.ended.wall_us >= 300_000
    assert 50 << 20 <= run.ended.peak_memory <= 256 << 20


def test_an_oom_kill_of_a_child_is_counted_though_the_script_ends_well() -> None:
    source = "import subprocess, sys\nprint(subprocess.run([sys.executable, '-c', 'bytearray(1 << 30)']).returncode)"
    run = python(source)
    assert run.result == (b"-9\n", b"", 0, None)
    assert run.ended.oom_kills >= 1


# Artifacts.


def test_files_in_the_output_folder_are_collected_and_nothing_else_is() -> None:
    source = """
cd $SKILLEXEC_OUT; mkdir sub; printf one >sub/one; printf two >two; chmod +x two; : >empty
ln -s /etc/passwd link; ln -s / root; mkfifo pipe; python3 -c "
import socket; socket.socket(socket.AF_UNIX).bind('socket')"
printf x >"$(printf 'new\\nline')"; printf x >"$(printf '\\377')"; mkdir closed; printf x >closed/in; chmod 0 closed
"""
    run = shell(source)
    assert [(item.name, item.data, item.executable) for item in run.artifacts] == [
        ("empty", b"", False),
        ("sub/one", b"one", False),
        ("two", b"two", True),
    ]
    notes = "\n".join(run.notes)
    for left_out in ("'link'", "'root'", "'pipe'", "'socket'", "'new\\nline'", "'\\udcff'", "'closed'"):
        assert left_out in notes
    assert run.stderr == b""


def test_an_output_folder_that_became_a_link_leads_nowhere() -> None:
    run = shell("rm -r $SKILLEXEC_OUT && ln -s /etc $SKILLEXEC_OUT")
    assert (run.artifacts, run.ended.exit_code) == ([], 0)
    assert "can't be opened" in run.notes[0]


def test_artifacts_stay_within_count_and_bytes_and_what_is_left_out_is_said() -> None:
    limits = Limits(artifacts=3, artifact_bytes=100)
    run = shell(
        "cd $SKILLEXEC_OUT; head -c 200 /dev/zero >a; printf b >b; printf c >c; head -c 99 /dev/zero >d; touch e f",
        limits=limits,
    )
    assert [item.name for item in run.artifacts] == ["b", "c", "e"]
    assert [note.split(":")[0] for note in run.notes] == ["left out 'a'", "left out 'd'", "left out 'f'"]


def test_a_labyrinth_of_an_output_folder_is_left_in_time() -> None:
    source = "import os\nos.chdir(os.environ['SKILLEXEC_OUT'])\nfor i in range(30000): open(str(i), 'w').close()\nfor i in range(100): os.mkdir('d'); os.chdir('d')"
    run = python(source, limits=Limits(artifacts=5))
    assert len(run.artifacts) == 5
    assert len(run.notes) <= 33


def test_a_note_shows_a_name_whole_or_not_at_all() -> None:
    """Half of a secret in it would not be masked."""
    run = shell('cd "$SKILLEXEC_OUT"; ln -s / "$(printf %0200d 0)"; ln -s / "$(printf %0201d 1)"')
    assert run.notes == (
        f"left out '{'0' * 200}': neither a file nor a folder",
        "left out a name of 201 characters: neither a file nor a folder",
    )


@pytest.mark.parametrize(
    ("before", "after"),
    [("", "output_limit"), ("exited", "output_limit"), ("timeout", "timeout"), ("cancelled", "cancelled")],
)
def test_too_much_output_that_is_found_afterwards_does_not_hide_who_ended_the_run(
    before: str, after: str
) -> None:
    """What lies in the pipes is read when all is over."""
    source, sink = os.pipe()
    supervisor = Supervisor(Wire(source, sink), -1, deadline=0, output_total=10, spares=frozenset())
    supervisor._reason = before
    supervisor._queue(frames.STDOUT, bytes(11))
    assert (supervisor._reason, supervisor._totals[frames.STDOUT]) == (after, 10)
    os.close(source)
    os.close(sink)


def test_artifacts_are_kept_when_the_script_is_ended() -> None:
    run = shell("printf x >$SKILLEXEC_OUT/x; sleep 60", seconds=3)
    assert (run.ended.reason, [item.name for item in run.artifacts]) == ("timeout", ["x"])


# Attacks on the launcher.

FORGED = frames.encode(frames.EXIT, b'{"reason":"exited","exit_code":0}') + frames.encode(
    frames.END, b'{"notes":[]}'
)

REACH = """
import ctypes, os, signal, sys
def attempt(name, what):
    try: print(name, what())
    except OSError as error: print(name, error.strerror)
attempt('fd', lambda: os.listdir('/proc/1/fd'))
attempt('stdout', lambda: open('/proc/1/fd/1', 'wb'))
attempt('stdin', lambda: open('/proc/1/fd/0', 'rb'))
attempt('mem', lambda: open('/proc/1/mem', 'rb'))
attempt('environ', lambda: open('/proc/1/environ', 'rb').read())
attempt('maps', lambda: open('/proc/1/maps').read())
attempt('root', lambda: os.listdir('/proc/1/root'))
libc = ctypes.CDLL(None, use_errno=True)
attempt('ptrace', lambda: os.strerror(ctypes.get_errno()) if libc.ptrace(16, 1, 0, 0) else 'attached')
buffer = ctypes.create_string_buffer(8)
attempt('pidfd_getfd', lambda: os.strerror(ctypes.get_errno()) if libc.syscall(438, os.pidfd_open(1), 1, 0) < 0 else 'got it')
for number in (signal.SIGKILL, signal.SIGSTOP, signal.SIGINT, signal.SIGTERM, signal.SIGSEGV, signal.SIGCHLD, signal.SIGUSR1, 40):
    attempt('kill', lambda: os.kill(1, number))
"""


@pytest.mark.parametrize("fork", [False, True])
def test_a_script_can_not_reach_the_launchers_streams_memory_or_signals(fork: bool) -> None:
    run = python(REACH, fork=fork)
    lines = run.stdout.decode().splitlines()
    denied = {"Permission denied", "Operation not permitted"}
    assert len(lines) == 17
    assert {line.partition(" ")[2] for line in lines} <= denied, lines
    assert run.ended.exit_code == 0


SPARE = """
import os
others = [int(name) for name in os.listdir('/proc') if name.isdigit() and int(name) not in (1, os.getpid())]
print(len(others))
for pid in others:
    for what, look in (('fd', os.listdir), ('mem', open), ('environ', open), ('maps', open), ('root', os.listdir)):
        try: look(f'/proc/{pid}/{what}')
        except OSError as error: print(what, error.strerror)
        else: print(what, 'is open')
"""


@pytest.mark.parametrize("fork", [False, True])
def test_a_script_can_not_reach_the_process_that_waits_in_vain(fork: bool) -> None:
    run = python(SPARE, fork=fork)
    count, *lines = run.stdout.decode().splitlines()
    assert (count, len(lines)) == ("1", 5)
    assert all(line.endswith("Permission denied") for line in lines), lines
    assert run.ended.exit_code == 0


def test_a_death_of_the_process_that_waits_in_vain_does_not_matter() -> None:
    inside = (
        "import os\n"
        "for name in os.listdir('/proc'):\n"
        "    if name.isdigit() and name != '1' and open(f'/proc/{name}/cmdline', 'rb').read().endswith(b'er.py\\0'):\n"
        "        os.kill(int(name), 9)\n"
        "        print(name)\n"
        "open('/tmp/go', 'w')\n"
    )
    source = "echo up; until [ -e /tmp/go ]; do sleep 0.05; done; sleep 0.2; echo end; exit 4"
    with Container() as container:
        container.send(job({"x.sh": source}, "x.sh", seconds=60))
        while not isinstance(next(container.events()), session.Output):
            pass
        command = ["docker", "exec", container.name, "python3", "-c", inside]
        killed = subprocess.run(command, capture_output=True, check=True).stdout
        run = container.finish()
    assert len(killed.split()) == 1
    assert (run.stdout, run.ended.exit_code, run.status) == (b"end\n", 4, 0)


def test_a_host_that_never_lets_go_does_not_keep_the_container() -> None:
    with Container() as container:
        container.send(job({"x.sh": "echo bye"}, "x.sh"))
        container.close_stdin = lambda: None  # type: ignore[method-assign]
        assert container.finish().status == 0


def test_small_pieces_of_output_are_passed_on_together() -> None:
    """Each would wake the engine and the host. On a machine that is busy enough, every piece comes alone."""
    source = "import os, time\nfor n in range(200):\n    os.write(1, b'.')\n    time.sleep(0.0003)"
    for _ in range(5):
        with Container() as container:
            container.send(job({"x.py": source}, "x.py"))
            pieces = [event.data for event in container.events() if isinstance(event, session.Output)]
        assert b"".join(pieces) == b"." * 200
        if len(pieces) < 60:
            return
    pytest.fail(f"{len(pieces)} frames for 200 small pieces")


def test_output_that_a_script_takes_back_leaves_the_launcher_at_rest() -> None:
    """It has seen that something is there, and finds nothing: no reason to look again and again."""
    source = """
        import os, time
        own, taken = os.open("/proc/self/fd/1", os.O_RDONLY | os.O_NONBLOCK), 0
        for _ in range(20):
            os.write(1, b".")
            time.sleep(0.001)
            try:
                taken += len(os.read(own, 1))
            except BlockingIOError:
                pass
            time.sleep(0.05)
        os.write(2, b"%d" % taken)
    """
    run = python(textwrap.dedent(source), fork=True)
    assert len(run.stdout) + int(run.stderr) == 20
    assert run.ended.cpu_us < 250_000


def test_frames_that_a_script_writes_are_its_output_and_nothing_more() -> None:
    run = python(f"import os, sys; os.write(1, {FORGED!r}); os.write(2, {FORGED!r}); sys.exit(9)")
    assert run.result == (FORGED, FORGED, 9, None)


def test_signals_without_landlock_do_not_matter_either() -> None:
    """Signalled from outside the script's own domain, as on a kernel that can't scope signals."""
    with Container() as container:
        container.send(
            job({"x.sh": "echo up; until [ -e /tmp/go ]; do sleep 0.05; done; echo end"}, "x.sh", seconds=60)
        )
        while not isinstance(next(container.events()), session.Output):
            pass
        inside = "import os\nfor n in range(1, 65):\n  for _ in range(50):\n    os.kill(1, n)\nopen('/tmp/go', 'w')"
        name = container.name
        subprocess.run(["docker", "exec", name, "python3", "-c", inside])  # may not live to see its own end
        run = container.finish()
    assert (run.stdout, run.ended.exit_code) == (b"end\n", 0)


FLOODS = {
    "closed streams": ("import os, time\nos.closerange(0, 3)\ntime.sleep(0.3)\nos._exit(5)", 5),
    "a flood of children": ("import os\nfor i in range(3000):\n    pid = os.fork()\n    if not pid: os._exit(0)\n    os.waitpid(pid, 0)\nos._exit(6)", 6),
    "pids used up": ("import os, time\ntry:\n    while True:\n        if not os.fork(): time.sleep(60)\nexcept OSError:\n    os._exit(7)", 7),
    "temporary space filled": ("import os\nfor d in ('/tmp', '/work', '/dev/shm'):\n    try: open(d + '/fill', 'wb').write(bytes(100 << 20))\n    except OSError: pass\nos._exit(8)", 8),
    "a wide pipe": ("import fcntl, os\nfcntl.fcntl(1, 1031, 1 << 20)\nos.write(1, bytes(1 << 20))\nos._exit(9)", 9),
}  # fmt: skip


@pytest.mark.parametrize("what", list(FLOODS))
def test_the_launcher_always_reports(what: str) -> None:
    source, code = FLOODS[what]
    run = python(source, limits=Limits(file_size=200 << 20), seconds=80)
    assert (run.ended.reason, run.ended.exit_code, run.status) == ("exited", code, 0)


def test_a_fork_bomb_ends_at_the_deadline() -> None:
    run = shell("bomb() { bomb | bomb & }; bomb; sleep 60", seconds=2)
    assert (run.ended.reason, run.status) == ("timeout", 0)
    assert run.ended.wall_us < 8_000_000


def test_a_script_that_eats_all_memory_dies_and_the_launcher_does_not() -> None:
    run = python("x = []\nwhile True: x.append(bytearray(1 << 20))")
    assert (run.ended.signal, run.status) == (9, 0)
    assert run.ended.oom_kills >= 1


def test_an_idle_launcher_is_small() -> None:
    with Container() as container:
        container.wait_ready()
        used = subprocess.run(
            ["docker", "exec", container.name, "cat", "/proc/1/status"],
            capture_output=True,
            text=True,
            check=True,
        ).stdout
    resident = next(int(line.split()[1]) for line in used.splitlines() if line.startswith("VmRSS"))
    assert resident < 25 << 10


# A host that breaks the protocol.

GOOD = b"".join(session.encode_job(job({"x.sh": "echo ran"}, "x.sh")))

BROKEN = {
    "garbage": b"GET / HTTP/1.0\r\n\r\n",
    "a frame that is too long": b"J\xff\xff\xff\xff",
    "go without a job": frames.encode(frames.GO),
    "cancel without a job": session.CANCEL,
    "no JSON": frames.encode(frames.JOB, b"{"),
    "another protocol": frames.encode(frames.JOB, b'{"protocol":2}'),
    "two jobs": GOOD[: -len(frames.encode(frames.GO))] * 2,
    "something after the go": GOOD + GOOD,
}


@pytest.mark.parametrize("what", list(BROKEN))
def test_a_broken_stream_from_the_host_ends_the_launcher_at_once(what: str) -> None:
    with Container() as container:
        container.write(BROKEN[what])
        run = container.finish()
    assert run.exit is None or what == "something after the go"
    assert run.status == 2
    assert len(run.crash) < 1000


def folders(base: Path) -> Delivery:
    skill, inputs = base / "skill", base / "in"
    skill.mkdir()
    inputs.mkdir()
    return Delivery(skill=str(skill), inputs=str(inputs))


@st.composite
def deliveries(draw: st.DrawFn) -> list[bytes]:
    """The frames of a good job, mutated: dropped, doubled, reordered, bytes overwritten."""
    wanted = job(
        {"a/x.py": "print(1)", "b": bytes(2000)}, "a/x.py", inputs=[InputFile("f", b"12")], stdin=b"in"
    )
    parts = list(session.encode_job(wanted))
    if draw(st.booleans()):
        parts = list(draw(st.permutations(parts)))
    if draw(st.booleans()):
        parts = [part for part in parts for _ in range(draw(st.integers(0, 2)))]
    data = bytearray(b"".join(parts))
    for _ in range(draw(st.integers(0, 6))):
        if data:
            data[draw(st.integers(0, len(data) - 1))] = draw(st.integers(0, 255))
    return [bytes(data[start : start + 700]) for start in range(0, len(data), 700)]


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(pieces=deliveries())
def test_a_mutated_job_is_taken_or_refused_or_a_frame_error_and_stays_in_its_folders(
    pieces: list[bytes], tmp_path_factory: pytest.TempPathFactory
) -> None:
    base = tmp_path_factory.mktemp("delivery")
    delivery, decoder = folders(base), frames.Decoder(frames.FROM_HOST)
    try:
        for piece in pieces:
            for frame in decoder.feed(piece):
                delivery.take(frame)
    except FrameError:
        pass
    assert {path.name for path in base.iterdir()} == {"skill", "in"}
    assert not [path for path in base.rglob("*") if path.is_symlink()]


def member(name: str, kind: bytes = tarfile.REGTYPE, link: str = "") -> tarfile.TarInfo:
    entry = tarfile.TarInfo(name)
    entry.type, entry.linkname = kind, link
    return entry


HOSTILE = {
    "a path that leaves": [member("../out")],
    "an absolute path": [member("/tmp/out")],
    "a path that leaves further down": [member("a/../../out")],
    "a symbolic link": [member("link", tarfile.SYMTYPE, "/etc")],
    "a hard link": [member("link", tarfile.LNKTYPE, "/etc/passwd")],
    "a device": [member("null", tarfile.CHRTYPE)],
    "a pipe": [member("pipe", tarfile.FIFOTYPE)],
    "the same name twice": [member("a"), member("a")],
    "a file as a folder": [member("a"), member("a/b")],
    "a name too long for any file": [member("n" * 300)],
}


@pytest.mark.parametrize("what", list(HOSTILE))
def test_a_hostile_bundle_is_refused(what: str, tmp_path: Path) -> None:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for entry in HOSTILE[what]:
            archive.addfile(entry)
    delivery = folders(tmp_path)
    sent = session.Job(Command(Interpreter.SCRIPT, "x"), buffer.getvalue(), 5)
    taken = [
        delivery.take(frame)
        for frame in frames.Decoder(frames.FROM_HOST).feed(b"".join(session.encode_job(sent)))
    ]
    assert taken[-1]
    assert delivery.refusal
    assert {path.name for path in tmp_path.rglob("*")} <= {"skill", "in", "a"}


@given(st.binary(max_size=3000))
@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_bundle_that_is_no_tar_is_refused(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    delivery = folders(tmp_path_factory.mktemp("bundle"))
    sent = session.Job(Command(Interpreter.SCRIPT, "x"), data, 5)
    for frame in frames.Decoder(frames.FROM_HOST).feed(b"".join(session.encode_job(sent))):
        delivery.take(frame)
    assert delivery.refusal or not data.strip(b"\0")


@pytest.mark.parametrize("format_", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
@pytest.mark.parametrize("chunk", [1, 511, 512, 4096])
def test_what_tarfile_packs_is_unpacked_whatever_the_format_and_the_cutting(
    format_: int, chunk: int, tmp_path: Path
) -> None:
    contents = {
        "a": b"1",
        "b/empty": b"",
        "b/exact": bytes(512),
        "deep/" * 20 + "leaf": b"x" * 513,
        "p" * 99 + "/" + "q" * 99: b"y",
    }
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=format_) as archive:
        for name, data in contents.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
    delivery = folders(tmp_path)
    header, *_ = session.encode_job(session.Job(Command(Interpreter.SCRIPT, "a"), buffer.getvalue(), 5))
    delivery.take(Frame(frames.JOB, header[frames.HEADER :]))
    whole = buffer.getvalue()
    for start in range(0, len(whole), chunk):
        delivery.take(Frame(frames.BUNDLE, whole[start : start + chunk]))
    delivery.take(Frame(frames.GO, b""))
    assert delivery.refusal == ""
    skill = tmp_path / "skill"
    assert {
        str(path.relative_to(skill)): path.read_bytes() for path in skill.rglob("*") if path.is_file()
    } == contents


def test_the_launcher_is_nothing_but_the_first_process_of_a_container() -> None:
    launcher = Path(session.__file__).with_name("launcher.py")
    done = subprocess.run([sys.executable, str(launcher)], capture_output=True, text=True, timeout=20)
    assert done.returncode == 1
    assert "first process of a container" in done.stderr


def test_the_example_in_the_documentation_is_what_goes_over_the_wire() -> None:
    text = (Path(__file__).parent.parent / "docs/protocol.md").read_text()
    shown = re.findall(r"^(host|launcher) +([0-9a-f]{2}) ([0-9a-f]{8})", text, re.MULTILINE)
    wanted = job({"hi.sh": "cat; exit 3"}, "hi.sh", stdin=b"hello", seconds=30.0)
    sent = [frame[: frames.HEADER].hex() for frame in session.encode_job(wanted)]
    assert [kind + length for side, kind, length in shown if side == "host"] == sent
    with Container() as container:
        container.send(wanted)
        events = list(container.events())
    assert [type(event) for event in events] == [session.Ready, session.Output, session.Exit, session.End]
    kinds = (frames.READY, frames.STDOUT, frames.EXIT, frames.END)
    assert [kind for side, kind, _ in shown if side == "launcher"] == [kind.hex() for kind in kinds]


def test_every_file_of_the_launcher_is_listed_and_imports_nothing_of_the_host() -> None:
    folder = Path(session.__file__).parent
    for name in frames.LAUNCHER_FILES:
        text = (folder / name).read_text()
        assert "from skillexec" not in text
        ast.parse(text, feature_version=(3, 9))
        for line in text.splitlines():
            if line.startswith("from .") and not line.startswith("from . "):
                assert line.split()[1][1:] + ".py" in frames.LAUNCHER_FILES
