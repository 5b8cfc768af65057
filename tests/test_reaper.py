"""What crashes leave: whose it is, whether its owner is dead for certain, and that it goes."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest
from conftest import IMAGE, QUICK, containers, until

from skillexec.errors import EngineUnavailable, InfraError
from skillexec.sandbox import Sandbox, SandboxSettings
from skillexec.sandbox import reaper as reaping
from skillexec.sandbox.engine import Engine, Listed
from skillexec.sandbox.owner import Owner
from skillexec.sandbox.reaper import Reaper
from skillexec.sandbox.spec import LABEL_OWNER

DEAD = 2**22 - 1  # past the most that the kernel gives a process by default


def of_process(owner: Owner, **changes: object) -> Owner:
    """The same owner, but of another process."""
    return replace(owner, process=replace(owner.process, **changes))  # type: ignore[arg-type]


@contextmanager
def left_by(*owners: Owner) -> Iterator[list[str]]:
    """Containers that were made and never started, as a crash leaves them."""
    engine = Engine.open()
    image = engine.image(IMAGE).id
    made = []
    try:
        for owner in owners:
            config = {"Image": image, "Entrypoint": ["true"], "Labels": {LABEL_OWNER: str(owner)}}
            made.append(engine.create(config, ""))
        yield made
    finally:
        for container in made:
            engine.remove(container)


def test_a_sweep_removes_what_a_dead_owner_left_and_nothing_of_the_living(fresh: Sandbox) -> None:
    here = Owner.current()
    dead = of_process(replace(here, token="dead"), pid=DEAD)
    rebooted = of_process(replace(here, token="rebooted"), boot="another-boot")
    elsewhere = of_process(replace(here, machine="another-machine", token="elsewhere"), boot="another-boot")
    living = replace(here, token="living")
    with left_by(dead, rebooted, elsewhere, living) as made:
        fresh.sweep()
        left = set(containers(f"label={LABEL_OWNER}"))
    assert [container in left for container in made] == [False, False, True, True]


def test_a_process_that_lives_on_sweeps_once_by_itself(settings: SandboxSettings) -> None:
    dead = of_process(replace(Owner.current(), token="dead"), pid=DEAD)
    with left_by(dead) as made, Sandbox.open(settings) as sandbox:
        sandbox.prepare(QUICK).release()
        assert until(lambda: not set(made) & set(containers(f"label={LABEL_OWNER}")), 30)


def test_a_container_that_the_engine_can_not_remove_does_not_keep_the_others(fresh: Sandbox) -> None:
    class Stuck(Engine):
        def remove(self, container: str) -> None:
            if container == made[0]:
                raise InfraError("device or resource busy")
            super().remove(container)

    dead = of_process(Owner.current(), pid=DEAD)
    with left_by(replace(dead, token="one"), replace(dead, token="two")) as made:
        made.sort(
            key=[item.id for item in Engine().containers(LABEL_OWNER)].index
        )  # the stuck one comes first
        fresh._engine.__class__ = Stuck
        fresh.sweep()
        assert not set(made[1:]) & set(containers(f"label={LABEL_OWNER}"))


def test_what_could_not_be_removed_while_the_engine_was_away_is_removed_when_it_is_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Away(Engine):
        calls = 0

        def containers(self, label: str, value: str | None = None) -> list[Listed]:
            self.calls += 1
            if self.calls < 3:
                raise EngineUnavailable("away")
            return super().containers(label, value)

    monkeypatch.setattr(reaping, "PATIENCE_SECONDS", 0.05)
    monkeypatch.setattr(reaping, "_AGAIN_SECONDS", 0.05)
    owner = replace(Owner.current(), token="ours")
    with left_by(owner) as made:
        reaper = Reaper(Away(), owner)
        reaper.expect_gone(made[0])
        assert until(lambda: not set(made) & set(containers(f"label={LABEL_OWNER}")), 30)
        reaper.close()


# Whether an owner lives.


def test_a_reused_process_number_is_not_taken_for_the_owner() -> None:
    here = Owner.current()
    assert not here.gone(here)
    assert of_process(here, pid_start=1).gone(here)
    assert Owner.parse(str(here)) == here


def test_without_a_machine_id_another_boot_may_be_another_machine() -> None:
    here = replace(Owner.current(), machine="?")
    assert not of_process(here, boot="another-boot").gone(here)
    assert of_process(here, pid_start=1).gone(here)


def test_an_owner_whose_process_can_not_be_looked_at_lives(
    start_program: Callable[[str], subprocess.Popen[str]],
) -> None:
    program = start_program("""
        import os, resource
        from skillexec.sandbox.owner import Owner
        here = Owner.current()
        resource.setrlimit(resource.RLIMIT_NOFILE, (3, 3))  # not one descriptor is left to look with
        os.write(1, b"gone" if here.gone(here) else b"lives")
        """)
    assert program.communicate(timeout=60)[0] == "lives"


@pytest.mark.parametrize("number", ["", "-1", "²", "1e3", "9" * 30])
def test_a_label_that_we_did_not_write_names_no_owner(number: str) -> None:
    assert Owner.parse(f"machine/boot/1/{number}/1/token") is None
    assert Owner.parse(f"machine/boot/{number}/1/1/token") is None
    assert Owner.parse("someone else's label") is None
