"""A shard's documents without their repeated lines: what is kept, what was cut, and a second measure.

The sidecar has a row a document that the filter kept: the numbers of the lines that went, and the text's length after
it. `corpus explain` reads it as it reads the filter's.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from corpus.dedup.config import RepeatedLinesConfig
from corpus.dedup.keys import text_buffers
from corpus.dedup.line_stages import GATE
from corpus.dedup.repeated_lines import Counts as LineTable
from corpus.dedup.repeated_lines import read_lines, repeated, without
from corpus.document import DOCUMENT_SCHEMA, FATE_SCHEMA, TableWriter, read_batches
from corpus.engine.stage import Counts, Output, Task
from corpus.engine.storage import fetch

EDIT_KIND = "repeated_line"
REMOVED = "repeated_lines.removed_char_ratio"
STATISTICS_SCHEMA = pa.schema(
    [
        pa.field("row", pa.uint32(), nullable=False),
        pa.field("edits", pa.list_(pa.struct([("kind", pa.string()), ("line", pa.uint32()), ("count", pa.uint32())]))),
        pa.field(GATE, pa.float64(), nullable=False),  # characters that are left
        pa.field(REMOVED, pa.float64(), nullable=False),
    ],
    metadata={"wenhai.repeated_lines": "1"},
)


def cut_lines(task: Task, out: Output, table: LineTable, config: RepeatedLinesConfig) -> Counts:
    """Write data/, fates/ and statistics/ of one shard; memory is one row group."""
    names = [f"{kind}/{task.name}.parquet" for kind in ("data", "fates", "statistics")]
    counts = Counts(extra={"edited.repeated_line": 0, "edited_documents": 0, "left_alone": 0})
    with (
        out.create(names[0]) as data_path,
        out.create(names[1]) as fates_path,
        out.create(names[2]) as statistics_path,
        TableWriter(data_path, DOCUMENT_SCHEMA) as kept,
        TableWriter(fates_path, FATE_SCHEMA) as ended,
        TableWriter(statistics_path, STATISTICS_SCHEMA) as measured,
    ):
        for documents in read_batches(fetch(task.inputs[0].url)):
            edited, removed = _cut(documents, table, config, counts)
            before, after = characters(documents), characters(edited)
            short = (after < config.min_left) & (after < before)
            survivors = edited.filter(pa.array(~short))
            kept.write(survivors)
            ended.write(short_fates(documents.filter(pa.array(short)), GATE, after[short], config.min_left, task.name))
            measured.write(_statistics(documents, removed, before, after))
            counts.documents_in += documents.num_rows
            counts.documents_out += survivors.num_rows
            counts.bytes_in += text_bytes(documents)
            counts.bytes_out += text_bytes(survivors)
            if short.any():
                counts.drop(GATE, int(short.sum()))
    for name, writer in zip(names, (kept, ended, measured), strict=True):
        out.set_rows(name, writer.rows)
    return counts


def _cut(
    documents: pa.Table, table: LineTable, config: RepeatedLinesConfig, counts: Counts
) -> tuple[pa.Table, dict[int, list[int]]]:
    """The documents with their new texts, and the numbers of the lines that each lost."""
    offsets, data = text_buffers(documents["text"])
    lines = read_lines(documents["url"], documents["source"], offsets, data, config.min_chars, config.max_chars)
    drop = repeated(lines, table, config.min_documents, config.max_share)
    texts: dict[int, str] = {}
    removed: dict[int, list[int]] = {}
    for row, text, numbers in without(lines, drop, data):
        if 1 - len(text.encode()) / (offsets[row + 1] - offsets[row]) > config.max_removed_ratio:
            counts.extra["left_alone"] += 1
            continue
        texts[row], removed[row] = text, numbers
        counts.extra["edited.repeated_line"] += len(numbers)
    counts.extra["edited_documents"] += len(texts)
    return with_texts(documents, texts), removed


def with_texts(documents: pa.Table, texts: Mapping[int, str]) -> pa.Table:
    """The documents, some with new texts; `texts` has them by row, in rising order."""
    if not texts:
        return documents
    chosen = np.zeros(documents.num_rows, bool)
    chosen[list(texts)] = True
    column = documents["text"].combine_chunks()
    column = pa.concat_arrays(column.chunks) if isinstance(column, pa.ChunkedArray) else column
    column = pc.replace_with_mask(column, pa.array(chosen), pa.array(list(texts.values()), pa.large_string()))
    place = documents.schema.get_field_index("text")
    return documents.set_column(place, DOCUMENT_SCHEMA.field("text"), column)


def _statistics(
    documents: pa.Table, removed: dict[int, list[int]], before: npt.NDArray[np.int64], after: npt.NDArray[np.int64]
) -> pa.Table:
    edits = [
        [{"kind": EDIT_KIND, "line": line, "count": 1} for line in removed[row]] if row in removed else None
        for row in range(documents.num_rows)
    ]
    columns = {
        "row": documents["row"],
        "edits": pa.array(edits, STATISTICS_SCHEMA.field("edits").type),
        GATE: after.astype(np.float64),
        REMOVED: 1 - after / np.maximum(before, 1),
    }
    return pa.table(columns, schema=STATISTICS_SCHEMA)


def short_fates(dropped: pa.Table, rule: str, num_chars: npt.NDArray[np.int64], least: int, shard: str) -> pa.Table:
    """The fates of documents that lost so much that fewer than `least` characters are left."""
    count = dropped.num_rows
    columns = {name: dropped[name] for name in ("id", "row", "source", "url")} | {
        "shard": [shard] * count,
        "place": [None] * count,
        "rule": [rule] * count,
        "value": num_chars.astype(np.float64),
        "threshold": [float(least)] * count,
        "bound": ["min"] * count,
        "detail": [None] * count,
    }
    return pa.table([columns[name] for name in FATE_SCHEMA.names], schema=FATE_SCHEMA)


def characters(table: pa.Table) -> npt.NDArray[np.int64]:
    """int64[rows]: code points of each text."""
    return np.asarray(pc.utf8_length(table["text"]).to_numpy(), np.int64)


def text_bytes(table: pa.Table) -> int:
    """Bytes of all texts."""
    return int(pc.sum(pc.binary_length(table["text"])).as_py() or 0)
