"""MediaWiki's XML exports (schema 0.10 and 0.11: Wikipedia, Wikisource, Wiktionary) page by page, as wikitext records.

In an export `<` stands for markup only, so pages are cut by their bytes at `<page>` and each is parsed alone: a
page that is not well-formed costs itself, and there is nothing an entity or a DTD could be declared in. Of a page with
several revisions the last is taken. Redirects, other namespaces and pages of code are counted as bad records. Nothing
about who wrote a page is read.

A bzip2 dump in streams (`pages-articles-multistream.xml.bz2`: 100 pages each) can be read in ranges: a page belongs to
the range in which the stream that it begins in begins, wherever it ends. A dump of one stream is read by one task.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import BinaryIO
from urllib.parse import quote
from xml.etree import ElementTree

from corpus.sources.compression import (
    BZIP2_HEAD_BYTES,
    Compression,
    DamagedStream,
    GzipMembers,
    compression_of,
    magic_of,
    read_pieces,
)
from corpus.sources.config import SourcesConfig
from corpus.sources.formats.blocks import Block, read_blocks, split_blocks
from corpus.sources.record import BadRecord, Record

PAGE = re.compile(rb"<page>")
PAGE_END = b"</page>"
MAX_SITE_BYTES = 1 << 20  # of what stands before the first page
REVISION = ("text", "model", "timestamp")  # what is read of a revision
MAX_TAGS = 100_000  # of a page; one of a thousand revisions has 24,000, and an element takes 500 bytes
MAX_ESCAPED_RATIO = 3  # bytes of XML in a byte of text; `&quot;` has six, and pages are not made of it
PAGE_OVERHEAD_BYTES = 64 << 10
_URL_SAFE = "/:;@$!*(),~"  # what MediaWiki leaves as it is in the address of a page


@dataclass(frozen=True, slots=True)
class Site:
    """What a dump says of its wiki: the start of its pages' URLs and the name of its database (`zhwiki`)."""

    base: str | None = None
    dbname: str | None = None

    def url(self, title: str) -> str | None:
        """The address of a page.

        >>> Site("https://zh.wikipedia.org/wiki/").url("Foo 论语")
        'https://zh.wikipedia.org/wiki/Foo_%E8%AE%BA%E8%AF%AD'
        """
        return self.base + quote(title.replace(" ", "_"), safe=_URL_SAFE) if self.base else None


def read_mediawiki(path: Path, config: SourcesConfig) -> Iterator[Record | BadRecord]:
    """The pages of a dump in order, as records of wikitext or as bad records."""
    compression = compression_of(path)
    with path.open("rb") as file:
        if compression == "bzip2":
            yield from read_streams(file, config, 0, file.seek(0, 2))
        else:
            site = _site(file, compression)
            for found in read_blocks(file, compression, PAGE, _max_block_bytes(config)):
                if isinstance(found, BadRecord):
                    yield found
                elif PAGE.match(found.data or b"<page>"):
                    yield from _read_block(found, found.offset, site, config)


def read_streams(file: BinaryIO, config: SourcesConfig, start: int, end: int) -> Iterator[Record | BadRecord]:
    """The pages of the bzip2 streams that begin at bytes `start` to `end`."""
    site = _site(file, "bzip2")
    file.seek(0)
    streams = GzipMembers(file, b"", "bzip2")
    if start and not streams.resync(start):
        return
    while True:
        places = _Places(streams)
        try:
            for block in split_blocks(places.pieces(), PAGE, _max_block_bytes(config)):
                stream = places.stream_of(block.offset)
                if stream >= end:
                    return
                if PAGE.match(block.data or b"<page>"):
                    yield from _read_block(block, places.number(stream), site, config)
            return
        except DamagedStream as damage:
            damaged = streams.start
            if places.owner(file, damaged) >= end:
                return  # the range that it belongs to tells of it
            found = streams.resync(damaged + 1)
            kind = "corrupt" if damage.kind == "truncated" and found else damage.kind
            yield BadRecord(places.number(damaged), streams.start - damaged, kind, damage.detail)
            if not found or streams.start >= end:
                return


class _Places:
    """The decompressed bytes of a row of streams, and which stream a byte of them came from."""

    def __init__(self, streams: GzipMembers) -> None:
        self._streams = streams
        self._starts: list[tuple[int, int]] = []  # decompressed bytes before a stream, and where it begins in the file
        self._numbered, self._count = -1, 0

    def pieces(self) -> Iterator[bytes]:
        done = 0
        while self._streams.advance():
            self._starts.append((done, self._streams.start))
            while piece := self._streams.read():
                done += len(piece)
                yield piece

    def stream_of(self, position: int) -> int:
        """Where the stream begins that holds the decompressed byte at `position`; positions never go back."""
        while len(self._starts) > 1 and self._starts[1][0] <= position:
            del self._starts[0]
        return self._starts[0][1]

    def owner(self, file: BinaryIO, damaged: int) -> int:
        """Whose range damage belongs to: the stream's that it is in, else that of the last one before."""
        file.seek(damaged)
        if magic_of(file.read(BZIP2_HEAD_BYTES)) == "bzip2":
            return damaged
        before = [start for _, start in self._starts if start < damaged]
        return before[-1] if before else damaged

    def number(self, stream: int) -> int:
        """A place for the next page of a stream: its start and the number of pages before."""
        self._count = self._count + 1 if stream == self._numbered else 0
        self._numbered = stream
        return stream + self._count


def _max_block_bytes(config: SourcesConfig) -> int:
    return MAX_ESCAPED_RATIO * config.max_page_bytes + PAGE_OVERHEAD_BYTES


def _site(file: BinaryIO, compression: Compression) -> Site:
    """What stands before the first page, as far as it can be read."""
    head = bytearray()
    try:
        for piece in read_pieces(file, compression):
            head += piece
            if len(head) > MAX_SITE_BYTES or b"</siteinfo>" in head or PAGE_END in head:
                break
    except DamagedStream:
        pass
    begin, end = head.find(b"<siteinfo>"), head.find(b"</siteinfo>")
    info = _parse(bytes(head[begin:end]) + b"</siteinfo>") if 0 <= begin < end else None
    if info is None:
        return Site()
    prefix, wiki, _ = _text(info, "base").partition("/wiki/")
    base = prefix + wiki if wiki else prefix.rpartition("/")[0] + "/"
    return Site(base if len(base) > 1 else None, _text(info, "dbname") or None)


def _parse(data: bytes) -> ElementTree.Element | None:
    """Well-formed XML; a page of more elements than its revisions can have costs their memory, and is none."""
    if data.count(b"<") > MAX_TAGS:
        return None
    try:
        return ElementTree.fromstring(data)
    except ElementTree.ParseError:
        return None


def _text(element: ElementTree.Element, path: str) -> str:
    return element.findtext(path) or ""


def _read_block(block: Block, offset: int, site: Site, config: SourcesConfig) -> Iterator[Record | BadRecord]:
    """A page, and a bad record for what stands between it and the next one if that is anything."""
    if block.data is None:
        yield BadRecord(offset, block.length, "too_long", f"a page of {block.length:,} bytes of XML")
        return
    data, ended, rest = block.data.partition(PAGE_END)
    if not ended:
        if block.cut:
            yield BadRecord(offset, block.length, "truncated", "the file ends inside a page")
        elif not block.damaged:  # of damage a record follows
            yield BadRecord(offset, block.length, "xml", "a page without its end")
        return
    page = _parse(data + ended)
    if page is None:
        what = f"of more than {MAX_TAGS:,} elements" if data.count(b"<") > MAX_TAGS else "that is not well-formed"
        yield BadRecord(offset, len(data), "xml", f"a page {what}")
    else:
        yield _to_record(page, offset, len(data), site, config)
    if rest.strip() not in (b"", b"</mediawiki>") and not block.damaged:
        yield BadRecord(offset + len(data), len(rest), "xml", "no page, behind one that ended")


def _to_record(
    page: ElementTree.Element, offset: int, length: int, site: Site, config: SourcesConfig
) -> Record | BadRecord:
    revision = page.find("revision[last()]")
    text, model, timestamp = ("", "", "") if revision is None else map(partial(_text, revision), REVISION)
    title, namespace, number = _text(page, "title"), _text(page, "ns").strip() or "0", _text(page, "id").strip()
    raw = text.encode()
    is_wanted = namespace.removeprefix("-").isdecimal() and int(namespace) in config.namespaces
    for is_wrong, kind, detail in (
        (not is_wanted, "namespace", f"namespace {namespace[:10]}"),
        (page.find(".//redirect") is not None, "redirect", "a redirect to another page"),
        (model not in ("", "wikitext"), "content_type", f"a page of {model[:80]}"),
        (not raw.strip(), "empty", "a page without text"),
        (len(raw) > config.max_page_bytes, "too_long", f"a page of {len(raw):,} bytes"),
    ):
        if is_wrong:
            return BadRecord(offset, length, kind, detail)
    fields = {"page_id": int(number)} if number.isdecimal() and len(number) < 19 else {}
    if namespace != "0":
        fields["namespace"] = int(namespace)
    url = site.url(title) if title else None
    date = timestamp.strip()[:10] or None
    source = site.dbname if config.name.field else None  # a constant name counts
    return Record(url or title, offset, raw, "wikitext", None, url, "utf-8", source, title or None, date, fields)
