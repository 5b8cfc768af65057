"""The Docker Engine API over its Unix socket: one connection per call, nothing shared between threads or forks.

The official SDK does the image's work (skillexec/images). It takes 85 ms to import, a quarter of what `skillexec run`
takes from the shell, and the six calls of a run need no more than the standard library has.
"""

from __future__ import annotations

import http.client
import json
import socket
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote, urlencode

_ANSWER_MAX = 64 << 20  # what an engine may answer at most


class ApiError(Exception):
    """The engine answered, and refused."""

    def __init__(self, status: int, explanation: str) -> None:
        super().__init__(explanation)
        self.status = status
        self.explanation = explanation


class _Connection(http.client.HTTPConnection):
    """HTTP to a socket file instead of a host."""

    def __init__(self, path: str, seconds: float) -> None:
        super().__init__("docker", timeout=seconds)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        try:
            self.sock.settimeout(self.timeout)
            self.sock.connect(self._path)
        except BaseException:
            self.sock.close()
            raise


def _explanation(body: bytes) -> str:
    try:
        return str(json.loads(body)["message"])
    except (ValueError, KeyError, TypeError):
        return body.decode("utf-8", "replace")[:1000]


def path_of(*parts: str) -> str:
    """A path of these parts. Without a version: the engine then speaks its newest."""
    return "/" + "/".join(quote(part, safe="") for part in parts)


def call(
    address: str,
    method: str,
    path: str,
    *,
    seconds: float,
    query: Mapping[str, str | int] | None = None,
    body: Mapping[str, Any] | None = None,
) -> bytes:
    """The body of the engine's answer. Raises ApiError where it refuses, OSError or HTTPException where it is lost."""
    connection = _Connection(address, seconds)
    try:
        target = f"{path}?{urlencode(query)}" if query else path
        content = None if body is None else json.dumps(body)
        connection.request(method, target, body=content, headers={"Content-Type": "application/json"})
        answer = connection.getresponse()
        data = answer.read(_ANSWER_MAX)
    finally:
        connection.close()
    if answer.status >= 300 and answer.status != 304:  # 304: it is so already
        raise ApiError(answer.status, _explanation(data))
    return data
