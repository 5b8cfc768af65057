"""A process that owns something: whether it lives, said rightly also where its number was given away."""

from __future__ import annotations

import os
import subprocess
import sys
import time
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


def test_a_process_whose_first_thread_has_ended_lives_on() -> None:
    program = """
import ctypes, threading, time
threading.Thread(target=time.sleep, args=(60,)).start()
print("ready", flush=True)
ctypes.CDLL(None).pthread_exit(None)
"""
    child = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None and child.stdout.readline() == "ready\n"
    stat = Path(f"/proc/{child.pid}/stat")
    try:
        limit = time.monotonic() + 20
        while (fields := stat.read_text().rpartition(")")[2].split())[0] != "Z" and time.monotonic() < limit:
            time.sleep(0.01)
        assert fields[0] == "Z"
        mine = process_identity()
        assert is_alive(ProcessIdentity(mine.boot, mine.pid_namespace, child.pid, int(fields[19])))
    finally:
        child.kill()
        child.communicate()
