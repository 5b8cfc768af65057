"""Faults on the caller's side of the sandbox: no descriptors, no threads, callbacks that raise or dawdle, forks, and
something at the engine's socket that is no engine."""

from __future__ import annotations

import http.server
import os
import socket
import socketserver
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from conftest import QUICK, make_bundle, run_python, run_shell, script, until
from engines import Careless

from skillexec.errors import InfraError, InvalidInput
from skillexec.model import Limits, Status
from skillexec.sandbox import Sandbox, SandboxSettings
from skillexec.sandbox.container import Container
from skillexec.sandbox.engine import ContainerGone, Engine
from skillexec.sandbox.execution import Lost, Overdue
from skillexec.sandbox.pool import Claim, Pool
from skillexec.sandbox.session import ProtocolError
from skillexec.sandbox.spec import Shape
from skillexec.sandbox.stream import Demultiplexer

SHAPE = Shape.of(QUICK)


# The caller's own callback.


@pytest.mark.parametrize(
    "error", [InvalidInput("mine"), ProtocolError("mine"), Lost("mine"), Overdue("mine"), OSError("mine")]
)
def test_what_the_callback_raises_reaches_the_caller_whatever_its_class(
    sandbox: Sandbox, error: Exception
) -> None:
    def refuse(_stream: str, _data: bytes) -> None:
        raise error

    with pytest.raises(type(error), match="mine") as raised:
        run_shell(sandbox, "echo up; sleep 60", on_output=refuse)
    assert raised.value is error


def test_a_slow_callback_is_no_time_out_of_a_script_that_ended_in_time(sandbox: Sandbox) -> None:
    sandbox.warm_up(QUICK, seconds=30)

    def dawdle(_stream: str, data: bytes) -> None:
        if data.startswith(b"first"):
            time.sleep(4.5)

    code = "import time; print('first', flush=True); time.sleep(.2); print('second'); print('x' * 300_000)"
    outcome = run_python(sandbox, code, limits=Limits(seconds=3), on_output=dawdle)
    assert (outcome.status, outcome.exit_code) == (Status.OK, 0)
    assert outcome.stdout.total == len("first\nsecond\n") + 300_001


# No descriptors, no threads.


def test_without_a_free_descriptor_a_run_says_so_and_the_next_one_runs(
    start_program: Callable[[str], subprocess.Popen[str]],
) -> None:
    program = start_program("""
        import os, resource
        from conftest import *
        from skillexec.sandbox import Cancel

        def full(*_):
            held = []
            try:
                while True:
                    held.append(os.dup(0))
            except OSError:
                return held

        resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
        with Sandbox.open(SandboxSettings(image=IMAGE, warm=1, concurrent=1)) as sandbox:
            for warm in (False, True):
                if warm:
                    sandbox.warm_up(QUICK, seconds=60)
                held = full()
                outcome = run_python(sandbox, "print(1)", cancel=Cancel())
                for descriptor in held:
                    os.close(descriptor)
                print(outcome.status, "too many open files" in outcome.error, "ulimit -n" in outcome.hint)
            print(run_python(sandbox, "print(1)", cancel=Cancel()).status)
        """)
    told = program.communicate(timeout=120)[0]
    assert told == "infra_error True True\n" * 2 + "ok\n"


def test_without_a_free_thread_a_run_says_so_and_leaves_its_turn_to_the_next(
    settings: SandboxSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = threading.Thread.start

    def refuse(self: threading.Thread) -> None:
        if self.name.startswith("skillexec-"):
            raise RuntimeError("can't start new thread")
        original(self)

    with Sandbox.open(replace(settings, warm=1, concurrent=1)) as narrow:
        with monkeypatch.context() as patch:
            patch.setattr(threading.Thread, "start", refuse)
            for _ in range(3):
                began = time.monotonic()
                outcome = run_python(narrow, "print(1)")
                assert (outcome.status, "threads" in outcome.error) == (Status.INFRA_ERROR, True)
                assert time.monotonic() - began < QUICK.seconds / 2
        assert run_python(narrow, "print(2)").stdout.data == b"2\n"
        assert narrow.warm_up(QUICK, seconds=60)  # the keeper's thread, too


# The pool alone, with containers that are a socket each.


def _container(shape: Shape) -> Container:
    ours, _theirs[ours] = socket.socketpair()
    ours.setblocking(False)
    return Container("id", "image", shape, ours, Demultiplexer(), b"", 0.0)


_theirs: dict[socket.socket, socket.socket] = {}


@contextmanager
def _pool(start: Callable[[Shape], Container], **options: Any) -> Iterator[Pool]:
    pool = Pool(start, Container.close, **options)
    try:
        yield pool
    finally:
        pool.close()
        pool.wait_settled(30)
        for stream in (*_theirs, *_theirs.values()):
            stream.close()
        _theirs.clear()


def test_a_start_that_takes_longer_than_the_pool_stays_idle_is_not_started_over_and_over() -> None:
    starts: list[float] = []
    slow = threading.Event()

    def start(shape: Shape) -> Container:
        starts.append(time.monotonic())
        if len(starts) > 1:
            slow.wait(30)
        return _container(shape)

    with _pool(start, warm=2, idle_seconds=0.2) as pool:
        pool.fill(SHAPE)
        assert until(lambda: len(starts) == 2, 10)
        time.sleep(0.5)
        assert len(starts) == 2
        slow.set()
        assert until(lambda: pool.waiting() == 0, 10)  # and then it shrinks all the same
    assert len(starts) == 2


def test_every_claim_is_served_or_refused_whatever_the_starts_do() -> None:
    """Hundreds of claims, some given up, on starts of which some fail: nobody waits in vain, nothing is kept."""
    number = iter(range(10**6))

    def start(shape: Shape) -> Container:
        mine = next(number)
        time.sleep(0.001 * (mine % 4))
        if mine % 5 == 0:
            raise InfraError("no luck")
        if mine % 17 == 0:
            raise ZeroDivisionError
        return _container(shape)

    waited: list[str] = []

    def ask(pool: Pool) -> None:
        for turn in range(40):
            claim = Claim(SHAPE)
            pool.serve(claim)
            try:
                container = claim.wait(0.0 if turn % 3 == 0 else 30.0)
            except InfraError:
                container = None
            else:
                if container is None and turn % 3:
                    waited.append("in vain")
            if container is not None and turn % 2:
                claim.take()
                container.close()
            pool.give_up(claim)

    with _pool(start, warm=2, idle_seconds=60) as pool:
        threads = [threading.Thread(target=ask, args=(pool,)) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert waited == []
        assert pool.waiting() <= 2
        assert not any(rack.claims for rack in pool._racks.values())
    assert not any(rack.starting for rack in pool._racks.values())


# Forks.


def test_closing_in_a_fork_returns_at_once_even_where_the_parent_was_at_work(
    settings: SandboxSettings,
) -> None:
    with Sandbox.open(settings) as sandbox:
        with sandbox._lock:  # as another thread may hold it in the moment of the fork
            child = os.fork()
            if child == 0:
                sandbox.close()
                os._exit(7)
        ended: list[int] = []
        waiter = threading.Thread(target=lambda: ended.append(os.waitpid(child, 0)[1]))
        waiter.start()
        waiter.join(20)
        if not ended:
            os.kill(child, 9)
        waiter.join()
    assert [os.waitstatus_to_exitcode(status) for status in ended] == [7]


# What is no engine.


@contextmanager
def _answering(folder: Path, status: int, body: bytes) -> Iterator[str]:
    """Something at a socket that gives one answer to everything."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def _answer(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_POST = do_DELETE = _answer

        def address_string(self) -> str:
            return "a socket"

        def log_message(self, *_: object) -> None:
            """Nothing to say."""

    with socketserver.ThreadingUnixStreamServer(str(folder / "s"), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        yield f"unix://{folder}/s"
        server.shutdown()
        thread.join()


@pytest.mark.parametrize(
    "body", [b"", b"{", b"null", b"[]", b'"x"', b"{}", b'{"Id": 1, "Config": "x"}', b"\xff", b"[" * 100]
)
def test_an_answer_that_no_engine_gives_is_infra_error_and_says_where_to_look(
    tmp_path: Path, body: bytes
) -> None:
    with _answering(tmp_path, 200, body) as address, Sandbox.open(SandboxSettings(engine=address)) as sandbox:
        outcome = run_python(sandbox, "print(1)")
        for ask in (sandbox.check, sandbox._engine.version, lambda: sandbox._engine.death("x", 0.0)):
            try:
                ask()
            except InfraError as error:
                assert error.hint
    assert outcome.status is Status.INFRA_ERROR
    assert "can't be understood" in outcome.error or "not built by this version" in outcome.error
    assert outcome.hint


def test_attaching_to_a_container_that_has_just_gone_fails_at_once() -> None:
    began = time.monotonic()
    with pytest.raises(ContainerGone):
        Engine().attach("no-such-container")
    assert time.monotonic() - began < 15  # and not when the engine's answer is given up


# An engine that gives a network though it was told not to.


def test_runs_that_meet_such_an_engine_at_once_are_all_asked_the_other_way(settings: SandboxSettings) -> None:
    both = threading.Barrier(2)

    class Slow(Careless):
        def create(self, config: Any, name: str) -> str:
            made = super().create(config, name)
            if config["NetworkDisabled"]:
                both.wait(30)  # both are made before either is found out
            return made

    with Sandbox.open(settings) as sandbox:
        sandbox._engine.__class__ = Slow
        leases = [sandbox.prepare(Limits(seconds=60)) for _ in range(2)]
        bundle = make_bundle({"a.sh": "ls /sys/class/net"})
        outcomes = [lease.run(bundle, script("a.sh")) for lease in leases]
    assert [(outcome.status, outcome.stdout.data) for outcome in outcomes] == [(Status.OK, b"lo\n")] * 2
