"""WARC 1.0 and 1.1 and WET, in gzip, zstd or plain: pages, with every damaged record costing itself only.

fastwarc reads the records, we cut the file: it stops at the first corrupt gzip member (one bad record of 100 would cost
fifty) and passes a truncated last member without a word. So each member is inflated to its end and its checksum before
its last record is yielded, and after damage the file is scanned for the next member that begins with `WARC/`. In a
plain file records are cut by their Content-Length, which must lead to a record's end; after damage the next `WARC/1.`
at a line's start is taken.

Documents are `response` records and `resource` records of HTML or plain text, and `conversion` records (WET). Of those,
other status codes and content types are yielded as bad records (`http_status`, `content_type`), so that they are
counted; so are records of no type or an unknown one (damage that no checksum tells) and continuations, which are not
joined. Requests, revisits, metadata and warcinfo are no documents.
"""

from __future__ import annotations

import io
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from fastwarc.stream_io import BrotliReader, ChunkedReader
from fastwarc.warc import ArchiveIterator, WarcRecord, WarcRecordType

from corpus.sources.compression import GZIP_MAGIC, DamagedStream, GzipMembers, compression_of, find
from corpus.sources.config import SourcesConfig
from corpus.sources.record import BadRecord, Record, RecordError

READ_BYTES = 64 << 10
MAX_HEADER_BYTES = 64 << 10
MAX_LINE_ENDS = 16  # between two records of a plain file; four are proper
MAX_ENCODINGS = 5  # of one payload; servers use two
RECORD_START = b"WARC/1."

HTML_TYPES = frozenset({"text/html", "application/xhtml+xml", "application/vnd.wap.xhtml+xml"})
TEXT_TYPES = frozenset({"text/plain"})
DOCUMENT_TYPES = WarcRecordType.response | WarcRecordType.resource | WarcRecordType.conversion
NO_DOCUMENTS = WarcRecordType.warcinfo | WarcRecordType.request | WarcRecordType.metadata | WarcRecordType.revisit


def read_warc(path: Path, config: SourcesConfig) -> Iterator[Record | BadRecord]:
    """The documents of a WARC file in file order, and what could not be read in its place."""
    compression = compression_of(path)
    with path.open("rb") as file:
        if compression == "none":
            yield from _read_plain(file, config)
        else:
            yield from _read_members(GzipMembers(file, RECORD_START, compression), config)


def _read_members(members: GzipMembers, config: SourcesConfig) -> Iterator[Record | BadRecord]:
    while members.advance():
        start = members.start
        try:
            yield from _read_records(members, start, config)
        except DamagedStream as damage:
            kind, detail = damage.kind, damage.detail
            found = members.resync(start + 1)
            if found and kind == "truncated":
                kind, detail = "corrupt", "a member without its end"
            yield BadRecord(start, members.start - start, kind, detail)
            if not found:
                return


def _read_plain(file: BinaryIO, config: SourcesConfig) -> Iterator[Record | BadRecord]:
    size = file.seek(0, io.SEEK_END)
    start = 0
    while start < size:
        end = _end_of_record(file, start)
        following_start = _start_after(file, end) if end is not None and end <= size else None
        if end is not None and following_start is not None:
            try:
                yield from _read_records(Slice(file, start, end), start, config)
                start = following_start
                continue
            except DamagedStream:
                pass
        following = find(file, start + 1, b"\n" + RECORD_START)
        kind = "truncated" if following is None and end is not None and end > size else "warc"
        after = size if following is None else following + 1
        yield BadRecord(start, after - start, kind, "no WARC record, or one without its end")
        start = after


class Slice:
    """The bytes of a file from `start` to `end` as a stream."""

    def __init__(self, file: BinaryIO, start: int, end: int) -> None:
        self._file, self._start, self._position, self._end = file, start, start, end

    def read(self, size: int = -1) -> bytes:
        """At most `size` bytes, nothing at the end."""
        left = self._end - self._position
        self._file.seek(self._position)
        data = self._file.read(left if size < 0 else min(size, left))
        self._position += len(data)
        return data

    def tell(self) -> int:
        """Bytes read so far."""
        return self._position - self._start


def _read_records(stream: GzipMembers | Slice, start: int, config: SourcesConfig) -> Iterator[Record | BadRecord]:
    """The documents of one member or slice; the last one is held back until the stream's end proved sound.

    Raises:
        DamagedStream: the stream broke off or holds no WARC record.
    """
    held: Record | BadRecord | None = None
    try:
        for record in ArchiveIterator(
            stream,  # type: ignore[arg-type]
            record_types=WarcRecordType.any_type,  # a record without a type, 0, passes no other mask
            parse_http=False,
            max_header_len=MAX_HEADER_BYTES,
            stream_detect=False,
        ):
            if record.record_type & NO_DOCUMENTS:
                continue
            if held is not None:
                yield held
            held = _to_record(record, start, config)
    except DamagedStream:
        raise
    except (OSError, ValueError, IndexError) as error:
        while stream.read(READ_BYTES):
            pass
        raise DamagedStream("warc", start, f"not a WARC record ({type(error).__name__})") from error
    while stream.read(READ_BYTES):  # fastwarc has read to the end by now; that it did is our promise, not its own
        pass
    if held is not None:
        yield held


def _to_record(record: WarcRecord, start: int, config: SourcesConfig) -> Record | BadRecord:
    url = (record.headers.get("WARC-Target-URI") or "").strip("<>") or None
    if not record.record_type & DOCUMENT_TYPES:
        return BadRecord(start, record.content_length, "warc", "without a known WARC-Type, or a continuation")
    if record.is_http:
        record.parse_http(max_header_len=MAX_HEADER_BYTES)
    try:
        kind, charset = _content_kind(record)
        raw = _payload(record, config.max_page_bytes)
    except RecordError as error:
        return BadRecord(start, record.content_length, error.kind, str(error))
    if not raw:
        return BadRecord(start, 0, "empty", "no payload")
    crawled = record.headers.get("WARC-Date")
    fields = {"warc_date": crawled} if crawled else {}
    return Record(url or "", start, raw, "html" if kind == "html" else "text", url=url, charset=charset, fields=fields)


def _content_kind(record: WarcRecord) -> tuple[str, str | None]:
    """`html` or `text`, and the charset the server declared."""
    if record.record_type == WarcRecordType.conversion:
        return "text", "utf-8"
    if record.record_type == WarcRecordType.response:
        http = record.http_headers
        status = getattr(http, "status_code", None)  # there are no headers, or none that begin with a status line
        if status is None:
            raise RecordError("http", "a response without HTTP headers")
        if status != 200:
            raise RecordError("http_status", f"status {status}")
        declared = http.get("Content-Type") or ""
    else:
        declared = record.headers.get("Content-Type") or ""
    mime, _, parameters = declared.lower().partition(";")
    mime = mime.strip()
    charset = parameters.partition("charset=")[2].split(";")[0].strip(" \"'") or None
    if mime in HTML_TYPES or not mime:
        return "html", charset
    if mime in TEXT_TYPES:
        return "text", charset
    raise RecordError("content_type", mime[:80])


def _payload(record: WarcRecord, max_bytes: int) -> bytes:
    """The decoded payload, never more than a cap of it in memory, with transfer and content encodings undone."""
    raw = record.reader.read(max_bytes + 1)
    if len(raw) > max_bytes:
        raise RecordError("too_long", f"a payload of more than {max_bytes:,} bytes")
    http = record.http_headers
    if http is None:
        return raw
    encodings = [http.get("Content-Encoding") or "", http.get("Transfer-Encoding") or ""]
    names = [part.strip().lower() for value in encodings for part in value.split(",")]
    if len(names) > MAX_ENCODINGS:
        raise RecordError("http", f"{len(names):,} encodings of one payload")
    for name in reversed(names):
        raw = _undo(name, raw, max_bytes)
    return raw


def _undo(encoding: str, raw: bytes, max_bytes: int) -> bytes:
    """One encoding undone. Crawlers often store decoded bodies under the old header: what is not encoded is kept."""
    if encoding in ("gzip", "x-gzip", "deflate"):
        if encoding != "deflate" and not raw.startswith(GZIP_MAGIC):
            return raw
        return _inflate(raw, max_bytes)
    if encoding not in ("br", "chunked"):
        return raw
    reader = (BrotliReader if encoding == "br" else ChunkedReader)(io.BytesIO(raw))
    try:
        decoded = reader.read(max_bytes + 1)
    except OSError:
        return raw
    if len(decoded) > max_bytes:
        raise RecordError("too_long", f"a payload of more than {max_bytes:,} bytes once decoded")
    return decoded


def _inflate(raw: bytes, max_bytes: int) -> bytes:
    """gzip, zlib or bare deflate, as servers send them; a body that breaks off is kept up to there."""
    for window_bits in (32 + zlib.MAX_WBITS, -zlib.MAX_WBITS):
        try:
            decoded = zlib.decompressobj(window_bits).decompress(raw, max_bytes + 1)
        except zlib.error:
            continue
        if len(decoded) > max_bytes:
            raise RecordError("too_long", f"a payload of more than {max_bytes:,} bytes once decoded")
        return decoded
    return raw


def _end_of_record(file: BinaryIO, start: int) -> int | None:
    """Where a plain record's block ends by its headers, or None when there are no proper headers at `start`."""
    file.seek(start)
    head, ended, _ = file.read(MAX_HEADER_BYTES).partition(b"\r\n\r\n")
    if not ended or not head.startswith(RECORD_START):
        return None
    for line in head.split(b"\r\n")[1:]:
        name, _, value = line.partition(b":")
        if name.strip().lower() == b"content-length" and value.strip().isdigit() and len(value) < 20:
            return start + len(head) + 4 + int(value)
    return None


def _start_after(file: BinaryIO, end: int) -> int | None:
    """What follows the line ends behind a record; None when neither they, nor a record, nor the file's end stand there:
    the record's length was wrong."""
    file.seek(end)
    data = file.read(MAX_LINE_ENDS + len(RECORD_START))
    rest = data.lstrip(b"\r\n")
    is_end = data.startswith(b"\r\n\r\n") or not rest or rest.startswith(RECORD_START)
    return end + len(data) - len(rest) if is_end else None
