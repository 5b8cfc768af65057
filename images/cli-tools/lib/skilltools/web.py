"""One bounded GET: to checked addresses, few redirects that are checked again, no more bytes than asked for."""

from __future__ import annotations

import http.client
import socket
import ssl
import urllib.parse
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from skilltools import network
from skilltools.program import Refused, Upstream

_CHUNK = 64 << 10
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
USER_AGENT = "skillexec-tools/1.0"


@dataclass(frozen=True)
class Answer:
    """What came back. `truncated`: the body was longer than asked for."""

    url: str
    status: int
    headers: Mapping[str, str]  # names in lower case
    body: bytes
    truncated: bool


class _Connection(http.client.HTTPConnection):
    """Connects to addresses that were checked, whatever the name would resolve to by now."""

    def __init__(self, target: network.Target, *, timeout: float) -> None:
        super().__init__(target.host, target.port, timeout=timeout)
        self._target = target

    def _open(self) -> socket.socket:
        failure: OSError | None = None
        for address in network.addresses(self._target.host, self._target.port):
            try:
                return socket.create_connection((address, self._target.port), self.timeout)
            except OSError as error:
                failure = error
        raise Upstream(f"can't connect to {self._target.host}: {failure}", host=self._target.host)

    def connect(self) -> None:
        raw = self._open()
        if self._target.scheme == "https":
            # The name is still what the certificate has to be for.
            raw = ssl.create_default_context().wrap_socket(raw, server_hostname=self._target.host)
        self.sock = raw


def _decoder(encoding: str) -> zlib._Decompress | None:
    if encoding in {"", "identity"}:
        return None
    if encoding in {"gzip", "x-gzip", "deflate"}:
        return zlib.decompressobj(wbits=47)  # gzip or zlib, by its header
    raise Upstream(f"content encoding not understood: {encoding}")


def _received(response: http.client.HTTPResponse) -> Iterator[bytes]:
    """The body as it comes. Reading in pieces, http.client says nothing of a body that ends too early."""
    missing = response.length
    while piece := response.read1(_CHUNK):
        missing = None if missing is None else missing - len(piece)
        yield piece
    if missing:
        raise Upstream(f"the answer ended {missing} bytes too early")


def _unpacked(response: http.client.HTTPResponse) -> Iterator[bytes]:
    """The body in pieces of bounded size: a small body can't unfold into a huge one unseen."""
    decoder = _decoder(response.headers.get("Content-Encoding", "").strip().lower())
    for packed in _received(response):
        if decoder is None:
            yield packed
            continue
        left = packed
        while left:
            yield decoder.decompress(left, _CHUNK)
            left = decoder.unconsumed_tail
    if decoder is not None:
        yield decoder.flush()


def _body(response: http.client.HTTPResponse, max_bytes: int) -> tuple[bytes, bool]:
    body = bytearray()
    for piece in _unpacked(response):
        body += piece
        if len(body) > max_bytes:
            return bytes(body[:max_bytes]), True
    return bytes(body), False


def _once(target: network.Target, headers: Mapping[str, str], *, timeout: float, max_bytes: int) -> Answer:
    connection = _Connection(target, timeout=timeout)
    sent = {"Host": target.authority, "User-Agent": USER_AGENT, "Accept-Encoding": "gzip", **headers}
    try:
        connection.request("GET", target.path, headers=sent)
        response = connection.getresponse()
        redirect = response.status in _REDIRECTS
        body, truncated = (b"", False) if redirect else _body(response, max_bytes)
    except (OSError, http.client.HTTPException, zlib.error) as error:
        raise Upstream(f"{target.host}: {error or type(error).__name__}", host=target.host) from None
    finally:
        connection.close()
    received = {name.lower(): value for name, value in response.headers.items()}
    return Answer(target.url, response.status, received, body, truncated)


def get(
    url: str, *, headers: Mapping[str, str], timeout: float, max_bytes: int, redirects: int = 5
) -> Answer:
    """The answer at the end of at most `redirects` redirects; with none allowed, a redirect is the answer."""
    for _ in range(redirects + 1):
        answer = _once(network.target(url), headers, timeout=timeout, max_bytes=max_bytes)
        location = answer.headers.get("location")
        if answer.status not in _REDIRECTS or not location or not redirects:
            return answer
        # Servers do send spaces and letters beyond ASCII here.
        url = urllib.parse.urljoin(url, urllib.parse.quote(location.strip(), safe="/?#%:@!$&'()*+,;=~-._[]"))
    raise Refused(f"more than {redirects} redirects", last=url)
