from __future__ import annotations

import asyncio
import ipaddress
import socket
import threading
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpus.crawl.config import NetworkConfig
from corpus.crawl.network.address import MAX_ADDRESSES, Guard, GuardedResolver, Refused, is_public
from corpus.engine.errors import UsageError
from tests.corpus.crawl.network.raw_server import asynchronous
from tools.evaluate.ssrf_cases import address_info

V4 = st.integers(0, 2**32 - 1).map(ipaddress.IPv4Address)
V6 = st.integers(0, 2**128 - 1).map(ipaddress.IPv6Address)


@given(V4)
def test_ipv4_agrees_with_the_standard_library(address: ipaddress.IPv4Address) -> None:
    odd = ipaddress.ip_network("192.88.99.0/24"), ipaddress.ip_network("168.63.129.16/32")
    exceptions = ipaddress.ip_network("192.0.0.0/24")  # of which two addresses are global by the registry
    if not any(address in network for network in (*odd, exceptions)):
        assert is_public(address) == (address.is_global and not address.is_multicast)


@given(V6)
def test_no_ipv6_address_is_public_that_the_standard_library_calls_private(address: ipaddress.IPv6Address) -> None:
    assert not is_public(address) or address.is_global


@given(V4)
@pytest.mark.parametrize(
    ("prefix", "shift"),
    [("::ffff:0:0", 0), ("64:ff9b::", 0), ("2002::", 80), ("2606:4700::5efe:0:0", 0), ("2606:4700::200:5efe:0:0", 0)],
)
def test_a_carried_address_decides(prefix: str, shift: int, address: ipaddress.IPv4Address) -> None:
    carrier = ipaddress.IPv6Address(int(ipaddress.IPv6Address(prefix)) | int(address) << shift)
    assert is_public(carrier) == is_public(address)


@given(V4, V4)
def test_both_ends_of_a_teredo_tunnel_decide(server: ipaddress.IPv4Address, client: ipaddress.IPv4Address) -> None:
    tunnel = 0x20010000 << 96 | int(server) << 64 | int(client) ^ 0xFFFFFFFF
    assert is_public(ipaddress.IPv6Address(tunnel)) == (is_public(server) and is_public(client))


def resolve(network: NetworkConfig, host: str, addresses: list[str] | Exception) -> list[str]:
    def getaddrinfo(name: str, port: int, *_: object) -> list[tuple[Any, ...]]:
        if isinstance(addresses, Exception):
            raise addresses
        return [address_info(address, port) for address in addresses]

    async def run() -> list[str]:
        resolver = GuardedResolver(Guard(network), network, getaddrinfo)
        try:
            return [found["host"] for found in await resolver.resolve(host, 80)]
        finally:
            await resolver.close()

    return asyncio.run(run())


def test_a_zone_of_the_resolver_is_seen() -> None:
    with pytest.raises(Refused, match="%2"):
        resolve(NetworkConfig(), "a.example", ["2606:4700::1%2"])


def test_ipv4_comes_first_each_address_once_and_not_too_many() -> None:
    network = NetworkConfig()
    assert resolve(network, "a.example", ["2606:4700::1", "8.8.8.8", "8.8.8.8"]) == ["8.8.8.8", "2606:4700::1"]
    many = [f"8.8.{i}.8" for i in range(200)]
    assert resolve(network, "a.example", many) == many[:MAX_ADDRESSES]
    with pytest.raises(Refused, match=r"10\.0\.0\.1"):
        resolve(network, "a.example", [*many, "10.0.0.1"])


@pytest.mark.parametrize("name", ["a.example", "A.Example", "a.example."])
def test_an_address_of_the_configuration_is_not_asked_for_but_checked(name: str) -> None:
    never = AssertionError("asked")
    assert resolve(NetworkConfig(resolve={"a.Example": "8.8.4.4"}), name, never) == ["8.8.4.4"]
    with pytest.raises(Refused) as refused:
        resolve(NetworkConfig(resolve={"a.example": "127.0.0.1"}), name, never)
    assert refused.value.kind == "address"
    allowed = NetworkConfig(resolve={"a.example": "127.0.0.1"}, allow_addresses=("127.0.0.1/32",))
    assert resolve(allowed, name, never) == ["127.0.0.1"]


@pytest.mark.parametrize("error", [socket.gaierror(socket.EAI_NONAME, "no such name"), UnicodeError("label too long")])
def test_names_that_do_not_resolve_are_errors_of_the_system(error: Exception) -> None:
    with pytest.raises(OSError):
        resolve(NetworkConfig(), "a.example", error)


@asynchronous
async def test_a_resolver_that_hangs_is_not_waited_for() -> None:
    hangs = threading.Event()

    def getaddrinfo(*_: object) -> list[tuple[Any, ...]]:
        hangs.wait()
        return []

    network = NetworkConfig(connect_seconds=0.01)
    resolver = GuardedResolver(Guard(network), network, getaddrinfo)
    try:
        with pytest.raises(OSError, match=r"no answer in 0\.01 seconds"):
            await resolver.resolve("a.example", 80)
    finally:
        await resolver.close()
        hangs.set()


def test_sockets_are_for_checked_addresses_and_ports_only() -> None:
    guard = Guard(NetworkConfig(allow_addresses=("10.1.0.0/16",), ports=(80,)))
    for address in ("8.8.8.8", "2606:4700::1", "10.1.2.3"):
        guard.open_socket(address_info(address, 80)).close()
    for address in ("127.0.0.1", "::1", "10.2.0.1", "::ffff:10.1.2.3", "2606:4700::1%2", "not an address"):
        with pytest.raises(Refused) as refused:
            guard.open_socket(address_info(address, 80))
        assert refused.value.kind == "address"
    for use in (
        lambda: guard.open_socket(address_info("8.8.8.8", 81)),
        lambda: guard.check_url("http://a.example:81/"),
    ):
        with pytest.raises(Refused) as refused:
            use()
        assert refused.value.kind == "port"


@pytest.mark.parametrize("network", ["10.1.0.0/8", "localhost", ""])
def test_networks_that_are_none(network: str) -> None:
    with pytest.raises(UsageError, match=r"allow_addresses: .*10\.1\.0\.0/16"):
        Guard(NetworkConfig(allow_addresses=(network,)))


def test_a_checked_url_is_what_was_given_to_the_byte() -> None:
    url = "http://a.example/b/../%7e%B0%a1?q=%zz&&+;|^"
    assert str(Guard(NetworkConfig()).check_url(url)) == url
