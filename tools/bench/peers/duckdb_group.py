"""Deduplication of signatures in SQL: duckdb on one thread; runs in the peers' environment `duckdb`.

python duckdb_group.py THRESHOLD SIGNATURES_STAGE/bands/S.bin...

Grouping alone: which band keys occur twice, and whose they are, of a table in memory. The whole job: from Parquet files
(uncompressed) to a Parquet file of labels, by pairs of a group's first document with each other one, the equal minima of
each pair, and the components of the pairs that are alike. A document's number is its rank, and its minima are a column
each, of 16 bits, which is the fastest way: lists are taken apart element by element. Documents are compared with the
first of their group only, exact copies are no case of their own, and nobody is chosen to stay: less than our stages do.
"""

from __future__ import annotations

import json
import resource
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

EXACT_BAND = 255
SECTIONS_AT = 8
FIRST = "select key, min(id) as first from held group by key having count(*) > 1"
GROUPINGS = {
    "smallest of each group": "select key, min(id), count(*) from held group by key having count(*) > 1",
    "list of each group": "select key, list(id) from held group by key having count(*) > 1",
}
PAIRS = f"select distinct first, id from held join ({FIRST}) using (key) where id != first"
SPREAD = (
    "select l.id, least(l.label, min(n.label)) as label from labels l join both_ways e on e.a = l.id "
    "join labels n on n.id = e.b group by l.id, l.label"
)
RUNS = 3


def main(threshold: float, paths: list[str]) -> None:
    """Print the median CPU seconds of each grouping, and those of each step of the whole job."""
    with tempfile.TemporaryDirectory(dir=Path(paths[0]).parent) as folder:
        print(json.dumps(measure(threshold, paths, folder)))


def measure(threshold: float, paths: list[str], folder: str) -> dict[str, Any]:
    """All of it, with Parquet files in a scratch folder."""
    connection = duckdb.connect()
    connection.execute("set threads = 1")
    num_minima = write_tables(paths, folder)
    connection.execute(f"create table held as from '{folder}/held.parquet'")
    before = peak_mb()
    seconds = {}
    for name, query in GROUPINGS.items():
        work = partial(store, connection, "found", query)
        seconds[name] = statistics.median(timed(work) for _ in range(RUNS))
    grouped = peak_mb()
    connection.execute("drop table found; drop table held")
    for name in ("held", "signed"):
        connection.execute(f"create view {name} as from '{folder}/{name}.parquet'")
    steps = {
        "pairs with the smallest": timed(lambda: store(connection, "pairs", PAIRS)),
        "verification": timed(lambda: store(connection, "edges", alike(threshold, num_minima))),
        "components": timed(lambda: components(connection)),
        "writing": timed(lambda: connection.execute(f"copy labels to '{folder}/labels.parquet'")),
    }
    num_rows = one(connection, "select count(*) from held")
    result = {"version": duckdb.__version__, "rows": num_rows, "seconds": seconds, "steps": steps}
    names = {"clustered_documents": "select count(*) from labels", "edges": "select count(*) from edges"}
    names["clusters"] = "select count(distinct label) from labels"
    counts = {name: one(connection, query) for name, query in names.items()}
    return result | {"counts": counts, "peak_mb": peak_mb(), "grouped_mb": grouped, "table_mb": before}


def write_tables(paths: list[str], folder: str) -> int:
    """Write the tables `held` (key, id) and `signed` (id, a column a minimum); returns the number of minima."""
    document_keys, minima, bands = [], [], []
    base = 0
    for path in paths:
        of_shard = path.replace("/bands/", "/{}/").removesuffix(".bin") + ".npy"
        document_keys.append(np.load(of_shard.format("keys"), allow_pickle=False))
        minima.append(np.load(of_shard.format("signatures"), allow_pickle=False).astype(np.uint16))
        bands.append((read_bands(path), base))
        base += len(document_keys[-1])
    ids = ranks(np.concatenate(document_keys))
    keys = np.concatenate([records["key"] for records, _ in bands])
    owners = np.concatenate([ids[records["row"] + start] for records, start in bands])
    order = np.random.default_rng(0).permutation(len(keys))
    rows = pa.table({"key": keys[order], "id": owners[order]})
    pq.write_table(rows, f"{folder}/held.parquet", compression="none", use_dictionary=False)
    signed = pa.table(
        {"id": ids} | {f"m{p}": np.concatenate([shard[:, p] for shard in minima]) for p in range(minima[0].shape[1])}
    )
    pq.write_table(signed, f"{folder}/signed.parquet", compression="none", use_dictionary=False)
    return int(signed.num_columns) - 1


def read_bands(path: str) -> np.ndarray:
    """The (key, row) records of a band file, those of the exact key left out."""
    with open(path, "rb") as file:
        file.seek(SECTIONS_AT)
        sections = int.from_bytes(file.read(8), "little")
        file.seek(SECTIONS_AT + 8 * (sections + 2))
        records = np.frombuffer(file.read(), np.dtype([("key", "<u8"), ("row", "<u4")]))
    banded: np.ndarray = records[(records["key"] & np.uint64(0xFF)) != EXACT_BAND]
    return banded


def ranks(keys: np.ndarray) -> np.ndarray:
    """As `rank` of corpus/dedup/keys.py."""
    columns = [keys["digest"][:, 1], keys["digest"][:, 0], keys["id"][:, 1], keys["id"][:, 0]]
    found = np.empty(len(keys), np.int64)
    found[np.lexsort([*columns, ~keys["num_bytes"], ~keys["quality"]])] = np.arange(len(keys))
    return found


def alike(threshold: float, num_minima: int) -> str:
    """The pairs of which enough minima are equal."""
    equal = " + ".join(f"(x.m{p} = y.m{p})::usmallint" for p in range(num_minima))
    least = int(np.ceil(threshold * num_minima - 1e-9))
    joined = "pairs p join signed x on x.id = p.first join signed y on y.id = p.id"
    return f"select a, b from (select p.first as a, p.id as b, {equal} as equal from {joined}) where equal >= {least}"


def components(connection: Any) -> None:
    """Everyone takes the smallest label of its neighbours until nothing changes."""
    store(connection, "both_ways", "select a, b from edges union all select b, a from edges")
    store(connection, "labels", "select distinct a as id, a as label from both_ways")
    total = None
    while total != (total := one(connection, "select sum(label) from labels")):
        store(connection, "next_labels", SPREAD)
        store(connection, "labels", "select * from next_labels")


def store(connection: Any, name: str, query: str) -> None:
    """Make a table of a query's rows."""
    connection.execute(f"create or replace temp table {name} as {query}")


def one(connection: Any, query: str) -> int:
    """The number that a query gives."""
    return int(connection.execute(query).fetchone()[0] or 0)


def timed(work: Callable[[], object]) -> float:
    """CPU seconds."""
    start = time.process_time()
    work()
    return time.process_time() - start


def peak_mb() -> int:
    """The most memory that this process has held."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1000


if __name__ == "__main__":
    main(float(sys.argv[1]), sys.argv[2:])
