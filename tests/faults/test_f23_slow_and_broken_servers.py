"""FAULTS row 23: a server that is slow, endless, broken or lying costs what the configuration lets it, and is named."""

from __future__ import annotations

import asyncio
import gzip
import socket
import struct
import tracemalloc
import zlib
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import brotli  # type: ignore[import-untyped]
import pytest
import zstandard
from multidict import CIMultiDict

from corpus.crawl.config import NetworkConfig
from corpus.crawl.network import handler as handler_module
from corpus.crawl.network.fetched import Fetched, FetchError
from tests.corpus.crawl.network.raw_server import (
    asynchronous,
    chunked,
    downloader,
    fetch,
    kind,
    loopback,
    outcome,
    response,
    serve,
)

CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
PATIENT = {"min_bytes_per_second": 0}


def repeat(piece: bytes, seconds: float = 0.0, first: bytes = b"") -> Callable[[asyncio.StreamWriter], Any]:
    """Sends `first`, then a piece every so many seconds until the client hangs up."""

    async def respond(writer: asyncio.StreamWriter) -> None:
        writer.write(first)
        while True:
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(seconds)

    return respond


async def silent(writer: asyncio.StreamWriter) -> None:
    """Answers nothing until the client hangs up."""
    await writer.wait_closed()


def in_parts(*parts: bytes) -> Callable[[asyncio.StreamWriter], Any]:
    """Sends parts that arrive one by one, as far as a network lets one say so."""

    async def respond(writer: asyncio.StreamWriter) -> None:
        for part in parts:
            writer.write(part)
            await writer.drain()
            await asyncio.sleep(0.02)

    return respond


def failure(respond: Any, options: dict[str, Any], **meta: Any) -> FetchError:
    result = fetch(respond, options, **meta)
    assert isinstance(result, FetchError), result
    return result


# ------------------------------------------------------------------------------------------------------- too slow
def test_a_handshake_that_does_not_come() -> None:
    async def run() -> FetchError | Fetched:
        async with (
            serve(silent, speaks_first=True) as server,
            downloader(loopback(server, connect_seconds=0.05)) as handler,
        ):
            return await outcome(handler, server.url(scheme="https"))

    result = asyncio.run(run())
    assert isinstance(result, FetchError) and (result.kind, result.retry) == ("timeout", True)


@pytest.mark.parametrize(
    "respond",
    [
        silent,
        repeat(b"x", 0.01, first=b"HTTP/1.1 200 "),
        repeat(b"x", 0.01, first=b"HTTP/1.1 200 OK\r\nA: "),
        repeat(b"HTTP/1.1 100 Continue\r\n\r\n", 0.001),
        repeat(b"HTTP/1.1 100 Continue\r\n\r\n" * 1000),
        repeat(b"\r\n", 0.001),
    ],
    ids=["nothing", "slow status line", "slow headers", "100 for ever", "100 for ever, fast", "empty lines"],
)
def test_headers_that_do_not_end(respond: Any) -> None:
    result = failure(respond, {"first_byte_seconds": 0.2})
    assert (result.kind, result.detail, result.retry) == ("timeout", "no headers in 0.2 seconds", True)


@pytest.mark.parametrize(
    "respond",
    [
        repeat(b"x", 0.01, first=b"HTTP/1.1 200 OK\r\n\r\n"),
        repeat(b"1\r\nx\r\n", 0.01, first=CHUNKED),
        repeat(b"x", 0.01, first=CHUNKED + b"1;"),
        repeat(b"", 0.01, first=response(b"", length=100)),
    ],
    ids=["bytes", "chunks", "a chunk's extension", "silence"],
)
def test_a_body_in_drops(monkeypatch: pytest.MonkeyPatch, respond: Any) -> None:
    monkeypatch.setattr(handler_module, "RATE_SECONDS", 0.1)
    result = failure(respond, {"min_bytes_per_second": 100_000})
    assert (result.kind, result.retry) == ("slow", True)
    result = failure(respond, {"total_seconds": 0.3, **PATIENT})
    assert (result.kind, result.detail) == ("timeout", "no complete answer in 0.3 seconds")


def test_a_fast_beginning_does_not_make_up_for_a_slow_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handler_module, "RATE_SECONDS", 0.1)
    respond = repeat(b"x", 0.01, first=b"HTTP/1.1 200 OK\r\n\r\n" + bytes(1_000_000))
    assert kind(respond, {"min_bytes_per_second": 10_000}) == "slow"


@pytest.mark.parametrize(("min_bytes_per_second", "expected"), [(1_500, "ok"), (1_900, "slow")])
def test_the_rate_of_a_body_that_takes_long(min_bytes_per_second: int, expected: str) -> None:
    """Without waiting: 10,000 bytes every six seconds, by the loop's clock."""

    class Content:
        reads = 0

        async def readany(self) -> bytes:
            loop, self.reads = asyncio.get_running_loop(), self.reads + 1
            now = loop.time() + 6
            loop.time = lambda: now  # type: ignore[method-assign]
            return bytes(10_000) if self.reads <= 9 else b""

    async def run() -> str:
        async with downloader(NetworkConfig(min_bytes_per_second=min_bytes_per_second)) as handler:
            answer: Any = SimpleNamespace(
                headers=CIMultiDict(), content_length=None, status=200, content=Content(), reset=False
            )
            try:
                body, _ = await handler._read_body(answer, 100_000)
            except FetchError as error:
                return error.kind
            return "ok" if len(body) == 90_000 else "cut"

    assert asyncio.run(run()) == expected


# ------------------------------------------------------------------------------------------------------- too much
@pytest.mark.parametrize(
    "respond",
    [
        repeat(bytes(65536), first=b"HTTP/1.1 200 OK\r\n\r\n"),
        repeat(b"10000\r\n" + bytes(65536) + b"\r\n", first=CHUNKED),
        repeat(b"1\r\nx\r\n" * 10_000, first=CHUNKED),
        repeat(b"", 0.01, first=response(length=3_000_000)),
        repeat(b"", 0.01, first=response(length=2**64 - 1)),
    ],
    ids=["no length", "chunks", "tiny chunks", "a length too large", "the largest length"],
)
def test_endless_bodies(respond: Any) -> None:
    tracemalloc.start()
    result = failure(respond, {}, max_bytes=200_000)
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert (result.kind, result.retry) == ("too_large", False)
    assert peak_bytes < 20_000_000  # of the server too


@pytest.mark.parametrize(
    "head",
    [
        b"HTTP/1.1 200 " + b"x" * 70_000,
        b"HTTP/1.1 200 OK\r\nA: " + b"x" * 70_000,
        b"HTTP/1.1 200 OK\r\n" + b"x" * 70_000 + b": a",
        b"HTTP/1.1 200 OK\r\n" + b"A: b\r\n" * 1000,
        b"HTTP/1.1 200 OK\r\n" + b"\r\n".join(b"A: " + b"x" * 1000 for _ in range(100)),
        CHUNKED + b"0\r\n" + b"A: b\r\n" * 1000,
    ],
    ids=["status line", "a value", "a name", "many fields", "many bytes in all", "trailers"],
)
def test_headers_without_measure(head: bytes) -> None:
    assert kind(head + b"\r\n\r\n") == "headers"


ZEROS = bytes(30_000_000)
BOMBS: dict[str, Callable[[], bytes]] = {
    "gzip": lambda: gzip.compress(ZEROS),
    "deflate": lambda: zlib.compress(ZEROS),
    "br": lambda: bytes(brotli.compress(ZEROS, quality=5)),
    "zstd": lambda: zstandard.compress(ZEROS),
    "gzip, gzip": lambda: gzip.compress(gzip.compress(ZEROS)),
    "gzip, zstd": lambda: zstandard.compress(gzip.compress(ZEROS)),
}


@pytest.mark.parametrize("names", list(BOMBS))
@pytest.mark.parametrize(("max_bytes", "expected"), [(2_000_000, ("too_large", "bomb")), (100_000_000, ("bomb",))])
def test_bombs(names: str, max_bytes: int, expected: tuple[str, ...]) -> None:
    answer = response(BOMBS[names](), f"Content-Encoding: {names}")
    tracemalloc.start()
    result = failure(answer, {}, max_bytes=max_bytes)
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert result.kind in expected and not result.retry
    assert peak_bytes < 20_000_000


# --------------------------------------------------------------------------------------------------- broken, lying
BROKEN = {
    "nothing at all": (b"", "http"),
    "no status line": (b"<html>hello", "http"),
    "a status line cut": (b"HTTP/1.1 20", "http"),
    "headers cut": (b"HTTP/1.1 200 OK\r\nConten", "http"),
    "another protocol": (b"SSH-2.0-OpenSSH_9.6\r\n", "http"),
    "another version": (b"HTTP/1.9 200 OK\r\n\r\n", "http"),
    "a status of two digits": (b"HTTP/1.1 99 OK\r\n\r\n", "http"),
    "a status below 100": (b"HTTP/1.1 099 OK\r\n\r\n", "http"),
    "a protocol switch": (b"HTTP/1.1 101 Up\r\nUpgrade: h2c\r\nConnection: Upgrade\r\n\r\nx", "http"),
    "a field without a colon": (b"HTTP/1.1 200 OK\r\nA x\r\n\r\n", "headers"),
    "a space before the colon": (b"HTTP/1.1 200 OK\r\nA : x\r\n\r\n", "headers"),
    "a NUL in a value": (b"HTTP/1.1 200 OK\r\nA: x\0\r\n\r\n", "headers"),
    "two lengths": (b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello", "http"),
    "a length and chunks": (b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\nhello", "http"),
    "a length below 0": (response(b"hello", length=-5), "http"),
    "a length beyond 64 bits": (response(b"hello", length=2**70), "http"),
    "a length too long": (response(b"hello", length=6), "truncated"),
    "a body that never comes": (response(b"", length=6), "truncated"),
    "chunks without an end": (chunked(b"hello", end=b""), "truncated"),
    "a chunk cut": (CHUNKED + b"5\r\nhel", "truncated"),
    "a chunk's size cut": (CHUNKED + b"5", "truncated"),
    "a transfer encoding": (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\nhello", "encoding"),
    "gzip cut": (response(gzip.compress(b"hello")[:-3], "Content-Encoding: gzip"), "truncated"),
    "gzip that is none": (response(b"<html>hello", "Content-Encoding: gzip"), "encoding"),
    "an unknown encoding": (response(b"hello", "Content-Encoding: sdch"), "encoding"),
    "four encodings": (response(b"hello", "Content-Encoding: gzip, gzip, gzip, gzip"), "encoding"),
}


@pytest.mark.parametrize("name", list(BROKEN))
def test_broken_answers(name: str) -> None:
    answer, expected = BROKEN[name]
    assert kind(answer) == expected


@pytest.mark.parametrize("garbage", [b"zzz\r\n", b"-5\r\n", b"fffffffffffffffff\r\n", b"\0", b"5\r\nhelloworld"])
@pytest.mark.parametrize("apart", [True, False])
def test_garbage_between_chunks(garbage: bytes, apart: bool) -> None:
    """aiohttp's reader would wait for ever where the garbage comes in a packet of its own."""
    head = chunked(b"hello", end=b"")
    assert kind(in_parts(head, garbage) if apart else head + garbage) in ("http", "truncated")


@pytest.mark.parametrize("head", [b"HTTP/1.1 200 OK\r\n\r\n", CHUNKED + b"100\r\n", response(length=100)])
def test_a_connection_that_is_reset_is_not_the_end_of_a_body(head: bytes) -> None:
    async def respond(writer: asyncio.StreamWriter) -> None:
        await in_parts(head + b"hello")(writer)
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        writer.transport.abort()

    assert kind(respond) in ("truncated", "connect")  # the latter where the reset overtakes the headers


def test_a_length_too_short() -> None:
    """The bytes beyond it are no part of the page: it ends there, or the answer is refused where they come along."""
    result = fetch(response(b"hello and more", length=5))
    assert isinstance(result, FetchError) and result.kind == "http"
    result = fetch(in_parts(response(b"hello", length=5), b" and more"))
    assert result.kind == "http" if isinstance(result, FetchError) else result.body == b"hello"


@asynchronous
async def test_a_broken_answer_does_not_spoil_the_next() -> None:
    """Answers that follow unasked are not taken for answers to the next request."""

    double = response(b"first") + response(b"unasked")
    async with serve(double, keep_alive=True) as server, downloader(loopback(server)) as handler:
        for _ in range(3):
            result = await outcome(handler, server.url())
            assert isinstance(result, FetchError) or result.body == b"first"


def test_strange_but_harmless_answers() -> None:
    for answer in (
        b"HTTP/1.1 200 OK\nContent-Length: 2\n\nhi",
        b"\r\nHTTP/1.1 200\r\nContent-Length: 2\r\n\r\nhi",
        "HTTP/1.1 200 好\r\nA: 中\r\nContent-Length: 2\r\n\r\nhi".encode("gbk"),
        b"HTTP/1.1 200 OK\r\nA: x\r\n  folded\r\nContent-Length: 2\r\n\r\nhi",
        CHUNKED + b"2;" + b"x" * 100_000 + b"\r\nhi\r\n0\r\nTrailer: x\r\n\r\n",
        b"HTTP/1.0 200 OK\r\n\r\nhi",
    ):
        result = fetch(answer)
        assert isinstance(result, Fetched) and result.body == b"hi"
