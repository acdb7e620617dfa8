"""A small Common Crawl: WARC files by warcio, WET files, the columnar index with the real columns, lists of paths."""

from __future__ import annotations

import gzip
import io
import random
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from warcio.statusandheaders import StatusAndHeaders
from warcio.warcwriter import WARCWriter

from tests.corpus.texts import document

CRAWL = "CC-MAIN-2026-43"
TABLE = f"cc-index/table/cc-main/warc/crawl={CRAWL}"
SEGMENT = f"crawl-data/{CRAWL}/segments/1700000000000.0"
BEGAN = datetime(2026, 10, 20, 12, tzinfo=UTC)
HOSTS = ["www.example.cn", "blog.example.cn", "news.example.com.cn", "example.com", "a.example.tw", "example.cn.com"]
LANGUAGES = ["zho", "zho,eng", "eng,zho", "eng", "jpn", None]
INDEX_SCHEMA = pa.schema(
    [
        pa.field("url_surtkey", pa.string(), nullable=False),
        pa.field("url", pa.string(), nullable=False),
        pa.field("url_host_name", pa.string(), nullable=False),
        pa.field("url_host_tld", pa.string()),
        pa.field("url_host_registered_domain", pa.string()),
        pa.field("url_protocol", pa.string(), nullable=False),
        pa.field("url_path", pa.string(), nullable=False),
        pa.field("fetch_time", pa.timestamp("ms", "UTC"), nullable=False),
        pa.field("fetch_status", pa.int16(), nullable=False),
        pa.field("fetch_redirect", pa.string()),
        pa.field("content_digest", pa.string()),
        pa.field("content_mime_type", pa.string()),
        pa.field("content_mime_detected", pa.string()),
        pa.field("content_charset", pa.string()),
        pa.field("content_languages", pa.string()),
        pa.field("content_truncated", pa.string()),
        pa.field("warc_filename", pa.string(), nullable=False),
        pa.field("warc_record_offset", pa.int32(), nullable=False),
        pa.field("warc_record_length", pa.int32(), nullable=False),
        pa.field("warc_segment", pa.string(), nullable=False),
    ]
)


@dataclass
class Archive:
    """A folder laid out as the archive, and the rows of its index."""

    folder: Path
    rows: list[dict[str, Any]] = field(default_factory=list)
    warcs: list[str] = field(default_factory=list)
    wets: list[str] = field(default_factory=list)
    indexes: list[str] = field(default_factory=list)

    def member(self, row: dict[str, Any]) -> bytes:
        """The bytes of a capture."""
        start = row["warc_record_offset"]
        return (self.folder / row["warc_filename"]).read_bytes()[start : start + row["warc_record_length"]]

    def wanted(self, **options: Any) -> list[dict[str, Any]]:
        """The oracle of the selection, row by row, in the order of cc_fetch within one bucket."""
        found = [row for row in self.rows if _is_wanted(row, **options)]
        return sorted(found, key=lambda row: (row["warc_filename"], row["warc_record_offset"]))


def make_archive(
    folder: Path, num_warcs: int = 3, pages: int = 40, row_group: int = 12, num_indexes: int = 2
) -> Archive:
    """Write an archive below a folder; equal arguments give equal bytes."""
    archive, dice = Archive(folder), random.Random(7)
    for number in range(num_warcs):
        name = f"{SEGMENT}/warc/CC-MAIN-20261020-{number:05d}.warc.gz"
        archive.warcs.append(name)
        _write_warc(archive, name, number, pages, dice)
    for number in range(2):
        name = f"{SEGMENT}/wet/CC-MAIN-20261020-{number:05d}.warc.wet.gz"
        archive.wets.append(name)
        _write_wet(folder / name, number)
    archive.rows.sort(key=lambda row: (row["url_surtkey"], row["fetch_time"]))
    share = -(-len(archive.rows) // num_indexes)
    for number in range(num_indexes):
        name = f"{TABLE}/subset=warc/part-{number:05d}-0a1b.c000.gz.parquet"
        archive.indexes.append(name)
        write_index(folder / name, archive.rows[number * share : (number + 1) * share], row_group)
    others = [f"{TABLE}/subset=robotstxt/part-00000-0a1b.c000.gz.parquet"]
    for kind, paths in (
        ("warc", archive.warcs),
        ("wet", archive.wets),
        ("cc-index-table", others + archive.indexes),
    ):
        write_list(folder, kind, paths)
    return archive


def write_list(folder: Path, kind: str, paths: list[str]) -> None:
    """A list of paths as the archive has it."""
    target = folder / f"crawl-data/{CRAWL}/{kind}.paths.gz"
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(gzip.compress("".join(f"{path}\n" for path in paths).encode(), mtime=0))


def write_index(path: Path, rows: list[dict[str, Any]], row_group: int = 12, schema: pa.Schema = INDEX_SCHEMA) -> None:
    """An index file: gzip, several row groups, with statistics."""
    path.parent.mkdir(parents=True, exist_ok=True)
    table = pa.Table.from_pylist(rows, schema=schema)
    pq.write_table(table, path, compression="gzip", row_group_size=row_group)


def _is_wanted(
    row: dict[str, Any], languages: tuple[str, ...] = ("zho",), primary: bool = False, hosts: tuple[str, ...] = ()
) -> bool:
    spoken = (row["content_languages"] or "").split(",")
    host = row["url_host_name"]
    return (
        row["fetch_status"] == 200
        and row["content_truncated"] is None
        and (row["content_mime_detected"] or row["content_mime_type"]) in ("text/html", "application/xhtml+xml")
        and bool(set(spoken[:1] if primary else spoken) & set(languages))
        and (not hosts or any(host == end or host.endswith("." + end) for end in hosts))
    )


def _write_warc(archive: Archive, name: str, number: int, pages: int, dice: random.Random) -> None:
    path = archive.folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "wb") as file:
        writer = WARCWriter(file, gzip=True, warc_version="1.0")
        _write(writer, "warcinfo", None, b"software: a test\r\n", 0)
        for page in range(pages):
            seed = number * pages + page
            url = f"https://{dice.choice(HOSTS)}/{number}/{page}.html?q=%E6%96%87"
            text = f"<html><head><title>第{seed}页</title></head><body><p>{document(seed)}</p></body></html>"
            body, when = text.encode(), BEGAN + timedelta(seconds=seed)
            head = StatusAndHeaders("200 OK", [("Content-Type", "text/html; charset=utf-8")], protocol="HTTP/1.1")
            _write(
                writer,
                "request",
                url,
                b"",
                seed,
                StatusAndHeaders("GET / HTTP/1.1", [("Host", "x")], is_http_request=True),
            )
            start = file.tell()
            record = _write(writer, "response", url, body, seed, head)
            end = file.tell()
            _write(writer, "metadata", url, bytes(dice.randrange(32, 127) for _ in range(300)), seed)
            digest = record.rec_headers.get_header("WARC-Payload-Digest").removeprefix("sha1:")
            archive.rows.append(_row(url, name, start, end - start, digest, when, dice))


def _row(
    url: str, name: str, start: int, length: int, digest: str, when: datetime, dice: random.Random
) -> dict[str, Any]:
    host, _, path = url.removeprefix("https://").partition("/")
    key = ",".join(reversed(host.removeprefix("www.").split("."))) + ")/" + path
    dull = dice.random()
    return {
        "url_surtkey": key,
        "url": url,
        "url_host_name": host,
        "url_host_tld": host.rsplit(".", 1)[-1],
        "url_host_registered_domain": ".".join(host.split(".")[-2:]),
        "url_protocol": "https",
        "url_path": "/" + path.partition("?")[0],
        "fetch_time": when,
        "fetch_status": 404 if dull < 0.03 else 200,
        "fetch_redirect": None,
        "content_digest": digest,
        "content_mime_type": "text/html",
        "content_mime_detected": dice.choice(["text/html"] * 8 + ["application/xhtml+xml", "application/pdf", None]),
        "content_charset": "UTF-8",
        "content_languages": dice.choice(LANGUAGES + ["zho"] * 6),
        "content_truncated": "length" if dull > 0.97 else None,
        "warc_filename": name,
        "warc_record_offset": start,
        "warc_record_length": length,
        "warc_segment": "1700000000000.0",
    }


def _write_wet(path: Path, number: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "wb") as file:
        writer = WARCWriter(file, gzip=True, warc_version="1.0")
        for page in range(30):
            seed = 1000 + number * 30 + page
            _write(writer, "conversion", f"https://example.cn/wet/{seed}", document(seed).encode(), seed)


def _write(writer: Any, kind: str, url: str | None, body: bytes, seed: int, head: Any = None) -> Any:
    when = (BEGAN + timedelta(seconds=seed)).strftime("%Y-%m-%dT%H:%M:%SZ")
    headers = {"WARC-Date": when, "WARC-Record-ID": f"<urn:uuid:00000000-0000-0000-0000-{seed:012d}>"}
    record = writer.create_warc_record(
        url, kind, payload=io.BytesIO(body), length=len(body), http_headers=head, warc_headers_dict=headers
    )
    writer.write_record(record)
    return record
