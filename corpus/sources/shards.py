"""What a task of the extract stage writes: parts of documents, and the fates of records that end here.

Rows are held as Python values until a block is full, and a text is encoded once, to bytes that Arrow takes
as they are. That is what keeps reading JSONL cheaper than filtering it.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from typing import Any, TypedDict

import pyarrow as pa

from corpus.document import DOCUMENT_SCHEMA, EDITS, FATE_SCHEMA, TableWriter, write_shard
from corpus.engine.stage import Output
from corpus.sources.urls import masked_url

FLUSH_BYTES = 8 << 20
FLUSH_ROWS = 8192
PART_DIGITS = 5  # parts of 256 MiB: a task may write 25 TB and its parts still sort by name


class Row(TypedDict):
    """The columns of a document but for `id`, `row` and `source`; `text` in UTF-8."""

    url: str | None
    title: str | None
    date: str | None
    encoding: str | None
    meta: bytes | None
    text: bytes


EDITS_SCHEMA = pa.schema([pa.field("row", pa.uint32(), nullable=False), EDITS], metadata={"wenhai.edits": "1"})

PLACES_SCHEMA = pa.schema([pa.field("place", pa.string(), nullable=False)])  # of each document of a shard, in its order
SCHEMAS = {"data": DOCUMENT_SCHEMA, "places": PLACES_SCHEMA, "edits": EDITS_SCHEMA}


class Shards:
    """The parts of a task: a part is closed once it holds `shard_bytes` of text.

    What extraction left out of pages stands beside a part, in edits/: one row for each document that lost something,
    with characters by rule; and where each document was read, in places/.
    """

    def __init__(self, task: str, out: Output, shard_bytes: int) -> None:
        self._task, self._out, self._shard_bytes = task, out, shard_bytes
        self._part = self._part_bytes = self._part_rows = 0
        self._stack = ExitStack()
        self._clear()

    def __enter__(self) -> Shards:
        self._stack.__enter__()
        self._open()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: Any) -> None:
        if kind is None:
            self._close()
        self._stack.__exit__(kind, error, trace)

    def add(
        self,
        identity: bytes,
        source: str,
        row: Row,
        place: str,
        removed: Mapping[str, tuple[int, int]] | None = None,
    ) -> None:
        """Add a document, and the lines and characters that each rule of extraction removed from its page."""
        size = len(row["text"])
        if self._part_bytes + size > self._shard_bytes and self._part_rows:
            self._close()
            self._part += 1
            self._open()
        self._places.append(place)
        self._rows.append({"id": identity, "row": self._part_rows, "source": source, **row})
        if removed:
            edits = [{"kind": f"extract.{rule}", "line": None, "count": found[1]} for rule, found in removed.items()]
            self._edits.append({"row": self._part_rows, "edits": edits})
        self._part_rows += 1
        self._part_bytes += size
        self._held_bytes += size
        if self._held_bytes >= FLUSH_BYTES or len(self._rows) >= FLUSH_ROWS:
            self._flush()

    def _file(self, kind: str) -> str:
        return f"{kind}/{self._task}-{self._part:0{PART_DIGITS}d}.parquet"

    def _open(self) -> None:
        self._writers = {kind: self._writer(kind) for kind in ("data", "places")}  # and edits, when a page lost some
        self._part_bytes = self._part_rows = 0

    def _writer(self, kind: str) -> TableWriter:
        path = self._stack.enter_context(self._out.create(self._file(kind)))
        return self._stack.enter_context(TableWriter(path, SCHEMAS[kind]))

    def _clear(self) -> None:
        self._rows: list[dict[str, Any]] = []
        self._edits: list[dict[str, Any]] = []
        self._places: list[str] = []
        self._held_bytes = 0

    def _flush(self) -> None:
        if not self._rows:
            return
        self._writers["data"].write(pa.Table.from_pylist(self._rows, schema=DOCUMENT_SCHEMA))
        self._writers["places"].write(pa.table([self._places], schema=PLACES_SCHEMA))
        if self._edits:
            if "edits" not in self._writers:
                self._writers["edits"] = self._writer("edits")
            self._writers["edits"].write(pa.Table.from_pylist(self._edits, schema=EDITS_SCHEMA))
        self._clear()

    def _close(self) -> None:
        self._flush()
        self._stack.close()
        for kind, writer in self._writers.items():
            self._out.set_rows(self._file(kind), writer.rows)


class Fates:
    """The records of a task that end here, written in blocks: a file of nothing but bad lines costs no memory."""

    def __init__(self, task: str, out: Output) -> None:
        self._shard = write_shard(out, task, {"fates": FATE_SCHEMA})
        self._rows: list[dict[str, Any]] = []

    def __enter__(self) -> Fates:
        (self._writer,) = self._shard.__enter__()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: Any) -> None:
        if kind is None:
            self._flush()
        self._shard.__exit__(kind, error, trace)

    def add(self, identity: bytes, source: str, url: str | None, place: str, rule: str, detail: str) -> None:
        """Add the fate of one record."""
        url = masked_url(url) if url else None
        row = {"id": identity, "source": source, "url": url, "place": place, "rule": rule, "detail": detail}
        self._rows.append(row)
        if len(self._rows) >= FLUSH_ROWS:
            self._flush()

    def _flush(self) -> None:
        self._writer.write(pa.Table.from_pylist(self._rows, schema=FATE_SCHEMA))
        self._rows = []
