"""The warm pool on the real engine: single-use, claimed once, alive when claimed, gone with its owner."""

from __future__ import annotations

import gc
import os
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import replace

import pytest
from conftest import IMAGE, QUICK, containers, kept, make_bundle, run_python, script, until

from skillexec.errors import ImageUnavailable
from skillexec.model import Limits, Outcome, Status
from skillexec.sandbox import Sandbox, SandboxSettings
from skillexec.sandbox.engine import Engine


@pytest.fixture
def warm() -> Iterator[Sandbox]:
    with Sandbox.open(SandboxSettings(image=IMAGE, warm=2)) as opened:
        assert opened.warm_up(QUICK, seconds=30)
        yield opened


def ours(sandbox: Sandbox, *filters: str) -> list[str]:
    return containers(f"label=skillexec.owner={sandbox._owner}", *filters)


def test_a_waiting_container_takes_the_run_and_serves_no_other(warm: Sandbox) -> None:
    waiting = set(ours(warm))
    first, second = run_python(warm, "print(1)"), run_python(warm, "print(2)")
    assert first.warm and second.warm
    assert {first.container, second.container} == waiting


def test_a_warm_run_needs_no_call_to_the_engine(warm: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    calling = threading.current_thread()
    calls: list[str] = []
    original = Engine._asking

    def counted(self: Engine, doing: str) -> AbstractContextManager[str]:
        if threading.current_thread() is calling:
            calls.append(doing)
        return original(self, doing)

    monkeypatch.setattr(Engine, "_asking", counted)
    assert run_python(warm, "print(1)").warm
    assert calls == []


def test_the_pool_refills_itself(warm: Sandbox) -> None:
    run_python(warm, "pass")
    run_python(warm, "pass")
    assert until(lambda: warm.waiting() == 2, 30)
    assert run_python(warm, "pass").warm


def test_the_pool_refills_while_a_long_run_goes_on(warm: Sandbox) -> None:
    refilled: list[bool] = []

    def look(_stream: str, _data: bytes) -> None:
        refilled.append(until(lambda: warm.waiting() == 2, 15))

    run_python(warm, "import time; print(1, flush=True); time.sleep(1)", on_output=look)
    assert refilled == [True]


def test_claims_from_many_threads_never_share_a_container(warm: Sandbox) -> None:
    bundle = make_bundle({"a.sh": "echo $1"})
    outcomes: list[Outcome] = []

    def work(number: int) -> None:
        outcomes.append(warm.execute(bundle, script("a.sh", str(number)), limits=Limits(seconds=60)))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(outcome.stdout.text for outcome in outcomes) == [f"{number}\n" for number in range(8)]
    assert len({outcome.container for outcome in outcomes}) == 8


def test_dead_containers_are_noticed_on_lease_and_a_fresh_one_runs(warm: Sandbox) -> None:
    subprocess.run(["docker", "kill", *ours(warm)], check=True, capture_output=True)
    assert until(lambda: not ours(warm), 30)
    outcome = run_python(warm, "print('fresh')")
    assert (outcome.status, outcome.warm, outcome.stdout.data) == (Status.OK, False, b"fresh\n")


def test_a_container_that_dies_between_claim_and_job_is_replaced(warm: Sandbox) -> None:
    with warm.prepare(QUICK) as lease:
        killed = ours(warm, "status=running")  # and not one that is being made for the pool meanwhile
        subprocess.run(["docker", "kill", *killed], check=True, capture_output=True)
        assert until(lambda: not set(killed) & set(ours(warm, "status=running")), 15)
        outcome = lease.run(make_bundle({"a.sh": "echo replaced"}), script("a.sh"))
    assert (outcome.status, outcome.stdout.data) == (Status.OK, b"replaced\n")


def test_a_released_lease_gives_its_container_back(warm: Sandbox) -> None:
    before = set(ours(warm))
    with warm.prepare(QUICK):
        assert warm.waiting() == 1
    assert warm.waiting() == 2
    assert set(ours(warm)) == before


def test_other_limits_get_another_container_never_a_looser_one(warm: Sandbox) -> None:
    code = """
        for path in ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory.max"):
            try:
                print(open(path).read().strip())
            except FileNotFoundError:
                pass
    """
    outcome = run_python(warm, code, limits=replace(QUICK, memory=96 << 20))
    assert outcome.stdout.text.strip() == str(96 << 20)
    assert not outcome.warm


def test_limits_that_only_concern_the_job_share_the_pool(warm: Sandbox) -> None:
    assert run_python(warm, "pass", limits=replace(QUICK, seconds=7, output=10, file_size=1000)).warm


def test_the_pool_shrinks_when_nobody_asks() -> None:
    with Sandbox.open(SandboxSettings(image=IMAGE, warm=1, idle_seconds=1.0)) as sandbox:
        assert sandbox.warm_up(QUICK, seconds=30)
        assert until(lambda: sandbox.waiting() == 0, 30)
        assert until(lambda: not ours(sandbox), 30)
        assert run_python(sandbox, "print('again')").status is Status.OK


def test_an_idle_pool_uses_no_processor(warm: Sandbox) -> None:
    def used() -> float:
        gc.collect()
        before = time.process_time()
        time.sleep(1.0)
        return time.process_time() - before

    assert kept(0.02, used)  # a reaper that looks once may fall into one of the tries


def test_closing_leaves_no_container_not_even_one_that_is_just_starting() -> None:
    for pause in (0.0, 0.05, 0.15):
        sandbox = Sandbox.open(SandboxSettings(image=IMAGE, warm=2))
        sandbox.warm_up(QUICK)
        time.sleep(pause)
        sandbox.close()
        assert ours(sandbox) == []


def test_a_pool_that_cannot_fill_says_why() -> None:
    settings = SandboxSettings(image="skillexec/no-such-image", warm=1)
    with Sandbox.open(settings) as sandbox, pytest.raises(ImageUnavailable, match="no-such-image"):
        sandbox.warm_up(QUICK, seconds=10)


def test_a_fork_of_the_owner_does_not_keep_its_containers_alive(
    start_program: Callable[[str], subprocess.Popen[str]],
) -> None:
    program = start_program("""
        import os, time
        from conftest import *
        sandbox = Sandbox.open(SandboxSettings(image=IMAGE, warm=1))
        sandbox.warm_up(QUICK, seconds=20)

        def fork(*_):
            while not sandbox.waiting():  # one that was made and not yet started is left to the next sweep
                time.sleep(0.02)
            child = os.fork()
            if child == 0:
                time.sleep(60)
                os._exit(0)
            print(sandbox._owner, child, flush=True)

        run_python(sandbox, "import time; print(1, flush=True); time.sleep(20)", on_output=fork)
        """)
    assert program.stdout is not None
    owner, child = program.stdout.readline().split()
    try:
        assert containers(f"label=skillexec.owner={owner}")
        program.kill()
        assert until(
            lambda: not containers(f"label=skillexec.owner={owner}"), 15
        )  # the script would take 20 s
        os.kill(int(child), 0)  # the fork lives on
    finally:
        os.kill(int(child), 9)
