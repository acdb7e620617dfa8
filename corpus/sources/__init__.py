"""Input files to records: WARC and WET, JSONL, Parquet, plain text and HTML, wiki dumps, Sogou's collections, books.

One reader a format, one noun each: `read` picks it and yields `Record`s and `BadRecord`s in file order. What is wrong
with a record never reaches the next one: it is yielded as a `BadRecord` with its place and kind.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

from corpus.engine import storage
from corpus.sources.compression import first_piece
from corpus.sources.config import Kind, SourcesConfig
from corpus.sources.record import DAMAGE_KINDS, BadRecord, Record

__all__ = ["DAMAGE_KINDS", "BadRecord", "Record", "SourcesConfig", "can_be_cut", "kind_of", "read"]


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

MARKS: tuple[tuple[re.Pattern[bytes], Kind], ...] = (
    (re.compile(rb"WARC/"), "warc"),
    (re.compile(rb"PAR1"), "parquet"),
    (re.compile(rb"\{"), "jsonl"),
    (re.compile(rb"(?:<\?xml[^>]{0,200}\?>\s{0,8})?<mediawiki[\s>]"), "mediawiki"),
    (re.compile(rb"(?:<\?xml[^>]{0,200}\?>\s{0,8})?<doc>\s{0,8}<(?:docno|url)>"), "sogou"),
    (re.compile(rb"<!doctype html|<html", re.IGNORECASE), "html"),
)  # of first bytes


def read(url: str, config: SourcesConfig, span: tuple[int, int] | None = None) -> Iterator[Record | BadRecord]:
    """The records of one file, in order. An empty file has none.

    With `span`, only the lines, or streams of pages, that begin at bytes `start` to `end` of a file that `can_be_cut`.
    With `config.keep_prefix` off, a damaged file is read to its damage first and then gives that and nothing else.
    """
    if span is not None and _name_kind(url) == "mediawiki":
        from corpus.sources.mediawiki import read_mediawiki_span

        yield from read_mediawiki_span(url, config, *span)
        return
    if span is not None:
        from corpus.sources.jsonl import read_span

        yield from read_span(url, config, *span)
        return
    path = storage.fetch(url)
    if not config.keep_prefix:
        for found in _read(path, config):
            if isinstance(found, BadRecord) and found.kind in DAMAGE_KINDS:
                yield found
                return
    yield from _read(path, config)


def can_be_cut(url: str, config: SourcesConfig) -> bool:
    """Whether ranges of a file can be read by themselves, by its name: plain JSONL, and wiki dumps in bzip2."""
    kind = _name_kind(url)
    is_cuttable = kind == "mediawiki" or (kind == "jsonl" and os.path.splitext(url.lower())[1] in SUFFIXES)
    return is_cuttable and config.kind in ("auto", kind) and config.keep_prefix


def _name_kind(name: str) -> Kind | None:
    """By a name, without the suffix of its compression."""
    name = name.lower()
    if name.endswith(".xml.bz2"):
        return "mediawiki"
    for suffix in (".gz", ".gzip", ".zst", ".zstd", ".bz2"):
        name = name.removesuffix(suffix)
    return next((kind for suffix, kind in SUFFIXES.items() if name.endswith(suffix)), None)


def _read(path: Path, config: SourcesConfig) -> Iterator[Record | BadRecord]:
    if path.stat().st_size == 0:
        return
    kind = kind_of(path) if config.kind == "auto" else config.kind
    if kind not in ("text", "html"):  # corpus.sources.KIND has read_KIND; imported here, as each brings its own library
        yield from getattr(import_module(f"corpus.sources.{kind}"), f"read_{kind}")(path, config)
    else:
        from corpus.sources.text import read_blocks, read_file

        whole = kind == "html" or config.document == "file"
        yield from read_file(path, config, kind) if whole else read_blocks(path, config)


def kind_of(path: Path) -> Kind:
    """By the name without .gz, .zst or .bz2, else by the first decompressed bytes, else plain text."""
    named = _name_kind(path.name)
    if named is not None:
        return named
    head = first_piece(path).lstrip()
    return next((kind for mark, kind in MARKS if mark.match(head)), "text")
