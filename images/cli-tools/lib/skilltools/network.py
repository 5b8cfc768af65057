"""Where a tool may connect to: public addresses only, checked after the name is resolved, then connected to as such.

Checking a name and letting something else resolve it again would leave the gap that DNS rebinding uses, so
callers get addresses and connect to those.
"""

from __future__ import annotations

import ipaddress
import os
import socket
import urllib.parse
from collections.abc import Sequence
from dataclasses import dataclass

from skilltools.program import NoNetwork, Refused, Upstream, Usage

# For tests. An agent can't set it: the environment of a run comes from the operator's side alone.
LOOPBACK_SETTING = "SKILLEXEC_ALLOW_LOOPBACK"
URL_MAX = 8192
_NAT64 = ipaddress.ip_network("64:ff9b::/96")
_PORTS = {"http": 80, "https": 443}

Address = ipaddress.IPv4Address | ipaddress.IPv6Address


@dataclass(frozen=True)
class Target:
    """A URL taken apart: where to connect, and what to ask for there."""

    url: str
    scheme: str
    host: str
    port: int
    path: str  # with the query

    @property
    def authority(self) -> str:
        """For the Host header: the port only where it is not the scheme's own."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == _PORTS[self.scheme] else f"{host}:{self.port}"


def loopback_allowed() -> bool:
    return os.environ.get(LOOPBACK_SETTING) == "1"


def _split(url: str) -> tuple[urllib.parse.SplitResult, str, int]:
    try:
        parts = urllib.parse.urlsplit(url)
        return parts, parts.hostname or "", parts.port or _PORTS.get(parts.scheme, 0)
    except ValueError as error:
        raise Usage(f"not a URL: {error}") from None


def _ascii_host(host: str) -> str:
    if ":" in host or host.isascii():
        return host
    try:
        return host.encode("idna").decode("ascii")
    except UnicodeError:
        raise Usage(f"not a host name: {host!r}") from None


def target(url: str, *, schemes: Sequence[str] = ("http", "https")) -> Target:
    """A URL, checked: scheme, length, no control characters, no credentials in it."""
    if len(url) > URL_MAX or any(ord(character) <= 32 or ord(character) == 127 for character in url):
        raise Usage(f"not a URL: longer than {URL_MAX} characters, or white space in it")
    parts, host, port = _split(url)
    if parts.scheme not in schemes:
        raise Refused(f"scheme not allowed: {parts.scheme or 'none'} (only {', '.join(schemes)})")
    if not host:
        raise Usage("not a URL: no host")
    if "@" in parts.netloc:
        raise Refused("credentials in a URL are not allowed")
    path = urllib.parse.quote(parts.path or "/", safe="/%:@!$&'()*+,;=~-._")
    query = urllib.parse.quote(parts.query, safe="/?%:@!$&'()*+,;=~-._[]")
    return Target(
        url=urllib.parse.urlunsplit(parts._replace(fragment="")),
        scheme=parts.scheme,
        host=_ascii_host(host),
        port=port,
        path=f"{path}?{query}" if query else path,
    )


def _embedded(address: ipaddress.IPv6Address) -> ipaddress.IPv4Address | None:
    """The IPv4 address that a transition form really leads to."""
    if address.ipv4_mapped or address.sixtofour:
        return address.ipv4_mapped or address.sixtofour
    if address.teredo:
        return address.teredo[1]
    return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF) if address in _NAT64 else None


def is_public(address: Address) -> bool:
    """Whether an address is on the open internet, through every spelling of it."""
    inner = _embedded(address) if isinstance(address, ipaddress.IPv6Address) else None
    if inner is not None:
        return is_public(inner)
    return address.is_global and not address.is_multicast and not address.is_reserved


def _check(host: str, address: Address) -> None:
    if is_public(address) or (address.is_loopback and loopback_allowed()):
        return
    raise Refused(f"{host} is at {address}, which is not a public address", host=host)


def _literal(host: str) -> Address | None:
    """The address that a host name spells out. Also the forms that the C library takes, such as 127.1 or 2130706433."""
    try:
        return ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        pass
    try:
        return ipaddress.IPv4Address(socket.inet_aton(host))
    except OSError:
        return None


def _routes(path: str, interface_column: int, skip: int) -> bool:
    with open(path, encoding="ascii") as table:
        return any(line.split()[interface_column] != "lo" for line in table.readlines()[skip:])


def granted() -> bool:
    """Whether there is any way out of this machine: a route that is not the loopback's."""
    try:
        return _routes("/proc/net/route", 0, 1) or _routes("/proc/net/ipv6_route", -1, 0)
    except OSError:
        return True  # can't tell: then connecting says it


def require() -> None:
    """Ends the tool at once where the run has no network, instead of letting names time out."""
    if not granted():
        raise NoNetwork(
            "no network granted: this run has no way out of its container",
            hint="an operator has to grant this skill the hosts that it names; retrying does not help",
        )


def _lookup(host: str, port: int) -> list[Address]:
    # The resolver's own patience (5 s, twice, per server) would outlast the deadline: a signal can't interrupt it.
    os.environ.setdefault("RES_OPTIONS", "timeout:3 attempts:2")
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (socket.gaierror, UnicodeError) as error:
        raise Upstream(f"no address for {host}: {error}", host=host) from None
    return [ipaddress.ip_address(str(entry[4][0]).partition("%")[0]) for entry in found]


def addresses(host: str, port: int) -> tuple[str, ...]:
    """The addresses of a host, every one of them allowed; refused as a whole where one is not."""
    literal = _literal(host)
    if literal is not None:
        _check(host, literal)
        if not literal.is_loopback:
            require()
        return (str(literal),)
    require()
    found = _lookup(host, port)
    for address in found:
        _check(host, address)
    return tuple(dict.fromkeys(str(address) for address in found))
