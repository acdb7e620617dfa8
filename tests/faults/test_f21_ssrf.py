"""FAULTS row 21: no URL, however spelled, and no name, however it resolves, reaches a machine that is not public."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import pytest
import yarl

from corpus.crawl.config import NetworkConfig
from corpus.crawl.network.address import Guard, GuardedResolver
from corpus.crawl.network.fetched import Fetched, FetchError
from tests.corpus.crawl.network.raw_server import download, downloader, loopback, outcome, response, serve, use_resolver
from tools.evaluate.ssrf_cases import CASES, Case, address_info
from tools.evaluate.ssrf_cases import outcome as guarded

LOCAL = """127.0.0.1 127.1 2130706433 0x7f.1 017700000001 127.0.0.1. 0.0.0.0 0 localhost LOCALHOST localhost.
[::1] [::] [::ffff:127.0.0.1] [::127.0.0.1] [64:ff9b::127.0.0.1] [2002:7f00:1::]""".split()


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_table(case: Case) -> None:
    assert guarded(case) == case.expected


def test_no_spelling_of_this_machine_is_connected_to(monkeypatch: pytest.MonkeyPatch) -> None:
    """Through the whole handler, with a server that would answer; also when the URL is not checked at all."""

    async def run() -> tuple[int, list[Fetched | FetchError]]:
        async with serve(response(b"secret")) as server:
            network = NetworkConfig(ports=(server.port,), resolve={"name.example": "127.0.0.1"})
            hosts = [*LOCAL, "name.example"]
            async with downloader(network) as handler:
                results = [await outcome(handler, server.url(host=host)) for host in hosts]
                monkeypatch.setattr(Guard, "check_url", lambda _, url: yarl.URL(url, encoded=True))
                results += [await outcome(handler, server.url(host=host)) for host in hosts]
            return server.connections, results

    connections, results = asyncio.run(run())
    assert connections == 0
    assert {result.kind for result in results if isinstance(result, FetchError)} <= {"address", "bad_url", "dns"}
    assert not any(isinstance(result, Fetched) for result in results)


def test_a_name_that_moves_behind_the_firewall_between_two_requests() -> None:
    """DNS rebinding: 127.0.0.2 stands for a public address; nothing may reach 127.0.0.1."""
    answers = iter(["127.0.0.2", "127.0.0.1"])

    def getaddrinfo(host: str, port: int, *_: object) -> list[tuple[Any, ...]]:
        return [address_info(next(answers), port)]

    async def run() -> None:
        async with serve(response(b"ok", "Connection: close"), host="0.0.0.0") as server:
            network = loopback(server, allow_addresses=("127.0.0.2/32",))
            async with downloader(network) as handler:
                use_resolver(handler, GuardedResolver(Guard(network), network, getaddrinfo))
                first = await download(handler, server.url(host="name.example"))
                assert (first.body, first.address) == (b"ok", "127.0.0.2")
                second = await outcome(handler, server.url(host="name.example"))
            assert isinstance(second, FetchError) and (second.kind, second.retry) == ("address", False)
            assert server.connections == 1

    asyncio.run(run())


def test_the_address_is_checked_again_where_it_is_connected_to() -> None:
    """Even a resolver that checks nothing leads nowhere."""

    class Careless(GuardedResolver):
        async def resolve(self, host: str, port: int = 0, family: int = socket.AF_UNSPEC) -> list[Any]:
            return [{"hostname": host, "host": "127.0.0.1", "port": port, "family": family, "proto": 0, "flags": 0}]

    async def run() -> None:
        async with serve(response(b"secret")) as server:
            network = NetworkConfig(ports=(server.port,))
            async with downloader(network) as handler:
                use_resolver(handler, Careless(Guard(network), network))
                result = await outcome(handler, server.url(host="name.example"))
            assert isinstance(result, FetchError) and result.kind == "address"
            assert server.connections == 0

    asyncio.run(run())


def test_redirects_are_handed_back_and_not_followed() -> None:
    async def run() -> None:
        async with serve(response(b"secret")) as secret:
            answer = response(b"", f"Location: {secret.url()}", status="302 Found")
            async with serve(answer) as server, downloader(loopback(server)) as handler:
                fetched = await download(handler, server.url())
                assert fetched.status == 302 and fetched.body == b""
                target = dict(fetched.raw_headers)[b"Location"].decode()
                result = await outcome(handler, target)  # its port is not allowed here
                assert isinstance(result, FetchError) and result.kind == "port"
            assert secret.connections == 0

    asyncio.run(run())


def test_proxies_of_the_environment_are_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    async def run() -> None:
        async with serve(response(b"of the proxy")) as proxy, serve(response(b"of the site")) as server:
            for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY", "https_proxy"):
                monkeypatch.setenv(name, proxy.url())
            async with downloader(loopback(server)) as handler:
                assert (await download(handler, server.url(), proxy=proxy.url())).body == b"of the site"
            assert proxy.connections == 0

    asyncio.run(run())
