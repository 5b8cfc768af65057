"""A process that owns something: whether it lives, said rightly also where its number was given away."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from skillexec.process import ProcessIdentity, is_alive, process_identity


def test_a_process_number_that_was_given_to_another_process_counts_as_dead() -> None:
    mine = process_identity()
    assert is_alive(mine)
    assert not is_alive(ProcessIdentity(mine.boot, mine.pid_namespace, mine.pid, mine.pid_start + 1))
    assert not is_alive(ProcessIdentity("another boot", mine.pid_namespace, mine.pid, mine.pid_start))


def test_a_process_that_has_ended_and_waits_for_its_parent_counts_as_dead() -> None:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    mine = process_identity()
    start = int(Path(f"/proc/{child.pid}/stat").read_text().rpartition(")")[2].split()[19])
    identity = ProcessIdentity(mine.boot, mine.pid_namespace, child.pid, start)
    assert is_alive(identity)
    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)  # a zombie now
    assert not is_alive(identity)
    child.wait()


def test_a_process_of_another_container_is_not_called_dead() -> None:
    mine = process_identity()
    assert is_alive(ProcessIdentity(mine.boot, mine.pid_namespace + 1, 2**22, 1))
