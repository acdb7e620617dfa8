"""MediaWiki's XML exports (schema 0.10 and 0.11: Wikipedia, Wikisource, Wiktionary) page by page, as wikitext records.

In an export `<` stands for markup only, so pages are cut by their bytes at `<page>` and each is given to expat alone: a
page that is not well-formed costs itself, and there is nothing an entity or a DTD could be declared in. Of a page with
several revisions the last is taken. Redirects, other namespaces and pages of code are counted as bad records. Nothing
about who wrote a page is read.

A bzip2 dump in streams (`pages-articles-multistream.xml.bz2`: 100 pages each) can be read in ranges: a page belongs to
the range in which the stream that it begins in begins, wherever it ends. A dump of one stream is read by one task.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO
from urllib.parse import quote
from xml.parsers import expat

from corpus.engine import storage
from corpus.sources.blocks import Block, read_blocks, split_blocks
from corpus.sources.compression import (
    BZIP2_HEAD_BYTES,
    Compression,
    DamagedStream,
    compression_of,
    magic_of,
    read_pieces,
)
from corpus.sources.config import SourcesConfig
from corpus.sources.members import GzipMembers
from corpus.sources.record import BadRecord, Record

PAGE = re.compile(rb"<page>")
PAGE_END = b"</page>"
MAX_SITE_BYTES = 1 << 20  # of what stands before the first page
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


@dataclass(slots=True)
class _Page:
    """The elements of a page that are kept; `path` is where the parser stands."""

    path: list[str] = field(default_factory=list)
    texts: dict[str, list[str]] = field(default_factory=dict)
    is_redirect: bool = False

    def start(self, name: str, attributes: dict[str, str]) -> None:
        self.path.append(name)
        if name == "redirect":
            self.is_redirect = True
        elif name == "revision":
            self.texts = {key: value for key, value in self.texts.items() if not key.startswith("page/revision/")}

    def end(self, name: str) -> None:
        self.path.pop()

    def data(self, text: str) -> None:
        if len(self.path) <= 3 and self.path[-1] in (
            "title",
            "ns",
            "id",
            "timestamp",
            "model",
            "text",
            "base",
            "dbname",
        ):
            self.texts.setdefault("/".join(self.path), []).append(text)

    def get(self, path: str) -> str:
        return "".join(self.texts.get(path, ()))


def read_mediawiki(path: Path, config: SourcesConfig) -> Iterator[Record | BadRecord]:
    """The pages of a dump in order, as records of wikitext or as bad records."""
    compression = compression_of(path)
    with path.open("rb") as file:
        if compression == "bzip2":
            yield from _read_streams(file, config, 0, file.seek(0, 2))
        else:
            site = _site(file, compression)
            for found in read_blocks(file, compression, PAGE, _max_block_bytes(config)):
                if isinstance(found, BadRecord):
                    yield found
                elif PAGE.match(found.data or b"<page>"):
                    yield from _read_block(found, found.offset, site, config)


def read_mediawiki_span(url: str, config: SourcesConfig, start: int, end: int) -> Iterator[Record | BadRecord]:
    """The pages of the bzip2 streams that begin at bytes `start` to `end`."""
    with storage.open_stream(url) as file:
        yield from _read_streams(file, config, start, end)


def _read_streams(file: BinaryIO, config: SourcesConfig, start: int, end: int) -> Iterator[Record | BadRecord]:
    site = _site(file, "bzip2")
    streams = GzipMembers(file, b"", "bzip2")
    file.seek(0)
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
    page = _parse(bytes(head[begin:end]) + b"</siteinfo>") if 0 <= begin < end else None
    if page is None:
        return Site()
    address = page.get("siteinfo/base")
    prefix, wiki, _ = address.partition("/wiki/")
    base = prefix + wiki if wiki else address.rpartition("/")[0] + "/"
    return Site(base if len(base) > 1 else None, page.get("siteinfo/dbname") or None)


def _parse(data: bytes) -> _Page | None:
    """The kept elements of well-formed XML."""
    page = _Page()
    parser = expat.ParserCreate("utf-8")
    parser.buffer_text = True
    parser.StartElementHandler, parser.EndElementHandler = page.start, page.end
    parser.CharacterDataHandler = page.data
    try:
        parser.Parse(data, True)
    except expat.ExpatError:
        return None
    return page


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
        yield BadRecord(offset, len(data), "xml", "a page that is not well-formed")
    else:
        yield _to_record(page, offset, len(data), site, config)
    if rest.strip() not in (b"", b"</mediawiki>") and not block.damaged:
        yield BadRecord(offset + len(data), len(rest), "xml", "no page, behind one that ended")


def _to_record(page: _Page, offset: int, length: int, site: Site, config: SourcesConfig) -> Record | BadRecord:
    text, title = page.get("page/revision/text"), page.get("page/title")
    namespace = page.get("page/ns").strip() or "0"
    model = page.get("page/revision/model") or "wikitext"
    raw = text.encode()
    if not (namespace.removeprefix("-").isdecimal() and int(namespace) in config.namespaces):
        return BadRecord(offset, length, "namespace", f"namespace {namespace[:10]}")
    if page.is_redirect:
        return BadRecord(offset, length, "redirect", "a redirect to another page")
    if model != "wikitext":
        return BadRecord(offset, length, "content_type", f"a page of {model[:80]}")
    if not raw.strip():
        return BadRecord(offset, length, "empty", "a page without text")
    if len(raw) > config.max_page_bytes:
        return BadRecord(offset, length, "too_long", f"a page of {len(raw):,} bytes")
    number = page.get("page/id").strip()
    fields = {"page_id": int(number)} if number.isdecimal() and len(number) < 19 else {}
    if namespace != "0":
        fields["namespace"] = int(namespace)
    url = site.url(title) if title else None
    date = page.get("page/revision/timestamp").strip()[:10] or None
    return Record(url or title, offset, raw, "wikitext", None, url, "utf-8", site.dbname, title or None, date, fields)
