"""The fake web: its bytes are what its truth says, its log sees what a rude client does, and its truth notices
errors."""

from __future__ import annotations

import gzip
import http.client
import socket
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from tools.fake_site import world
from tools.fake_site.crawling import Entry, Log, ill_manners, read_log
from tools.fake_site.expected import ALLOWED, KEPT, SSRF, TRAPPED, Expected, Seen, digest_of
from tools.fake_site.site import Web
from tools.fake_site.wire import Answer, Asked

DELAY = 0.5


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Web, Path]]:
    log = tmp_path_factory.mktemp("site") / "requests.jsonl"
    with world.start(log) as web:
        yield web, log


@dataclass(frozen=True)
class Got:
    status: int
    headers: http.client.HTTPMessage
    body: bytes


def get(web: Web, host: str, target: str = "/", **headers: str) -> Got:
    address = (world.addresses(web) | web.fixed)[host]
    with closing(http.client.HTTPConnection(address, web.port, timeout=60)) as connection:
        connection.request("GET", target, headers={"Host": f"{host}:{web.port}", **headers})
        answer = connection.getresponse()
        return Got(answer.status, answer.headers, answer.read())


def converse(web: Web, host: str, target: str = "/fault.html") -> bytes:
    """All that a host sends, byte for byte, up to 10 MB."""
    with socket.create_connection((world.addresses(web)[host], web.port), timeout=60) as tcp:
        tcp.sendall(f"GET {target} HTTP/1.1\r\nHost: {host}:{web.port}\r\nAccept-Encoding: gzip\r\n\r\n".encode())
        found = b""
        while len(found) < 10_000_000 and (piece := tcp.recv(1 << 16)):
            found += piece
        return found


@pytest.mark.parametrize("codec", ["utf-8", "gbk", "gb18030", "big5"])
def test_pages_in_every_encoding(served: tuple[Web, Path], codec: str) -> None:
    web, _ = served
    for label in ("header", "meta", "none", "lying"):
        answer = get(web, f"{codec}.test", f"/{label}.html")
        assert "</body>" in answer.body.decode(codec)
        named = answer.headers["Content-Type"].partition("charset=")[2]
        assert (named == codec) == (label == "header") and bool(named) == (label in ("header", "lying"))


@pytest.mark.parametrize("coding", ["identity", "gzip", "deflate", "raw-deflate", "br"])
def test_every_way_of_delivery_brings_the_same_page(served: tuple[Web, Path], coding: str) -> None:
    web, _ = served
    for way in ("length", "chunked", "close"):
        target = f"/{coding}/{way}.html"
        plain = get(web, "delivery.test", target).body
        assert digest_of(plain) == web.truth.pages[web.url("delivery.test", target)].digest
        body = get(web, "delivery.test", target, **{"Accept-Encoding": "gzip"}).body
        assert (gzip.decompress(body) if coding == "gzip" else body) == plain


def test_validators(served: tuple[Web, Path]) -> None:
    web, _ = served
    for target, name, condition in (
        ("/etag.html", "ETag", "If-None-Match"),
        ("/modified.html", "Last-Modified", "If-Modified-Since"),
    ):
        first = get(web, "fresh.test", target)
        second = get(web, "fresh.test", target, **{condition: first.headers[name]})
        assert (first.status, second.status, second.body) == (200, 304, b"")


def test_second_round_changes_what_it_says() -> None:
    def body(round_number: int, target: str) -> bytes:
        reply = (
            world.build(80, ("chinese",), round_number=round_number)
            .sites["fresh.test"]
            .respond(Asked("fresh.test", target, {}, round_number, 0))
        )
        assert isinstance(reply, Answer)
        return reply.body

    assert body(1, "/changing.html") != body(2, "/changing.html")
    assert body(1, "/etag.html") == body(2, "/etag.html")


def test_trouble_passes_the_second_time(served: tuple[Web, Path]) -> None:
    web, _ = served
    assert [get(web, "503-then-fine.test", "/fault.html").status for _ in range(2)] == [503, 200]


@pytest.mark.parametrize(
    ("name", "beginning", "at_least"),
    [
        ("truncated", b"HTTP/1.1 200 OK\r\n", 500),
        ("http-0-9", b"<!DOCTYPE", 500),
        ("endless-body", b"HTTP/1.1 200 OK\r\n", 10_000_000),
        ("endless-headers", b"HTTP/1.1 200 OK\r\n", 10_000_000),
        ("endless-chunks", b"HTTP/1.1 200 OK\r\n", 10_000_000),
        ("hang-up", b"", 0),
    ],
)
def test_faults_send_what_they_say(served: tuple[Web, Path], name: str, beginning: bytes, at_least: int) -> None:
    found = converse(served[0], f"{name}.test")
    assert found.startswith(beginning) and len(found) >= at_least


def test_canaries_hear_knocks(served: tuple[Web, Path]) -> None:
    web, log = served
    before = read_log(log).canaries
    assert get(web, "rebound.test").status == 421
    assert read_log(log).canaries == before + 1


def test_log_counts_connections_at_once_and_pauses(served: tuple[Web, Path]) -> None:
    web, log = served
    with ExitStack() as stack:
        for _ in range(2):  # the second while the first is open
            tcp = stack.enter_context(socket.create_connection((world.addresses(web)["moved-here.test"], web.port)))
            tcp.sendall(f"GET /far.html HTTP/1.1\r\nHost: moved-here.test:{web.port}\r\n\r\n".encode())
            assert tcp.recv(1 << 16)
    entries = read_log(log).by_host()["moved-here.test"]
    assert [entry.at_once for entry in entries] == [1, 2]
    assert len({entry.connection for entry in entries}) == 2
    assert all(pause >= 0 for pause in read_log(log).pauses("moved-here.test"))
    get(web, "moved-here.test", "/far.html")
    assert read_log(log).by_host()["moved-here.test"][-1].at_once == 1  # those that were closed do not count


def entry(at: float, target: str = "/", **changes: object) -> Entry:
    good = Entry(at, at + 0.1, "a.test", target, "bot (mailto:a@b.test)", ("host",), 1, 1, 1, "http://a.test:80")
    return replace(good, **changes)  # type: ignore[arg-type]


def complaints(*entries: Entry) -> list[str]:
    return ill_manners(Log(entries, 0), contact="mailto:a@b.test", delay=DELAY, crawl_delays={"a.test": 2 * DELAY})


def test_manners() -> None:
    assert complaints(entry(0, "/robots.txt"), entry(5), entry(10)) == []
    assert "asked for before robots.txt" in complaints(entry(0), entry(5))[0]
    assert "pauses shorter than 1.0 s" in complaints(entry(0, "/robots.txt"), entry(0.1 + 2 * DELAY - 0.01))[0]
    assert "2 connections at once" in complaints(entry(0, "/robots.txt", at_once=2))[0]
    assert "1 requests without" in complaints(entry(0, "/robots.txt"), entry(5, agent="Mozilla"))[0]
    assert "cookie, referer" in complaints(entry(0, "/robots.txt", sent=("host", "referer", "cookie")))[0]


def test_equal_arguments_make_equal_webs() -> None:
    one, two = (world.build(80, pages=100) for _ in range(2))
    assert one.truth.pages == two.truth.pages and one.seeds == two.seeds
    assert world.addresses(one) == world.addresses(two)
    assert len(set(world.addresses(one).values())) == len(one.sites)


def test_many_pages_can_all_be_reached() -> None:
    web = world.build(80, kinds=(), pages=1000)
    found, waiting = set(web.seeds), list(web.seeds)
    while waiting:
        url = waiting.pop()
        host, _, path = url.removeprefix("http://").partition(":80/")
        reply = web.sites[host].respond(Asked(host, f"/{path}", {}, 1, 0))
        assert isinstance(reply, Answer)
        links = {part.partition('"')[0] for part in reply.body.decode().split('<a href="')[1:]}
        new = {link if link.startswith("http") else web.url(host, link) for link in links} - found
        found |= new
        waiting += new
    assert found == set(web.truth.pages) and len(found) == 1000


def test_truth_notices_every_error() -> None:
    web = Web(80)
    site = web.site("a.test")
    site.add("/page", Answer(b"page"), "pages")
    site.expect("/secret", "secrets", "forbidden", ("drop:robots",), 0, 0)
    site.family("/trap.*", "traps", TRAPPED, ("fetched",), 1, 3)
    page, secret, trap = site.url("/page"), site.url("/secret"), site.url("/trap")
    once, twice = Counter({page: 1, trap: 1}), Counter({page: 2, trap: 1})
    fates, payload = {page: "fetched", secret: "drop:robots", trap: "fetched"}, {page: digest_of(b"page")}
    assert not any(row.wrong for row in web.truth.compare(Seen(once, fates, payload)))
    for seen, told in (
        (Seen(once + Counter([secret]), fates, payload), f"{secret}: asked for 1 times, not 0 to 0"),
        (Seen(twice, fates, payload), f"{page}: asked for 2 times, not 1 to 1"),
        (Seen(once, {secret: "drop:robots"}, payload), f"{page}: its fate is unknown, not fetched"),
        (Seen(once, fates, {}), f"{page}: not in the archive"),
        (Seen(once, fates, {page: digest_of(b"another")}), f"{page}: the archive holds another payload"),
        (Seen(once, fates, {**payload, secret: "sha1:X"}), f"{secret}: in the archive, though its fate says no"),
        (Seen(once, fates, payload, canaries=1), "1 connections"),
        (
            Seen(once + Counter(["http://b.test/"]), fates, payload),
            "http://b.test/: asked for, and no page of the site",
        ),
        (Seen(once + Counter({trap: 3}), fates, payload), "4 requests, not 1 to 3"),
        (Seen(once, {**fates, trap: "moved"}, payload), "fates {'moved': 1} are not among fetched"),
    ):
        found = [fault for row in web.truth.compare(seen) for fault in row.wrong]
        assert found and told in found[0], (told, found)


def test_a_url_is_expected_once() -> None:
    web = Web(80)
    web.truth.add(Expected("http://a.test/", ALLOWED, "x", frozenset(KEPT)))
    with pytest.raises(ValueError, match="stands in the truth already"):
        web.truth.add(Expected("http://a.test/", SSRF, "y", frozenset(KEPT)))
