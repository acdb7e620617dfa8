"""Servers that break: too slow, without end, cut off, lying about lengths and codings, or not there at all.

Each fault has a host of its own, since a host in trouble is asked less, and a home page that leads to it.
"""

from __future__ import annotations

import gzip
import re
import zlib

from tools.fake_site.expected import FAULTY, UNKNOWN, Expected
from tools.fake_site.site import Site, Web, article, html_of
from tools.fake_site.wire import Answer, Asked, Computed, Fault, Reply, Wire, head

SLOW_SECONDS = 1.0  # between two bytes
PIECE = b"\xe6\xb0\xb4" * 10_000
HUGE_BYTES = 3_000_000  # more than a page may have
BOMB_BYTES = 400 << 20
MAX_ATTEMPTS = 2
HANGING_UP = ("robots-reset.test", "reset.test", "hang-up.test", "reset-then-fine.test")
TIMEOUT, SLOW = "error:timeout", "error:slow"
HTML_HEADER = ("Content-Type", "text/html; charset=utf-8")
CHUNKED, LONG = ("Transfer-Encoding", "chunked"), ("Content-Length", "100000")
OK = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n"


def build(web: Web) -> None:
    """All hosts of this kind."""
    for name, (reply, fates) in _FAULTS.items():
        site = _host(web, name)
        site.add("/fault.html", reply, f"fault: {name}", FAULTY, fates, 1, MAX_ATTEMPTS)
    _passing(web)
    _statuses(web)
    _types(web)
    _absent(web)
    _half(web)
    _down(web)


def _host(web: Web, name: str, targets: tuple[str, ...] = ("/fault.html",)) -> Site:
    site = web.site(re.sub("[^a-z0-9]", "-", name.lower()) + ".test")
    site.add("/", article(site.host, targets), "faults: their hosts' homes")
    return site


def sends(*pieces: bytes, then: bytes = b"", pause: float = 0.0, stalls: bool = False) -> Fault:
    """Sends pieces, then one piece over and over with pauses (seconds), or waits for ever, and hangs up at the end."""

    async def fault(wire: Wire) -> None:
        for piece in pieces:
            await wire.send(piece)
        while then:
            await wire.send(then)
            if pause:
                await wire.pause(pause)
        if stalls:
            await wire.pause()

    return fault


def _head(*headers: tuple[str, str]) -> bytes:
    return head(200, [HTML_HEADER, *headers])


silence = sends(stalls=True)


async def reset(wire: Wire) -> None:
    """Ends the connection with RST."""
    await wire.reset()


def _bomb(coding: str) -> Fault:
    """A small body that unpacks to `BOMB_BYTES`; made as it is sent, never held."""

    async def fault(wire: Wire) -> None:
        packer = zlib.compressobj(9, wbits=31 if coding == "gzip" else 15)
        await wire.send(_head(("Content-Encoding", coding)))
        zeros = bytes(1 << 20)
        for _ in range(BOMB_BYTES >> 20):
            await wire.send(packer.compress(zeros))
        await wire.send(packer.flush())

    return fault


_BODY = html_of("fault").encode()
_PACKED = gzip.compress(_BODY, mtime=0)
_ZEROS = gzip.compress(gzip.compress(bytes(64 << 20), mtime=0), mtime=0)
_KEPT_OR_HTTP = ("error:http", "error:truncated", "fetched")
_PROTOCOL = ("error:http", "error:headers", "error:truncated", TIMEOUT)

_FAULTS: dict[str, tuple[Reply, tuple[str, ...]]] = {
    "silence": (silence, (TIMEOUT,)),
    "slow header": (
        sends(OK + b"X-Slow: ", then=b"a", pause=SLOW_SECONDS),
        (TIMEOUT, SLOW),
    ),
    "slow body": (sends(_head(LONG), then=b"a", pause=SLOW_SECONDS), (TIMEOUT, SLOW)),
    "stalled body": (sends(_head(LONG), PIECE, stalls=True), (TIMEOUT, SLOW)),
    "endless body": (sends(_head(), then=PIECE), ("error:too_large",)),
    "endless chunks": (sends(_head(CHUNKED), then=b"%x\r\n%b\r\n" % (len(PIECE), PIECE)), ("error:too_large",)),
    "endless headers": (sends(OK, then=b"X-Header: %b\r\n" % (b"v" * 500)), ("error:headers",)),
    "endless header": (sends(OK + b"X-Header: ", then=PIECE.replace(b"\xe6", b"a")), ("error:headers",)),
    "endless informational": (
        sends(then=b"HTTP/1.1 103 Early Hints\r\nLink: </a.css>\r\n\r\n" * 50),
        ("error:headers", "error:http", TIMEOUT),
    ),
    "huge length": (
        sends(_head(("Content-Length", str(10**15))), PIECE),
        ("error:too_large", "error:truncated"),
    ),
    "huge page": (Answer(b"<p>" + "水".encode() * (HUGE_BYTES // 3)), ("error:too_large",)),
    "truncated": (sends(_head(("Content-Length", str(len(_BODY) + 1))), _BODY), ("error:truncated",)),
    "truncated chunks": (
        sends(_head(CHUNKED), b"%x\r\n" % len(_BODY), _BODY),
        ("error:truncated",),
    ),
    "length too small": (sends(_head(("Content-Length", "100")), _BODY), _KEPT_OR_HTTP),
    "two lengths": (
        sends(_head(("Content-Length", "5"), ("Content-Length", "50")), _BODY),
        _PROTOCOL,
    ),
    "negative length": (sends(_head(("Content-Length", "-5")), _BODY), _PROTOCOL),
    "length and chunks": (
        sends(_head(("Content-Length", "5"), CHUNKED), b"0\r\n\r\n"),
        (*_PROTOCOL, "fetched"),
    ),
    "chunked garbage": (
        sends(_head(CHUNKED), b"zz\r\nnot a length\r\n", _BODY),
        _PROTOCOL,
    ),
    "chunk of 2^80": (
        sends(_head(CHUNKED), b"1" + b"0" * 20 + b"\r\n", _BODY),
        (*_PROTOCOL, "error:too_large"),
    ),
    "gzip bomb": (_bomb("gzip"), ("error:bomb", "error:too_large")),
    "deflate bomb": (_bomb("deflate"), ("error:bomb", "error:too_large")),
    "gzip in gzip": (
        Answer(_ZEROS, headers=(("Content-Encoding", "gzip, gzip"),)),
        ("error:bomb", "error:too_large", "error:encoding"),
    ),
    "broken gzip": (
        Answer(_PACKED[:60] + b"\0\0\0\0" + _PACKED[64:], headers=(("Content-Encoding", "gzip"),)),
        ("error:encoding",),
    ),
    "cut gzip": (Answer(_PACKED[:-20], headers=(("Content-Encoding", "gzip"),)), ("error:encoding", "error:truncated")),
    "not gzip": (Answer(_BODY, headers=(("Content-Encoding", "gzip"),)), ("error:encoding",)),
    "unknown coding": (Answer(_BODY, headers=(("Content-Encoding", "x-secret"),)), ("error:encoding",)),
    "reset": (reset, ("error:connect", "error:truncated", "error:http")),
    "hang up": (sends(), ("error:connect", "error:truncated", "error:http")),
    "HTTP 0.9": (sends(_BODY), _PROTOCOL),
    "garbage": (sends(bytes(range(256)) * 100), _PROTOCOL),
    "control characters": (
        sends(b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nX-A: \0\x01\r\n\r\n", _BODY),
        (*_PROTOCOL, "fetched"),
    ),
    "status 999": (sends(b"HTTP/1.1 999 Request denied\r\nContent-Length: 0\r\n\r\n"), (*_PROTOCOL, "error:http_999")),
    "status 7": (sends(b"HTTP/1.1 7 What\r\nContent-Length: 0\r\n\r\n"), (*_PROTOCOL, "error:http_7")),
    "header bombs": (
        sends(_head(*(("Set-Cookie", f"a{number}=b") for number in range(5000))), _BODY),
        ("error:headers",),
    ),
}


def _passing(web: Web) -> None:
    """Trouble that passes: the second time the page is there."""
    troubles: dict[str, Reply] = {
        "503 then fine": Answer(b"", 503, headers=(("Retry-After", "0"),)),
        "500 then fine": Answer(b"", 500),
        "429 then fine": Answer(b"", 429, headers=(("Retry-After", "1"),)),
        "reset then fine": reset,
    }
    for name, trouble in troubles.items():
        site = _host(web, name)
        site.add_computed(
            "/fault.html", _fine_later(trouble, article(name)), f"fault: {name}", FAULTY, ("fetched",), 2, 2
        )


def _fine_later(trouble: Reply, answer: Answer) -> Computed:
    def respond(asked: Asked) -> Reply:
        return answer if asked.times else trouble

    return respond


def _statuses(web: Web) -> None:
    """Statuses that mean there is no page, now or ever."""
    site = _host(web, "statuses", tuple(f"/{status}.html" for status in (204, 205, 400, 403, 404, 410, 451)))
    for status in (204, 205, 400, 403, 404, 410, 451):
        site.add(
            f"/{status}.html",
            Answer(b"" if status < 400 else _BODY, status),
            "statuses without a page",
            FAULTY,
            (f"error:http_{status}",),
        )
    for status in (429, 500, 502, 503, 504):
        site = _host(web, f"status-{status}-forever")
        fates = (f"error:http_{status}", "error:host_down")
        site.add("/fault.html", Answer(b"", status), "statuses that never pass", FAULTY, fates, 1, MAX_ATTEMPTS)
    site = _host(web, "retry-after-a-year")
    later = Answer(b"", 503, headers=(("Retry-After", "31536000"),))
    site.add("/fault.html", later, "Retry-After of a year", FAULTY, ("error:http_503", "error:host_down"))


def _types(web: Web) -> None:
    """What is no page: given up once its headers are there."""
    types = {
        "/film.mp4": "video/mp4",
        "/image.html": "image/jpeg",
        "/data.bin": "application/octet-stream",
        "/paper.pdf": "application/pdf",
    }
    site = _host(web, "types", tuple(types))
    for target, content_type in types.items():
        site.add(
            target,
            sends(head(200, [("Content-Type", content_type)]), then=PIECE),
            "not a page",
            FAULTY,
            ("error:content_type",),
        )


def _absent(web: Web) -> None:
    """Hosts that do not exist, and one at whose address nobody listens."""
    web.fixed["refused.test"] = "127.1.255.254"
    for host, fates in {
        "refused.test": ("error:connect", "error:robots_unreachable", "error:host_down"),
        "nowhere.invalid": ("error:dns", TIMEOUT, "error:robots_unreachable", "error:host_down"),
    }.items():
        Site(web, host).expect("/", "hosts that are not there", FAULTY, fates, 0, 0)
        web.seeds.append(web.url(host))


def _half(web: Web) -> None:
    """A host whose plain pages are fine; TLS on the same port says nothing."""
    case = "plain pages of a host that fails over TLS"
    site = web.site("half.test")
    secure = f"https://half.test:{web.port}/secure.html"
    site.add("/", article(site.host, [secure, *(f"/{word}.html" for word in ("one", "two", "three"))]), case)
    for word in ("one", "two", "three"):
        site.add(f"/{word}.html", article(word), case)
    fates = frozenset((TIMEOUT, "error:tls", "error:connect", "error:robots_unreachable", "error:host_down"))
    web.truth.add(Expected(secure, FAULTY, case, fates, 0, 0))


def _down(web: Web) -> None:
    """A host that goes down after its home page: it is given up before all of its pages were tried."""
    targets = tuple(f"/page-{name}.html" for name in "abcdefghijklmnopqrst")
    site = _host(web, "goes-down", targets)
    for target in targets:
        site.serve(target, Answer(b"", 503))
    fates = ("error:http_503", "error:host_down", UNKNOWN)
    site.family("/page-.*", "a host that goes down", FAULTY, fates, 1, 12)
