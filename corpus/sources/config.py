"""Section [sources] of a recipe."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, field_validator

from corpus.engine.config import Strict, nearest_of
from corpus.sources.kinds import ARCHIVES, KINDS

REFUSED_ENCODINGS = frozenset("hz hz-gb-2312 iso-2022-cn iso-2022-cn-ext euc-tw x-euc-tw".split())


class SourcesConfig(Strict):
    """How input files are read. Fields are names of JSON keys or Parquet columns; other fields go to `meta`."""

    kind: str = "auto"
    """`auto` goes by the file's name (.warc.gz, .wet.gz, .jsonl.zst, .parquet, .txt, .html, .xml.bz2), else by its
    first bytes. `mediawiki`: an XML dump of a wiki; `sogou`: SogouCA, SogouCS or SogouT; `book`: a book in plain text,
    never guessed."""
    source: str = Field(default="local", min_length=1)
    """The source of records that do not name one themselves; a part of every document's identity."""
    text_field: str = "text"
    url_field: str = "url"
    id_field: str = "id"
    title_field: str = "title"
    date_field: str = "date"
    source_field: str = "source"
    columns: list[str] = []
    """The names of the columns of CSV files without a line of names; with one it names them."""
    document: Literal["file", "line", "blank_line"] = "file"
    """What a document is in a plain text file."""
    chapters: bool = True
    """Whether a chapter of a book is a document, or the whole book."""
    namespaces: list[int] = [0]
    """Of a MediaWiki dump: the numbers of the namespaces whose pages are documents; 0 holds the articles."""
    encoding: str | None = None
    """The encoding of plain text, books, HTML, Sogou and JSONL files; None finds it out file by file, and takes JSONL
    for UTF-8 or UTF-16."""
    max_error_ratio: float = Field(default=0.1, ge=0, le=1)
    """The build stops where a larger part of the records cannot be read: of 100 in five files, or of all."""
    keep_prefix: bool = True
    """Keep the documents before a cut or damage in a file. False: a damaged file gives none; each is read twice."""
    max_line_bytes: int = Field(default=10_000_000, gt=0)
    """Longer JSONL lines and text documents are `too_long`; this is also what one record costs in memory."""
    max_page_bytes: int = Field(default=16_000_000, gt=0)  # as ExtractConfig has it
    """Longer WARC payloads (decoded), wiki pages and SogouT pages are `too_long`."""
    task_bytes: int = Field(default=256 << 20, gt=0)
    """Input files are read by one task until they add up to this many bytes (as stored)."""
    shard_bytes: int = Field(default=256 << 20, gt=0)
    """A shard of documents is closed after this many bytes of text."""

    @field_validator("kind")
    @classmethod
    def _is_known(cls, kind: str) -> str:
        kinds = ["auto", *(name for name in KINDS if name not in ARCHIVES)]
        if kind not in kinds:
            raise ValueError(f"no such kind of file; {nearest_of(kind, kinds) or 'kinds: ' + ', '.join(kinds)}")
        return kind

    @field_validator("encoding")
    @classmethod
    def _is_read(cls, encoding: str | None) -> str | None:
        if encoding is not None and encoding.lower().replace("_", "-") in REFUSED_ENCODINGS:
            raise ValueError(f"{encoding} is not read, as by browsers: convert the files to UTF-8 first, with iconv")
        return encoding
