"""The bytes of WARC 1.1 records: one gzip member each, no header ever longer than its line.

What is stored of an answer is its decoded body, as Common Crawl does it: each tool then reads it, whatever it was
packed with. Headers keep their bytes, order and case; Content-Encoding and Transfer-Encoding, which are no longer true,
are renamed `X-Crawler-...`, and so is a Content-Length that is another.
"""

from __future__ import annotations

import base64
import hashlib
import re
import zlib
from collections.abc import Iterable
from importlib.metadata import version

from corpus.crawl.network.fetched import Fetched

GZIP_LEVEL = 6
GZIP_WINDOW_BITS = 31
SAME_PAYLOAD = "http://netpreserve.org/warc/1.1/revisit/identical-payload-digest"
NOT_MODIFIED = "http://netpreserve.org/warc/1.1/revisit/server-not-modified"
REQUEST = "application/http;msgtype=request"
RESPONSE = "application/http;msgtype=response"
FIELDS = "application/warc-fields"

_NO_LONGER_TRUE = (b"content-encoding", b"transfer-encoding")
_RENAMED = b"X-Crawler-"
_NOT_URI = re.compile(r"[\x00-\x20\x7f<>\"]|[^\x00-\x7f]")
_LINE_ENDS = re.compile(r"[\r\n\0]+")
_LINE_END_BYTES = re.compile(rb"[\r\n\0]+")

Fields = Iterable[tuple[str, str]]


def pack(kind: str, record_id: str, fields: Fields, content_type: str, block: bytes) -> bytes:
    """One record; `record_id` is a URN, `fields` its headers beyond those that every record has."""
    head = [
        ("WARC-Type", kind),
        ("WARC-Record-ID", f"<{record_id}>"),
        *fields,
        ("WARC-Block-Digest", payload_digest(block)),
        ("Content-Type", content_type),
        ("Content-Length", str(len(block))),
    ]
    record = b"".join((b"WARC/1.1\r\n", lines(head), b"\r\n", block, b"\r\n\r\n"))
    return zlib.compress(record, GZIP_LEVEL, wbits=GZIP_WINDOW_BITS)


def lines(fields: Fields) -> bytes:
    """`Name: value` lines; a line end in a value becomes a space, so that no value can begin a header of its own."""
    text = "".join(f"{name}: {_LINE_ENDS.sub(' ', value)}\r\n" for name, value in fields)
    return text.encode("utf-8", "replace")


def response_head(fetched: Fetched) -> bytes:
    """Status line and headers of an answer, to the empty line, as they describe the decoded body. What a 304 tells is
    true of the page that it does not send, and stays."""
    if fetched.status == 304:
        return _head(fetched, fetched.raw_headers)
    length = b"%d" % len(fetched.body)
    headers: list[tuple[bytes, bytes]] = []
    told = False
    for name, value in fetched.raw_headers:
        lower = name.lower()
        if lower == b"content-length":
            if value.strip() == length and not told:
                told = True
            else:
                name = _RENAMED + name
        elif lower in _NO_LONGER_TRUE:
            name = _RENAMED + name
        headers.append((name, value))
    if not told:
        headers.append((b"Content-Length", length))
    return _head(fetched, headers)


def payload_digest(data: bytes) -> str:
    """SHA-1 in base32, as WARC tools have it: `sha1:` and 32 characters."""
    return "sha1:" + base64.b32encode(hashlib.sha1(data, usedforsecurity=False).digest()).decode()


def uri(url: str) -> str:
    """A URL with all escaped that no URI holds."""
    return _NOT_URI.sub(lambda found: "".join(f"%{byte:02X}" for byte in found[0].encode("utf-8", "replace")), url)


def warc_info(user_agent: str, contact: str) -> dict[str, str]:
    """What each file's warcinfo says of the crawl."""
    return {
        "software": f"wenhai/{version('wenhai')}",
        "format": "WARC File Format 1.1",
        "conformsTo": "http://iipc.github.io/warc-specifications/specifications/warc-format/warc-1.1/",
        "robots": "obey (RFC 9309)",
        "http-header-user-agent": user_agent,
        "operator": contact,
    }


def _head(fetched: Fetched, headers: Iterable[tuple[bytes, bytes]]) -> bytes:
    status = f"{fetched.version} {fetched.status} {fetched.reason}".encode("utf-8", "surrogateescape")
    head = [status, *(name + b": " + value for name, value in headers)]
    return b"".join(_LINE_END_BYTES.sub(b" ", line) + b"\r\n" for line in head) + b"\r\n"
