"""Candidates to clusters on synthetic signatures with planted clusters: rates, memory and recall.

A band row is one of documents x bands (the row of the exact key, which is grouped as well, is not counted). Seconds are
CPU seconds of the tasks: reading, grouping, comparing, writing, hashing of outputs; not of loading numba and kernels,
which a process does once. A process for each stage, so that the peak of memory is its own.
"""

from __future__ import annotations

import importlib
import json
import tempfile
import time
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from corpus.dedup import Buckets, Candidates, Clusters, DedupConfig, Members
from corpus.document import read_table
from corpus.engine.run import run_stages
from corpus.engine.stage import Folder, Stage
from tools.bench.corpus.planted import SHARD_DOCUMENTS, Planted, cluster_of
from tools.bench.resident import status
from tools.bench.timing import in_child

KERNELS = (
    "corpus.dedup.near.buckets",
    "corpus.dedup.near.members",
    "corpus.dedup.near.candidates",
    "corpus.dedup.near.clusters",
)


def run(arguments: Namespace) -> None:
    """Print a table; everything lies in a temporary folder below `--data` or TMPDIR and is removed."""
    config, documents = DedupConfig(), int(arguments.documents)
    stages: list[Stage] = [
        Planted(documents, arguments.planted, config),
        Buckets(),
        Members(config),
        Candidates(config),
        Clusters(config),
    ]
    rows, total, peak, folders = documents * config.bands, 0.0, 0.0, {}
    with tempfile.TemporaryDirectory(prefix="wenhai-bench-", dir=arguments.data) as out:
        for i, stage in enumerate(stages):
            cpu, clock, megabytes, url = in_child(run_last, stages[: i + 1], out, arguments.workers)
            folders[stage.name] = Folder.open(url)
            note = "made up, not counted" if i == 0 else f"{rows / 1e6 / cpu:8,.1f} M rows/s"
            print(f"{stage.name:<12}{cpu:9.1f} CPU-s{clock:9.1f} s {megabytes:8,.0f} MB  {note}", flush=True)
            if i:
                total, peak = total + cpu, max(peak, megabytes)
        print(f"all of them {total:9.1f} CPU-s{'':11} {peak:8,.0f} MB  {rows / 1e6 / total:8,.1f} M rows/s")
        counted = {**folders["candidates"].counts.extra, **folders["clusters"].counts.extra}
        print(", ".join(f"{name} {value:,}" for name, value in counted.items()))
        recall(folders["clusters"], documents, arguments.planted)


def run_last(stages: Sequence[Stage], out: str, workers: int) -> tuple[float, float, float, str]:
    """Run the last stage: CPU seconds, seconds, the most megabytes of one process, its folder."""
    for name in KERNELS:
        importlib.import_module(name)
    start = time.perf_counter()
    folder = run_stages(stages, out, workers=workers)[stages[-1].name]
    seconds = time.perf_counter() - start
    timing = json.loads(Path(out, "timings.json").read_text())[Path(folder.url).name]
    most = max(timing["peak_bytes"], 0 if workers else status("VmHWM")) / 1e6
    return timing["cpu_seconds"], seconds, most, folder.url


def recall(clusters: Folder, documents: int, share: float) -> None:
    """How many planted documents stand in the component that holds most of their cluster, and components of two."""
    tables = [read_table(Path(file.url), ["row", "component"]) for file in clusters.files("clusters")]
    shards = np.repeat(np.arange(len(tables)), [table.num_rows for table in tables])
    rows = np.concatenate([table["row"].to_numpy() for table in tables]).astype(np.int64)
    planted = cluster_of(rows + shards * SHARD_DOCUMENTS, documents, share)
    component = np.concatenate([table["component"].to_numpy() for table in tables])
    pairs, counts = np.unique(np.stack((planted, component)), axis=1, return_counts=True)
    best = np.zeros(int(planted.max()) + 1, np.int64)
    np.maximum.at(best, pairs[0][pairs[0] > 0], counts[pairs[0] > 0])
    wanted = np.bincount(cluster_of(np.arange(documents), documents, share) + 1)[2:]
    alone = int((wanted == 1).sum())  # the last cluster may be cut to one document
    mixed = len(pairs[1]) - len(np.unique(pairs[1]))
    print(
        f"planted: {wanted.sum() - alone:,} documents in {(wanted > 1).sum():,} clusters, the largest {wanted.max():,}; "
        f"found in one component: {best.sum():,} ({best.sum() / (wanted.sum() - alone):.5f}), "
        f"of the largest {best[1]:,}; components of more than one cluster: {mixed}"
    )
