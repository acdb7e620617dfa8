"""Write WARC/1.1 files with the same bytes every time: one gzip member a record, ids from contents, dates given.

The packages only read WARC; this writer exists so that the demo's pages travel the way crawled pages do. Format: ISO
28500:2017 (WARC 1.1), annex D for the gzip members.
"""

from __future__ import annotations

import base64
import hashlib
import uuid
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from corpus.engine import durable

GZIP_LEVEL = 6
GZIP_WINDOW_BITS = 31  # 15 bits of window + 16: a gzip header, with no name and no time in it
NAMESPACE = uuid.uuid5(uuid.NAMESPACE_DNS, "wenhai.demo.invalid")


@dataclass(frozen=True)
class Page:
    """One fetched page: where it is from, when it was last changed (seconds since 1970), and its bytes."""

    url: str
    changed: int
    html: bytes


def write_warc(path: Path, pages: Iterable[Page], about: dict[str, str]) -> None:
    """Commit `pages` as response records behind one `warcinfo` record that carries the fields of `about`."""
    with durable.commit(path) as temporary, open(temporary, "xb") as file:
        for record in _records(path.name, pages, about):
            packer = zlib.compressobj(GZIP_LEVEL, zlib.DEFLATED, GZIP_WINDOW_BITS)
            file.write(packer.compress(record) + packer.flush())


def _records(name: str, pages: Iterable[Page], about: dict[str, str]) -> Iterator[bytes]:
    fields = "".join(f"{key}: {value}\r\n" for key, value in about.items()).encode()
    yield _record("warcinfo", 0, fields, {"Content-Type": "application/warc-fields", "WARC-Filename": name})
    for page in pages:
        head = f"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: {len(page.html)}\r\n\r\n".encode()
        headers = {
            "Content-Type": "application/http;msgtype=response",
            "WARC-Target-URI": page.url,
            "WARC-Payload-Digest": _sha1(page.html),
        }
        yield _record("response", page.changed, head + page.html, headers)


def _record(kind: str, changed: int, block: bytes, headers: dict[str, str]) -> bytes:
    date = datetime.fromtimestamp(changed, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    key = "\n".join([kind, *headers.values(), _sha1(block)])
    lines = [
        "WARC/1.1",
        f"WARC-Type: {kind}",
        f"WARC-Record-ID: <urn:uuid:{uuid.uuid5(NAMESPACE, key)}>",
        f"WARC-Date: {date}",
        *(f"{name}: {value}" for name, value in headers.items()),
        f"WARC-Block-Digest: {_sha1(block)}",
        f"Content-Length: {len(block)}",
    ]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + block + b"\r\n\r\n"


def _sha1(data: bytes) -> str:
    digest = hashlib.sha1(data, usedforsecurity=False).digest()  # the digest every WARC reader knows
    return "sha1:" + base64.b32encode(digest).decode()
