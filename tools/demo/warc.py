"""Write WARC/1.1 files with the same bytes every time: one gzip member a record, ids from contents, dates given.

The records are the crawler's, so that the demo's pages travel the way crawled pages do.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from corpus.crawl.archive import records
from corpus.engine import durable

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
        file.writelines(_records(path.name, pages, about))


def _records(name: str, pages: Iterable[Page], about: dict[str, str]) -> Iterator[bytes]:
    yield _record("warcinfo", 0, {"WARC-Filename": name}, records.FIELDS, records.lines(about.items()))
    for page in pages:
        head = f"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: {len(page.html)}\r\n\r\n".encode()
        fields = {"WARC-Target-URI": page.url, "WARC-Payload-Digest": records.payload_digest(page.html)}
        yield _record("response", page.changed, fields, records.RESPONSE, head + page.html)


def _record(kind: str, changed: int, fields: dict[str, str], content_type: str, block: bytes) -> bytes:
    date = datetime.fromtimestamp(changed, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    key = uuid.uuid5(NAMESPACE, "\n".join([kind, *fields.values(), records.payload_digest(block)]))
    return records.pack(kind, key.urn, [("WARC-Date", date), *fields.items()], content_type, block)
