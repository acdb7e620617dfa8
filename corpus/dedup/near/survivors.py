"""The final text shards: a shard's documents minus its drop list, and one fate for each that is dropped.

The ledger names the twin: `detail` of a fate is the hex id of the document that stayed, with `@` and the name of its
build behind it where that is an earlier one; `value` is their similarity.

Beside each shard lies its index, a row a document of it: a cluster is a survivor and the documents that were dropped in
its favour, so the cluster sizes of all survivors add up to the documents that came in, but for clusters whose survivor
stands in an earlier build or was an excerpt that `substrings` dropped. A mixture re-weights by them
(the rehydration of FineWeb-2, which takes whole components for clusters; those of a site's template can be long chains
whose ends have nothing in common, and keep many survivors here). With `keep = "all_with_size"` nothing is dropped:
every document stands in the text and the index says whose duplicate it is.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from corpus.dedup.config import DedupConfig
from corpus.dedup.near.candidates import EXACT
from corpus.dedup.near.clusters import KIND_NAMES, SURVIVOR
from corpus.dedup.records import Array, map_array
from corpus.document import (
    DOCUMENT_SCHEMA,
    FATE_SCHEMA,
    FINAL_LEVEL,
    count_documents,
    fate_table,
    read_batches,
    read_table,
    write_shard,
)
from corpus.engine.stage import Counts, Output, Task
from corpus.engine.storage import fetch

RULES = ("dedup.exact", "dedup.near")  # by kind
CLUSTER_COLUMNS = ("row", "survivor", "size", "kind")
INDEX_SCHEMA = pa.schema(
    [
        pa.field("id", pa.binary(16), nullable=False),
        pa.field("row", pa.uint32(), nullable=False),  # of the extract stage's shard, as in data/
        pa.field("source", pa.string(), nullable=False),
        pa.field("text_bytes", pa.uint32(), nullable=False),
        pa.field("cluster", pa.binary(16)),  # id of the survivor; null for a document without duplicates
        pa.field("cluster_size", pa.uint32(), nullable=False),  # documents of the cluster; 1 without duplicates
        pa.field("survivor", pa.bool_(), nullable=False),
    ],
    metadata={"wenhai.index": "1"},
)


def write_survivors(task: Task, out: Output, config: DedupConfig) -> Counts:
    """Write data/, fates/ and index/ of one shard; memory is one row group and the shard's lists."""
    documents, drops = task.inputs[0], map_array(task.inputs[1])
    clusters = read_table(fetch(task.inputs[2].url), CLUSTER_COLUMNS)
    counts, dropping = Counts(), config.keep == "survivors"
    schemas = {"data": DOCUMENT_SCHEMA, "fates": FATE_SCHEMA, "index": INDEX_SCHEMA}
    with write_shard(out, task.name, schemas, FINAL_LEVEL) as (kept, ended, index):
        for batch in read_batches(fetch(documents.url)):
            start = counts.documents_in
            here = drops[np.searchsorted(drops["row"], start) : np.searchsorted(drops["row"], start + batch.num_rows)]
            dropped = np.zeros(batch.num_rows, bool)
            dropped[here["row"] - start] = dropping
            survivors = batch.filter(pa.array(~dropped))
            kept.write(survivors)
            index.write(cluster_index(survivors, start + np.flatnonzero(~dropped), clusters))
            if dropping:
                ended.write(duplicate_fates(batch.filter(pa.array(dropped)), here, config.threshold, task.name))
            count_documents(counts, batch, survivors)
            _count(counts, here, dropping)
    return counts


def _count(counts: Counts, duplicates: Array, dropped: bool) -> None:
    for kind in duplicates["kind"].tolist():
        if dropped:
            counts.drop(RULES[kind])
        else:
            counts.note(RULES[kind].replace("dedup.", "duplicates."))


def cluster_index(documents: pa.Table, places: npt.NDArray[np.int64], clusters: pa.Table) -> pa.Table:
    """`INDEX_SCHEMA` of some documents of a shard.

    Args:
        documents: as they are written.
        places: int64[documents], where each stood in the shard that was deduplicated.
        clusters: `CLUSTER_COLUMNS` of that shard's cluster table.
    """
    rows = clusters["row"].to_numpy()
    found = np.searchsorted(rows, places)
    clustered = np.append(rows, -1)[found] == places
    found[~clustered] = 0
    sizes = np.ones(len(places), np.int64)
    sizes[clustered] = clusters["size"].to_numpy()[found[clustered]]
    stays = pc.equal(clusters["kind"], KIND_NAMES[SURVIVOR])
    columns = {
        **{name: documents[name] for name in ("id", "row", "source")},
        "text_bytes": pc.binary_length(documents["text"]).cast(pa.uint32()),
        "cluster": clusters["survivor"].take(pa.array(found, mask=sizes == 1)),
        "cluster_size": sizes.astype(np.uint32),
        "survivor": pc.fill_null(stays.take(pa.array(found, mask=~clustered)), True),
    }
    return pa.table([columns[name] for name in INDEX_SCHEMA.names], schema=INDEX_SCHEMA)


def duplicate_fates(dropped: pa.Table, drops: Array, threshold: float, shard: str) -> pa.Table:
    """`FATE_SCHEMA` of the documents of some drops, in the same order."""
    exact = drops["kind"] == EXACT
    return fate_table(
        dropped,
        shard,
        rule=[RULES[kind] for kind in drops["kind"].tolist()],
        value=drops["similarity"].astype(np.float64),
        threshold=[None if copy else threshold for copy in exact.tolist()],
        bound=[None if copy else "max" for copy in exact.tolist()],
        detail=[_twin(drop) for drop in drops],
    )


def _twin(drop: Array) -> str:
    """The id of the document that stays, and behind an @ the earlier build it stands in, if that is not this one."""
    build = bytes(drop["build"])
    return drop["survivor"].tobytes().hex() + (f"@{build.decode()}" if build else "")
