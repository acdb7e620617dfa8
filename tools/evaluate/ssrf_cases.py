"""URLs that lead behind the firewall, each in a spelling of its own, and what the crawler's guard says to them."""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from corpus.crawl.config import NetworkConfig
from corpus.crawl.network.address import Guard, GuardedResolver, Refused

ALLOWED = "allowed"
RESOLVED = "name.example"  # the host of a case whose addresses are given


@dataclass(frozen=True)
class Case:
    """A URL, the addresses that its host resolves to, and what must come of it: `allowed` or the error's kind."""

    name: str
    url: str
    expected: str = "address"
    addresses: tuple[str, ...] = ()


def _literals() -> Iterator[Case]:
    """Addresses as hosts."""
    for name, host in (
        ("loopback", "127.0.0.1"),
        ("loopback, another", "127.255.255.254"),
        ("loopback, decimal", "2130706433"),
        ("loopback, octal", "0177.0.0.1"),
        ("loopback, octal in one number", "017700000001"),
        ("loopback, hexadecimal", "0x7f.0.0.1"),
        ("loopback, hexadecimal in one number", "0x7f000001"),
        ("loopback, short", "127.1"),
        ("loopback, with a dot at the end", "127.0.0.1."),
        ("loopback, more than 32 bits", "6425673729"),
        ("an empty hexadecimal number", "0x"),
        ("unspecified", "0.0.0.0"),
        ("unspecified, short", "0"),
        ("this network", "0.1.2.3"),
        ("private 10/8", "10.0.0.1"),
        ("private 172.16/12, first", "172.16.0.1"),
        ("private 172.16/12, last", "172.31.255.255"),
        ("private 192.168/16", "192.168.1.1"),
        ("link-local, metadata of clouds", "169.254.169.254"),
        ("metadata, decimal", "2852039166"),
        ("metadata, hexadecimal", "0xa9fea9fe"),
        ("carrier-grade NAT", "100.64.0.1"),
        ("carrier-grade NAT, metadata of Alibaba Cloud", "100.100.100.200"),
        ("metadata of Azure", "168.63.129.16"),
        ("metadata of Oracle, protocol assignments", "192.0.0.192"),
        ("documentation 192.0.2/24", "192.0.2.1"),
        ("documentation 198.51.100/24", "198.51.100.1"),
        ("documentation 203.0.113/24", "203.0.113.1"),
        ("benchmarks", "198.19.255.255"),
        ("6to4 relays", "192.88.99.1"),
        ("multicast", "224.0.0.1"),
        ("reserved", "240.0.0.1"),
        ("broadcast", "255.255.255.255"),
        ("IPv6 loopback", "[::1]"),
        ("IPv6 loopback, at length", "[0:0:0:0:0:0:0:1]"),
        ("IPv6 unspecified", "[::]"),
        ("IPv6 link-local", "[fe80::1]"),
        ("IPv6 link-local with a zone", "[fe80::1%25eth0]"),
        ("a public address with a zone", "[2606:4700:4700::1111%25lo]"),
        ("IPv6 site-local, deprecated", "[fec0::1]"),
        ("IPv6 unique local", "[fd00::1]"),
        ("IPv6 unique local, metadata of AWS", "[fd00:ec2::254]"),
        ("IPv6 multicast", "[ff02::1]"),
        ("IPv6 discard-only", "[100::1]"),
        ("IPv6 documentation", "[2001:db8::1]"),
        ("IPv6 documentation, the new one", "[3fff::1]"),
        ("IPv6 benchmarks", "[2001:2::1]"),
        ("IPv6 ORCHID", "[2001:20::1]"),
        ("IPv6 segment routing", "[5f00::1]"),
        ("IPv6 not assigned", "[4000::1]"),
        ("IPv4-mapped loopback", "[::ffff:127.0.0.1]"),
        ("IPv4-mapped loopback, hexadecimal", "[::ffff:7f00:1]"),
        ("IPv4-mapped metadata", "[::ffff:169.254.169.254]"),
        ("IPv4-compatible loopback", "[::127.0.0.1]"),
        ("IPv4-compatible, deprecated", "[::8.8.8.8]"),
        ("IPv4-translated loopback", "[::ffff:0:127.0.0.1]"),
        ("NAT64 loopback", "[64:ff9b::127.0.0.1]"),
        ("NAT64 private", "[64:ff9b::10.0.0.1]"),
        ("NAT64 of one's own", "[64:ff9b:1::8.8.8.8]"),
        ("6to4 of a private address", "[2002:a00:1::1]"),
        ("6to4 of loopback", "[2002:7f00:1::1]"),
        ("Teredo, private client", "[2001:0:808:808:0:0:f5ff:fffe]"),
        ("Teredo, private server", "[2001:0:a00:1:0:0:f7f7:f7f7]"),
        ("ISATAP of a private address", "[2606:4700::5efe:10.0.0.1]"),
        ("ISATAP of a public address in documentation", "[2001:db8::5efe:8.8.8.8]"),
        ("ISATAP of loopback, universal bit", "[2606:4700::200:5efe:127.0.0.1]"),
    ):
        yield Case(name, f"http://{host}/")
    for name, host in (
        ("public", "8.8.8.8"),
        ("next to private 172.16/12", "172.32.0.1"),
        ("next to carrier-grade NAT", "100.128.0.1"),
        ("public IPv6", "[2606:4700:4700::1111]"),
        ("IPv4-mapped public", "[::ffff:8.8.8.8]"),
        ("NAT64 public", "[64:ff9b::8.8.8.8]"),
        ("ISATAP of a public address", "[2606:4700::5efe:8.8.8.8]"),
        ("6to4 of a public address", "[2002:808:808::1]"),
        ("Teredo, both ends public", "[2001:0:808:808:0:0:f7f7:f7f7]"),
    ):
        yield Case(name, f"http://{host}/", ALLOWED)


def _names() -> Iterator[Case]:
    """Host names that resolve to such addresses."""
    for name, expected, addresses in (
        ("a public name", ALLOWED, ("8.8.8.8", "2606:4700:4700::1111")),
        ("a name for loopback", "address", ("127.0.0.1",)),
        ("a name for IPv6 loopback", "address", ("::1",)),
        ("a name for cloud metadata", "address", ("169.254.169.254",)),
        ("a name for 0.0.0.0", "address", ("0.0.0.0",)),
        ("a name for a private and a public address", "address", ("8.8.8.8", "10.0.0.1")),
        ("a name for many public addresses and one private", "address", (*["8.8.8.8"] * 20, "10.0.0.1")),
        ("a name for IPv4-mapped loopback", "address", ("::ffff:127.0.0.1",)),
        ("a name for a NAT64 private address", "address", ("64:ff9b::192.168.0.1",)),
        ("a name for a link-local address with its zone", "address", ("fe80::1%2",)),
        ("a name for a public address with a zone", "address", ("2606:4700:4700::1111%2",)),
    ):
        yield Case(name, f"http://{RESOLVED}/", expected, addresses)


def _urls() -> Iterator[Case]:
    """URLs that are wrong whatever their host is."""
    for name, expected, url in (
        ("https", ALLOWED, f"https://{RESOLVED}/a?b=%B0%A1"),
        ("the scheme's port, written", ALLOWED, f"https://{RESOLVED}:443/"),
        ("ssh's port", "port", f"http://{RESOLVED}:22/"),
        ("redis's port", "port", f"http://{RESOLVED}:6379/"),
        ("port 0", "port", f"http://{RESOLVED}:0/"),
        ("port 65536", "bad_url", f"http://{RESOLVED}:65536/"),
        ("port in letters", "bad_url", f"http://{RESOLVED}:http/"),
        ("user name", "bad_url", f"http://user@{RESOLVED}/"),
        ("user name and password", "bad_url", f"http://user:password@{RESOLVED}/"),
        ("a host as user name", "bad_url", "http://name.example@127.0.0.1/"),
        ("an empty user name", "bad_url", f"http://@{RESOLVED}/"),
        ("a backslash before the host", "bad_url", f"http://{RESOLVED}\\@127.0.0.1/"),
        ("a backslash in the path", "bad_url", f"http://{RESOLVED}/\\a"),
        ("a line end in the path", "bad_url", f"http://{RESOLVED}/ HTTP/1.1\r\nHost: other"),
        ("a tab in the host", "bad_url", "http://127.0\t.0.1/"),
        ("a NUL", "bad_url", f"http://{RESOLVED}/\0"),
        ("percent escapes in the host", "bad_url", "http://%6c%6fcalhost/"),
        ("percent escapes for an address", "address", "http://%31%32%37.0.0.1/"),
        ("full-width digits", "bad_url", "http://１２７.0.0.1/"),
        ("circled digits", "bad_url", "http://①②⑦.0.0.1/"),
        ("an ideographic full stop", "bad_url", "http://127。0。0。1/"),
        ("an empty label", "bad_url", "http://a..example/"),
        ("a label of 64 letters", "bad_url", f"http://{'a' * 64}.example/"),
        ("no host", "bad_url", "http:///etc/passwd"),
        ("no host at all", "bad_url", "http:name.example"),
        ("file", "bad_url", "file:///etc/passwd"),
        ("ftp", "bad_url", f"ftp://{RESOLVED}/"),
        ("gopher", "bad_url", f"gopher://{RESOLVED}:80/_GET"),
        ("data", "bad_url", "data:text/html,x"),
        ("javascript", "bad_url", "javascript:alert(1)"),
        ("web socket", "bad_url", f"ws://{RESOLVED}/"),
        ("an address between brackets that is none", "bad_url", "http://[127.0.0.1]/"),
        ("an IPv6 address that never ends", "bad_url", "http://[::1/"),
    ):
        yield Case(name, url, expected, ("8.8.8.8",))


CASES = (*_literals(), *_names(), *_urls())


def outcome(case: Case) -> str:
    """What the guard says on the way that a request goes: the URL, the resolver, the socket. Nothing is sent."""
    return asyncio.run(_outcome(case, NetworkConfig()))


async def _outcome(case: Case, network: NetworkConfig) -> str:
    guard = Guard(network)

    def getaddrinfo(host: str, port: int, *_: object) -> list[tuple[Any, ...]]:
        return [address_info(address, port) for address in case.addresses]

    resolver = GuardedResolver(guard, network, getaddrinfo)
    try:
        url = guard.check_url(case.url)
        host, port = url.raw_host or "", url.port or 0
        if _is_address(host):  # aiohttp does not ask the resolver for those
            addresses = [host]
        else:
            addresses = [found["host"] for found in await resolver.resolve(host, port)]
        for address in addresses:
            guard.open_socket(address_info(address, port)).close()
    except Refused as error:
        return error.kind
    finally:
        await resolver.close()
    return ALLOWED


def address_info(address: str, port: int) -> tuple[Any, ...]:
    """As getaddrinfo gives it."""
    if ":" not in address:
        return (socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", (address, port))
    address, _, zone = address.partition("%")
    return (socket.AF_INET6, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", (address, port, 0, int(zone or 0)))


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def rows() -> Iterator[tuple[str, str, str, str]]:
    """The table: case, URL, expected, got."""
    for case in CASES:
        resolved = f" -> {', '.join(dict.fromkeys(case.addresses))}" if case.url.find(RESOLVED) == 7 else ""
        yield case.name, ascii(case.url)[1:-1] + resolved, case.expected, outcome(case)
