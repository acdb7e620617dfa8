"""A shard's documents without what is cut out of them: lines that stand on many pages, passages that better ones hold.

The sidecar has a row a document: what went (`line` is where it began, `count` the lines or characters) and the text's
length after it. `corpus explain` reads it as it reads the filter's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from corpus.dedup.config import RepeatedLinesConfig, SubstringsConfig
from corpus.dedup.passages.repeated_lines import find_repeated, read_lines
from corpus.dedup.passages.repeated_lines import without as without_lines
from corpus.dedup.passages.sentences import read_sentences
from corpus.dedup.passages.substrings import Mask, Ranks, judge, windows, without
from corpus.dedup.records import Array
from corpus.dedup.text.keys import text_buffers
from corpus.document import DOCUMENT_SCHEMA, EDITS, FATE_SCHEMA, count_documents, fate_table, read_batches, write_shard
from corpus.engine.stage import Counts, Output, Task
from corpus.engine.storage import fetch
from corpus.filters import edits
from corpus.filters.columns import one_chunk


class Cut(NamedTuple):
    """What some documents lose, by row: their new texts and the (line, count) of each edit; and rows that always
    stay."""

    texts: dict[int, str]
    edits: dict[int, Sequence[tuple[int, int]]]
    stay: Mask


def cut_lines(task: Task, out: Output, table: Array, config: RepeatedLinesConfig) -> Counts:
    """Write data/, fates/ and statistics/ of one shard without its repeated lines; memory: a row group and `table`."""
    counts = Counts(extra={"edited.repeated_line": 0, "edited_documents": 0, "left_alone": 0})

    def cut(documents: pa.Table, _: int) -> Cut:
        offsets, data = text_buffers(documents["text"])
        lines = read_lines(documents["url"], documents["source"], offsets, data, config.min_chars, config.max_chars)
        drop = find_repeated(lines, table, config.min_documents, config.max_share)
        found = Cut({}, {}, np.zeros(documents.num_rows, bool))
        for row, text, numbers in without_lines(lines, drop, data):
            if 1 - len(text.encode()) / (offsets[row + 1] - offsets[row]) > config.max_removed_ratio:
                counts.extra["left_alone"] += 1
                continue
            found.texts[row], found.edits[row] = text, [(line, 1) for line in numbers]
        return found

    _cut_shard(task, out, "repeated_lines", "repeated_line", config.min_left, cut, counts)
    return counts


def cut_passages(task: Task, out: Output, ranks: Ranks, table: Array, config: SubstringsConfig) -> tuple[Counts, Mask]:
    """Write data/, fates/ and statistics/ of one shard without copied passages; memory is one row group and `table`.

    Args:
        ranks: of all its documents, 0 for one that loses nothing.
        table: the best rank of each window of the shard that documents of different rank have.

    Returns:
        Counts, and which documents are dropped: bool[documents].
    """
    counts = Counts(extra={"edited.substrings.passage": 0, "edited_documents": 0, "removed_chars": 0})

    def cut(documents: pa.Table, start: int) -> Cut:
        offsets, data = text_buffers(documents["text"])
        sentences, here = read_sentences(offsets, data), ranks[start : start + documents.num_rows]
        lost, given = judge(sentences, windows(sentences, config.min_chars, here), here, table)
        found = Cut({}, {}, np.zeros(documents.num_rows, bool))
        for row, text, passages in without(sentences, lost, data):
            found.texts[row], found.edits[row] = text, passages
        found.stay[np.searchsorted(sentences.edges, np.flatnonzero(given), "right") - 1] = True
        return found

    dropped = _cut_shard(task, out, "substrings", "substrings.passage", config.min_left, cut, counts)
    return counts, dropped


def new_rows(rows: npt.NDArray[np.uint32], dropped: Mask) -> npt.NDArray[np.uint32]:
    """Where rows of a shard stand once some of its other documents are dropped."""
    before: npt.NDArray[np.int64] = np.cumsum(dropped)
    return (rows - before[rows]).astype(np.uint32)


def _cut_shard(
    task: Task, out: Output, stage: str, kind: str, least: int, cut: Callable[[pa.Table, int], Cut], counts: Counts
) -> Mask:
    """Write what is left of a shard; documents cut to fewer than `least` characters are dropped: bool[documents]."""
    gate = f"{stage}.num_chars"
    fields = [pa.field("row", pa.uint32(), nullable=False), EDITS]
    fields += [pa.field(name, pa.float64(), nullable=False) for name in (gate, f"{stage}.removed_char_ratio")]
    schema = pa.schema(fields, metadata={f"wenhai.{stage}": "1"})
    place, dropped = DOCUMENT_SCHEMA.get_field_index("text"), []
    schemas = {"data": DOCUMENT_SCHEMA, "fates": FATE_SCHEMA, "statistics": schema}
    with write_shard(out, task.name, schemas) as (kept, ended, measured):
        for documents in read_batches(fetch(task.inputs[0].url)):
            found = cut(documents, counts.documents_in)
            texts = edits.replace(one_chunk(documents["text"]), found.texts)
            edited = documents.set_column(place, DOCUMENT_SCHEMA.field("text"), texts)
            before, after = _num_chars(documents), _num_chars(edited)
            short = (after < least) & (after < before) & ~found.stay
            survivors = edited.filter(pa.array(~short))
            kept.write(survivors)
            lost = {"rule": gate, "value": after[short].astype(np.float64), "threshold": float(least), "bound": "min"}
            ended.write(fate_table(documents.filter(pa.array(short)), task.name, **lost))
            marks = [
                [{"kind": kind, "line": line, "count": count} for line, count in found.edits.get(row, ())] or None
                for row in range(documents.num_rows)
            ]
            shares = 1 - after / np.maximum(before, 1)
            columns = [documents["row"], pa.array(marks, EDITS.type), after.astype(np.float64), shares]
            measured.write(pa.table(columns, schema=schema))
            dropped.append(short)
            count_documents(counts, documents, survivors)
            counts.extra[f"edited.{kind}"] += sum(map(len, found.edits.values()))
            counts.extra["edited_documents"] += len(found.texts)
            if "removed_chars" in counts.extra:
                counts.extra["removed_chars"] += int((before - after).sum())
            if short.any():
                counts.drop(gate, int(short.sum()))
    return np.concatenate([np.zeros(0, bool), *dropped])


def _num_chars(table: pa.Table) -> npt.NDArray[np.int64]:
    """int64[rows]: code points of each text."""
    return np.asarray(pc.utf8_length(table["text"]).to_numpy(), np.int64)
