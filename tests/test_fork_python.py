"""A script that the launcher runs in a fork of its own interpreter can't tell that from `python3`.

Every script of the table runs once under a plain `python3`, started by a driver in one container, and
once in fork mode in a container of its own: output, errors and end must be the same byte for byte.
"""

from __future__ import annotations

import base64
import json
import re
from typing import Any

import pytest
from launching import Container, Run, job, run_job, run_jobs

from skillexec.model import Interpreter

ARGS = ["one", "two words", "\udcff"]
STDIN = "first line\nsecond ü\n".encode()

SCRIPTS: dict[str, str] = {
    "argv and paths": """
import sys, os
print(sys.argv, sys.orig_argv, sys.path, sys.executable, sys.prefix, os.getcwd())
print(__file__, __name__, __spec__, __package__, __doc__, type(__loader__).__name__, __loader__.path)
""",
    "names of main": "print(sorted(globals()), list(globals())[:6], type(__builtins__).__name__)",
    "main is in sys.modules": """
import sys, pickle
class Thing: pass
print(sys.modules['__main__'].__dict__ is globals(), type(pickle.loads(pickle.dumps(Thing()))))
""",
    "flags and settings": """
import sys, gc, signal, locale, threading
print(sys.flags, sys.warnoptions, sys._xoptions, sys.getrecursionlimit(), sys.getswitchinterval())
print(sys.getfilesystemencoding(), sys.getfilesystemencodeerrors(), sys.getdefaultencoding(), locale.getlocale())
print(gc.isenabled(), gc.get_threshold(), sys.dont_write_bytecode, sys.tracebacklimit if hasattr(sys, 'tracebacklimit') else None)
print(threading.current_thread().name, threading.active_count(), sys.excepthook is sys.__excepthook__, sys.gettrace())
print(hasattr(sys, 'last_traceback'), hasattr(sys, 'last_value'), sys.exc_info(), sys.meta_path, sys.path_hooks[0])
""",
    "environment": "import os; print(sorted(os.environ.items()), sorted(os.environb) == sorted(os.fsencode(k) for k in os.environ))",
    "environment of children": "import os; os.environ['A']='b'; os.system('env | sort | grep -v ^_=')",
    "signals": """
import signal
for number in sorted(signal.valid_signals()):
    print(number, signal.getsignal(number))
print(signal.pthread_sigmask(signal.SIG_BLOCK, []))
""",
    "streams": """
import sys
for s in (sys.stdin, sys.stdout, sys.stderr, sys.__stdin__, sys.__stdout__, sys.__stderr__):
    print(s, s.name, s.mode, s.encoding, s.errors, s.newlines, s.line_buffering, s.write_through, s.closed, s.isatty())
    print(s.buffer, s.buffer.raw, s.fileno(), s.seekable(), s.readable(), s.writable())
print(sys.stdin is sys.__stdin__, sys.stdout is sys.__stdout__)
""",
    "stdin": "import sys; print(repr(input('? ')), repr(sys.stdin.read()), repr(sys.stdin.read()))",
    "bad bytes": r"import sys; print('\udcff', repr(sys.argv[3])); sys.stderr.write('\udcff\n'); sys.stdout.buffer.write(b'\xff\0')",
    "interleaved without flushing": "import sys\nfor i in range(3): print('out', i); print('err', i, file=sys.stderr)\nprint('tail', end='')",
    "open descriptors": "import os; print(sorted(os.listdir('/proc/self/fd')))",
    "exception": "def f(x):\n    return 1 / x\n\nf(0)",
    "chained exception": "try:\n    {}['a']\nexcept KeyError as e:\n    raise ValueError('ü') from e",
    "syntax error": "print('never')\nif True\n    pass",
    "bad encoding": "# -*- coding: nonesuch -*-\nprint(1)",
    "declared encoding": b"# -*- coding: latin-1 -*-\nprint('\xe9')".decode("latin-1"),
    "missing module": "import nonesuch_module",
    "exit 0": "import sys; sys.exit()",
    "exit 3": "import sys; print('x'); sys.exit(3)",
    "exit None": "raise SystemExit(None)",
    "exit text": "import sys; sys.exit('no such file')",
    "exit tuple": "raise SystemExit((1, 2))",
    "exit -1": "import sys; sys.exit(-1)",
    "exit 256": "import sys; sys.exit(256)",
    "exit from a function in the site": "quit(5)",
    "os._exit": "import os, sys; print('lost'); os._exit(4)",
    "abort": "import os; os.abort()",
    "killed": "import os, signal; print('kept', flush=True); os.kill(os.getpid(), signal.SIGTERM)",
    "keyboard interrupt": "raise KeyboardInterrupt",
    "interrupted": "import os, signal, time\nos.kill(os.getpid(), signal.SIGINT)\ntime.sleep(1)",
    "interrupt caught": "import os, signal\ntry:\n    os.kill(os.getpid(), signal.SIGINT)\n    while True: pass\nexcept KeyboardInterrupt:\n    print('caught')",
    "broken pipe": "import sys, os\nr, w = os.pipe(); os.close(r)\ntry:\n    os.write(w, b'x')\nexcept BrokenPipeError as e:\n    print(e)",
    "closed stdout": "import sys\nprint('x')\nsys.stdout.close()",
    "stdout closed beneath": "import os\nprint('x')\nos.close(1)",
    "atexit order": "import atexit, sys\natexit.register(print, 'first')\natexit.register(print, 'second')\nprint('end')\nsys.exit(2)",
    "atexit count": "import atexit; print(atexit._ncallbacks())",
    "atexit that fails": "import atexit\natexit.register(lambda: 1/0)",
    "threads are joined": "import threading, time\nthreading.Thread(target=lambda: (time.sleep(0.2), print('late'))).start()\nprint('main ends')",
    "daemon threads are not": "import threading, time\nthreading.Thread(target=lambda: (time.sleep(20), print('late')), daemon=True).start()\nprint('main ends')",
    "exception in a thread": "import threading\nt = threading.Thread(target=lambda: 1/0, name='t'); t.start(); t.join()\nprint('on')",
    "main thread": "import threading; print(threading.current_thread() is threading.main_thread(), threading.main_thread().native_id == __import__('os').getpid())",
    "objects are finalised": "class End:\n    def __del__(self): print('deleted')\nend = End()",
    "unraisable": "class A:\n    def __del__(self): 1/0\nA()\nprint('on')",
    "recursion": "import traceback\ndef f(n): return f(n + 1)\ntry:\n    f(0)\nexcept RecursionError:\n    traceback.print_exc()",
    "recursion depth": "def f(n):\n    try:\n        return f(n + 1)\n    except RecursionError:\n        return n\nprint(f(0))",
    "the stack ends here": "import sys, inspect, traceback\nprint(len(inspect.stack()), sys._getframe().f_back)\ntraceback.print_stack()",
    "warnings": "import warnings\nwarnings.warn('careful')\nwarnings.warn('deeper', stacklevel=2)",
    "warning from syntax": "x = 1\nprint(x is 1)",
    "excepthook": "import sys\nsys.excepthook = lambda *a: print('hook', a[0].__name__, a[2].tb_frame.f_code.co_name)\n1/0",
    "subprocess": "import subprocess, sys\nprint(subprocess.run([sys.executable, '-c', 'import sys; print(sys.flags, sys.argv)'], capture_output=True, text=True))",
    "subprocess of bash": "import subprocess\nprint(subprocess.run('echo $0 $HOME; ulimit -c; umask; trap', shell=True, capture_output=True, text=True))",
    "os.fork": "import os, sys\npid = os.fork()\nif not pid:\n    print('child'); sys.exit(7)\nprint(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))",
    "multiprocessing fork": "import multiprocessing as mp\ndef f(x): return x * x\nif __name__ == '__main__':\n    with mp.get_context('fork').Pool(2) as pool: print(pool.map(f, range(5)))",
    "multiprocessing spawn": "import multiprocessing as mp\ndef f(x): return x * x\nif __name__ == '__main__':\n    with mp.get_context('spawn').Pool(1) as pool: print(pool.map(f, range(5)))",
    "futures": "from concurrent.futures import ThreadPoolExecutor\nwith ThreadPoolExecutor(2) as e: print(list(e.map(str, range(3))))",
    "asyncio": "import asyncio\nasync def main():\n    p = await asyncio.create_subprocess_exec('echo', 'hi'); await p.wait(); print('ok')\nasyncio.run(main())",
    "neighbour modules": "import sys; import neighbour; from pkg import inner; print(neighbour.X, neighbour.__file__, inner.Y); print('neighbour' in sys.modules)",
    "the launcher is nowhere": "import sys, gc\nprint([n for n in sys.modules if 'launcher' in n or 'skillexec' in n], [p for p in sys.path_importer_cache if 'skillexec' in p])",
    "optimisation and tracing": "import sys, tracemalloc, faulthandler\nprint(tracemalloc.is_tracing(), faulthandler.is_enabled(), __debug__, sys.getprofile())\nassert True",
    "random is fresh": "import random, os\nprint(len({random.random(), random.random()}))",
    "limits": "import resource\nprint([resource.getrlimit(n) for n in (resource.RLIMIT_CORE, resource.RLIMIT_NOFILE, resource.RLIMIT_FSIZE, resource.RLIMIT_STACK)])",
    "dumpable": "import os\nprint(os.stat('/proc/self/mem').st_uid == os.getuid(), open('/proc/self/oom_score_adj').read())",
    "help and site": "import site, builtins\nprint(site.ENABLE_USER_SITE, site.USER_BASE, site.USER_SITE, type(help).__name__)",
    "interactive bits": "import sys\nprint(hasattr(sys, 'ps1'), sys.stdin.isatty(), sys.flags.interactive)",
    "logging": "import logging\nlogging.basicConfig(level=logging.INFO)\nlogging.info('hello')\nlogging.getLogger('x').error('bad', stack_info=True)",
    "argparse error": "import argparse\np = argparse.ArgumentParser(); p.add_argument('--n', type=int, required=True); p.parse_args()",
    "dataclass and typing": "from __future__ import annotations\nfrom dataclasses import dataclass\nimport typing\n@dataclass\nclass A:\n    x: int = 1\nprint(A(), typing.get_type_hints(A), A.__module__)",
}  # fmt: skip

FILES: dict[str, str | bytes] = {
    "scripts/neighbour.py": "X = 1",
    "scripts/pkg/__init__.py": "",
    "scripts/pkg/inner.py": "Y = 2",
    "app/__init__.py": "",
    "app/__main__.py": "import sys; print('main of app', sys.argv, sys.path[0], __name__, __package__, __spec__.name); sys.exit(6)",
    "app/fails.py": "def f(): raise ValueError('deep')\nf()",
    "app/interrupted.py": "raise KeyboardInterrupt",
    "app/ends.py": "import atexit\natexit.register(print, 'bye')\nprint('x', end='')",
    "app/texted.py": "import sys; sys.exit('sorry')",
}
MODULES = [
    "app",
    "app.fails",
    "app.interrupted",
    "app.ends",
    "app.texted",
    "app.nonesuch",
    "json.tool",
    "this",
]

DRIVER = """
import base64, json, subprocess, sys
order = json.load(open('order.json'))
results = []
for words in order['words']:
    done = subprocess.run(words + sys.argv[1:], input=base64.b64decode(order['stdin']), capture_output=True, start_new_session=True)
    results.append([base64.b64encode(done.stdout).decode(), base64.b64encode(done.stderr).decode(), done.returncode])
print(json.dumps(results))
"""


def files() -> dict[str, str | bytes]:
    scripts: dict[str, str | bytes] = {
        f"scripts/s{number}.py": text.encode("latin-1" if "latin-1" in text else "utf-8")
        for number, text in enumerate(SCRIPTS.values())
    }
    return {**FILES, **scripts}


@pytest.fixture(scope="module")
def plain() -> dict[str, tuple[bytes, bytes, int]]:
    """What `python3` itself does with every script and module of the table."""
    words = [["python3", f"scripts/s{number}.py"] for number in range(len(SCRIPTS))]
    words += [["python3", "-m", name] for name in MODULES]
    order = json.dumps({"words": words, "stdin": base64.b64encode(STDIN).decode()})
    run = run_job(job({**files(), "driver.py": DRIVER, "order.json": order}, "driver.py", ARGS, seconds=60))
    assert (run.stderr, run.ended.exit_code) == (b"", 0)
    rows: list[Any] = json.loads(run.stdout)
    results = [(base64.b64decode(out), base64.b64decode(err), code) for out, err, code in rows]
    return dict(zip([*SCRIPTS, *MODULES], results, strict=True))


@pytest.fixture(scope="module")
def forked() -> dict[str, tuple[bytes, bytes, int]]:
    """The same in fork mode: each in a container of its own, a few at a time."""
    wanted = [
        job(files(), f"scripts/s{number}.py", ARGS, stdin=STDIN, fork=True) for number in range(len(SCRIPTS))
    ]
    wanted += [job(files(), name, ARGS, kind=Interpreter.MODULE, stdin=STDIN, fork=True) for name in MODULES]
    return dict(zip([*SCRIPTS, *MODULES], map(ending, run_jobs(wanted)), strict=True))


def ending(run: Run) -> tuple[bytes, bytes, int]:
    exit_ = run.ended
    assert exit_.reason == "exited", exit_
    code = -exit_.signal if exit_.signal is not None else exit_.exit_code
    assert code is not None
    return run.stdout, run.stderr, code


def without_addresses(result: tuple[bytes, bytes, int]) -> tuple[bytes, bytes, int]:
    stdout, stderr, code = result
    return re.sub(rb"0x[0-9a-f]{8,}", b"0x", stdout), re.sub(rb"0x[0-9a-f]{8,}", b"0x", stderr), code


@pytest.mark.parametrize("name", [*SCRIPTS, *MODULES])
def test_a_script_can_not_tell_a_fork_from_a_fresh_interpreter(
    name: str, plain: dict[str, tuple[bytes, bytes, int]], forked: dict[str, tuple[bytes, bytes, int]]
) -> None:
    assert without_addresses(forked[name]) == without_addresses(plain[name])


FORKED = "import sys; print('json' in sys.modules)"  # a fresh Python has not imported it yet


@pytest.mark.parametrize(
    ("what", "target", "env", "forked"),
    [
        ("a plain script", "x.py", {}, True),
        ("by its shebang", "env", {}, True),
        ("an option in the shebang", "options", {}, False),
        ("a variable that Python reads at its start", "x.py", {"PYTHONHASHSEED": "1"}, False),
        ("another time zone", "x.py", {"TZ": "Asia/Tokyo"}, False),
        ("a secret", "x.py", {"TOKEN": "x"}, True),
        ("a neighbour with the name of a module that is loaded", "shadowed/x.py", {}, False),
    ],
)
def test_only_what_a_fork_can_imitate_is_forked(
    what: str, target: str, env: dict[str, str], forked: bool
) -> None:
    contents: dict[str, str | bytes] = {
        "x.py": FORKED,
        "env": "#!/usr/bin/env python3\r\n" + FORKED,
        "options": "#!/usr/bin/env -S python3 -u\n" + FORKED,
        "shadowed/x.py": FORKED,
        "shadowed/argparse.py": "",
    }
    run = run_job(job(contents, target, env=env, fork=True))
    assert run.result == (f"{forked}\n".encode(), b"", 0, None), what


def test_a_neighbour_shadows_the_standard_library_as_it_does_for_python() -> None:
    contents: dict[str, str | bytes] = {"x.py": "import json; print(json.MINE)", "json.py": "MINE = 'mine'"}
    assert run_job(job(contents, "x.py", fork=True)).result == (b"mine\n", b"", 0, None)


def test_without_the_setting_nothing_is_forked() -> None:
    assert run_job(job({"x.py": FORKED}, "x.py", fork=False)).stdout == b"False\n"


def test_an_interpreter_that_was_started_otherwise_does_not_offer_to_fork() -> None:
    with Container("--env=PYTHONUNBUFFERED=1") as container:
        assert not container.wait_ready().fork_python
        container.send(
            job({"x.py": FORKED + "; import os; print(os.environ.get('PYTHONUNBUFFERED'))"}, "x.py")
        )
        assert container.finish().stdout == b"False\nNone\n"


def test_a_tool_that_is_a_python_program_is_forked_and_can_not_tell_either() -> None:
    runs = [
        run_job(job({}, "file-reader", ["--help"], kind=Interpreter.TOOL, fork=fork))
        for fork in (False, True)
    ]
    assert runs[0].result == runs[1].result
    assert b"file-reader" in runs[0].stdout


def test_files_that_a_script_left_open_are_complete() -> None:
    source = "import os\nf = open(os.environ['SKILLEXEC_OUT'] + '/left', 'w')\nf.write('x' * 10)"
    (artifact,) = run_job(job({"x.py": source}, "x.py", fork=True)).artifacts
    assert artifact.data == b"x" * 10
