"""Permissions under several processes at once, and under kill -9."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import random
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from skillexec.admin import Admin
from skillexec.audit.query import Filter, stream
from skillexec.audit.verify import verify
from skillexec.errors import Refused
from skillexec.model import Source
from skillexec.permissions.grants import Wish
from skillexec.state import State

FORK = multiprocessing.get_context("fork")
SKILLS = [f"skill-{number}" for number in range(20)]


def wish(skill: str) -> list[Wish]:
    return [Wish(skill, source=Source.BUILTIN)]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A state with team research, an envelope of twenty skills, and no systems."""
    found = tmp_path / "state.db"
    with State.open(found, create=True) as state:
        admin = Admin(state, actor="operator")
        admin.add_team("research")
        admin.set_envelope("research", SKILLS)
    return found


def add_systems(path: Path, names: list[str]) -> None:
    with State.open(path) as state:
        for name in names:
            Admin(state, actor="operator").add_system(name, team="research")


def granting(skill: str) -> Callable[[Admin], Any]:
    return lambda admin: admin.add_grants("planner", wish(skill))


def recorded_grants(state: State) -> dict[str, set[str]]:
    """What the audit log says is granted."""
    held: dict[str, set[str]] = {}
    with state.read() as connection:
        for record in stream(connection, Filter()):
            if record.event == "grant.added":
                held.setdefault(str(record.system), set()).add(str(record.skill))
            elif record.event == "grant.revoked":
                held[str(record.system)].remove(str(record.skill))
    return {system: skills for system, skills in held.items() if skills}


def stored_grants(state: State) -> dict[str, set[str]]:
    found = Admin(state, actor="auditor").snapshot().systems
    return {name: {grant.skill for grant in each.grants} for name, each in found.items() if each.grants}


def assert_state_and_chain_agree(path: Path) -> dict[str, set[str]]:
    with State.open(path) as state:
        with state.read() as connection:
            report = verify(connection)
            assert report.findings == ()
            assert connection.exec_driver_sql("PRAGMA integrity_check").scalar_one() == "ok"
        assert stored_grants(state) == recorded_grants(state)
        return stored_grants(state)


def _grant_all(path: Path, seed: int, rounds: int, barrier: Any, results: Any) -> None:
    order = random.Random(seed)
    with State.open(path, busy_seconds=60) as state:
        admin = Admin(state, actor=f"process-{seed}")
        for number in range(rounds):
            barrier.wait()
            successes = 0
            for skill in order.sample(SKILLS, len(SKILLS)):
                with contextlib.suppress(Refused):
                    successes += len(admin.add_grants(f"system-{number}", wish(skill)))
            results.put((number, successes))


def test_sixteen_processes_granting_twenty_skills_leave_exactly_five_each_time(path: Path) -> None:
    rounds, writers = 20, 16
    add_systems(path, [f"system-{number}" for number in range(rounds)])
    barrier, results = FORK.Barrier(writers), FORK.Queue()
    workers = [
        FORK.Process(target=_grant_all, args=(path, seed, rounds, barrier, results))
        for seed in range(writers)
    ]
    for worker in workers:
        worker.start()
    successes = [0] * rounds
    for number, count in (results.get(timeout=100) for _ in range(rounds * writers)):
        successes[number] += count
    for worker in workers:
        worker.join(timeout=100)
        assert worker.exitcode == 0
    held = assert_state_and_chain_agree(path)
    assert successes == [5] * rounds
    assert [len(held[f"system-{number}"]) for number in range(rounds)] == [5] * rounds


def _repeat(path: Path, barrier: Any, operations: list[Callable[[Admin], Any]]) -> None:
    with State.open(path, busy_seconds=60) as state:
        admin = Admin(state, actor="operator")
        barrier.wait()
        for _ in range(40):
            for operation in operations:
                with contextlib.suppress(Refused):
                    operation(admin)


def test_one_process_removing_while_another_grants_leaves_no_grant_outside_an_envelope(path: Path) -> None:
    add_systems(path, ["planner"])
    barrier = FORK.Barrier(2)
    sides: list[list[Callable[[Admin], Any]]] = [
        [granting(skill) for skill in SKILLS[:4]],
        [
            lambda admin: admin.remove_grants("planner", SKILLS[:2]),
            lambda admin: admin.remove_from_envelope("research", SKILLS[2:4]),
            lambda admin: admin.add_to_envelope("research", SKILLS[2:4]),
        ],
    ]
    workers = [FORK.Process(target=_repeat, args=(path, barrier, side)) for side in sides]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(timeout=100)
        assert worker.exitcode == 0
    assert_state_and_chain_agree(path)
    with State.open(path) as state:
        snapshot = Admin(state, actor="auditor").snapshot()
        assert {grant.skill for grant in snapshot.systems["planner"].grants} <= set(
            snapshot.teams["research"].envelope
        )


def test_a_team_removed_while_systems_are_added_to_it_leaves_no_orphan(path: Path) -> None:
    barrier = FORK.Barrier(2)
    sides: list[list[Callable[[Admin], Any]]] = [
        [lambda admin: admin.add_team("crew"), lambda admin: admin.add_system("hand", team="crew")],
        [lambda admin: admin.remove_team("crew", cascade=True)],
    ]

    def run(side: list[Callable[[Admin], Any]]) -> None:
        from skillexec.errors import Usage

        def tolerant(operation: Callable[[Admin], Any]) -> Callable[[Admin], Any]:
            def attempt(admin: Admin) -> None:
                with contextlib.suppress(Usage):  # the team may just have gone
                    operation(admin)

            return attempt

        _repeat(path, barrier, [tolerant(operation) for operation in side])

    workers = [FORK.Process(target=run, args=(side,)) for side in sides]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(timeout=100)
        assert worker.exitcode == 0
    assert_state_and_chain_agree(path)
    with State.open(path) as state, state.read() as connection:
        assert connection.exec_driver_sql("PRAGMA foreign_key_check").all() == []


def _grant_until_killed(path: Path, begun: Callable[[], object] = lambda: None) -> None:
    """Two hundred grants: five to each of forty systems. What is there already changes nothing."""
    with State.open(path) as state:
        admin = Admin(state, actor="mortal")
        begun()
        for number in range(40):
            for skill in SKILLS[number % 16 :][:5]:
                admin.add_grants(f"system-{number}", wish(skill))


def _fork_and_kill(path: Path, seconds: float) -> bool:
    """Run it in a child; whether that came to its end before it was killed."""
    told, tell = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            _grant_until_killed(path, lambda: os.write(tell, b"!"))
            os._exit(0)
        except BaseException:
            os._exit(1)
    os.close(tell)
    os.read(told, 1)  # the time counts from its first grant, however long it took to get there
    os.close(told)
    time.sleep(seconds)
    os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 0
    return not os.WIFSIGNALED(status)


def test_kill_9_at_random_moments_of_200_grants_leaves_state_and_chain_in_agreement(path: Path) -> None:
    add_systems(path, [f"system-{number}" for number in range(40)])
    chance = random.Random()
    counts, finished = [0], []
    for _ in range(12):
        finished.append(_fork_and_kill(path, chance.uniform(0.01, 0.25)))
        held = assert_state_and_chain_agree(path)
        counts.append(sum(map(len, held.values())))
    assert counts == sorted(counts) and counts[-1] > 0 and not all(finished)
    _grant_until_killed(path)
    held = assert_state_and_chain_agree(path)
    assert sum(map(len, held.values())) == 200
