"""The seccomp profile, on the real engine: what it refuses, and that what skills need works under it.

The refused calls are made as root with the capabilities that they ask for, so that nothing but the profile can
refuse them; and once more without it, so that a call which the kernel would refuse anyway can't pass for a success
of ours. Their arguments are such that none of them does anything.
"""

from __future__ import annotations

import json
import platform
import subprocess
from typing import Any

import pytest

from skillexec.config import Sandbox
from skillexec.images import seccomp_profile
from skillexec.shipped import shipped

PROFILE = shipped("images") / "seccomp.json"
EPERM, ENOSYS, SIGSYS = 1, 38, 31
NEWUSER, NEWNET, NEWNS, SIGCHLD = 0x10000000, 0x40000000, 0x00020000, 17
TIOCSTI, TIOCLINUX = 0x5412, 0x541C
BAD = 0xFFFF_FFFF
# Those that the calls below ask for. Not ALL: an engine that is itself confined can't give all of them.
CAPABILITIES = [
    "SYS_ADMIN",
    "SYS_PTRACE",
    "SYS_CHROOT",
    "SYS_BOOT",
    "SYS_MODULE",
    "SYS_TIME",
    "SYSLOG",
    "NET_ADMIN",
    "NET_RAW",
    "MKNOD",
]

# name -> number and arguments, x86-64
CALLS: dict[str, tuple[int, ...]] = {
    "ptrace": (101, 0, 0, 0, 0),
    "process_vm_readv": (310, 0, 0, 0, 0, 0, BAD),
    "process_vm_writev": (311, 0, 0, 0, 0, 0, BAD),
    "kcmp": (312, 0, 0, BAD, 0, 0),
    "pidfd_getfd": (438, BAD, 0, BAD),
    "unshare a user namespace": (272, NEWUSER),
    "unshare a network namespace": (272, NEWNET),
    "setns": (308, BAD, 0),
    "clone into a user namespace": (56, NEWUSER | SIGCHLD, 0, 0, 0, 0),
    "clone into a mount namespace": (56, NEWNS | SIGCHLD, 0, 0, 0, 0),
    "mount": (165, 0, 0, 0, 0, 0),
    "umount2": (166, 0, 0),
    "pivot_root": (155, 0, 0),
    "chroot": (161, 0),
    "fsopen": (430, 0, 0),
    "open_tree": (428, BAD, 0, BAD),
    "move_mount": (429, BAD, 0, BAD, 0, BAD),
    "mount_setattr": (442, BAD, 0, BAD, 0, 0),
    "open_by_handle_at": (304, BAD, 0, 0),
    "name_to_handle_at": (303, BAD, 0, 0, 0, BAD),
    "bpf": (321, BAD, 0, 0),
    "perf_event_open": (298, 0, 0, 0, 0, 0),
    "userfaultfd": (323, BAD),
    "io_uring_setup": (425, 0, 0),
    "io_uring_enter": (426, BAD, 0, 0, 0, 0),
    "io_uring_register": (427, BAD, BAD, 0, 0),
    "io_setup": (206, 0, 0),
    "add_key": (248, 0, 0, 0, 0, 0),
    "request_key": (249, 0, 0, 0, 0),
    "keyctl": (250, BAD, 0, 0, 0, 0),
    "kexec_load": (246, 0, 0, 0, BAD),
    "init_module": (175, 0, 0, 0),
    "finit_module": (313, BAD, 0, BAD),
    "delete_module": (176, 0, 0),
    "reboot": (169, 0, 0, 0, 0),
    "swapon": (167, 0, 0),
    "syslog": (103, BAD, 0, 0),
    "settimeofday": (164, 0, 0),
    "clock_settime": (227, BAD, 0),
    "sethostname": (170, 0, BAD),
    "quotactl": (179, BAD, 0, 0, 0),
    "fanotify_init": (300, BAD, BAD),
    "vmsplice": (278, BAD, 0, 0, 0),
    "mbind": (237, 0, 0, BAD, 0, 0, BAD),
    "move_pages": (279, 0, 0, 0, 0, 0, BAD),
    "shmget": (29, 0, 0, 0),
    "msgget": (68, 0x7E57, 0),
    "mq_open": (240, 0, 0, 0, 0),
    "modify_ldt": (154, BAD, 0, 0),
    "setuid": (105, 0),
    "setgroups": (116, BAD, 0),
    "capset": (126, 0, 0),
    "seccomp": (317, BAD, 0, 0),
    "personality of 32-bit Linux": (135, 8),
    "a socket for AF_ALG": (41, 38, 5, 0),
    "a socket for AF_VSOCK": (41, 40, 1, 0),
    "a socket for AF_NETLINK": (41, 16, 3, 0),
    "a socket for AF_PACKET": (41, 17, 3, 0),
    "a socket for AF_BLUETOOTH": (41, 31, 1, 0),
    "a raw IP socket": (41, 2, 3, 1),
    "an SCTP socket": (41, 2, 5, 132),
    "an MPTCP socket": (41, 2, 1, 262),
    "an address family with high bits set": (41, (1 << 32) | 38, 5, 0),
    "a socketpair other than AF_UNIX": (53, 2, 1, 0, 0),
    "TIOCSTI": (16, 0, TIOCSTI, 0),
    "TIOCSTI with high bits set": (16, 0, (1 << 32) | TIOCSTI, 0),
    "TIOCLINUX": (16, 0, TIOCLINUX, 0),
    "mknod of a device": (133, 0, 0o020666, 0),
    "mknodat of a device": (259, BAD, 0, 0o020666, 0),
}
CLONE3 = {"clone3": (435, 0, 0)}

MAKE_CALLS = r"""
import ctypes, json, os, sys
libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long
answers = {}
for name, call in json.loads(sys.argv[1]).items():
    sys.stdout.flush()
    child = os.fork()  # each in a process of its own: some change the caller where they succeed
    if child == 0:
        result = libc.syscall(*(ctypes.c_long(word) for word in call))
        os._exit(ctypes.get_errno() if result == -1 else 0)
    _, status = os.waitpid(child, 0)
    answers[name] = -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
json.dump(answers, sys.stdout)
"""

# getpid by the 32-bit gate (number 20) and by the x32 table (number 39 and a bit), as machine code.
OTHER_DOORS = r"""
import ctypes, json, mmap, os, sys
codes = {
    "int 0x80": bytes([0x53, 0xB8, 20, 0, 0, 0, 0xCD, 0x80, 0x5B, 0xC3]),
    "x32": bytes([0xB8, 39, 0, 0, 0x40, 0x0F, 0x05, 0xC3]),
    "ordinary": bytes([0xB8, 39, 0, 0, 0, 0x0F, 0x05, 0xC3]),
}
answers = {}
for name, code in codes.items():
    child = os.fork()
    if child == 0:
        memory = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
        memory.write(code)
        call = ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(memory)))
        os._exit(99 if call() == os.getpid() else 1)
    _, status = os.waitpid(child, 0)
    answers[name] = os.waitstatus_to_exitcode(status)
json.dump(answers, sys.stdout)
"""

x86_only = pytest.mark.skipif(platform.machine() != "x86_64", reason="the call numbers are those of x86-64")


def _docker(*options: str, command: list[str], seconds: int = 60) -> subprocess.CompletedProcess[str]:
    hardened = ["--rm", "--network=none", "--security-opt=no-new-privileges", "--read-only"]
    mounts = ["--tmpfs=/tmp:exec,uid=65532", "--tmpfs=/work:exec,uid=65532", "--tmpfs=/skill:exec,uid=65532"]
    argv = [
        "docker",
        "run",
        *hardened,
        *mounts,
        "--workdir=/tmp",
        "-e",
        "HOME=/work",
        *options,
        Sandbox().image,
        *command,
    ]
    return subprocess.run(argv, capture_output=True, text=True, timeout=seconds)


def _all_powerful(profile: str, program: str, *arguments: str) -> dict[str, int]:
    options = (
        "--user=0:0",
        *(f"--cap-add={name}" for name in CAPABILITIES),
        f"--security-opt=seccomp={profile}",
    )
    done = _docker(*options, command=["python3", "-c", program, *arguments])
    assert done.returncode == 0, done.stderr
    answers: dict[str, int] = json.loads(done.stdout)
    return answers


@pytest.fixture(scope="module")
def refused() -> dict[str, int]:
    """Each call's errno under the profile."""
    return _all_powerful(str(PROFILE), MAKE_CALLS, json.dumps({**CALLS, **CLONE3}))


@pytest.fixture(scope="module")
def unfiltered() -> dict[str, int]:
    """Each call's errno without it."""
    return _all_powerful("unconfined", MAKE_CALLS, json.dumps({**CALLS, **CLONE3}))


@x86_only
@pytest.mark.parametrize("name", CALLS)
def test_the_profile_refuses(name: str, refused: dict[str, int], unfiltered: dict[str, int]) -> None:
    assert refused[name] == EPERM
    assert unfiltered[name] != EPERM, "the kernel refuses this by itself: the test proves nothing"


@x86_only
def test_clone3_is_said_not_to_exist_so_that_libc_falls_back_to_clone(
    refused: dict[str, int], unfiltered: dict[str, int]
) -> None:
    assert refused["clone3"] == ENOSYS
    assert unfiltered["clone3"] != ENOSYS


@x86_only
def test_no_other_door_into_the_kernel_is_open() -> None:
    answers = _all_powerful(str(PROFILE), OTHER_DOORS)
    assert answers["ordinary"] == 99, "the machine code itself works"
    assert answers["int 0x80"] != 99
    assert answers["x32"] != 99


@pytest.fixture(scope="module")
def profile() -> dict[str, Any]:
    document: dict[str, Any] = json.loads(seccomp_profile())
    return document


def test_what_is_not_listed_is_refused(profile: dict[str, Any]) -> None:
    assert profile["defaultAction"] == "SCMP_ACT_ERRNO"


def test_no_architecture_brings_a_second_one_along(profile: dict[str, Any]) -> None:
    assert all(entry["subArchitectures"] == [] for entry in profile["archMap"])
    assert "architectures" not in profile


def test_every_rule_says_why_it_is_there(profile: dict[str, Any]) -> None:
    assert all(rule["comment"].strip() for rule in profile["syscalls"])


def test_no_call_is_allowed_by_two_rules_of_which_one_is_unconditional(profile: dict[str, Any]) -> None:
    plain = {name for rule in profile["syscalls"] if "args" not in rule for name in rule["names"]}
    filtered = {name for rule in profile["syscalls"] if "args" in rule for name in rule["names"]}
    assert not plain & filtered


PYTHON = """
import asyncio, multiprocessing, os, pty, shutil, socket, subprocess, sys, tempfile, threading, time

def double(number): return 2 * number

if __name__ == "__main__":
    assert subprocess.run(["echo", "hello"], capture_output=True).stdout == b"hello\\n"
    started = []
    threads = [threading.Thread(target=started.append, args=(n,)) for n in range(8)]
    [thread.start() for thread in threads]; [thread.join() for thread in threads]
    assert sorted(started) == list(range(8))
    for method in ("fork", "spawn", "forkserver"):
        with multiprocessing.get_context(method).Pool(2) as pool:
            assert pool.map(double, [1, 2, 3]) == [2, 4, 6]
    async def child(): return await (await asyncio.create_subprocess_exec("true")).wait()
    assert asyncio.run(child()) == 0
    os.mkfifo("/tmp/fifo")
    parent, other = pty.openpty()
    assert os.isatty(other)
    with tempfile.NamedTemporaryFile() as file: shutil.copy2(file.name, "/tmp/copy")
    server = socket.create_server(("127.0.0.1", 0))
    socket.create_connection(server.getsockname()).close()
    socket.socket(socket.AF_INET6, socket.SOCK_DGRAM).close()
    left, right = socket.socketpair()
    os.memfd_create("x"); os.getrandom(8); os.sched_getaffinity(0); time.sleep(0.001)
    print("fine")
"""
NODE = """
const { execFileSync, spawn } = require("child_process"); const { Worker } = require("worker_threads");
const fs = require("fs"); const net = require("net"); const zlib = require("zlib");
if (execFileSync("echo", ["hello"]).toString() !== "hello\\n") process.exit(1);
fs.copyFileSync("/etc/passwd", "/tmp/copy"); fs.watch("/tmp").close(); zlib.gzipSync("x");
const server = net.createServer(socket => socket.end("hi")).listen(0, "127.0.0.1", () => {
  net.connect(server.address().port, "127.0.0.1").on("data", () => {
    server.close();
    new Worker("require('worker_threads').parentPort.postMessage('fine')", { eval: true })
      .on("message", text => console.log(text));
  });
});
"""
PDF = """
python3 -c 'from reportlab.pdfgen.canvas import Canvas; c = Canvas("a.pdf"); c.drawString(99, 99, "fine"); c.save()'
qpdf --check a.pdf >/dev/null
pdftoppm -r 20 -png a.pdf page
pdftotext a.pdf - | tr -d '\\f\\n'
"""
GIT = """
git init -q one && cd one && git config user.email a@b.c && git config user.name a
echo 1 >file && git add file && git commit -qm first && git gc -q && git clone -q . ../two
git -C ../two log --format=%s && git grep -q 1
"""
IMPORTED = "export const word: string = process.argv[2]"
TYPESCRIPT = """
import { fileURLToPath } from "node:url";
import { word } from "./b";
const __filename: string = fileURLToPath(import.meta.url);
interface Said { text: string }
const said: Said = await Promise.resolve({ text: word });
if (__filename !== "/tmp/a.ts" || process.argv[1] !== "/tmp/a.ts" || __dirname !== "/tmp") process.exit(1);
console.log(said.text);
"""
BASH = """
cat <(echo fine) | { read -r line; sleep 0.01 & wait; echo "$line"; }
[ "$(nproc)" -gt 0 ]
"""
ARCHIVES = """
cp -a /etc/passwd f; tar cJf f.tar.xz f; tar xJf f.tar.xz; zip -q f.zip f; unzip -qo f.zip
cmp f /etc/passwd && echo fine
"""
DATA = """
sqlite3 a.db 'create table t(a); insert into t values(1)'
rg -q root /etc/passwd
file -bL /bin/sh | grep -q ELF
echo '{"a": "fine"}' | jq -r .a
"""
# what it is -> a shell line that runs $0, and $0
WORKS = {
    "python": ('printf %s "$0" >p.py; python3 p.py', PYTHON),
    "node": ('node -e "$0"', NODE),
    "typescript": (f"echo '{IMPORTED}' >b.ts; printf %s \"$0\" >a.ts; tsx a.ts fine", TYPESCRIPT),
    "bash": ('bash -ec "$0"', BASH),
    "git": ('bash -ec "$0" | sed s/first/fine/', GIT),
    "pandoc": ('echo "$0" | pandoc -f markdown -t docx -o a.docx; pandoc -t plain a.docx', "**fine**"),
    "pdf": ('bash -ec "$0"', PDF),
    "archives": ('bash -ec "$0"', ARCHIVES),
    "data": ('bash -ec "$0"', DATA),
}


@pytest.mark.parametrize("name", WORKS)
def test_what_skills_need_works_under_the_profile(name: str) -> None:
    shell, program = WORKS[name]
    options = ("--user=65532:65532", "--cap-drop=ALL", f"--security-opt=seccomp={PROFILE}")
    done = _docker(*options, command=["bash", "-o", "pipefail", "-ec", shell, program])
    assert (done.returncode, done.stdout.strip()) == (0, "fine"), done.stderr
