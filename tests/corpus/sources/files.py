"""Input files for tests, made byte by byte so that damage can be put at a known place."""

from __future__ import annotations

import gzip
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from corpus.sources import BadRecord, Record, SourcesConfig, read
from corpus.sources.config import InputConfig
from corpus.sources.packing import find_sources
from corpus.sources.stage import ExtractStage

HTML = "text/html; charset=utf-8"


def extract_stage(pattern: str, limits: Mapping[str, int] | None = None, **options: Any) -> ExtractStage:
    """The stage over the files of one source."""
    source = find_sources([SourcesConfig(**options)], [pattern])
    return ExtractStage(source, InputConfig(**limits or {}))


def page(index: int) -> bytes:
    """A small page; different indexes give different text."""
    return f"<html><body><p>第{index}页：学而时习之，不亦说乎？有朋自远方来，不亦乐乎？</p></body></html>".encode()


def warc_record(
    index: int,
    body: bytes | None = None,
    *,
    status: str = "200 OK",
    mime: str = HTML,
    http: str = "",
    kind: str = "response",
) -> bytes:
    """One WARC record; `http` are further HTTP header lines, each with its CRLF."""
    block = page(index) if body is None else body
    if kind in ("response", "request"):
        block = f"HTTP/1.1 {status}\r\nContent-Type: {mime}\r\n{http}\r\n".encode() + block
        mime = f"application/http; msgtype={kind}"
    head = (
        f"WARC/1.1\r\nWARC-Type: {kind}\r\nWARC-Record-ID: <urn:uuid:{index:032x}>\r\n"
        f"WARC-Target-URI: https://example.org/{index}\r\nWARC-Date: 2020-01-02T03:04:05Z\r\n"
        f"Content-Type: {mime}\r\nContent-Length: {len(block)}\r\n\r\n"
    )
    return head.encode() + block + b"\r\n\r\n"


def members(count: int) -> list[bytes]:
    """Gzip members of one record each."""
    return [gzip.compress(warc_record(index), mtime=0) for index in range(count)]


def read_all(path: Path, data: bytes, **config: object) -> tuple[list[Record], list[BadRecord]]:
    """Write a file and read it: the good and the bad records."""
    path.write_bytes(data)
    found = list(read(str(path), SourcesConfig(**config)))  # type: ignore[arg-type]
    return (
        [record for record in found if isinstance(record, Record)],
        [record for record in found if isinstance(record, BadRecord)],
    )
