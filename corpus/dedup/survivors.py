"""The final text shards: a shard's documents minus its drop list, and one fate for each that is dropped.

The ledger names the twin: `detail` of a fate is the hex id of the document that stayed, `value` their similarity.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from corpus.dedup.candidates import EXACT
from corpus.dedup.records import Array, map_array
from corpus.document import DOCUMENT_SCHEMA, FATE_SCHEMA, FINAL_LEVEL, TableWriter, read_batches
from corpus.engine.stage import Counts, Output, Task
from corpus.engine.storage import fetch

RULES = ("dedup.exact", "dedup.near")  # by kind


def write_survivors(task: Task, out: Output, threshold: float) -> Counts:
    """Write data/ and fates/ of one shard; memory is one row group."""
    documents, drops = task.inputs[0], map_array(task.inputs[1])
    data, fates = f"data/{task.name}.parquet", f"fates/{task.name}.parquet"
    counts = Counts()
    with (
        out.create(data) as data_path,
        out.create(fates) as fates_path,
        TableWriter(data_path, DOCUMENT_SCHEMA, FINAL_LEVEL) as kept,
        TableWriter(fates_path, FATE_SCHEMA) as ended,
    ):
        for batch in read_batches(fetch(documents.url)):
            start = counts.documents_in
            here = drops[np.searchsorted(drops["row"], start) : np.searchsorted(drops["row"], start + batch.num_rows)]
            keep = np.ones(batch.num_rows, bool)
            keep[here["row"] - start] = False
            survivors = batch.filter(pa.array(keep))
            kept.write(survivors)
            ended.write(_fates(batch.filter(pa.array(~keep)), here, threshold, task.name))
            counts.documents_in += batch.num_rows
            counts.documents_out += survivors.num_rows
            counts.bytes_in += _text_bytes(batch)
            counts.bytes_out += _text_bytes(survivors)
            for kind in here["kind"].tolist():
                counts.drop(RULES[kind])
    out.set_rows(data, kept.rows)
    out.set_rows(fates, ended.rows)
    return counts


def _fates(dropped: pa.Table, drops: Array, threshold: float, shard: str) -> pa.Table:
    exact = drops["kind"] == EXACT
    columns = {name: dropped[name] for name in ("id", "row", "source", "url")} | {
        "shard": [shard] * len(drops),
        "place": [None] * len(drops),
        "rule": [RULES[kind] for kind in drops["kind"].tolist()],
        "value": drops["similarity"].astype(np.float64),
        "threshold": [None if copy else threshold for copy in exact.tolist()],
        "bound": [None if copy else "max" for copy in exact.tolist()],
        "detail": [survivor.tobytes().hex() for survivor in drops["survivor"]],
    }
    return pa.table([columns[name] for name in FATE_SCHEMA.names], schema=FATE_SCHEMA)


def _text_bytes(table: pa.Table) -> int:
    return int(pc.sum(pc.binary_length(table["text"])).as_py() or 0)
