"""The threat model, on the real engine with the real image: a script that means harm, and what becomes of it.

Each test is one thing that a script may try. Probes are small Python programs that try it and print what the
kernel said; where a call has no name in Python they make it by number.

Engines that are missing, forbidden, stopped or full are in test_engine_faults.py; callers that are killed, and fifty
runs at once, in test_sandbox.py; each system call with every privilege, so that only the filter is left to refuse it,
in test_seccomp.py.
"""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from conftest import QUICK, containers, kept, make_bundle, run_python, run_shell, script
from engines import Careless

from skillexec.model import Limits, Status
from skillexec.sandbox import Cancel, Sandbox, SandboxSettings
from skillexec.sandbox.engine import Engine
from skillexec.sandbox.owner import Owner
from skillexec.sandbox.spec import LABEL_OWNER, ContainerSpec, Shape

# Prints the name of the error that each attempt meets, or "allowed".
ATTEMPT = """
import ctypes, errno, os, socket, sys
libc = ctypes.CDLL(None, use_errno=True)

def attempt(name, call):
    try:
        call()
    except OSError as error:
        print(name, errno.errorcode.get(error.errno, type(error).__name__))
    else:
        print(name, "allowed")

def syscall(number, *arguments):
    def call():
        if libc.syscall(ctypes.c_long(number), *[ctypes.c_long(a) for a in arguments]) == -1:
            raise OSError(ctypes.get_errno(), "")
    return call
"""


def attempts(sandbox: Sandbox, code: str) -> dict[str, str]:
    """What each attempt of the probe met."""
    outcome = run_python(sandbox, ATTEMPT + code)
    assert outcome.status is Status.OK, outcome.stderr.text
    return dict(line.rsplit(" ", 1) for line in outcome.stdout.text.splitlines())


def shown(sandbox: Sandbox, expression: str) -> Any:
    """What an expression gives inside, as JSON."""
    outcome = run_python(sandbox, f"import json, os, pathlib\nprint(json.dumps({expression}))")
    assert outcome.status is Status.OK, outcome.stderr.text
    return json.loads(outcome.stdout.text)


# The network.


def test_nothing_can_be_reached_and_no_name_resolved(sandbox: Sandbox) -> None:
    met = attempts(
        sandbox,
        """
for name, family, address in [
    ("internet", socket.AF_INET, ("1.1.1.1", 53)),
    ("metadata", socket.AF_INET, ("169.254.169.254", 80)),
    ("bridge", socket.AF_INET, ("172.17.0.1", 80)),
    ("internet6", socket.AF_INET6, ("2606:4700:4700::1111", 53)),
    ("engine", socket.AF_UNIX, "/var/run/docker.sock"),
]:
    attempt(name, lambda: socket.socket(family).connect(address))
attempt("datagram", lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"x", ("8.8.8.8", 53)))
attempt("name", lambda: socket.getaddrinfo("example.com", 80))
attempt("raw", lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, 1))
attempt("packet", lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 3))
""",
    )
    assert len(met) == 9
    assert "allowed" not in met.values()


def test_there_is_no_interface_but_loopback_and_no_route(sandbox: Sandbox) -> None:
    assert shown(sandbox, "os.listdir('/sys/class/net')") == ["lo"]
    assert shown(sandbox, "open('/proc/net/route').read().count('\\n')") == 1


# The file system.


@pytest.mark.parametrize(
    "path", ["/x", "/etc/x", "/usr/x", "/usr/lib/skillexec/x", "/var/x", "/skill/x", "/root/x"]
)
def test_nothing_can_be_written_outside_of_the_work_folders(sandbox: Sandbox, path: str) -> None:
    met = attempts(sandbox, f"attempt('write', lambda: open({path!r}, 'w'))")
    assert met["write"] in ("EROFS", "EACCES", "EPERM")


def test_the_skills_own_files_cannot_be_changed_not_even_after_a_chmod(sandbox: Sandbox) -> None:
    code = ATTEMPT + (
        "def loosen():\n    os.chmod('/skill', 0o777); os.chmod('/skill/probe.py', 0o777)\n"
        "attempt('chmod', loosen)\n"
        "attempt('write', lambda: open('/skill/probe.py', 'a').write('x'))\n"
        "attempt('create', lambda: open('/skill/new', 'w'))\n"
        "attempt('remove', lambda: os.remove('/skill/probe.py'))\n"
        "attempt('rename', lambda: os.rename('/skill/probe.py', '/skill/other'))\n"
    )
    outcome = run_python(sandbox, code)
    met = dict(line.rsplit(" ", 1) for line in outcome.stdout.text.splitlines())
    assert outcome.status is Status.OK
    assert "allowed" not in (met["write"], met["create"], met["remove"], met["rename"])


def test_the_work_folders_are_bounded_and_full_is_an_error_of_the_script_alone(sandbox: Sandbox) -> None:
    code = """
        import errno, os
        for folder in (os.environ["TMPDIR"], os.environ["SKILLEXEC_OUT"], "/dev/shm"):
            written = 0
            try:
                with open(folder + "/fill", "wb", buffering=0) as file:
                    while True:
                        written += file.write(b"x" * (1 << 20))
            except OSError as error:
                print(errno.errorcode[error.errno], written <= 64 << 20)
            os.remove(folder + "/fill")
    """
    outcome = run_python(sandbox, code, limits=replace(QUICK, file_size=4 << 30))
    assert outcome.stdout.text.split() == ["ENOSPC", "True"] * 3
    assert run_python(sandbox, "print('next')").status is Status.OK


def test_a_file_larger_than_the_limit_cannot_be_written(sandbox: Sandbox) -> None:
    outcome = run_shell(
        sandbox,
        "head -c 2000000 /dev/zero >/tmp/x; wc -c </tmp/x",
        limits=replace(QUICK, file_size=1_000_000),
    )
    assert outcome.stdout.text.strip() == "1000000"


def test_millions_of_empty_files_stop_at_a_bound(sandbox: Sandbox) -> None:
    code = ATTEMPT + (
        "def many():\n    for n in range(200_000):\n        os.close(os.open(f'/tmp/{n}', os.O_CREAT | os.O_WRONLY))\n"
        "attempt('files', many)"
    )
    assert run_python(sandbox, code).stdout.text == "files ENOSPC\n"


def test_host_paths_and_other_skills_are_not_there(sandbox: Sandbox, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("the host's")
    outcome = run_shell(sandbox, f"cat {tmp_path}/secret; ls -A /tmp /root /home /skill /var/lib/docker")
    assert b"the host's" not in outcome.stdout.data
    assert b"No such file" in outcome.stderr.data
    assert shown(sandbox, "sorted(os.listdir('/skill'))") == ["probe.py"]


def test_nothing_of_the_hosts_file_system_is_mounted(sandbox: Sandbox) -> None:
    mounts = shown(sandbox, "[line.split()[1:3] for line in open('/proc/self/mounts')]")
    virtual = {"overlay", "proc", "tmpfs", "devpts", "sysfs", "cgroup", "cgroup2", "mqueue"}
    real = {target for target, kind in mounts if kind not in virtual}
    assert real <= {
        "/etc/hosts",
        "/etc/hostname",
        "/etc/resolv.conf",
    }  # the engine's own, made for this container
    met = attempts(
        sandbox, "".join(f"attempt({target!r}, lambda: open({target!r}, 'a'))\n" for target in real)
    )
    assert set(met.values()) <= {"EACCES", "EROFS"}


def test_devices_are_the_harmless_ones(sandbox: Sandbox) -> None:
    found = shown(sandbox, "sorted(os.listdir('/dev'))")
    harmless = {
        "core",
        "fd",
        "full",
        "mqueue",
        "null",
        "ptmx",
        "pts",
        "random",
        "shm",
        "stderr",
        "stdin",
        "stdout",
    }
    assert set(found) <= harmless | {"tty", "urandom", "zero"}


# Privileges.


def test_the_script_is_nobody_without_capabilities_and_cannot_gain_any(sandbox: Sandbox) -> None:
    status = shown(
        sandbox, "dict(line.strip().split(':\\t', 1) for line in open('/proc/self/status') if ':\\t' in line)"
    )
    assert status["Uid"].split() == status["Gid"].split() == ["65532"] * 4
    assert status["Groups"].strip() in ("", "65532")
    assert {int(status[name], 16) for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")} == {0}
    assert (status["NoNewPrivs"], status["Seccomp"]) == ("1", "2")


def test_setuid_binaries_are_useless(sandbox: Sandbox) -> None:
    outcome = run_shell(sandbox, "find / -xdev -perm /6000 -type f 2>/dev/null | wc -l; cp /usr/bin/id /tmp/id; "
                                 "chmod 6755 /tmp/id; /tmp/id -u; grep -c nosuid /proc/self/mounts")  # fmt: skip
    setuid, uid, nosuid = outcome.stdout.text.split()
    assert (setuid, uid) == ("0", "65532")
    assert int(nosuid) >= 3


def test_becoming_root_fails(sandbox: Sandbox) -> None:
    met = attempts(
        sandbox,
        "attempt('setuid', lambda: os.setuid(0))\nattempt('setgid', lambda: os.setgid(0))\n"
        "attempt('groups', lambda: os.setgroups([0]))\nattempt('chroot', lambda: os.chroot('/tmp'))\n"
        "attempt('nice', lambda: os.nice(-5))",
    )
    assert set(met.values()) <= {"EPERM", "EACCES"}


# System calls, x86-64 numbers.

REFUSED = {
    "mount": (165, 0, 0, 0, 0, 0),
    "umount": (166, 0, 0),
    "pivot_root": (155, 0, 0),
    "unshare user": (272, 0x10000000),
    "unshare mount": (272, 0x00020000),
    "unshare net": (272, 0x40000000),
    "setns": (308, 0, 0),
    "ptrace": (101, 0, 0, 0, 0),
    "process_vm_readv": (310, 1, 0, 0, 0, 0, 0),
    "io_uring_setup": (425, 1, 0),
    "io_uring_enter": (426, 0, 0, 0, 0, 0, 0),
    "bpf": (321, 0, 0, 0),
    "perf_event_open": (298, 0, 0, -1, -1, 0),
    "userfaultfd": (323, 0),
    "keyctl": (250, 0, 0, 0, 0, 0),
    "add_key": (248, 0, 0, 0, 0, 0),
    "request_key": (249, 0, 0, 0, 0),
    "kexec_load": (246, 0, 0, 0, 0),
    "init_module": (175, 0, 0, 0),
    "open_by_handle_at": (304, 0, 0, 0),
    "name_to_handle_at": (303, 0, 0, 0, 0, 0),
    "reboot": (169, 0, 0, 0, 0),
    "swapon": (167, 0, 0),
    "quotactl": (179, 0, 0, 0, 0),
    "acct": (163, 0),
    "fsopen": (430, 0, 0),
    "move_mount": (429, 0, 0, 0, 0, 0),
    "clone3 is unknown": (435, 0, 0),
}


def test_system_calls_that_reach_for_the_kernel_are_refused(sandbox: Sandbox) -> None:
    met = attempts(sandbox, "".join(f"attempt({name!r}, syscall{call})\n" for name, call in REFUSED.items()))
    assert set(met) == set(REFUSED)
    assert set(met.values()) <= {"EPERM", "ENOSYS"}


# Each with a type that the kernel would take: else it, and not the filter, would be what refuses.
FAMILIES = {
    "AF_ALG": (38, "SOCK_SEQPACKET"),
    "AF_VSOCK": (40, "SOCK_STREAM"),
    "AF_NETLINK": (16, "SOCK_RAW"),
    "AF_KEY": (15, "SOCK_RAW"),
}


@pytest.mark.parametrize("family", list(FAMILIES))
def test_socket_families_that_reach_for_the_kernel_are_refused(sandbox: Sandbox, family: str) -> None:
    number, kind = FAMILIES[family]
    met = attempts(sandbox, f"attempt('socket', lambda: socket.socket({number}, socket.{kind}))")
    assert met["socket"] == "EPERM"


def test_32_bit_system_calls_do_not_get_round_the_filter(sandbox: Sandbox) -> None:
    """`int 0x80` with socketcall's number would make a socket that a 64-bit filter never sees."""
    code = """
        import ctypes, mmap, os
        # mov eax, 20 (getpid, 32-bit); int 0x80; ret
        page = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
        page.write(bytes.fromhex("b814000000" "cd80" "c3"))
        call = ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(page)))
        result = call()
        print("allowed" if result == os.getpid() else result)
    """
    outcome = run_python(sandbox, code)
    killed = outcome.signal in (signal.SIGSYS, signal.SIGSEGV)
    assert killed or int(outcome.stdout.text) in (-errno.EPERM, -errno.ENOSYS)


def test_the_launcher_cannot_be_read_traced_signalled_or_written_to(sandbox: Sandbox) -> None:
    met = attempts(
        sandbox,
        """
for name in ("mem", "environ", "maps", "fd/0", "fd/1", "root", "cwd"):
    attempt(name, lambda: os.close(os.open(f"/proc/1/{name}", os.O_RDWR if name == "mem" else os.O_RDONLY)))
attempt("list", lambda: os.listdir("/proc/1/fd"))
""",
    )
    assert set(met.values()) <= {"EACCES", "EPERM"}
    outcome = run_shell(sandbox, "kill -KILL 1; kill -TERM 1; kill -STOP 1; kill -INT 1; echo still here")
    assert (outcome.status, outcome.stdout.data) == (Status.OK, b"still here\n")


def test_an_exit_frame_from_the_script_is_only_output(sandbox: Sandbox) -> None:
    code = """
        import json, os, struct
        payload = json.dumps({"reason": "exited", "exit_code": 0, "signal": None, "oom_kills": 0, "cpu_us": 0,
                              "wall_us": 0, "peak_memory": 0, "error": "", "timings": {}}).encode()
        forged = b"X" + struct.pack(">I", len(payload)) + payload + b"Z" + struct.pack(">I", 12) + b'{"notes":[]}'
        for descriptor in range(64):
            try:
                os.write(descriptor, forged)
            except OSError:
                pass
        os._exit(9)
    """
    outcome = run_python(sandbox, code)
    assert (outcome.status, outcome.exit_code) == (Status.FAILED, 9)
    assert b"exited" in outcome.stdout.data


# Resources.


def test_a_fork_bomb_is_contained_and_the_next_run_is_ok(sandbox: Sandbox) -> None:
    def took() -> float:
        sandbox.warm_up(QUICK, seconds=30)
        began = time.monotonic()
        outcome = run_shell(sandbox, "bomb() { bomb | bomb & }; bomb; sleep 60", limits=Limits(seconds=3))
        assert outcome.status in (Status.TIMEOUT, Status.FAILED)
        return time.monotonic() - began

    assert kept(4.0, took)
    assert run_python(sandbox, "print(1)").status is Status.OK


def test_processes_stop_at_their_limit(sandbox: Sandbox) -> None:
    code = ATTEMPT + (
        "import time\ndef many():\n    for n in range(1000):\n        if os.fork() == 0:\n            time.sleep(60)\n"
        "attempt('fork', many)"
    )
    outcome = run_python(sandbox, code, limits=replace(QUICK, pids=32))
    assert outcome.stdout.text == "fork EAGAIN\n"


def test_unbounded_allocation_is_oom(sandbox: Sandbox) -> None:
    outcome = run_python(
        sandbox, "print('so far', flush=True); x = []\nwhile True: x.append(bytearray(8 << 20))"
    )
    assert (outcome.status, outcome.stdout.data) == (Status.OOM, b"so far\n")
    assert "512 MiB" in outcome.error


def test_oom_of_a_child_is_oom_even_when_the_parent_exits_zero(sandbox: Sandbox) -> None:
    outcome = run_shell(sandbox, "python3 -c 'x = bytearray(2 << 30)'; echo parent fine; exit 0")
    assert (outcome.status, outcome.exit_code) == (Status.OOM, 0)
    assert outcome.stdout.data == b"parent fine\n"


def test_a_full_tmpfs_counts_as_memory_and_never_takes_the_host(sandbox: Sandbox) -> None:
    code = "import os\nfor n in range(64): open(f'/tmp/{n}', 'wb').write(b'x' * (8 << 20))"
    outcome = run_python(
        sandbox, code, limits=replace(QUICK, memory=64 << 20, tmpfs=1 << 30, file_size=1 << 30)
    )
    assert outcome.status in (Status.FAILED, Status.OOM)


def test_the_cpu_is_shared(sandbox: Sandbox) -> None:
    code = "import os, time\nfor _ in range(3): os.fork()\ne = time.time() + 1\nwhile time.time() < e: pass"
    outcome = run_python(sandbox, code, limits=replace(QUICK, cpus=0.5))
    assert (
        outcome.usage.cpu_seconds < 0.8 * outcome.usage.wall_seconds
    )  # one processor, unbounded, would give 1


def test_open_files_stop_at_their_limit(sandbox: Sandbox) -> None:
    code = (
        ATTEMPT + "kept = []\nattempt('open', lambda: [kept.append(open('/dev/null')) for _ in range(5000)])"
    )
    assert run_python(sandbox, code, limits=replace(QUICK, open_files=64)).stdout.text == "open EMFILE\n"


# Processes that will not go, and streams that will not end.


def test_sigterm_is_ignored_in_vain(sandbox: Sandbox) -> None:
    code = """
        import contextlib, signal, time
        for number in range(1, 32):
            with contextlib.suppress(OSError):
                signal.signal(number, signal.SIG_IGN)
        time.sleep(60)
    """

    def took() -> float:
        sandbox.warm_up(QUICK, seconds=30)
        began = time.monotonic()
        assert run_python(sandbox, code, limits=Limits(seconds=2)).status is Status.TIMEOUT
        return time.monotonic() - began

    assert kept(3.0, took)


DAEMONS = """
import pathlib, subprocess, sys, time
subprocess.run(["sh", "-c", f"setsid sh -c 'setsid sleep {sys.argv[1]} & setsid sleep {sys.argv[1]} &' &"])
wanted = f"sleep\\0{sys.argv[1]}\\0".encode()
while [path.read_bytes() for path in pathlib.Path("/proc").glob("[0-9]*/cmdline")].count(wanted) < 2:
    time.sleep(0.02)
print("up", flush=True)
time.sleep(float(sys.argv[2]))
"""


@pytest.mark.parametrize(("rest", "status"), [("0", Status.OK), ("60", Status.CANCELLED)])
def test_a_double_forked_daemon_does_not_outlive_the_run(sandbox: Sandbox, rest: str, status: Status) -> None:
    nap = str(10**6 + os.getpid())  # others may run these tests on this machine, too
    seen: list[int] = []
    cancel = Cancel()

    def look(*_: object) -> None:
        found = subprocess.run(["pgrep", "-fx", f"sleep {nap}"], capture_output=True, text=True)
        seen.append(len(found.stdout.split()))
        if status is Status.CANCELLED:
            cancel.cancel()

    outcome = run_python(sandbox, DAEMONS, nap, rest, on_output=look, cancel=cancel)
    assert (outcome.status, outcome.stdout.data) == (status, b"up\n")
    look()
    assert seen[-1] == 0
    assert status is Status.OK or seen[0] == 2  # else this machine does not show them, and nothing is proved


def test_a_child_that_holds_the_streams_does_not_hang_the_caller(sandbox: Sandbox) -> None:
    outcome = run_shell(sandbox, "sleep 60 & echo ended")
    assert (outcome.status, outcome.stdout.data) == (Status.OK, b"ended\n")  # and not a time-out


def test_a_script_that_closes_its_streams_is_still_waited_for(sandbox: Sandbox) -> None:
    outcome = run_shell(sandbox, "exec >&- 2>&- <&-; sleep 0.5; exit 4")
    assert (outcome.status, outcome.exit_code) == (Status.FAILED, 4)
    assert outcome.usage.wall_seconds >= 0.5


def test_yes_forever_ends_at_the_output_limit(sandbox: Sandbox) -> None:
    outcome = run_shell(sandbox, "yes & yes >&2", limits=replace(QUICK, output_total=4 << 20))
    assert outcome.status is Status.OUTPUT_LIMIT
    assert max(outcome.stdout.total, outcome.stderr.total) == 4 << 20


def test_yes_forever_without_a_limit_ends_at_the_deadline(sandbox: Sandbox) -> None:
    def took() -> float:
        sandbox.warm_up(QUICK, seconds=30)
        began = time.monotonic()
        outcome = run_shell(sandbox, "yes", limits=Limits(seconds=2, output_total=0))
        assert outcome.status is Status.TIMEOUT
        assert outcome.stdout.total > 1 << 20
        return time.monotonic() - began

    assert kept(3.0, took)


def test_nuls_and_bad_utf8_come_back_byte_for_byte(sandbox: Sandbox) -> None:
    outcome = run_python(
        sandbox, r"import os; os.write(1, b'\x00\xff\xfe\x80ok\xc3'); os.write(2, bytes(range(256)))"
    )
    assert outcome.stdout.data == b"\x00\xff\xfe\x80ok\xc3"
    assert outcome.stderr.data == bytes(range(256))
    assert not outcome.stdout.exact_text
    assert outcome.stdout.text.encode("utf-8", "surrogateescape") == outcome.stdout.data


# What is left behind, and what others can see.


def test_secrets_given_to_a_run_are_not_in_the_containers_description(fresh: Sandbox) -> None:
    found: list[str] = []

    def look(_stream: str, _data: bytes) -> None:
        for container in containers(f"label=skillexec.owner={fresh._owner}"):
            inspect = subprocess.run(
                ["docker", "inspect", container], capture_output=True, text=True, check=True
            )
            found.append(inspect.stdout)
        cancel.cancel()

    cancel = Cancel()
    outcome = run_shell(
        fresh,
        "echo $TOKEN | wc -c; sleep 60",
        env={"TOKEN": "hunter2-value"},
        on_output=look,
        cancel=cancel,
    )
    assert outcome.status is Status.CANCELLED
    assert outcome.stdout.data == b"14\n"
    assert found
    assert not any("hunter2" in text or "probe.sh" in text for text in found)


def test_a_run_leaves_nothing_that_the_next_can_find(sandbox: Sandbox) -> None:
    leave = "touch /tmp/a /work/home/b /dev/shm/c; (sleep 100 &) ; echo x >$SKILLEXEC_OUT/d; true"
    first = run_shell(sandbox, leave)
    second = run_shell(
        sandbox,
        "ls -A /tmp /work/home /dev/shm $SKILLEXEC_OUT | grep -c '^[a-d]$'; cat /proc/[0-9]*/comm | grep -c sleep",
    )
    assert first.container != second.container
    assert second.stdout.text.split() == ["0", "0"]


# A container that is not what was asked for.


DEVICE = {"PathOnHost": "/dev/null", "PathInContainer": "/dev/x", "CgroupPermissions": "r"}


def _weakened() -> list[tuple[str, Callable[[dict[str, Any], dict[str, Any]], Any]]]:
    """Each control, and a create call that leaves it out or alters it."""
    return [
        ("NetworkDisabled", lambda config, _: config.update(NetworkDisabled=False)),
        ("NetworkMode", lambda _, host: host.update(NetworkMode="host")),
        ("User", lambda config, _: config.update(User="0:0")),
        ("Entrypoint", lambda config, _: config.update(Entrypoint=["/bin/sh"])),
        ("Env", lambda config, _: config.update(Env=["LD_PRELOAD=/tmp/x.so"])),
        ("Privileged", lambda _, host: host.update(Privileged=True)),
        ("CapDrop", lambda _, host: host.pop("CapDrop")),
        ("CapAdd", lambda _, host: host.update(CapAdd=["SYS_ADMIN"])),
        ("SecurityOpt", lambda _, host: host.update(SecurityOpt=["no-new-privileges:true"])),
        ("SecurityOpt", lambda _, host: host.update(SecurityOpt=host["SecurityOpt"][1:])),
        ("SecurityOpt", lambda _, host: host.update(SecurityOpt=["no-new-privileges:true", "seccomp=unconfined"])),
        ("ReadonlyRootfs", lambda _, host: host.pop("ReadonlyRootfs")),
        ("Memory", lambda _, host: host.update(Memory=1 << 30, MemorySwap=1 << 30)),
        ("MemorySwap", lambda _, host: host.update(MemorySwap=-1)),
        ("PidsLimit", lambda _, host: host.pop("PidsLimit")),
        ("NanoCpus", lambda _, host: host.pop("NanoCpus")),
        ("Ulimits", lambda _, host: host.pop("Ulimits")),
        ("Tmpfs", lambda _, host: host.update(Tmpfs={"/tmp": ""})),
        ("Binds", lambda _, host: host.update(Binds=["/etc:/host:ro"])),
        ("Mounts", lambda config, _: config.update(Volumes={"/volume": {}})),
        ("Devices", lambda _, host: host.update(Devices=[DEVICE])),
        ("IpcMode", lambda _, host: host.update(IpcMode="host")),
        ("PidMode", lambda _, host: host.update(PidMode="host")),
        ("UTSMode", lambda config, host: (host.update(UTSMode="host"), config.pop("Hostname"))),
        ("CgroupnsMode", lambda _, host: host.update(CgroupnsMode="host")),
        ("LogConfig", lambda _, host: host.update(LogConfig={"Type": "json-file", "Config": {}})),
        ("MaskedPaths", lambda _, host: host.update(MaskedPaths=[])),
        ("ReadonlyPaths", lambda _, host: host.update(ReadonlyPaths=[])),
        ("GroupAdd", lambda _, host: host.update(GroupAdd=["0"])),
        ("OomKillDisable", lambda _, host: host.update(OomKillDisable=True)),
        ("AutoRemove", lambda _, host: host.update(AutoRemove=False)),
        ("StdinOnce", lambda config, _: config.update(StdinOnce=False)),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("control", "weaken"), _weakened(), ids=[f"{n}-{name}" for n, (name, _) in enumerate(_weakened())]
)
def test_a_container_without_a_control_is_noticed(
    sandbox: Sandbox, control: str, weaken: Callable[[dict[str, Any], dict[str, Any]], Any]
) -> None:
    seccomp = sandbox._read_once()[0]
    owner = str(Owner.current())
    engine = Engine.open()
    image = engine.image(sandbox._settings.image).id
    spec = ContainerSpec(image=image, shape=Shape.of(QUICK), seccomp=seccomp, owner=owner)
    config = spec.config()
    assert config["Labels"] == {LABEL_OWNER: owner}
    weaken(config, config["HostConfig"])
    container = engine.create(config, "")
    try:
        assert control in spec.differences(engine.inspect(container))
    finally:
        engine.remove(container)


def test_a_container_that_is_refused_never_gets_the_job_and_is_gone(settings: SandboxSettings) -> None:
    """An engine that drops a control: the run is refused, with its name."""

    class Forgetful(Engine):
        def create(self, config: Any, name: str) -> str:
            weak = {**config, "HostConfig": {**config["HostConfig"], "PidsLimit": 0}}
            return super().create(weak, name)

    with Sandbox.open(settings) as sandbox:
        sandbox._engine.__class__ = Forgetful
        outcome = run_python(sandbox, "print('ran')")
    assert (outcome.status, outcome.stdout.total) == (Status.INFRA_ERROR, 0)
    assert "PidsLimit" in outcome.error
    assert not containers(f"label=skillexec.owner={sandbox._owner}")


def test_an_engine_that_gives_a_network_all_the_same_is_asked_the_other_way(
    settings: SandboxSettings,
) -> None:
    with Sandbox.open(settings) as sandbox:
        sandbox._engine.__class__ = Careless
        outcome = run_shell(sandbox, "ls /sys/class/net")
    assert (outcome.status, outcome.stdout.data) == (Status.OK, b"lo\n")
    assert sandbox._network_mode == "none"


def test_the_bundle_is_all_that_a_script_gets(sandbox: Sandbox) -> None:
    bundle = make_bundle({"scripts/a.sh": "find /skill /work -type f | sort", "data.txt": "x"})
    outcome = sandbox.execute(bundle, script("scripts/a.sh"), limits=QUICK)
    assert outcome.stdout.text.split() == ["/skill/data.txt", "/skill/scripts/a.sh"]


def test_the_environment_holds_nothing_of_the_host(sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOST_SECRET", "mine")
    names = shown(sandbox, "sorted(os.environ)")
    assert set(names) <= {
        "PATH",
        "HOME",
        "TMPDIR",
        "LANG",
        "SKILLEXEC_IN",
        "SKILLEXEC_OUT",
        "SKILLEXEC_SKILL",
    }
