"""Servers on loopback that send any bytes, and the download handler without the rest of Scrapy."""

from __future__ import annotations

import asyncio
import functools
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from aiohttp.abc import AbstractResolver
from scrapy import Request

from corpus.crawl.config import NetworkConfig
from corpus.crawl.network.fetched import Fetched, FetchError
from corpus.crawl.network.handler import NETWORK_SETTING, GuardedHandler

LOOPBACK = ("127.0.0.0/8",)
Respond = Callable[[asyncio.StreamWriter], Awaitable[None]]


def asynchronous(test: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    """A test that is a coroutine, run in a loop of its own."""

    @functools.wraps(test)
    def run(*arguments: Any, **options: Any) -> None:
        asyncio.run(test(*arguments, **options))  # type: ignore[arg-type]

    return run


@dataclass
class RawServer:
    """What came in: one entry a connection, one a request."""

    port: int = 0
    connections: int = 0
    requests: list[bytes] = field(default_factory=list)

    def url(self, path: str = "/", host: str = "127.0.0.1", scheme: str = "http") -> str:
        return f"{scheme}://{host}:{self.port}{path}"


@asynccontextmanager
async def serve(
    respond: Respond | bytes,
    *,
    keep_alive: bool = False,
    speaks_first: bool = False,
    context: ssl.SSLContext | None = None,
    host: str = "127.0.0.1",
) -> AsyncIterator[RawServer]:
    """A server that answers each request by `respond`, then closes the connection (`keep_alive`: reads the next).

    One that `speaks_first` does not wait for the request.
    """
    server = RawServer()
    tasks = set[asyncio.Task[None]]()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        server.connections += 1
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        with suppress(OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            while True:
                if not speaks_first:
                    server.requests.append(await reader.readuntil(b"\r\n\r\n"))
                if isinstance(respond, bytes):
                    writer.write(respond)
                    await writer.drain()
                else:
                    await respond(writer)
                if not keep_alive:
                    break
        writer.close()
        with suppress(OSError, asyncio.CancelledError):
            await writer.wait_closed()

    listener = await asyncio.start_server(connected, host, 0, ssl=context)
    server.port = listener.sockets[0].getsockname()[1]
    try:
        yield server
    finally:
        listener.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await listener.wait_closed()


def loopback(server: RawServer, **options: Any) -> NetworkConfig:
    """A configuration that reaches a server."""
    options = {"ports": (server.port,), "allow_addresses": LOOPBACK} | options
    return NetworkConfig(**options)


@asynccontextmanager
async def downloader(network: NetworkConfig) -> AsyncIterator[GuardedHandler]:
    """The handler as Scrapy would make it."""
    handler = GuardedHandler(SimpleNamespace(settings={NETWORK_SETTING: network}))
    try:
        yield handler
    finally:
        await handler.close()


def use_resolver(handler: GuardedHandler, resolver: AbstractResolver) -> None:
    """Put another resolver in place, and ask it each time."""
    connector: Any = handler._session.connector
    connector._resolver = resolver
    connector._use_dns_cache = False


async def download(handler: GuardedHandler, url: str, headers: dict[str, str] | None = None, **meta: Any) -> Fetched:
    """The facts of one answer."""
    request = Request(url, headers=headers, meta={"verbatim_url": True} | meta)  # else Scrapy escapes some characters
    await handler.download_request(request)
    fetched: Fetched = request.meta["fetched"]
    return fetched


async def outcome(handler: GuardedHandler, url: str, **meta: Any) -> Fetched | FetchError:
    """The facts or the error."""
    try:
        return await download(handler, url, **meta)
    except FetchError as error:
        return error


def fetch(respond: Respond | bytes, options: dict[str, Any] | None = None, **meta: Any) -> Fetched | FetchError:
    """What becomes of one request to a server that answers so."""

    async def run() -> Fetched | FetchError:
        async with serve(respond) as server, downloader(loopback(server, **(options or {}))) as handler:
            return await outcome(handler, server.url(), **meta)

    return asyncio.run(run())


def kind(respond: Respond | bytes, options: dict[str, Any] | None = None, **meta: Any) -> str:
    """The error's kind, or `ok`."""
    result = fetch(respond, options, **meta)
    return result.kind if isinstance(result, FetchError) else "ok"


def response(body: bytes = b"", *fields: str, status: str = "200 OK", length: int | None = None) -> bytes:
    """A well-formed answer, but for a length that may lie."""
    size = len(body) if length is None else length
    head = "\r\n".join([f"HTTP/1.1 {status}", *fields, f"Content-Length: {size}"])
    return head.encode() + b"\r\n\r\n" + body


def chunked(*chunks: bytes, fields: tuple[str, ...] = (), end: bytes = b"0\r\n\r\n") -> bytes:
    """An answer in chunks."""
    head = "\r\n".join(["HTTP/1.1 200 OK", *fields, "Transfer-Encoding: chunked"])
    return head.encode() + b"\r\n\r\n" + b"".join(b"%x\r\n%s\r\n" % (len(chunk), chunk) for chunk in chunks) + end
