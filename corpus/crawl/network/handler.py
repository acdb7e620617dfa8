"""Scrapy's download handler over aiohttp, for answers from anywhere.

Every cost that a server can cause is capped: the seconds to connect, to the end of the headers and in all; the rate of
the body; the bytes of the headers (while they come: 128 lines of 16 KiB, so 2 MiB for a moment), of the body over the
wire, and of the decoded body. Connections go where the guard lets them (address.py), never through a proxy; no cookie
is kept, no redirect followed, no URL rewritten.

Scrapy finds it by DOWNLOAD_HANDLERS; the setting NETWORK_SETTING holds a `NetworkConfig`. A request says in its meta
what it takes: `accept` (content types whose body is read; all without it) and `max_bytes` (of the body). The answer's
facts are put into `meta["fetched"]`; a failure is raised as `FetchError`.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any, cast

import aiohttp
import yarl
from aiohttp.connector import Connection
from aiohttp.http_exceptions import InvalidHeader, LineTooLong
from scrapy import Request
from scrapy.core.downloader.handlers.base import BaseDownloadHandler
from scrapy.http import Response

from corpus.crawl.config import BudgetConfig, NetworkConfig
from corpus.crawl.network.address import Guard, GuardedResolver, Refused
from corpus.crawl.network.decompress import ACCEPT_ENCODING, Body
from corpus.crawl.network.fetched import Fetched, FetchError
from corpus.engine.errors import UsageError

NETWORK_SETTING = "WENHAI_NETWORK"
DEFAULT_MAX_BYTES = BudgetConfig().max_page_bytes
KEEP_ALIVE_SECONDS = 15.0
RATE_SECONDS = 10.0
"""The span over which a body's rate is measured."""
DNS_CACHE_SECONDS, DNS_CACHE_NAMES = 60, 10_000
MAX_FIELD_BYTES = 16 << 10
MAX_FIELDS = 128
NO_SUCH_NAME = (socket.EAI_NONAME, socket.EAI_NODATA)
BODILESS = (204, 304)
"""Answers without a body, whatever length their headers give."""


class GuardedHandler(BaseDownloadHandler):  # type: ignore[misc]
    """Downloads http and https URLs. One session and at most one connection to a host."""

    def __init__(self, crawler: Any) -> None:
        super().__init__(crawler)
        network: NetworkConfig = crawler.settings[NETWORK_SETTING]
        self._network = network
        self._guard = Guard(network)
        self._resolver = GuardedResolver(self._guard, network)
        connector = aiohttp.TCPConnector(
            resolver=self._resolver,
            socket_factory=self._guard.open_socket,
            ssl=tls_context(network.ca_file),
            limit=0,  # Scrapy limits them
            limit_per_host=1,
            keepalive_timeout=KEEP_ALIVE_SECONDS,
            ttl_dns_cache=DNS_CACHE_SECONDS,
            dns_cache_max_size=DNS_CACHE_NAMES,
            happy_eyeballs_delay=None,  # it would hide the guard's refusals; addresses come IPv4 first instead
        )
        field_bytes = min(MAX_FIELD_BYTES, network.max_header_bytes)
        self._session = aiohttp.ClientSession(
            connector=connector,
            response_class=_answer_class(network.first_byte_seconds),
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=aiohttp.ClientTimeout(connect=network.connect_seconds),
            trust_env=False,
            auto_decompress=False,
            skip_auto_headers=("Accept", "Accept-Encoding", "Content-Type", "User-Agent"),
            max_line_size=field_bytes,
            max_field_size=field_bytes,
            max_headers=MAX_FIELDS,
        )
        # A connection that ends under a request is a failed attempt, and the host's pause comes before the next one.
        # Left alone, aiohttp asks again at once; it has no public name for this.
        self._session._retry_connection = False

    async def download_request(self, request: Request) -> Response:
        """Fetch, and put the facts into `request.meta["fetched"]`.

        Raises:
            FetchError: there is no answer, or none within the caps.
        """
        total_seconds = self._network.total_seconds
        try:
            url = self._guard.check_url(request.url)
            async with asyncio.timeout(total_seconds) as deadline:
                fetched = await self._fetch(url, request)
        except TimeoutError as error:
            detail = f"no complete answer in {total_seconds:g} seconds" if deadline.expired() else str(error)
            raise FetchError("timeout", detail) from error
        except Exception as error:
            raise _as_fetch_error(error) from error
        request.meta["fetched"] = fetched
        return Response(
            request.url, status=fetched.status, headers=fetched.raw_headers, body=fetched.body, protocol=fetched.version
        )

    async def _fetch(self, url: yarl.URL, request: Request) -> Fetched:
        date = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        headers = _request_headers(request)
        async with self._session.request(request.method, url, headers=headers, allow_redirects=False) as response:
            answer = cast(_Answer, response)
            try:
                body, wire_bytes = await self._read(answer, request)
            finally:
                answer.unwatch()
        assert answer.reason is not None and answer.version is not None
        return Fetched(
            status=answer.status,
            reason=answer.reason,
            version=f"HTTP/{answer.version.major}.{answer.version.minor}",
            raw_headers=answer.raw_headers,
            body=body,
            wire_bytes=wire_bytes,
            address=answer.address,
            seconds=answer.seconds,
            date=date,
            request_head=_request_head(answer.request_info, url),
        )

    async def _read(self, answer: _Answer, request: Request) -> tuple[bytes, int]:
        """The decoded body and its size over the wire; what is not 2xx does without where it cannot be had."""
        _check_head(answer, self._network.max_header_bytes)
        try:
            _check_content_type(answer, request.meta.get("accept"))
            return await self._read_body(answer, request.meta.get("max_bytes", DEFAULT_MAX_BYTES))
        except FetchError:
            if 200 <= answer.status < 300:
                raise
            return b"", 0

    async def _read_body(self, answer: _Answer, max_bytes: int) -> tuple[bytes, int]:
        body = Body(_encodings(answer), max_bytes, self._network.max_expansion)
        if (answer.content_length or 0) > max_bytes and answer.status not in BODILESS:
            raise FetchError("too_large", f"Content-Length {answer.content_length}, more than {max_bytes}")
        loop = asyncio.get_running_loop()
        begin, begin_bytes = loop.time(), 0
        while True:
            try:
                async with asyncio.timeout_at(begin + RATE_SECONDS):
                    data = await answer.content.readany()
            except TimeoutError:
                data = None
            except (aiohttp.ClientPayloadError, aiohttp.ClientOSError, RuntimeError) as error:
                raise FetchError("truncated", str(error)) from error  # RuntimeError: read after the connection's end
            if data == b"":
                if answer.reset and not any(name in answer.headers for name in ("Content-Length", "Transfer-Encoding")):
                    raise FetchError("truncated", "a body that only the connection's end delimits, and that was reset")
                return body.finish(), body.wire_bytes
            body.add(data or b"")
            if loop.time() >= begin + RATE_SECONDS:
                rate = (body.wire_bytes - begin_bytes) / (loop.time() - begin)
                if rate < self._network.min_bytes_per_second:
                    raise FetchError("slow", f"{rate:.0f} bytes a second")
                begin, begin_bytes = loop.time(), body.wire_bytes

    async def close(self) -> None:
        """Close the connections."""
        await self._session.close()
        await self._resolver.close()


class _Answer(aiohttp.ClientResponse):
    """A response that remembers who gave it and how long it took, and whose headers have a deadline."""

    header_seconds: float
    address = ""
    seconds = 0.0
    reset = False
    _lost: asyncio.Future[None] | None = None

    async def start(self, connection: Connection) -> aiohttp.ClientResponse:
        transport, protocol = connection.transport, connection.protocol
        if transport is not None and (peer := transport.get_extra_info("peername")):
            self.address = peer[0]
        self._lost = protocol.closed if protocol is not None else None
        if self._lost is not None:
            self._lost.add_done_callback(self._end)
        loop = asyncio.get_running_loop()
        sent = loop.time()
        try:
            async with asyncio.timeout(self.header_seconds):
                await super().start(connection)
        except TimeoutError as error:
            raise TimeoutError(f"no headers in {self.header_seconds:g} seconds") from error
        self.seconds = loop.time() - sent
        return self

    def unwatch(self) -> None:
        """Let go of the connection, which may live on and serve others."""
        if self._lost is not None:
            self._lost.remove_done_callback(self._end)

    def _end(self, lost: asyncio.Future[None]) -> None:
        """Wake up the reader of a body whose connection is gone: aiohttp forgets to, after garbage between chunks."""
        self.reset = not lost.cancelled() and lost.exception() is not None
        content = cast(aiohttp.StreamReader | None, self.content)
        if content is not None and not content.is_eof() and content.exception() is None:
            content.set_exception(aiohttp.ClientPayloadError("the connection ended inside the body"))


def _answer_class(header_seconds: float) -> type[_Answer]:
    return type("_AnswerWithin", (_Answer,), {"header_seconds": header_seconds})


def tls_context(ca_file: str | None) -> ssl.SSLContext:
    """Certificates to trust: the system's, or those of a file; raises `UsageError` where it holds none."""
    try:
        return ssl.create_default_context(cafile=ca_file)
    except (OSError, ValueError) as error:  # ssl.SSLError is an OSError: a file without certificates
        raise UsageError(
            f"[crawl.network] ca_file: {ca_file} cannot be read as certificates in PEM: {error}"
        ) from error


def _request_headers(request: Request) -> list[tuple[str, str]]:
    headers = [
        (name.decode("latin-1"), value.decode("utf-8", "replace"))
        for name, values in request.headers.items()
        for value in values
    ]
    if "Accept-Encoding" not in request.headers:
        headers.append(("Accept-Encoding", ACCEPT_ENCODING))
    return headers


def _request_head(request: aiohttp.RequestInfo, url: yarl.URL) -> bytes:
    """The request line and headers as aiohttp writes them."""
    lines = [f"{request.method} {url.raw_path_qs} HTTP/1.1", *(f"{k}: {v}" for k, v in request.headers.items())]
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


def _check_head(answer: _Answer, max_bytes: int) -> None:
    size = sum(len(name) + len(value) + 4 for name, value in answer.raw_headers)
    if size > max_bytes:
        raise FetchError("headers", f"{size} bytes of headers, more than {max_bytes}")
    if answer.status < 200:
        raise FetchError("http", f"status {answer.status} in answer to a plain request")


def _check_content_type(answer: _Answer, accept: Iterable[str] | None) -> None:
    """A missing type passes: old servers leave it out, and the page's reader looks at the bytes."""
    content_type = answer.headers.get("Content-Type", "").partition(";")[0].strip().lower()
    if accept is not None and content_type and content_type not in accept:
        raise FetchError("content_type", content_type[:100])


def _encodings(answer: _Answer) -> list[str]:
    transfer = _listed(answer, "Transfer-Encoding")
    if transfer not in ([], ["chunked"]):
        raise FetchError("encoding", f"unknown Transfer-Encoding {', '.join(transfer)[:100]!r}")
    return [name for name in _listed(answer, "Content-Encoding") if name != "identity"]


def _listed(answer: _Answer, name: str) -> list[str]:
    """The elements of a list header (RFC 9110, section 5.6.1)."""
    elements = ",".join(answer.headers.getall(name, [])).split(",")
    return [element.strip().lower() for element in elements if element.strip()]


def _as_fetch_error(error: Exception) -> FetchError:
    match error:
        case FetchError():
            return error
        case Refused():
            return FetchError(error.kind, error.detail)
        case aiohttp.ClientConnectorDNSError():
            return FetchError("dns", str(error.os_error), retry=error.os_error.errno not in NO_SUCH_NAME)
        case aiohttp.ClientSSLError() | ssl.SSLError():
            return FetchError("tls", str(error))
        case aiohttp.ClientResponseError():
            return _as_head_error(error)
        case aiohttp.InvalidURL():
            return FetchError("bad_url", str(error))
        case aiohttp.ServerDisconnectedError():
            return FetchError("http", "the connection ended before an answer")
        case OSError():
            return FetchError("connect", str(error))
        case aiohttp.ClientError():
            return FetchError("http", str(error))
    raise error


def _as_head_error(error: aiohttp.ClientResponseError) -> FetchError:
    """A status line or headers that aiohttp's parser does not take; the reason is two causes deep."""
    cause = error.__cause__ and error.__cause__.__cause__
    detail = " ".join(error.message.split())[:200]
    if isinstance(cause, LineTooLong | InvalidHeader) or "header" in detail.lower():
        return FetchError("headers", detail)
    return FetchError("http", detail)
