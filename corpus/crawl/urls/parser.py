"""The URL parser: what a link means, spelt one way, without losing a byte that a server may look at.

This is the WHATWG URL parser (url.spec.whatwg.org, read as of 2024) for http and https: a path is UTF-8, a query
is in the encoding of the page that holds the link (GBK and Big5 sites know no other), escapes stay as they were
written, hosts are ASCII (UTS 46), and a number, in whatever base, is the IPv4 address it stands for. It differs where a
crawler must: users are refused, so are hosts that DNS cannot have; fragments, empty queries and a host's last dot are
gone; and the few characters that browsers send but RFC 3986 has no place for (`[ ] | ^`) are escaped, so that WARC and
every library take the URL as it is (w3lib.url.safe_url_string, which Scrapy runs over every URL, changes nothing).
"""

from __future__ import annotations

import codecs
import re
from functools import lru_cache
from typing import NamedTuple

from corpus.crawl.urls.host import BadUrl, normal_host
from corpus.mojibake import replace_surrogates

MAX_URL_BYTES = 2_048  # servers and sitemaps (sitemaps.org) agree on no more
PORTS = {"http": "80", "https": "443"}

_C0_OR_SPACE = "".join(map(chr, range(0x21)))
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.\-]*):")
_SLASHES = re.compile(r"[/\\]*")
_AUTHORITY_END = re.compile(r"[/\\?]")
_DOT_SEGMENT = re.compile(r"(?:\.|%2[eE]){1,2}")
# Escaped besides what is not ASCII: the standard's path and special-query sets, and what RFC 3986 has no place for.
_IN_PATH = re.compile(rb"[^!$%&'()*+,\-./0-9:;=@A-Z_a-z~]")
_IN_QUERY = re.compile(rb"[^!$%&()*+,\-./0-9:;=?@A-Z_a-z~]")
_WRITTEN_IN_PATH, _WRITTEN_IN_QUERY = (
    [f"%{byte:02X}" if pattern.match(bytes([byte])) else chr(byte) for byte in range(256)]
    for pattern in (_IN_PATH, _IN_QUERY)
)
_STATEFUL = ("utf-16", "utf-32", "iso2022", "utf-7")  # a query is UTF-8 on pages in them


class Parts(NamedTuple):
    """A parsed URL; joined as `scheme://host[:port]path[?query]`."""

    scheme: str
    host: str  # with the port, if it is not the scheme's
    path: str  # from its first slash on
    query: str | None

    def join(self) -> str:
        return f"{self.scheme}://{self.host}{self.path}" + ("" if self.query is None else f"?{self.query}")


def normalize(url: str, base: str | None = None, encoding: str = "utf-8") -> str:
    """The absolute URL that a link means.

    Args:
        url: as the page wrote it, character references decoded.
        base: absolute URL of the page, or of its base element.
        encoding: Python's name of the page's codec; raw characters of the query are written in it.

    >>> normalize("../搜索?q=文海", "http://例子.中国/a/b", "gb18030")
    'http://xn--fsqu00a.xn--fiqs8s/%E6%90%9C%E7%B4%A2?q=%CE%C4%BA%A3'
    >>> normalize("HTTP://0x7f.1:80\\\\..\\\\a#b")
    'http://127.0.0.1/a'

    Raises:
        BadUrl: nothing to fetch.
    """
    if len(url) > 4 * MAX_URL_BYTES:  # data: URLs are megabytes
        raise BadUrl("length", f"{len(url)} characters")
    url = url.strip(_C0_OR_SPACE)
    if "\n" in url or "\t" in url or "\r" in url:
        url = url.replace("\n", "").replace("\t", "").replace("\r", "")
    url = url.partition("#")[0]
    if not url.isascii():
        url = replace_surrogates(url)
    found = _parse(url, _parsed_base(base) if base is not None else None, encoding)
    result = found.join()
    if len(result) > MAX_URL_BYTES:
        raise BadUrl("length", f"{len(result)} bytes")
    return result


def _parse(url: str, base: Parts | None, encoding: str) -> Parts:
    scheme = base.scheme if base else ""
    named = _SCHEME.match(url)
    if named:
        scheme, url = named[1].lower(), url[named.end() :]
        if scheme not in PORTS:
            raise BadUrl("scheme", scheme[:20])
        if base and scheme != base.scheme:
            base = None
    elif base is None:
        raise BadUrl("relative", "no scheme, and no page it could be relative to")

    slashes = _SLASHES.match(url)
    num_slashes = slashes.end() if slashes else 0
    host = base.host if base else ""
    if base is None or num_slashes >= 2:
        url = url[num_slashes:]
        ends = _AUTHORITY_END.search(url)
        end = ends.start() if ends else len(url)
        host, url = _host_and_port(url[:end], scheme), url[end:]
        base = None
    path, mark, query = url.partition("?")
    if path or base is None:
        path = path.replace("\\", "/")
        if not path.startswith("/"):
            path = f"{base.path.rpartition('/')[0]}/{path}" if base else f"/{path}"
        path = _path(path)
    else:
        path = base.path
        if not mark:
            return Parts(scheme, host, path, base.query)
    return Parts(scheme, host, path, _query(query, encoding) or None)


@lru_cache(maxsize=1024)
def _parsed_base(base: str) -> Parts:
    return split(normalize(base))


def split(url: str) -> Parts:
    """The parts of a normalised URL."""
    scheme, _, rest = url.partition("://")
    rest, mark, query = rest.partition("?")
    host, slash, path = rest.partition("/")
    return Parts(scheme, host, slash + path, query if mark else None)


def _path(path: str) -> str:
    data = path.encode()
    escaped = "".join([_WRITTEN_IN_PATH[byte] for byte in data]) if _IN_PATH.search(data) else path
    if "/." not in escaped and "/%2" not in escaped:
        return escaped
    segments: list[str] = []
    last = ""
    for segment in escaped.split("/")[1:]:
        last = segment
        if not _DOT_SEGMENT.fullmatch(segment):
            segments.append(segment)
        elif len(segment.lower().replace("%2e", ".")) == 2 and segments:
            segments.pop()
    if _DOT_SEGMENT.fullmatch(last):
        segments.append("")
    return "/" + "/".join(segments)


def _query(query: str, encoding: str) -> str:
    if query.isascii() or encoding.startswith(_STATEFUL):
        data = query.encode()
    else:
        data = query.encode(encoding, "wenhai.reference")
    return "".join([_WRITTEN_IN_QUERY[byte] for byte in data])


def _as_reference(error: UnicodeError) -> tuple[str, int]:
    """What browsers write for a character that the page's encoding does not have: `&#NNNN;`, escaped."""
    assert isinstance(error, UnicodeEncodeError)
    bad = error.object[error.start : error.end]
    return "".join(f"%26%23{ord(character)}%3B" for character in bad), error.end


codecs.register_error("wenhai.reference", _as_reference)


def _host_and_port(authority: str, scheme: str) -> str:
    if "@" in authority:
        raise BadUrl("userinfo", "a user in the URL")
    host, colon, port = authority.rpartition(":")
    if not colon or "]" in port:
        host, port = authority, ""
    if port:
        if not (port.isascii() and port.isdigit()):
            raise BadUrl("port", port[:20])
        port = port.lstrip("0") or "0"
        if len(port) > 5 or int(port) > 65_535:
            raise BadUrl("port", port[:20])
    host = normal_host(host)
    return host if not port or port == PORTS[scheme] else f"{host}:{port}"
