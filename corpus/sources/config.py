"""Section [sources] of a recipe."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator, model_validator

from corpus.engine.config import Strict, nearest_of
from corpus.sources.fields import Names, SourceName
from corpus.sources.kinds import ARCHIVES, KINDS

REFUSED_ENCODINGS = frozenset("hz hz-gb-2312 iso-2022-cn iso-2022-cn-ext euc-tw x-euc-tw".split())

OLD_NAMES = {"source": "default", "source_field": "field"}


class SourcesConfig(Strict):
    """How input files are read. `text`, `url`, `id`, `title` and `date` name fields of JSON, CSV, Arrow and Parquet
    (corpus.sources.fields)."""

    kind: str = "auto"
    """`auto` goes by the file's name (.warc.gz, .wet.gz, .jsonl.zst, .parquet, .txt, .html, .xml.bz2), else by its
    first bytes. `mediawiki`: an XML dump of a wiki; `sogou`: SogouCA, SogouCS or SogouT; `book`: a book in plain text,
    never guessed."""
    name: SourceName = SourceName()
    """What the source is called, which is a part of every document's identity: a constant ("news"), or a table."""
    text: Annotated[Names, Field(min_length=1)] = ("text",)
    url: Names = ("url",)
    id: Names = ("id",)
    title: Names = ("title",)
    date: Names = ("date",)
    meta: Names = ()
    """Other fields that go to the column `meta`, also those that our readers find (`author`, `warc_date`, `page_id`);
    `["*"]` keeps all. By default none: they are where the names of persons stand."""
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

    @model_validator(mode="before")
    @classmethod
    def _reads_old_names(cls, values: Any) -> Any:
        """`text_field` is `text` now, and so on; `source` is the default of `name`, `source_field` its field."""
        if not isinstance(values, Mapping):
            return values
        values = dict(values)
        for name in ("text", "url", "id", "title", "date"):
            if f"{name}_field" in values and name not in values:
                values[name] = values.pop(f"{name}_field")
        old = {new: values.pop(name) for name, new in OLD_NAMES.items() if name in values and "name" not in values}
        return values | ({"name": old} if old else {})

    @field_validator("name", mode="before")
    @classmethod
    def _may_be_constant(cls, name: Any) -> Any:
        return {"field": (), "default": name} if isinstance(name, str) else name

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
