"""Which band keys occur twice, and whose they are: duckdb on one thread; runs in the peers' environment `duckdb`.

python duckdb_group.py BANDS.bin...
"""

from __future__ import annotations

import json
import resource
import statistics
import sys
import time

import duckdb
import numpy as np
import pyarrow as pa

EXACT_BAND = 255
SECTIONS_AT = 8
QUERIES = {
    "smallest of each group": "select key, min(id), count(*) from held group by key having count(*) > 1",
    "list of each group": "select key, list(id) from held group by key having count(*) > 1",
    "pairs with the smallest": "select distinct first, id from held join (select key, min(id) as first from held "
    "group by key having count(*) > 1) using (key) where id != first",
}
RUNS = 3


def main(paths: list[str]) -> None:
    """Print the median CPU seconds of each query, the table being in memory."""
    keys, ids, base = [], [], 0
    for path in paths:
        with open(path, "rb") as file:
            file.seek(SECTIONS_AT)
            sections = int.from_bytes(file.read(8), "little")
            file.seek(SECTIONS_AT + 8 * (sections + 2))
            records = np.frombuffer(file.read(), np.dtype([("key", "<u8"), ("row", "<u4")]))
        banded = records[(records["key"] & np.uint64(0xFF)) != EXACT_BAND]
        keys.append(banded["key"].astype(np.uint64))
        ids.append(banded["row"].astype(np.int64) + base)
        base += int(records["row"].max()) + 1
    order = np.random.default_rng(0).permutation(sum(map(len, keys)))
    rows = pa.table({"key": np.concatenate(keys)[order], "id": np.concatenate(ids)[order]})
    connection = duckdb.connect()
    connection.execute("set threads = 1")
    connection.execute("create table held as select * from rows")
    num_rows = rows.num_rows
    del rows, order, keys, ids
    before = peak_mb()
    seconds = {}
    for name, query in QUERIES.items():
        times = []
        for _ in range(RUNS):
            start = time.process_time()
            connection.execute(f"create or replace temp table found as {query}")
            times.append(time.process_time() - start)
        seconds[name] = statistics.median(times)
    result = {"version": duckdb.__version__, "rows": num_rows, "seconds": seconds}
    print(json.dumps(result | {"peak_mb": peak_mb(), "table_mb": before}))


def peak_mb() -> int:
    """The most memory that this process has held."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1000


if __name__ == "__main__":
    main(sys.argv[1:])
