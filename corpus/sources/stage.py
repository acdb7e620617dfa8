"""The extract stage: input files to document shards, and a fate for every record that ends here.

A task reads a few whole files in order (consecutive small ones together) and writes `data/<task>-<part>.parquet`, a new
part after every `shard_bytes` of text, and `fates/<task>.parquet` with one row for each record that could not become a
document: rule `error:<kind>` and place `file:offset N`. Every record and every bad record is one document in.

A large file is one task: the work is spread over files, so give a build at least as many files as workers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any, ClassVar

import pyarrow as pa

from corpus.document import DOCUMENT_SCHEMA, FATE_SCHEMA, TableWriter, document_id
from corpus.encoding import UndecodableError, decode, repair_mojibake, replace_surrogates
from corpus.engine.durable import canonical_json
from corpus.engine.errors import UsageError
from corpus.engine.stage import Counts, Folder, Output, Stage, Task
from corpus.engine.storage import File
from corpus.extract import ExtractConfig, extract_html
from corpus.shape import RefusedPage
from corpus.sources import BadRecord, Record, SourcesConfig, read

FLUSH_BYTES = 8 << 20
FLUSH_ROWS = 8192
MAX_META_BYTES = 64 << 10
MAX_FIELD_CHARS = 4096  # of a url, title or date; longer ones are cut


class _Rejected(ValueError):
    def __init__(self, kind: str, detail: str) -> None:
        super().__init__(detail)
        self.kind = kind


@dataclass(frozen=True)
class Extract(Stage):
    """Records of the input files to documents."""

    name: ClassVar[str] = "extract"
    version: ClassVar[int] = 1

    files: tuple[File, ...]
    sources: SourcesConfig = field(default_factory=SourcesConfig)
    extraction: ExtractConfig = field(default_factory=ExtractConfig)

    def __post_init__(self) -> None:
        repeated = [url for url, count in Counter(file.url for file in self.files).items() if count > 1]
        if repeated:
            raise UsageError(f"{min(repeated)}: listed twice among the inputs. Name each file once.")

    def config(self) -> dict[str, Any]:
        """Everything of both sections: each option changes which bytes come out."""
        return {"sources": self.sources.model_dump(), "extract": self.extraction.model_dump()}

    def inputs(self) -> tuple[File, ...]:
        """The files to read, sorted by URL."""
        return tuple(sorted(self.files, key=lambda file: file.url))

    def plan(self, upstream: Mapping[str, Folder]) -> list[Task]:
        """Consecutive files together up to `task_bytes`."""
        groups: list[list[File]] = []
        size = 0
        for file in self.inputs():
            if not groups or size + file.bytes > self.sources.task_bytes:
                groups.append([])
                size = 0
            groups[-1].append(file)
            size += file.bytes
        return [Task(f"{index:05d}", tuple(group)) for index, group in enumerate(groups)]

    def run(self, task: Task, out: Output) -> Counts:
        """Read a task's files into shards and fates."""
        counts = Counts()
        with _Shards(task.name, out, self.sources.shard_bytes) as shards, _Fates(task.name, out) as fates:
            for file in task.inputs:
                base = file.url.rsplit("/", 1)[-1]
                for record in read(file.url, self.sources):
                    counts.documents_in += 1
                    place = f"{base}:offset {record.offset}"
                    if isinstance(record, BadRecord):
                        counts.error(record.kind)
                        identity = document_id(self.sources.source, place, b"")
                        fates.add(identity, self.sources.source, None, place, record.kind, record.detail)
                        continue
                    counts.bytes_in += len(record.raw)
                    source = _clip(record.source) or self.sources.source
                    identity = document_id(source, record.key, record.raw)
                    try:
                        row = to_document(record, self.extraction, counts)
                    except _Rejected as error:
                        counts.error(error.kind)
                        fates.add(identity, source, _clip(record.url), place, error.kind, str(error))
                        continue
                    size = len(row["text"].encode())
                    counts.documents_out += 1
                    counts.bytes_out += size
                    shards.add({"id": identity, "source": source, **row}, size)
        return counts


def to_document(record: Record, config: ExtractConfig, counts: Counts) -> dict[str, Any]:
    """The columns of a record's document, all but id, row and source.

    A pure function of the record but for `counts.extra`, where undone double encodings are counted; a caller may run it
    in a child process. Raises `_Rejected` with the kind of error when the record has no usable text.
    """
    encoding: str | None = None
    text, title, date = record.text, record.title, record.date
    if text is None:
        try:
            decoded = decode(record.raw, record.charset)
        except UndecodableError as error:
            raise _Rejected("charset", str(error)) from error
        text, encoding = decoded.text, decoded.encoding
        if decoded.repaired:
            counts.extra["repaired"] = counts.extra.get("repaired", 0) + 1
        if record.kind == "html":
            try:
                page = extract_html(text, config)
            except RefusedPage as error:
                raise _Rejected(error.kind, str(error)) from error
            text, title, date = page.text, title or page.title, date or page.date
    else:
        repaired = repair_mojibake(text)
        if repaired is not None:
            text = repaired
            counts.extra["repaired"] = counts.extra.get("repaired", 0) + 1
    text = replace_surrogates(text)
    if not text or text.isspace():
        raise _Rejected("empty", "no text on this page" if record.kind == "html" else "no text")
    return {
        "url": _clip(record.url),
        "title": _clip(title),
        "date": _clip(date),
        "encoding": encoding or record.charset,
        "meta": _meta(record.fields),
        "text": text,
    }


def _meta(fields: Mapping[str, Any]) -> str | None:
    """The other fields as canonical JSON; what JSON cannot hold becomes a string, and too much becomes a list of names."""
    if not fields:
        return None
    try:
        data = canonical_json(dict(fields))
    except (TypeError, ValueError, RecursionError):
        data = canonical_json({str(name): str(value)[:MAX_FIELD_CHARS] for name, value in fields.items()})
    if len(data) > MAX_META_BYTES:
        data = canonical_json({"dropped_fields": sorted(map(str, fields))[:100]})
    return data.decode()


def _clip(text: str | None) -> str | None:
    return replace_surrogates(text[:MAX_FIELD_CHARS]) if text else None


class _Fates:
    """The records of a task that end here, written in blocks: a file of nothing but bad lines costs no memory."""

    def __init__(self, task: str, out: Output) -> None:
        self._name, self._out = f"fates/{task}.parquet", out
        self._rows: list[dict[str, Any]] = []
        self._num_rows = 0
        self._stack = ExitStack()

    def __enter__(self) -> _Fates:
        path = self._stack.enter_context(self._out.create(self._name))
        self._writer = self._stack.enter_context(TableWriter(path, FATE_SCHEMA))
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: Any) -> None:
        if kind is None:
            self._flush()
        self._stack.__exit__(kind, error, trace)
        if kind is None:
            self._out.set_rows(self._name, self._num_rows)

    def add(self, identity: bytes, source: str, url: str | None, place: str, kind: str, detail: str) -> None:
        """Add the fate of one record."""
        row = {"id": identity, "source": source, "url": url, "place": place, "rule": f"error:{kind}", "detail": detail}
        self._rows.append(row)
        if len(self._rows) >= FLUSH_ROWS:
            self._flush()

    def _flush(self) -> None:
        self._writer.write(pa.Table.from_pylist(self._rows, schema=FATE_SCHEMA))
        self._num_rows += len(self._rows)
        self._rows = []


class _Shards:
    """The parts of a task: rows are written in blocks, and a part is closed once it holds `shard_bytes` of text."""

    def __init__(self, task: str, out: Output, shard_bytes: int) -> None:
        self._task, self._out, self._shard_bytes = task, out, shard_bytes
        self._part = 0
        self._rows: list[dict[str, Any]] = []
        self._rows_bytes = self._part_bytes = self._part_rows = 0
        self._stack = ExitStack()
        self._writer: TableWriter | None = None

    def __enter__(self) -> _Shards:
        self._stack.__enter__()
        self._open()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: Any) -> None:
        if kind is None:
            self._close()
        self._stack.__exit__(kind, error, trace)

    def add(self, row: dict[str, Any], size: int) -> None:
        """Add a document with `size` bytes of text."""
        if self._part_bytes + size > self._shard_bytes and self._part_rows:
            self._close()
            self._part += 1
            self._open()
        self._rows.append({**row, "row": self._part_rows})
        self._part_rows += 1
        self._part_bytes += size
        self._rows_bytes += size
        if self._rows_bytes >= FLUSH_BYTES or len(self._rows) >= FLUSH_ROWS:
            self._flush()

    @property
    def _file(self) -> str:
        return f"data/{self._task}-{self._part:02d}.parquet"

    def _open(self) -> None:
        path = self._stack.enter_context(self._out.create(self._file))
        self._writer = self._stack.enter_context(TableWriter(path, DOCUMENT_SCHEMA))
        self._part_bytes = self._part_rows = 0

    def _flush(self) -> None:
        assert self._writer is not None
        if self._rows:
            self._writer.write(pa.Table.from_pylist(self._rows, schema=DOCUMENT_SCHEMA))
        self._rows, self._rows_bytes = [], 0

    def _close(self) -> None:
        self._flush()
        name, rows = self._file, self._part_rows
        self._stack.close()
        self._out.set_rows(name, rows)
