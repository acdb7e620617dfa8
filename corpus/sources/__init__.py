"""Input files to records: WARC and WET, JSONL, Parquet, plain text and HTML, plain or compressed.

One reader a format, one noun each: `read` picks it and yields `Record`s and `BadRecord`s in file order. What is wrong
with a record never reaches the next one: it is yielded as a `BadRecord` with its place and kind.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from corpus.engine import storage
from corpus.sources.compression import DamagedStream, compression_of, read_pieces
from corpus.sources.config import Kind, SourcesConfig
from corpus.sources.record import BadRecord, Record

__all__ = ["BadRecord", "Record", "SourcesConfig", "kind_of", "read"]

SUFFIXES: dict[str, Kind] = {
    ".warc": "warc",
    ".wet": "warc",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "jsonl",
    ".parquet": "parquet",
    ".txt": "text",
    ".text": "text",
    ".md": "text",
    ".html": "html",
    ".htm": "html",
    ".xhtml": "html",
}


def read(url: str, config: SourcesConfig) -> Iterator[Record | BadRecord]:
    """The records of one file, in order. An empty file has none."""
    path = storage.fetch(url)
    if path.stat().st_size == 0:
        return
    kind = kind_of(path) if config.kind == "auto" else config.kind
    if kind == "warc":
        from corpus.sources.warc import read_warc

        yield from read_warc(path, config)
    elif kind == "parquet":
        from corpus.sources.parquet import read_parquet

        yield from read_parquet(path, config)
    elif kind == "jsonl":
        from corpus.sources.jsonl import read_jsonl

        yield from read_jsonl(path, config)
    else:
        from corpus.sources.text import read_blocks, read_file

        whole = kind == "html" or config.document == "file"
        yield from read_file(path, config, kind) if whole else read_blocks(path, config)


def kind_of(path: Path) -> Kind:
    """By the name without .gz or .zst, else by the first decompressed bytes, else plain text."""
    name = path.name.lower()
    for suffix in (".gz", ".gzip", ".zst", ".zstd"):
        name = name.removesuffix(suffix)
    for suffix, kind in SUFFIXES.items():
        if name.endswith(suffix):
            return kind
    with path.open("rb") as file:
        try:
            head = next(read_pieces(file, compression_of(path)), b"").lstrip()
        except DamagedStream:
            head = b""
    if head.startswith(b"WARC/"):
        return "warc"
    if head.startswith(b"PAR1"):
        return "parquet"
    if head.startswith(b"{"):
        return "jsonl"
    return "html" if head[:15].lower().startswith((b"<!doctype html", b"<html")) else "text"
