"""How long `retune` and the report take on a million documents: the filter stage of a finished build, repeated.

    python -m tools.bench.retune build/demo

Rows of the build's statistics are drawn with replacement into 8 shards; no text is needed.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa

from corpus.document import read_table, write_table
from corpus.engine.cli import add_examples
from corpus.engine.run import current
from corpus.engine.stage import Folder
from corpus.engine.storage import fetch
from corpus.report.distributions import measure
from corpus.report.ledger import rules
from corpus.retune import predict, read_thresholds

SHARDS = 8
REPEATS = 3
SET = "filter.length.num_chars.min=100"


def main() -> None:
    """Make the shards in a temporary folder, time both, print CPU seconds."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.bench.retune", description=(__doc__ or "").partition("\n")[0]
    )
    add_examples(parser, "python -m tools.bench.retune build/demo --documents 100000")
    parser.add_argument("build", help="the output folder of a finished build")
    parser.add_argument("--documents", type=int, default=1_000_000, help="rows to draw (default: %(default)s)")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = repeated(current(arguments.build, "filter"), Path(scratch), arguments.documents)
        thresholds = read_thresholds(arguments.build, folder, [SET], [])
        print(f"retune, {arguments.documents:,} documents: {seconds(lambda: predict(folder, thresholds)):.2f} CPU-s")
        measured = seconds(lambda: measure(folder.files("statistics"), rules(folder)))
        print(f"histograms and sliders of the report: {measured:.2f} CPU-s")
    print(f"peak memory of this process: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3:,.0f} MB")


def repeated(stage: Folder, scratch: Path, documents: int) -> Folder:
    """A stage folder of `documents` rows drawn from another one's statistics."""
    rows = pa.concat_tables([read_table(fetch(file.url)) for file in stage.files("statistics")]).combine_chunks()
    chance = np.random.default_rng(0)
    files = {}
    (scratch / "statistics").mkdir()
    for shard in range(SHARDS):
        count = documents // SHARDS
        table = rows.take(pa.array(chance.integers(0, rows.num_rows, count)))
        index = table.schema.get_field_index("row")
        table = table.set_column(index, table.schema.field(index), pa.array(np.arange(count), pa.uint32()))
        name = f"statistics/{shard:05d}-00.parquet"
        write_table(scratch / name, table)
        files[name] = {"bytes": (scratch / name).stat().st_size, "sha256": "", "rows": count}
    config = json.loads(fetch(f"{stage.url}/stage.json").read_text())
    (scratch / "stage.json").write_text(json.dumps(config))
    return Folder("filter", str(scratch), {**stage.manifest, "files": files})


def seconds(work: Callable[[], object]) -> float:
    """Median CPU seconds."""
    taken = []
    for _ in range(REPEATS):
        start = time.process_time()
        work()
        taken.append(time.process_time() - start)
    return statistics.median(taken)


if __name__ == "__main__":
    main()
