"""What every reader yields: a record, or the place and kind of one that could not be read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import msgspec

DAMAGE_KINDS = frozenset({"truncated", "corrupt", "trailing", "bomb"})  # of a file, not of a record in it
LEFT_OUT = "left_out."  # and what a file is that no reader reads: `left_out.png`

NO_FAULT = frozenset({"redirect", "namespace", "content_type", "http_status"})  # of a source; it has such records


class Record(msgspec.Struct, frozen=True):  # made six times faster than a frozen dataclass: one a document
    """One document of an input file, before decoding and extraction.

    `key` is what identifies it beside its bytes: an id, else a URL, else nothing; never a place in a file, so that
    splitting or reordering the inputs changes no identity. `raw` are the bytes that were read (an HTML page, a JSON
    line); `text` is set where the format says what it is, otherwise `raw` is decoded. `offset` is the byte offset of
    the record in its file (of the decompressed bytes for compressed JSONL and text, of the row for Parquet; in bzip2
    dumps the start of its stream and the number of pages in it before). In an archive it is the one in its member.
    """

    key: str
    offset: int
    raw: bytes
    kind: Literal["html", "wikitext", "text"]
    text: str | None = None
    url: str | None = None
    charset: str | None = None
    source: str | None = None
    title: str | None = None
    date: str | None = None
    fields: Mapping[str, Any] = msgspec.field(default_factory=dict)
    member: str | None = None  # of an archive, `a.zip!b.txt` of one in another
    num_read: int = 0  # characters without white space, where the reader left some out: `removed`
    removed: dict[str, tuple[int, int]] = {}  # by rule: lines, characters


class RecordError(ValueError):
    """What makes a record a bad one: its kind, as `BadRecord` has it, and in words."""

    def __init__(self, kind: str, detail: str) -> None:
        super().__init__(detail)
        self.kind = kind


@dataclass(frozen=True, slots=True)
class BadRecord:
    """A record that ends here: where it began, how many bytes it covers if known, what was wrong. Never its text.

    Kinds, which become rules `error:<kind>`: `charset`, `json`, `field` (no text, or no string), `empty`, `too_long`;
    of files `truncated`, `corrupt`, `trailing`, `bomb`, `parquet`, `too_large` (a row group of giant cells),
    `encrypted`; of document files `pdf`, `docx`, `epub` (what is inside is none), `killed`, `no_text_layer` (a scan,
    or fonts without meaning); of WARC `warc` (no record, or none of a known type), `http` (no HTTP headers),
    `http_status`, `content_type`; of pages, in
    extraction, `too_deep`, `too_complex` and `killed` (time, memory or a crash); of MediaWiki dumps `xml` (a page that
    is not well-formed), `redirect`, `namespace` (one that was not asked for) and `content_type` (a page of code).
    """

    offset: int
    length: int
    kind: str
    detail: str
    member: str | None = None
