"""The extract stage: input files to document shards, and a fate for every record that ends here.

A task reads a few whole files of one source (packing.py) and writes `data/<task>-<part>.parquet`, a new part after
every `shard_bytes` of text, and `fates/<task>.parquet` with one row for each record that could not become a document:
rule `error:<kind>` and place `file:offset N`. Every record and every bad record is one document in, and one for each
part where it is split (parts.py). A page that is another one's next page ends here, too, as a part of that document
(articles.py).

A plain JSONL file larger than `task_bytes`, and a wiki dump in bzip2, is cut into ranges, one task each: a line, or a
stream of pages, belongs to the range it begins in. Any other large file is one task, because compressed and record
formats can only be read from their front: give a build at least as many of those as workers.
"""

from __future__ import annotations

import platform
import unicodedata
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, ClassVar

import msgspec
import pyarrow as pa

from corpus.document import document_id, read_table, write_table
from corpus.encoding import UndecodableError, decode, repair_mojibake, replace_surrogates, utf8, without_damaged_lines
from corpus.engine import storage
from corpus.engine.errors import InputError
from corpus.engine.input_digests import check_file, forgets_changed, open_checked
from corpus.engine.stage import Counts, Folder, Output, Stage, Task
from corpus.engine.storage import File
from corpus.engine.versions import data_digest, version_of
from corpus.extract import ExtractConfig
from corpus.extract.child import Extracted
from corpus.sources import DAMAGE_KINDS, LEFT_OUT, BadRecord, Record, SourcesConfig, read
from corpus.sources.articles import Articles, Document
from corpus.sources.config import InputConfig
from corpus.sources.fields import at
from corpus.sources.kinds import has_library, name_kind, require_library
from corpus.sources.packing import Source, key_of, pack
from corpus.sources.pages import with_pages
from corpus.sources.record import NO_FAULT, RecordError
from corpus.sources.shards import Fates, Row, Shards
from corpus.sources.template import TextConfig
from corpus.sources.urls import masked_url

FATES_ASKED = 4  # files of fates that an error message quotes
MIN_JUDGED_RECORDS, MIN_JUDGED_FILES = 100, 5
TALLIES = ("records", "files", "records_in_error")  # counted by source
MAX_META_BYTES = 64 << 10
QUARANTINE = "quarantine"  # files of which most records are in error
QUARANTINE_SCHEMA = pa.schema(
    [("file", pa.string()), ("records", pa.int64()), ("in_error", pa.int64()), ("rule", pa.string())]
)
JOINED = "extract.joined"  # the fate of a page whose text became part of an article's
MAX_COUNTED = 300  # things that a task counts by name; of further templates only the number
MAX_FIELD_CHARS = 4096  # of a url, title or date; longer ones are cut

_META = msgspec.json.Encoder(order="sorted", enc_hook=str)


LIBRARIES = ("fastwarc", "faust-cchardet", "mwparserfromhell", "pypdfium2", "resiliparse")
TRAFILATURA = ("courlan", "htmldate", "justext", "lxml", "trafilatura")  # and those in which it decides


def libraries(backend: str) -> dict[str, str]:
    """What decides a document's text beside our code: the versions of parsers and detectors of charsets, of Python
    (codecs, entities, CSV, XML) up to its minor number, and the digest of the model that judges lines."""
    names = LIBRARIES + (TRAFILATURA if backend == "trafilatura" else ())
    python = {"python": ".".join(platform.python_version_tuple()[:2]), "unicode": unicodedata.unidata_version}
    return {name: version_of(name) for name in names} | python | {"lines": data_digest("corpus.extract", ".table")}


@dataclass
class FileTally:
    """Records of one file: how many there are, how many are in error, and the rule of the first that is."""

    file: str
    records: int = 0
    in_error: int = 0
    rule: str | None = None

    def add(self, rule: str | None) -> None:
        """Count a record, which is sound where `rule` is None."""
        self.records += 1
        if rule is not None:
            self.in_error += 1
            self.rule = self.rule or rule

    @property
    def is_mostly_in_error(self) -> bool:
        return self.in_error > 0.5 * self.records


@dataclass(frozen=True)
class ExtractStage(Stage):
    """Records of the input files to documents."""

    name: ClassVar[str] = "extract"
    version: ClassVar[int] = 9

    sources: tuple[Source, ...]
    limits: InputConfig = field(default_factory=InputConfig)
    extraction: ExtractConfig = field(default_factory=ExtractConfig)
    texts: TextConfig = field(default_factory=TextConfig)

    def config(self) -> dict[str, Any]:
        """What counts for every source, each of which has its own options beside it, and what reads text."""
        sections = {"extract": self.extraction.model_dump(), "text": self.texts.model_dump()}
        return {"shard_bytes": self.limits.shard_bytes, **sections, "libraries": libraries(self.extraction.backend)}

    def parameters(self) -> dict[str, Any]:
        """How each source is read; its tasks carry the digest of that."""
        return {"sources": {source.key: source.config.reading for source in self.sources}}

    def inputs(self) -> tuple[File, ...]:
        """The files to read, sorted by label."""
        return tuple(sorted((file for source in self.sources for file in source.files), key=lambda file: file.label))

    def plan(self, upstream: Mapping[str, Folder]) -> list[Task]:
        """The packs of each source."""
        for source in self.sources if not has_library("pdf") else ():
            for file in source.files if source.config.kind == "auto" else ():
                require_library(name_kind(file.url) or "", file.label)
        return [task for source in self.sources for task in pack(source, self.limits)]

    def judge(self, counts: Counts, folder: str, *, is_complete: bool) -> None:
        """Refuse to go on where more than `max_error_ratio` of enough records of a source are in error."""
        for source in self.sources:
            records, files, in_error = (counts.extra.get(f"{name}.{source.key}", 0) for name in TALLIES)
            enough = files == len(source.files) or (records >= MIN_JUDGED_RECORDS and files >= MIN_JUDGED_FILES)
            if (is_complete or enough) and in_error > source.config.max_error_ratio * records:
                raise InputError(
                    f"{in_error:,} of {records:,} records in {files:,} files of source {source.key} cannot be read, "
                    f"more than max_error_ratio = {source.config.max_error_ratio:g}. "
                    f"{_usual_fault(folder, source.key)} "
                    "Mend [[sources]] of the recipe, or set a larger max_error_ratio. Finished work is kept."
                )

    def for_worker(self) -> ExtractStage:
        """Without the lists of files: a task names its own."""
        return replace(self, sources=tuple(replace(source, files=()) for source in self.sources))

    def run(self, task: Task, out: Output) -> Counts:
        """Read a task's files into shards and fates."""
        counts = Counts()
        (source,) = (one for one in self.sources if one.key == key_of(task.name))
        span = (task.params["start"], task.params["end"]) if "end" in task.params else None
        with (
            forgets_changed(out.folder),
            Shards(task.name, out, self.limits.shard_bytes) as shards,
            Fates(task.name, out) as fates,
        ):
            tallies = [self._read_file(file, source.config, span, counts, shards, fates) for file in task.inputs]
        rows = [asdict(tally) for tally in tallies if tally.is_mostly_in_error]
        if rows:
            with out.create(f"{QUARANTINE}/{task.name}.parquet", len(rows)) as path:
                write_table(path, pa.Table.from_pylist(rows, QUARANTINE_SCHEMA))
            counts.note("files_mostly_in_error", len(rows))
        is_start = span is None or span[0] == 0
        sums = (sum(tally.records for tally in tallies), len(tallies) * is_start, sum(one.in_error for one in tallies))
        for name, count in zip(TALLIES, sums, strict=True):
            if count:
                counts.note(f"{name}.{source.key}", count)
        return counts

    def _read_file(
        self,
        file: File,
        config: SourcesConfig,
        span: tuple[int, int] | None,
        counts: Counts,
        shards: Shards,
        fates: Fates,
    ) -> FileTally:
        before, damaged = counts.documents_out, False
        name = config.name.of_file(file.label)
        tally = FileTally(file.label)
        articles = Articles(shards, counts, self.texts, config.split_chars)
        for record, page in with_pages(_read_as_listed(file, config, span), self.extraction):
            counts.documents_in += 1
            if isinstance(record, BadRecord):
                detail = record.detail
                if record.kind in DAMAGE_KINDS:
                    damaged = True
                    articles.end()
                    detail += f"; {counts.documents_out - before:,} documents of the file came before"
                place = place_of(file.label, record)
                identity = document_id(name, place, b"")
                rule = rule_of(record)
                if rule == record.kind:
                    counts.drop(rule)
                else:
                    counts.error(record.kind)
                    tally.add(rule if record.kind not in NO_FAULT else None)
                fates.add(identity, name, None, place, rule, detail)
                continue
            counts.bytes_in += len(record.raw)
            source = _clip(record.source) or name
            identity, place = document_id(source, record.key, record.raw), place_of(file.label, record)
            try:
                row = to_document(record, page, counts, config.meta)
            except RecordError as error:
                counts.error(error.kind)
                tally.add(f"error:{error.kind}" if page is None or error.kind != "empty" else None)
                fates.add(identity, source, _clip(record.url), place, f"error:{error.kind}", str(error))
                continue
            tally.add(None)
            removed, link = (page.removed, _url(page.next_page)) if page is not None else (record.removed, None)
            article = articles.add(Document(identity, source, row, place, removed), link)
            if article is not None:
                counts.drop(JOINED)
                detail = f"its text is part of {article.row['url']}"
                fates.add(identity, source, row["url"], place, JOINED, detail)
        articles.end()
        if damaged:
            counts.note("damaged_files", 1)
            counts.note("recovered_documents", counts.documents_out - before)
        return tally


def rule_of(record: BadRecord) -> str:
    """The rule of its fate."""
    return record.kind if record.kind.startswith(LEFT_OUT) else f"error:{record.kind}"


def _read_as_listed(file: File, config: SourcesConfig, span: tuple[int, int] | None) -> Iterator[Record | BadRecord]:
    """The records of a file; raises `ChangedInputError` where its bytes are not those that were listed, whatever else
    its readers make of them.

    A whole file on a disk is compared when it was read: then its bytes are in memory. One in a store is asked for
    before it is fetched.
    """
    if span is not None:
        yield from read(file.url, config, span, open_checked(file))
        return
    is_remote = storage.is_remote(file.url)
    if is_remote:
        check_file(file)
    try:
        yield from read(file.url, config)
    finally:
        if not is_remote:
            check_file(file)


def place_of(file: str, record: Record | BadRecord) -> str:
    """Where a record stands: `FILE:offset N`, and `FILE!MEMBER:offset N` in an archive."""
    return f"{file}!{record.member}:offset {record.offset}" if record.member else f"{file}:offset {record.offset}"


def _usual_fault(folder: str, key: str) -> str:
    """What is wrong with most records in error of a source, in words, with the place of one; of its first fates."""
    found: Counter[str] = Counter()
    places: dict[str, str] = {}
    names = storage.names(storage.join(folder, "fates"), ".parquet")
    for name in [name for name in names if key_of(name) == key][:FATES_ASKED]:
        table = read_table(storage.fetch(storage.join(folder, "fates", name)), ["rule", "place", "detail"])
        for row in table.to_pylist():
            if row["rule"].startswith("error:"):
                found[row["detail"]] += 1
                places.setdefault(row["detail"], row["place"])
    return "".join(f"Most often: {detail} ({places[detail]})." for detail, _ in found.most_common(1))


def to_document(record: Record, page: Extracted | None, counts: Counts, meta: Sequence[str] = ()) -> Row:
    """The columns of a record's document, all but id, row and source; `page` is what extraction made of an HTML record,
    `meta` names the fields to keep.

    A pure function of these but for `counts.extra`, where undone double encodings are counted, and the lines that go
    because they hold U+FFFD where bytes were decoded here, and what extraction left out of a page. Raises `RecordError`
    with the kind of error when the record has no usable text.
    """
    text, title, date, encoding = record.text, record.title, record.date, record.charset
    fields = record.fields
    damaged_lines = damaged_chars = 0
    if page is not None:
        if page.error is not None:
            raise RecordError(page.error, page.detail)
        data, repaired, encoding = page.text, page.repaired, page.encoding
        title, date = title or page.title, date or page.date
        _count_characters(page, counts)
        _count_templates(page, counts)
        if page.author and "author" not in fields:
            fields = {**fields, "author": page.author}
    else:
        if text is None:
            try:
                decoded = decode(record.raw, record.charset)
            except UndecodableError as error:
                raise RecordError("charset", str(error)) from error
            text, repaired, encoding = decoded.text, decoded.repaired, decoded.encoding
        else:
            undone = repair_mojibake(text)
            text, repaired = undone or text, undone is not None
        if encoding is not None:  # else somebody else decoded it, and U+FFFD is part of what was written
            text, damaged_lines, damaged_chars = without_damaged_lines(text)
            if damaged_lines and not text.strip():
                raise RecordError("charset", "every line holds bytes that are no text")
        data = b"" if text.isspace() else utf8(text)
        if record.num_read:
            _count_characters(record, counts)
            if fields.get("pages_without_text"):
                counts.note("pages_without_text", fields["pages_without_text"])
    if repaired:
        counts.note("repaired", 1)
    if not data:
        raise RecordError("empty", "no text" if page is None else "no text on this page")
    if damaged_lines:
        counts.note("damaged_lines", damaged_lines)
        counts.note("damaged_chars", damaged_chars)
    return {
        "url": _url(record.url),
        "title": _clip(title),
        "date": _clip(date),
        "encoding": encoding,
        "meta": _meta(fields, meta, counts),
        "text": data,
    }


def _count_characters(page: Extracted | Record, counts: Counts) -> None:
    """What a page or a file has and what went, by rule: `lines_removed.RULE`, `characters_removed.RULE`,
    `characters_read`."""
    if page.num_read:
        counts.note("characters_read", page.num_read)
    for rule, (num_lines, characters) in page.removed.items():
        counts.note(f"lines_removed.{rule}", num_lines)
        counts.note(f"characters_removed.{rule}", characters)


def _count_templates(page: Extracted, counts: Counts) -> None:
    """Of wikitext the templates that were expanded and those left out, these also by name."""
    for name, count in (("expanded", page.num_expanded), ("left_out", page.num_left_out)):
        if count:
            counts.note(f"wikitext.{name}", count)
    for name, count in page.left_out.items():
        if f"wikitext.left_out.{name}" in counts.extra or len(counts.extra) < MAX_COUNTED:
            counts.note(f"wikitext.left_out.{name}", count)


def _meta(fields: Mapping[str, Any], names: Sequence[str], counts: Counts) -> bytes | None:
    """Of the other fields those with these names, "*" all, as JSON with sorted keys; what JSON cannot hold becomes a
    string, and too much a list of names. `meta_left_out` counts documents that had others."""
    if "*" not in names:
        if not fields.keys() <= {name for path in names for name in (path, path.partition(".")[0])}:
            counts.note("meta_left_out")
        fields = {name: value for name in names if (value := at(fields, name)) is not None}
    if not fields:
        return None
    try:
        data = _META.encode(fields)
    except (TypeError, ValueError, RecursionError):
        data = _META.encode(
            {str(name): replace_surrogates(str(value)[:MAX_FIELD_CHARS]) for name, value in fields.items()}
        )
    if len(data) > MAX_META_BYTES:
        data = _META.encode({"dropped_fields": sorted(map(str, fields))[:100]})
    return data


def _url(url: str | None) -> str | None:
    return masked_url(_clip(url) or "") or None


def _clip(text: str | None) -> str | None:
    return replace_surrogates(text[:MAX_FIELD_CHARS]) if text else None
