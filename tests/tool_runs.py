"""How tests run the image's tools: from the checkout with this Python, or installed, inside the image."""

from __future__ import annotations

import http.server
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

TOOLS = Path(__file__).resolve().parent.parent / "images" / "cli-tools" / "tools"
IMAGE = os.environ.get("SKILLEXEC_TEST_IMAGE", "skillexec/cli-tools:current")
NAMES = ("brave-search", "file-reader", "git-readonly-sync", "web-fetch")
# What the sandbox does, as far as `docker run` can say it in a line.
HARDENED = (
    *("--read-only", "--cap-drop", "ALL", "--security-opt", "no-new-privileges", "--user", "65532:65532"),
    *("--tmpfs", "/tmp", "--tmpfs", "/work:uid=65532,gid=65532", "--memory", "512m", "--pids-limit", "128"),
)


@dataclass(frozen=True)
class Ended:
    """How a tool ended: status, the one JSON object on stdout, and the line on stderr."""

    status: int
    document: Any
    stderr: str

    @property
    def error(self) -> Any:
        return self.document["error"]


def run(tool: str, *arguments: str, env: Mapping[str, str] | None = None, timeout: float = 30) -> Ended:
    """A tool of the checkout, with nothing in its environment but what the test gives it."""
    given = {"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8", **(env or {})}
    command = [sys.executable, str(TOOLS / tool), *arguments]
    done = subprocess.run(command, env=given, capture_output=True, timeout=timeout, stdin=subprocess.DEVNULL)
    return Ended(done.returncode, json.loads(done.stdout), done.stderr.decode())


def run_in_image(*command: str, stdin: str = "", options: tuple[str, ...] = ("--network", "none")) -> Any:
    """A command in a hardened container of the image: what it prints, as JSON."""
    started = ["docker", "run", "--rm", "-i", *HARDENED, *options, IMAGE, *command]
    done = subprocess.run(started, input=stdin, capture_output=True, text=True, timeout=60)
    assert done.stdout, done.stderr
    return json.loads(done.stdout)


@dataclass
class Reply:
    """What the test server answers."""

    body: bytes = b""
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    chunks: Iterator[bytes] | None = None  # instead of a body: sent one by one until the client leaves


@dataclass
class Site:
    """A real HTTP server on the loopback address. `replies` by path; a list is used up one by one."""

    url: str
    replies: dict[str, Reply | list[Reply]] = field(default_factory=dict)
    requests: list[tuple[str, dict[str, str]]] = field(default_factory=list)

    def reply(self, path: str) -> Reply:
        found = self.replies.get(path, Reply(b"nothing here", 404))
        return found.pop(0) if isinstance(found, list) else found


def _handler(site: Site) -> type[http.server.BaseHTTPRequestHandler]:
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            site.requests.append((self.path, {name.lower(): value for name, value in self.headers.items()}))
            reply = site.reply(self.path.partition("?")[0])
            self.send_response(reply.status)
            for name, value in reply.headers.items():
                self.send_header(name, value)
            self.end_headers()
            try:
                for piece in reply.chunks or [reply.body]:
                    self.wfile.write(piece)
            except OSError:
                pass  # the client has left, as it should

        def log_message(self, *_: object) -> None:
            pass

    return Handler


@contextmanager
def serving() -> Iterator[Site]:
    site = Site("")
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), _handler(site)) as server:
        server.daemon_threads = True
        site.url = f"http://127.0.0.1:{server.server_address[1]}"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield site
        finally:
            server.shutdown()
            thread.join()
