"""What recipes say of the input: [input], and [[sources]] with a table for each source (or one table [sources])."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import Field, field_validator, model_validator

from corpus.engine.config import RecipePath, Strict, nearest_of
from corpus.sources.fields import Names, SourceName
from corpus.sources.kinds import ARCHIVES, KINDS, has_library

REFUSED_ENCODINGS = frozenset("hz hz-gb-2312 iso-2022-cn iso-2022-cn-ext euc-tw x-euc-tw".split())

OLD_NAMES = {"source": "default", "source_field": "field"}


class InputConfig(Strict):
    """[input]: how the files of all sources are cut into tasks and shards."""

    task_bytes: int = Field(default=256 << 20, gt=0)
    """A task reads no more than this (as stored), but for a larger file that must be read whole."""
    shard_bytes: int = Field(default=256 << 20, gt=0)
    """A shard of documents is closed after this many bytes of text."""


class SourcesConfig(Strict):
    """A source: where it is and how it is read. `text`, `url`, `id`, `title` and `date` name fields of JSON, CSV,
    Arrow and Parquet (corpus.sources.fields)."""

    path: tuple[Annotated[RecipePath, Field(min_length=1)], ...] = Field(default=(), strict=False)
    """Files, folders, globs or URLs; paths go from the recipe's folder. Without one it is --input, or the crawl."""
    weight: float = Field(default=1.0, ge=0)
    """How often a document of the source is taken on average, as in [mixture] sources; `name` must be a constant."""
    kind: str = "auto"
    """`auto` goes by the file's name (.warc.gz, .wet.gz, .jsonl.zst, .parquet, .txt, .html, .xml.bz2), else by its
    first bytes. `mediawiki`: an XML dump of a wiki; `sogou`: SogouCA, SogouCS or SogouT; `book`: a book in plain text,
    and `thucnews`, never guessed. Document files (PDF, DOCX, EPUB) are read as what they are or left out."""
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
    split: str = ""
    """A regular expression (RE2) at the start of the lines that begin a document in a plain text file, in place of
    `document`: `^第.{1,9}章`."""
    hard_wrapped: bool = False
    """Join the lines of plain text files whose width shows that they were cut; page numbers and running heads go."""
    chapters: bool = True
    """Whether a chapter of a book, an EPUB too, is a document, or the whole book."""
    max_document_seconds: float = Field(default=120.0, gt=0)
    """A PDF, DOCX or EPUB that takes longer is given up, with its child process (`killed`)."""
    max_document_mb: int = Field(default=1024, ge=64)
    """Megabytes that the child process may grow to beyond its size at the start."""
    split_chars: int | None = Field(default=None, ge=1000)
    """A longer document is cut at ends of paragraphs, else of sentences, into parts of at most as many code points,
    each a document (parts.py); without it none is cut, and the filter drops what is above `length.num_chars.max`."""
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

    @property
    def reading(self) -> dict[str, Any]:
        """What decides which documents come out of a file, as JSON."""
        return self.model_dump(mode="json", exclude={"path", "weight", "filter", "max_error_ratio"})

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

    @field_validator("path", mode="before")
    @classmethod
    def _may_be_one(cls, path: Any) -> Any:
        return (path,) if isinstance(path, str) else path

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
        if not has_library(kind):
            raise ValueError(f"{KINDS[kind].library} is not installed. Install it: pip install 'wenhai[documents]'")
        return kind

    @field_validator("split")
    @classmethod
    def _is_linear(cls, split: str) -> str:
        import pyarrow as pa  # late: for those who split
        import pyarrow.compute as pc

        try:
            matches_all = pc.match_substring_regex([""], split)[0].as_py() if split else False
        except pa.ArrowInvalid as error:
            raise ValueError(f"no regular expression of RE2 ({error})") from None
        if matches_all:
            raise ValueError("matches an empty line; name what the first line of a document begins with")
        return split

    @field_validator("encoding")
    @classmethod
    def _is_read(cls, encoding: str | None) -> str | None:
        if encoding is not None and encoding.lower().replace("_", "-") in REFUSED_ENCODINGS:
            raise ValueError(f"{encoding} is not read, as by browsers: convert the files to UTF-8 first, with iconv")
        return encoding

    @model_validator(mode="after")
    def _weighs_what_it_names(self) -> Self:
        if self.weight != 1 and (self.name.field or self.name.path):
            raise ValueError('a weight needs a name that is a constant, for example name = "news"')
        return self
