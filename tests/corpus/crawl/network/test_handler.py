from __future__ import annotations

import asyncio
import gzip
import re
import socket
import zlib
from typing import Any
from urllib.parse import quote

import brotli  # type: ignore[import-untyped]
import pytest
import zstandard
from scrapy import Request

from corpus.crawl.network.address import Guard, GuardedResolver
from corpus.crawl.network.fetched import Fetched, FetchError
from corpus.crawl.network.handler import GuardedHandler
from corpus.crawl.pages.page import read_page
from corpus.crawl.urls.url import normalize
from tests.corpus.crawl.network.raw_server import (
    asynchronous,
    chunked,
    download,
    downloader,
    fetch,
    kind,
    loopback,
    outcome,
    response,
    serve,
    use_resolver,
)

PAGE = "<p>床前明月光，疑是地上霜。</p>".encode()


def fetched(answer: bytes, **meta: Any) -> Fetched:
    result = fetch(answer, **meta)
    assert isinstance(result, Fetched), result
    return result


@asynchronous
async def test_the_facts_of_an_answer() -> None:
    answer = response(PAGE, "SERVER: a  b ", "x-Two: 1", "Content-Type: text/html", "X-TWO: \xb0")
    async with serve(answer) as server, downloader(loopback(server)) as handler:
        headers = {"User-Agent": "wenhaibot", "If-None-Match": 'W/"é"'}
        request = Request(server.url("/a?b"), headers=headers, meta={"accept": ("text/html",)})
        scrapys = await handler.download_request(request)
        facts = request.meta["fetched"]
    assert (facts.status, facts.reason, facts.version) == (200, "OK", "HTTP/1.1")
    assert facts.raw_headers == (
        (b"SERVER", b"a  b"),
        (b"x-Two", b"1"),
        (b"Content-Type", b"text/html"),
        (b"X-TWO", "\xb0".encode()),
        (b"Content-Length", b"%d" % len(PAGE)),
    )
    assert facts.body == PAGE and facts.wire_bytes == len(PAGE)
    assert facts.address == "127.0.0.1" and 0 < facts.seconds < 60
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", facts.date)
    assert [facts.request_head] == server.requests
    assert b"User-Agent: wenhaibot\r\n" in facts.request_head
    assert b"Accept-Encoding: gzip, deflate, br, zstd\r\n" in facts.request_head
    assert (scrapys.url, scrapys.status, scrapys.body) == (request.url, 200, PAGE)
    assert scrapys.headers.getlist("X-Two") == [b"1", "\xb0".encode()]


@pytest.mark.parametrize("target", ["/", "/?a", "/a/../b/./c//d", "/%7e%E4%bd%a0?q=%b0+%a1&&b==;", "/a|b^`{}"])
@asynchronous
async def test_urls_go_out_as_they_are(target: str) -> None:
    async with serve(response()) as server, downloader(loopback(server)) as handler:
        await download(handler, server.url(target) + "#fragment")
        assert server.requests[0].startswith(f"GET {target} HTTP/1.1\r\n".encode())


@pytest.mark.parametrize(
    ("header", "packed"),
    [
        ("gzip", gzip.compress(PAGE)),
        ("GZip", gzip.compress(PAGE)),
        ("deflate", zlib.compress(PAGE)),
        ("br", brotli.compress(PAGE)),
        ("zstd", zstandard.compress(PAGE)),
        ("identity", PAGE),
        (" deflate ,, gzip", gzip.compress(zlib.compress(PAGE))),
    ],
    ids=["gzip", "letter case", "deflate", "br", "zstd", "identity", "two"],
)
def test_encodings_are_undone(header: str, packed: bytes) -> None:
    facts = fetched(response(packed, f"Content-Encoding: {header}"))
    assert facts.body == PAGE and facts.wire_bytes == len(packed)
    facts = fetched(chunked(packed[:5], packed[5:], fields=(f"content-encoding: {header}",)))
    assert facts.body == PAGE and facts.wire_bytes == len(packed)


def test_encodings_in_several_headers() -> None:
    packed = gzip.compress(zlib.compress(PAGE))
    assert fetched(response(packed, "Content-Encoding: deflate", "Content-Encoding: gzip")).body == PAGE


@pytest.mark.parametrize("status", ["204 No Content", "304 Not Modified"])
def test_answers_without_a_body(status: str) -> None:
    facts = fetched(response(status=status, length=5_000_000))
    assert (f"{facts.status} {facts.reason}", facts.body) == (status, b"")


def test_informational_answers_are_passed_over() -> None:
    early = b"HTTP/1.1 103 Early Hints\r\nLink: </a.css>\r\n\r\n"
    facts = fetched(early * 3 + response(PAGE))
    assert facts.status == 200 and facts.body == PAGE and len(facts.raw_headers) == 1


def test_statuses_as_they_come() -> None:
    for status in (201, 301, 404, 429, 503, 599, 999):
        facts = fetched(response(PAGE, status=f"{status} ?"))
        assert (facts.status, facts.body) == (status, PAGE)


async def never_ends(writer: asyncio.StreamWriter, head: bytes) -> None:
    """Send a head and wait until the client hangs up."""
    writer.write(head)
    await writer.drain()
    await writer.wait_closed()


VIDEO = b"HTTP/1.1 %s\r\nContent-Type: Video/MP4; codecs=x\r\nContent-Length: 1000\r\n\r\n"


def test_the_body_of_another_content_type_is_not_waited_for() -> None:
    result = fetch(lambda writer: never_ends(writer, VIDEO % b"200 OK"), accept=("text/html",))
    assert isinstance(result, FetchError)
    assert (result.kind, result.detail, result.retry) == ("content_type", "video/mp4", False)


def test_content_types_that_are_read() -> None:
    for content_type in ("text/html", "TEXT/HTML;charset=gbk", "text/plain ;x", ""):
        assert fetched(response(PAGE, f"Content-Type: {content_type}"), accept=("text/html", "text/plain")).body == PAGE
    assert fetched(response(PAGE), accept=("text/html",)).body == PAGE
    assert fetched(response(PAGE, "Content-Type: video/mp4")).body == PAGE


def test_answers_other_than_2xx_keep_their_status_without_a_body() -> None:
    for status in (b"404 Not Found", b"302 Found", b"503 Busy"):
        video = VIDEO % status
        facts = fetch(lambda writer, v=video: never_ends(writer, v), accept=("text/html",))  # type: ignore[misc]
        assert isinstance(facts, Fetched) and facts.status == int(status[:3]) and facts.body == b""
    assert fetched(response(PAGE, status="404 No", length=9_000_000)).status == 404
    assert fetched(response(PAGE, "Content-Encoding: gzip", status="301 Moved")).status == 301


def test_bodies_as_long_as_the_cap() -> None:
    assert fetched(response(PAGE), max_bytes=len(PAGE)).body == PAGE
    assert kind(response(PAGE), max_bytes=len(PAGE) - 1) == "too_large"
    assert kind(chunked(PAGE), max_bytes=len(PAGE) - 1) == "too_large"


@asynchronous
async def test_one_connection_to_a_host_used_again() -> None:
    async with (
        serve(response(PAGE, "Set-Cookie: a=b"), keep_alive=True) as server,
        downloader(loopback(server, resolve={"a.test": "127.0.0.1"})) as handler,
    ):
        await asyncio.gather(*(download(handler, server.url(f"/{i}", "a.test")) for i in range(4)))
        await download(handler, server.url(host="a.test"))
        assert (server.connections, len(server.requests)) == (1, 5)
        assert not any(b"cookie" in head.lower() for head in server.requests)
        [[(protocol, _)]] = connections(handler)
        assert not protocol.closed._callbacks  # nothing of the answers is kept


def connections(handler: GuardedHandler) -> list[list[Any]]:
    connector: Any = handler._session.connector
    return [list(pool) for pool in connector._conns.values()]


@asynchronous
async def test_a_connection_that_ends_without_an_answer_is_one_attempt() -> None:
    """HTTP clients like to ask again at once where a connection was kept and is gone; the host's pause comes first."""

    async with serve(b"") as server, downloader(loopback(server)) as handler:
        result = await outcome(handler, server.url())
        assert isinstance(result, FetchError) and (result.kind, result.retry) == ("http", True)
        assert server.connections == 1


@asynchronous
async def test_a_port_where_nobody_listens() -> None:
    async with serve(response()) as server:
        network = loopback(server)
    async with downloader(network) as handler:
        result = await outcome(handler, server.url())
    assert isinstance(result, FetchError) and (result.kind, result.retry) == ("connect", True)


@pytest.mark.parametrize(("code", "retry"), [(socket.EAI_NONAME, False), (socket.EAI_AGAIN, True)])
@asynchronous
async def test_names_that_do_not_resolve(code: int, retry: bool) -> None:
    def getaddrinfo(*_: object) -> list[Any]:
        raise socket.gaierror(code, "no address")

    async with serve(response()) as server:
        network = loopback(server)
        async with downloader(network) as handler:
            use_resolver(handler, GuardedResolver(Guard(network), network, getaddrinfo))
            result = await outcome(handler, server.url(host="name.example"))
    assert isinstance(result, FetchError) and (result.kind, result.retry) == ("dns", retry)


@pytest.mark.parametrize("codec", ["gbk", "big5", "utf-8"])
def test_a_link_reaches_its_server_in_the_encoding_of_its_page(codec: str) -> None:
    """A query in the page's encoding, a path in UTF-8, escapes as the page has them (a GBK site's, say)."""

    def escaped(text: str, codec: str) -> bytes:
        return quote(text.encode(codec)).encode()

    links = f"<a href='/路?q=文好&amp;x=1'>文章</a><a href='/{quote('文好'.encode(codec))}?q={quote('文'.encode(codec))}'>好"

    async def run() -> list[bytes]:
        body = f"<meta charset={codec}><title>文章</title>{links}</a>".encode(codec)
        answer = response(body, "Content-Type: text/html")
        async with serve(answer, keep_alive=True) as server, downloader(loopback(server)) as handler:
            first = await download(handler, server.url("/a"))
            page = read_page(first.body, "text/html", server.url("/a"))
            for link in page.links:
                await download(handler, normalize(link.url, server.url("/a"), page.encoding))
            return [request.split(b" ", 2)[1] for request in server.requests[1:]]

    text, character = escaped("文好", codec), escaped("文", codec)
    assert asyncio.run(run()) == [
        b"/" + escaped("路", "utf-8") + b"?q=" + text + b"&x=1",
        b"/" + text + b"?q=" + character,
    ]
