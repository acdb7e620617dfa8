"""Input files to records: every kind of corpus.sources.kinds, and archives of them.

One reader a format, one noun each: `read` picks it and yields `Record`s and `BadRecord`s in file order. What is wrong
with a record never reaches the next one: it is yielded as a `BadRecord` with its place and kind.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import BinaryIO

import msgspec

from corpus.engine import storage
from corpus.sources.compression import DamagedStream, compression_of, first_piece, read_pieces
from corpus.sources.config import SourcesConfig
from corpus.sources.kinds import ARCHIVES, DOCUMENTS, NAMED, kind_by, name_kind, require_library
from corpus.sources.record import DAMAGE_KINDS, LEFT_OUT, BadRecord, Record

__all__ = ["DAMAGE_KINDS", "LEFT_OUT", "BadRecord", "Record", "SourcesConfig", "can_be_cut", "kind_of", "read"]


def read(
    url: str, config: SourcesConfig, span: tuple[int, int] | None = None, stream: BinaryIO | None = None
) -> Iterator[Record | BadRecord]:
    """The records of one file, in order. An empty file has none.

    With `span`, only the lines, or streams of pages, that begin at bytes `start` to `end` of a file that `can_be_cut`;
    these are read from `stream` where it is given.
    With `config.keep_prefix` off, a damaged file is read to its damage first and then gives that and nothing else.
    """
    if span is not None:
        with stream or storage.open_stream(url) as file:
            if name_kind(url) == "mediawiki":
                from corpus.sources.formats.mediawiki import read_streams

                yield from read_streams(file, config, *span)
            else:
                from corpus.sources.formats.jsonl import read_span

                yield from read_span(file, config, *span)
        return
    path = storage.fetch(url)
    if not config.keep_prefix:
        for found in _read(path, config, url):
            if isinstance(found, BadRecord) and found.kind in DAMAGE_KINDS:
                yield found
                return
    yield from _read(path, config, url)


def can_be_cut(url: str, config: SourcesConfig) -> bool:
    """Whether ranges of a file can be read by themselves, by its name: plain JSONL, and wiki dumps in bzip2."""
    is_cuttable = url.lower().endswith((".jsonl", ".ndjson", ".xml.bz2"))
    return is_cuttable and config.kind in ("auto", name_kind(url)) and config.keep_prefix


def _read(path: Path, config: SourcesConfig, name: str, depth: int = 0) -> Iterator[Record | BadRecord]:
    """The records of a file that is called `name` where it comes from."""
    size = path.stat().st_size
    if size == 0:
        return
    kind = kind_of(path)
    if kind in ("zip", *DOCUMENTS) and compression_of(path) != "none":  # they are read from their end
        yield from _read_unpacked(path, config, name, depth)
        return
    if kind not in ARCHIVES and config.kind not in ("auto", kind) and not kind.startswith(LEFT_OUT):
        kind = f"{LEFT_OUT}{kind}" if kind in DOCUMENTS else config.kind
    require_library(kind, name)
    if kind.startswith(LEFT_OUT):
        yield BadRecord(0, size, kind, f"{size:,} bytes")
    elif kind in ARCHIVES:
        yield from _read_archive(path, kind, config, depth)
    elif kind in ("text", "html"):
        from corpus.sources.formats.text import read_blocks, read_file, read_unwrapped

        if kind == "text" and (config.document != "file" or config.split):
            yield from read_blocks(path, config)
        else:
            is_joined = kind == "text" and config.hard_wrapped
            yield from read_unwrapped(path, config) if is_joined else read_file(path, config, kind)
    else:  # corpus.sources.formats.KIND has read_KIND; imported here, as each brings its own library
        reader = getattr(import_module(f"corpus.sources.formats.{kind}"), f"read_{kind}")
        yield from reader(path, config, name) if kind in NAMED else reader(path, config)


def _read_archive(path: Path, kind: str, config: SourcesConfig, depth: int) -> Iterator[Record | BadRecord]:
    from corpus.sources.archives import MAX_DEPTH, members

    if depth == MAX_DEPTH:
        yield BadRecord(0, path.stat().st_size, "bomb", f"archives in each other, more than {MAX_DEPTH} deep")
        return
    for member in members(path, kind):
        if isinstance(member, BadRecord):
            yield member
            continue
        for found in _read(member.path, config, member.name, depth + 1):
            name = f"{member.name}!{found.member}" if found.member else member.name
            if isinstance(found, BadRecord):
                yield replace(found, member=name)
            else:  # a whole file is known by its name
                key = member.name.rsplit("/", 1)[-1] if found.key == member.path.name else found.key
                yield msgspec.structs.replace(found, member=name, key=key)


def _read_unpacked(path: Path, config: SourcesConfig, name: str, depth: int) -> Iterator[Record | BadRecord]:
    with NamedTemporaryFile(prefix="wenhai-") as scratch, path.open("rb") as file:
        try:
            for piece in read_pieces(file, compression_of(path)):
                scratch.write(piece)
        except DamagedStream as damage:
            yield BadRecord(damage.offset, 0, damage.kind, damage.detail)
            return
        scratch.flush()
        for found in _read(Path(scratch.name), config, name, depth):
            if isinstance(found, Record) and found.key == Path(scratch.name).name:
                found = msgspec.structs.replace(found, key=path.name)
            yield found


def kind_of(path: Path) -> str:
    """What a file is, by its first decompressed bytes and its name (`corpus.sources.kinds`), a zip by what is in it."""
    kind = kind_by(path.name, first_piece(path))
    if kind == "zip" and compression_of(path) == "none":
        from corpus.sources.archives import zip_kind

        return zip_kind(path)
    return kind
