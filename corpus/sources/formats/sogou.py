"""Sogou's collections: SogouCA and SogouCS (news as text), SogouT (web pages), whose files only look like XML.

A record is `<doc>`, then `<url>` and `<docno>`, then either `<contenttitle>` and `<content>` in GB18030, or a page's
HTML in whatever encoding it had. Nothing in it is escaped, end tags may be missing and bytes may be bad, so records are
cut where `<doc>` and one of its first tags stand, and no XML parser sees them: a damaged record costs itself.

Sogou writes spaces as U+E40C of GBK's private area. One stands for a full-width space; two and more begin a paragraph.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from corpus.encoding import UndecodableError, codec_of, decode
from corpus.sources.compression import compression_of, first_piece
from corpus.sources.config import SourcesConfig
from corpus.sources.formats.blocks import Block, read_blocks
from corpus.sources.record import BadRecord, Record
from corpus.whatwg import decode_as

START = re.compile(rb"<doc>\s{0,8}<(?:docno|url)>")
SNIFFED_BYTES = 64 << 10

_HEADER = re.compile(
    rb"\s*<(url|docno)>([^\r\n]{0,4096}?)(?:</(?:url|docno)>|(?=[\r\n])|(?=<(?:url|docno|contenttitle|content)>))"
)
_TITLE = re.compile(rb"\s*<contenttitle>([^\r\n]{0,4096}?)(?:</contenttitle>|(?=[\r\n])|(?=<content>))")
_CONTENT_END = re.compile(rb"</content>\s*</doc>")
_SPACES = re.compile("[\ue40c\u3000]{2,}")


def read_sogou(path: Path, config: SourcesConfig) -> Iterator[Record | BadRecord]:
    """The records of a file in order: news as text, pages as HTML."""
    compression = compression_of(path)
    charset = codec_of(config.encoding) or _sniff(path)
    with path.open("rb") as file:
        for found in read_blocks(file, compression, START, config.max_line_bytes):
            yield from [found] if isinstance(found, BadRecord) else _read_block(found, charset, config)


def _sniff(path: Path) -> str:
    """GB18030, as Sogou wrote them, or UTF-8 where the first bytes are nothing else."""
    head = first_piece(path)[:SNIFFED_BYTES]
    try:
        head[: head.rfind(b"\n") + 1].decode("utf-8")
    except UnicodeDecodeError:
        return "gb18030"
    return "gb18030" if head.isascii() else "utf-8"


def _read_block(block: Block, charset: str, config: SourcesConfig) -> Iterator[Record | BadRecord]:
    data = block.data
    if data is None:
        yield BadRecord(block.offset, block.length, "too_long", f"a record of {block.length:,} bytes")
        return
    if not START.match(data):
        if data.strip() and not data.lstrip().startswith(b"<?xml"):
            yield BadRecord(block.offset, block.length, "field", "bytes before the first <doc>")
        return
    position = len(b"<doc>")
    header: dict[bytes, str] = {}
    while found := _HEADER.match(data, position):
        header[found.group(1)] = found.group(2).decode(charset, "replace").strip()
        position = found.end()
    if data[position:].lstrip().startswith((b"<contenttitle>", b"<content>")):
        yield from _read_news(block, data, position, header, charset)
    else:
        yield from _read_page(block, data, position, header, config)


def _read_news(
    block: Block, data: bytes, position: int, header: dict[bytes, str], charset: str
) -> Iterator[Record | BadRecord]:
    """A news item; what stands behind its end and is no record by itself is a bad one."""
    found = _TITLE.match(data, position)
    title = found.group(1).decode(charset, "replace") if found else ""
    begin = data.find(b"<content>", found.end() if found else position)
    end = _CONTENT_END.search(data, max(begin, 0))
    if begin < 0 or not (end or b"</content>" in data[begin:] or not (block.cut or block.damaged)):
        if block.cut:
            yield BadRecord(block.offset, block.length, "truncated", "the file ends inside a record")
        elif not block.damaged:
            yield BadRecord(block.offset, block.length, "field", "no <content>")
        return
    content = data[begin + len(b"<content>") : end.start() if end else len(data)]
    if end is None:
        content = content.rstrip().removesuffix(b"</doc>").rstrip().removesuffix(b"</content>")
    yield _to_text(content, title, header, block.offset, len(data), charset)
    rest = data[end.end() :] if end else b""
    if rest.strip() and not block.damaged:
        yield BadRecord(block.offset + len(data) - len(rest), len(rest), "field", "no record, behind one that ended")


def _to_text(
    content: bytes, title: str, header: dict[bytes, str], offset: int, length: int, charset: str
) -> Record | BadRecord:
    try:
        text = decode_as(content, charset)
    except ValueError:
        try:
            text = decode(content, charset).text
        except UndecodableError as error:
            return BadRecord(offset, length, "charset", str(error))
    text = _plain(text)
    if not text:
        return BadRecord(offset, length, "empty", "no content")
    url, docno = header.get(b"url") or None, header.get(b"docno") or None
    fields = {"docno": docno} if docno else {}
    title = " ".join(_plain(title).split())
    return Record(url or docno or "", offset, content, "text", text, url, charset, None, title or None, None, fields)


def _plain(text: str) -> str:
    """Sogou's spaces as full-width ones, and lines where paragraphs begin."""
    lines = (line.strip() for line in _SPACES.sub("\n", text).splitlines())
    return "\n".join(line for line in lines if line).replace("\ue40c", "\u3000")


def _read_page(
    block: Block, data: bytes, position: int, header: dict[bytes, str], config: SourcesConfig
) -> Iterator[Record | BadRecord]:
    body = data[position:].rstrip()
    if not body.endswith(b"</doc>") and (block.cut or block.damaged):
        if block.cut:
            yield BadRecord(block.offset, block.length, "truncated", "the file ends inside a record")
        return
    raw = body.removesuffix(b"</doc>").strip()
    if not raw:
        yield BadRecord(block.offset, block.length, "empty", "no page")
    elif len(raw) > config.max_page_bytes:
        yield BadRecord(block.offset, block.length, "too_long", f"a page of {len(raw):,} bytes")
    else:
        url, docno = header.get(b"url") or None, header.get(b"docno") or None
        fields = {"docno": docno} if docno else {}
        yield Record(url or docno or "", block.offset, raw, "html", None, url, config.encoding, fields=fields)
