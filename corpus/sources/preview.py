"""A look at sources before work: what their files are, and their first records as a recipe reads them.

It reads a few records from the front of some files; a file in a store is not fetched for it if it is large.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import islice, zip_longest

import pyarrow as pa

from corpus.document import DOCUMENT_SCHEMA, document_id
from corpus.engine import storage
from corpus.engine.errors import InputError
from corpus.engine.stage import Counts
from corpus.engine.storage import File
from corpus.extract import ExtractConfig
from corpus.sources import LEFT_OUT, BadRecord, Record, kind_of, read
from corpus.sources.kinds import name_kind
from corpus.sources.packing import Source
from corpus.sources.pages import with_pages
from corpus.sources.record import NO_FAULT, RecordError
from corpus.sources.stage import place_of, rule_of, to_document
from corpus.sources.template import TextConfig, write

MAX_FILES = 2_000  # whose first bytes are looked at
MAX_READ = 4  # files whose first records are read
RECORDS = 10
MAX_FETCHED_BYTES = 64 << 20


@dataclass
class Preview:
    """A source as a build would begin to read it.

    Attributes:
        kinds: files by what they are, of the `looked_at` first; those of a store go by their names.
        documents: a table of DOCUMENT_SCHEMA; `places` says where each was read.
        errors: (rule, detail, place) of records that are no documents.
        fields: the names of fields that the recipe does not ask for.
    """

    source: Source
    kinds: Counter[str] = field(default_factory=Counter)
    looked_at: int = 0
    documents: pa.Table = field(default_factory=DOCUMENT_SCHEMA.empty_table)
    places: list[str] = field(default_factory=list)
    errors: list[tuple[str, str, str]] = field(default_factory=list)
    fields: list[str] = field(default_factory=list)


def preview(source: Source, extraction: ExtractConfig, texts: TextConfig) -> Preview:
    """The kinds of a source's files and its first documents."""
    found = Preview(source)
    for file in source.files[:MAX_FILES]:
        found.kinds[_kind(file)] += 1
        found.looked_at += 1
    rows: list[dict[str, object]] = []
    held = _records(source)
    pages = with_pages([record for _, record in held], extraction)
    for (file, _), (record, page) in zip(held, pages, strict=True):
        place = place_of(file.label, record)
        if isinstance(record, BadRecord):
            found.errors.append((rule_of(record), record.detail, place))
            continue
        name = record.source or source.config.name.of_file(file.label)
        try:
            row = to_document(record, page, Counts(), source.config.meta)
        except RecordError as error:
            found.errors.append((f"error:{error.kind}", str(error), place))
            continue
        write(texts, name, row)
        found.fields += [name for name in record.fields if name not in found.fields]
        rows.append({"id": document_id(name, record.key, record.raw), "row": len(rows), "source": name, **row})
        found.places.append(place)
    found.documents = pa.Table.from_pylist(rows, schema=DOCUMENT_SCHEMA)
    return found


def check_fields(sources: Sequence[Source]) -> None:
    """Refuse sources whose first records all lack the fields that hold the text; raises `InputError`."""
    for source in sources:
        missing, others = [], 0
        for file, record in _records(source):
            if isinstance(record, BadRecord) and record.kind == "field":
                missing.append(f"{record.detail} ({place_of(file.label, record)})")
            elif not isinstance(record, BadRecord) or record.kind not in NO_FAULT:
                others += isinstance(record, Record) or not record.kind.startswith(LEFT_OUT)
        if missing and not others:
            raise InputError(
                f"source {source.key}: none of its first {len(missing):,} records has text: {missing[0]}. "
                "Nothing was built. Name the field: text = ... of the source in the recipe, or --set sources.text=..."
            )


def _records(source: Source) -> list[tuple[File, Record | BadRecord]]:
    """The first records of the first file and of files that lie evenly behind it, one of each in turn."""
    files = [file for file in source.files if not storage.is_remote(file.url) or file.bytes <= MAX_FETCHED_BYTES]
    config = source.config.model_copy(update={"keep_prefix": True})  # else a file is read to its end first
    fronts = [
        [(file, record) for record in islice(read(file.url, config), RECORDS)]
        for file in files[:: -(-len(files) // MAX_READ) or 1]
    ]
    turns = [one for turn in zip_longest(*fronts) for one in turn if one is not None]
    return turns[:RECORDS]


def _kind(file: File) -> str:
    if storage.is_remote(file.url):
        return name_kind(file.url) or "unknown"
    return "empty" if file.bytes == 0 else kind_of(storage.local_path(file.url))
