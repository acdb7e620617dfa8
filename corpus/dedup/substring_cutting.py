"""A shard's documents without the passages that better documents hold, and its duplicates where they now stand.

The sidecar has a row a document: the passages that went (`line` is where one began, `count` its characters) and the
text's length after it. `corpus explain` reads it as it reads the filter's.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from corpus.dedup.config import SubstringsConfig
from corpus.dedup.keys import text_buffers
from corpus.dedup.line_cutting import characters, short_fates, text_bytes, with_texts
from corpus.dedup.records import Array
from corpus.dedup.sentences import read_sentences
from corpus.dedup.substring_stages import GATE
from corpus.dedup.substrings import Mask, Passage, Ranks, judge, windows, without
from corpus.document import DOCUMENT_SCHEMA, FATE_SCHEMA, TableWriter, read_batches
from corpus.engine.stage import Counts, Output, Task
from corpus.engine.storage import fetch

EDIT_KIND = "substrings.passage"
REMOVED = "substrings.removed_char_ratio"
STATISTICS_SCHEMA = pa.schema(
    [
        pa.field("row", pa.uint32(), nullable=False),
        pa.field("edits", pa.list_(pa.struct([("kind", pa.string()), ("line", pa.uint32()), ("count", pa.uint32())]))),
        pa.field(GATE, pa.float64(), nullable=False),  # characters that are left
        pa.field(REMOVED, pa.float64(), nullable=False),
    ],
    metadata={"wenhai.substrings": "1"},
)


def cut_passages(task: Task, out: Output, ranks: Ranks, table: Array, config: SubstringsConfig) -> tuple[Counts, Mask]:
    """Write data/, fates/ and statistics/ of one shard; memory is one row group and `table`.

    Args:
        ranks: of all its documents, 0 for one that loses nothing.
        table: the best rank of each window of the shard that documents of different rank have.

    Returns:
        Counts, and which documents are dropped: bool[documents].
    """
    names = [f"{kind}/{task.name}.parquet" for kind in ("data", "fates", "statistics")]
    counts = Counts(extra={f"edited.{EDIT_KIND}": 0, "edited_documents": 0, "removed_chars": 0})
    dropped = np.zeros(len(ranks), bool)
    with (
        out.create(names[0]) as data_path,
        out.create(names[1]) as fates_path,
        out.create(names[2]) as statistics_path,
        TableWriter(data_path, DOCUMENT_SCHEMA) as kept,
        TableWriter(fates_path, FATE_SCHEMA) as ended,
        TableWriter(statistics_path, STATISTICS_SCHEMA) as measured,
    ):
        for documents in read_batches(fetch(task.inputs[0].url)):
            start, end = counts.documents_in, counts.documents_in + documents.num_rows
            edited, passages, gives = _cut(documents, ranks[start:end], table, config)
            before, after = characters(documents), characters(edited)
            short = np.zeros(documents.num_rows, bool)
            short[list(passages)] = True
            short &= (after < config.min_left) & ~gives
            dropped[start:end] = short
            survivors = edited.filter(pa.array(~short))
            kept.write(survivors)
            ended.write(short_fates(documents.filter(pa.array(short)), GATE, after[short], config.min_left, task.name))
            measured.write(_statistics(documents, passages, before, after))
            counts.documents_in += documents.num_rows
            counts.documents_out += survivors.num_rows
            counts.bytes_in += text_bytes(documents)
            counts.bytes_out += text_bytes(survivors)
            if short.any():
                counts.drop(GATE, int(short.sum()))
            counts.extra[f"edited.{EDIT_KIND}"] += sum(map(len, passages.values()))
            counts.extra["edited_documents"] += len(passages)
            counts.extra["removed_chars"] += int((before - after).sum())
    for name, writer in zip(names, (kept, ended, measured), strict=True):
        out.set_rows(name, writer.rows)
    return counts, dropped


def moved(rows: npt.NDArray[np.uint32], dropped: Mask) -> npt.NDArray[np.uint32]:
    """Where rows of a shard stand once some of its other documents are dropped."""
    before: npt.NDArray[np.int64] = np.cumsum(dropped)
    return (rows - before[rows]).astype(np.uint32)


def _cut(
    documents: pa.Table, ranks: Ranks, table: Array, config: SubstringsConfig
) -> tuple[pa.Table, dict[int, list[Passage]], Mask]:
    """The documents with their new texts, what each lost, and which keep a sentence that another document lost."""
    offsets, data = text_buffers(documents["text"])
    sentences = read_sentences(offsets, data)
    lost, given = judge(sentences, windows(sentences, config.min_chars, ranks), ranks, table)
    texts: dict[int, str] = {}
    passages: dict[int, list[Passage]] = {}
    for row, text, parts in without(sentences, lost, data):
        texts[row], passages[row] = text, parts
    gives = np.zeros(documents.num_rows, bool)
    gives[np.searchsorted(sentences.edges, np.flatnonzero(given), "right") - 1] = True
    return with_texts(documents, texts), passages, gives


def _statistics(
    documents: pa.Table,
    passages: Mapping[int, list[Passage]],
    before: npt.NDArray[np.int64],
    after: npt.NDArray[np.int64],
) -> pa.Table:
    edits = [
        [{"kind": EDIT_KIND, "line": part.line, "count": part.num_chars} for part in passages[row]]
        if row in passages
        else None
        for row in range(documents.num_rows)
    ]
    columns = {
        "row": documents["row"],
        "edits": pa.array(edits, STATISTICS_SCHEMA.field("edits").type),
        GATE: after.astype(np.float64),
        REMOVED: 1 - after / np.maximum(before, 1),
    }
    return pa.table(columns, schema=STATISTICS_SCHEMA)
