"""Whom a connection may reach: addresses of the public internet, and what the configuration allows besides.

A crawler follows what strangers write, so any URL may name a machine behind the firewall (SSRF), be it by an address
in one of its many spellings or by a host name that resolves to one. Three checks, each enough for what it sees:

- the URL, before anything is sent (`Guard.check_url`);
- every address that a host name resolves to (`GuardedResolver`): one that is not public spoils the name, since a name
  with both kinds is an attack or a mistake;
- the very address that a socket is about to be connected to (`Guard.open_socket`), so that an answer that changes
  between check and use (DNS rebinding) gains nothing.
"""

from __future__ import annotations

import asyncio
import ipaddress
import re
import socket
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import yarl
from aiohttp.abc import AbstractResolver, ResolveResult

from corpus.crawl.config import NetworkConfig
from corpus.engine.errors import UsageError

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
GetAddressInfo = Callable[..., list[tuple[Any, ...]]]

# https://www.iana.org/assignments/iana-ipv4-special-registry, without what is globally reachable
_SPECIAL_V4 = tuple(
    ipaddress.IPv4Network(text)
    for text in (
        "0.0.0.0/8",  # this host
        "10.0.0.0/8",  # private
        "100.64.0.0/10",  # carrier-grade NAT; 100.100.100.200 is Alibaba Cloud's metadata
        "127.0.0.0/8",  # loopback
        "168.63.129.16/32",  # Azure's metadata: public by its number only
        "169.254.0.0/16",  # link-local; 169.254.169.254 is most clouds' metadata
        "172.16.0.0/12",  # private
        "192.0.0.0/24",  # protocol assignments
        "192.0.2.0/24",  # documentation
        "192.88.99.0/24",  # 6to4 relays, deprecated
        "192.168.0.0/16",  # private
        "198.18.0.0/15",  # benchmarks
        "198.51.100.0/24",  # documentation
        "203.0.113.0/24",  # documentation
        "224.0.0.0/4",  # multicast
        "240.0.0.0/4",  # reserved; broadcast
    )
)
# https://www.iana.org/assignments/iana-ipv6-special-registry, the same; outside 2000::/3 nothing is public
_GLOBAL_V6 = ipaddress.IPv6Network("2000::/3")
_SPECIAL_V6 = tuple(
    ipaddress.IPv6Network(text)
    for text in (
        "2001::/23",  # protocol assignments, with benchmarks and ORCHID
        "2001:db8::/32",  # documentation
        "3fff::/20",  # documentation
    )
)
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
_ISATAP = (0x00005EFE, 0x02005EFE)  # the upper half of the interface identifier (RFC 5214, section 6.1)

MAX_ADDRESSES = 8
"""Of a host that are tried; names with hundreds exist to keep a client busy."""
RESOLVER_THREADS = 32
_DNS_LABEL = re.compile(r"[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?", re.IGNORECASE)
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*", re.IGNORECASE)


class Refused(ValueError):
    """A URL or an address that may not be reached: `kind` is `bad_url`, `port` or `address`."""

    def __init__(self, kind: str, detail: str) -> None:
        super().__init__(detail)
        self.kind = kind
        self.detail = detail


def is_public(address: Address | str) -> bool:
    """Whether an address belongs to the public internet.

    IPv6 addresses that carry an IPv4 address are judged by that one too, since a gateway may send the packet there.

    Raises:
        ValueError: not an address in its usual form (`127.1` and `0x7f000001` are not).
    """
    address = ipaddress.ip_address(address)
    if isinstance(address, ipaddress.IPv4Address):
        return not any(address in network for network in _SPECIAL_V4)
    if address.scope_id is not None:  # a zone (`%eth0`) is a matter of this machine
        return False
    carried = _carried(address)
    if not all(map(is_public, carried)):
        return False
    if carried and (address not in _GLOBAL_V6 or address.sixtofour or address.teredo):
        return True
    return address in _GLOBAL_V6 and not any(address in network for network in _SPECIAL_V6)


def _carried(address: ipaddress.IPv6Address) -> list[ipaddress.IPv4Address]:
    """The IPv4 addresses inside an IPv6 address.

    IPv4-compatible ones (::/96, deprecated) and NAT64 of one's own (64:ff9b:1::/48) are not public in any case.
    """
    if address.teredo:
        return list(address.teredo)  # server and client
    carried = [embedded for embedded in (address.ipv4_mapped, address.sixtofour) if embedded]
    number = int(address)
    if address in _NAT64 or number >> 32 & 0xFFFFFFFF in _ISATAP:
        carried.append(ipaddress.IPv4Address(number & 0xFFFFFFFF))
    return carried


class Guard:
    """Checks URLs, names and sockets against a configuration."""

    def __init__(self, network: NetworkConfig) -> None:
        """Raises `UsageError` for networks that are none."""
        self._ports = frozenset(network.ports)
        try:
            self._allowed = tuple(ipaddress.ip_network(text) for text in network.allow_addresses)
        except ValueError as error:
            raise UsageError(f"[crawl.network] allow_addresses: {error}; give networks such as 10.1.0.0/16") from error

    def check_url(self, url: str) -> yarl.URL:
        """The URL as it may be asked for, byte for byte.

        Raises:
            Refused: `bad_url` (not plain http or https, no host name, a user name or password in it, characters that
                do not belong into a URL), `port`, or `address` (an address that is not public, or in a spelling that
                only some programs take for one).
        """
        if not url.isascii() or re.search(r"[\x00-\x20\x7f\\]", url):
            raise Refused("bad_url", "white space, a backslash or a character beyond ASCII")
        try:
            parsed = yarl.URL(url, encoded=True)
            host, port = parsed.raw_host, parsed.port
        except ValueError as error:
            raise Refused("bad_url", str(error)) from error
        if parsed.scheme not in ("http", "https"):
            raise Refused("bad_url", f"scheme {parsed.scheme[:20]!r} is neither http nor https")
        if "@" in parsed.raw_authority:
            raise Refused("bad_url", "a user name or password")
        self._check_host(host or "")
        self._check_port(port or 0)
        return parsed

    def _check_host(self, host: str) -> None:
        labels = host.removesuffix(".").split(".")
        if ":" in host or _NUMBER.fullmatch(labels[-1]):  # the URL standard's "ends in a number": an IPv4 address
            self.check_address(host)
        elif len(host) > 254 or not all(map(_DNS_LABEL.fullmatch, labels)):
            raise Refused("bad_url", "not a host name")

    def _check_port(self, port: int) -> None:
        if port not in self._ports:
            raise Refused("port", f"port {port} is none of {sorted(self._ports)}")

    def check_address(self, text: str) -> None:
        """Raises `Refused` (`address`) unless it is public or allowed."""
        try:
            address = ipaddress.ip_address(text)
        except ValueError as error:
            raise Refused("address", f"{text[:80]!r} is not an address in its usual form") from error
        if not (is_public(address) or any(address in network for network in self._allowed)):
            raise Refused("address", f"{text} is not an address of the public internet")

    def open_socket(self, address_info: tuple[Any, ...]) -> socket.socket:
        """A socket for an address that is about to be connected to: `socket_factory` of aiohttp's TCPConnector.

        Raises:
            Refused: not this address, or not this port.
        """
        family, kind, protocol, _, (host, port, *flow_and_scope) = address_info
        if any(flow_and_scope):
            raise Refused("address", f"{host} with a zone")
        self.check_address(host)
        self._check_port(port)
        return socket.socket(family, kind, protocol)


class GuardedResolver(AbstractResolver):
    """Host names to addresses that a guard has checked; a name with one bad address is refused altogether.

    `getaddrinfo` runs in threads. One that hangs keeps its thread beyond the deadline, so there are many of them.
    """

    def __init__(self, guard: Guard, network: NetworkConfig, getaddrinfo: GetAddressInfo = socket.getaddrinfo) -> None:
        self._guard = guard
        self._getaddrinfo = getaddrinfo
        self._fixed = {name.lower(): address for name, address in network.resolve.items()}
        self._seconds = network.connect_seconds
        self._threads = ThreadPoolExecutor(RESOLVER_THREADS, thread_name_prefix="resolver")

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        """Addresses of a host, IPv4 first: where IPv6 is broken, nobody waits for it.

        Raises:
            OSError: the name has no address, or the resolver gave no answer in time.
            Refused: an address that may not be reached.
        """
        fixed = self._fixed.get(host.lower().removesuffix("."))
        addresses = [fixed] if fixed else await self._look_up(host, port, family)
        for address in addresses:
            self._guard.check_address(address)
        return [_result(host, address, port) for address in addresses[:MAX_ADDRESSES]]

    async def _look_up(self, host: str, port: int, family: socket.AddressFamily) -> list[str]:
        loop = asyncio.get_running_loop()
        ask = partial(self._getaddrinfo, host, port, family, socket.SOCK_STREAM)
        try:
            async with asyncio.timeout(self._seconds):
                found = await loop.run_in_executor(self._threads, ask)
        except TimeoutError as error:
            raise OSError(f"the resolver gave no answer in {self._seconds:g} seconds") from error
        except UnicodeError as error:  # the idna codec's word for labels that are too long
            raise OSError(f"not a host name: {error}") from error
        found.sort(key=lambda entry: entry[0] != socket.AF_INET)
        return list(dict.fromkeys(_with_zone(entry[4]) for entry in found))

    async def close(self) -> None:
        """Give the threads back; one that hangs is not waited for."""
        self._threads.shutdown(wait=False, cancel_futures=True)


def _with_zone(address: tuple[Any, ...]) -> str:
    """The address of a socket address; a zone is kept, so that the guard sees it."""
    host, scope = str(address[0]), address[3] if len(address) > 3 else 0
    return f"{host}%{scope}" if scope and "%" not in host else host


def _result(host: str, address: str, port: int) -> ResolveResult:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    flags = socket.AI_NUMERICHOST | socket.AI_NUMERICSERV
    return ResolveResult(hostname=host, host=address, port=port, family=family, proto=0, flags=flags)
