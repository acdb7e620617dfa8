"""Candidates to clusters on synthetic signatures with planted clusters: rates, memory and recall.

A band row is one of documents x bands (the row of the exact key, which is grouped as well, is not counted). Seconds are
CPU seconds of the tasks: reading, grouping, comparing, writing, hashing of outputs; not of loading numba and kernels,
which a process does once. A process for each stage, so that the peak of memory is its own.

The shards have the format of the stage `signatures`; the members of planted clusters can be told by number. Document d
stands at place (d x factor) mod n, so a cluster, which is a range of places, is spread over all shards. The first
hundredth of the places is one giant cluster; then come clusters of the sizes below, every fourth of them exact copies,
until a share of all documents is planted. A member keeps each minimum of its cluster with probability 0.95: two members
resemble each other at 0.9, and hardly ever below the threshold of 0.8.
"""

from __future__ import annotations

import importlib
import json
import math
import tempfile
import time
from argparse import Namespace
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from corpus.dedup import (
    BucketsStage,
    CandidatesStage,
    ClustersStage,
    ComponentsStage,
    DedupConfig,
    MembersStage,
    SurvivorsStage,
    records,
)
from corpus.dedup.near.candidates import Int64s
from corpus.dedup.near.minhash import SignatureArray, band_keys, exact_band_keys
from corpus.dedup.text.hashing import GOLDEN, mix
from corpus.dedup.text.keys import KEY_DTYPE
from corpus.document import read_table
from corpus.engine.compiled import kernel
from corpus.engine.run import run_stages
from corpus.engine.stage import Counts, Folder, Output, Stage, Task
from tools.bench.timing import in_child, status

SHARD_DOCUMENTS = 250_000
GIANT_SHARE = 0.01
SIZES = np.array([2, 2, 2, 2, 3, 3, 5, 10, 40])  # documents of a cluster, in turn
EXACT_EVERY = 4
KEPT = 0.95
MAX_FACTOR_TRIES = 1000
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
        BucketsStage(),
        MembersStage(config),
        CandidatesStage(config),
        ComponentsStage(),
        SurvivorsStage(),
        ClustersStage(config),
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
        f"planted: {wanted.sum() - alone:,} documents in {(wanted > 1).sum():,} clusters, the largest "
        f"{wanted.max():,}; "
        f"found in one component: {best.sum():,} ({best.sum() / (wanted.sum() - alone):.5f}), "
        f"of the largest {best[1]:,}; components of more than one cluster: {mixed}"
    )


@dataclass(frozen=True)
class Planted(Stage):
    """A finished stage `signatures` of documents without text."""

    name: ClassVar[str] = "signatures"
    version: ClassVar[int] = 1

    documents: int
    share: float  # of documents in planted clusters, the giant one included
    dedup: DedupConfig

    def config(self) -> dict[str, Any]:
        """All of it."""
        return {"documents": self.documents, "share": self.share, "dedup": self.dedup.model_dump()}

    def plan(self, upstream: Mapping[str, Folder]) -> list[Task]:
        """One task a shard."""
        starts = range(0, self.documents, SHARD_DOCUMENTS)
        return [Task(f"{i:05d}-00", params={"start": start}) for i, start in enumerate(starts)]

    def run(self, task: Task, out: Output) -> Counts:
        """Write keys, signatures and bands of one shard."""
        start = int(task.params["start"])
        numbers = np.arange(start, min(start + SHARD_DOCUMENTS, self.documents))
        clusters = cluster_of(numbers, self.documents, self.share)
        exact = (clusters > 0) & (clusters % EXACT_EVERY == 0)
        keys = np.empty(len(numbers), KEY_DTYPE)
        content = np.where(exact, clusters, self.documents + numbers).astype(np.uint64)
        for i, field in enumerate(("exact", "id", "digest")):
            source = content if field == "exact" else numbers.astype(np.uint64)
            for j in range(2):
                keys[field][:, j] = _mix_all(source, np.uint64((2 * i + j + 1) * int(GOLDEN) % (1 << 64)))
        keys["rank"], keys["num_bytes"] = 1000 + keys["digest"][:, 0] % np.uint64(50), 2200
        signatures = np.empty((len(numbers), self.dedup.num_permutations), np.uint32)
        _sign(numbers, np.where(clusters < 0, -1 - numbers, clusters), exact, signatures)
        bands = band_keys(signatures, self.dedup.bands, self.dedup.rows)
        rows = np.arange(len(numbers), dtype=np.uint32)
        all_keys = np.concatenate((exact_band_keys(keys["exact"]), bands.ravel()))
        for kind, array in (("keys", keys), ("signatures", signatures)):
            with out.create(f"{kind}/{task.name}.npy", rows=len(numbers)) as path:
                records.write_array(path, array)
        with out.create(f"bands/{task.name}.bin", rows=len(all_keys)) as path:
            records.write_bands(path, all_keys, np.concatenate((rows, np.repeat(rows, self.dedup.bands))))
        return Counts(len(numbers), len(numbers))


def cluster_of(numbers: Int64s, documents: int, share: float) -> Int64s:
    """Return the planted cluster of each document: 1 is the giant one, -1 is none."""
    first = int(documents * 0.6180339887)  # near it is a number that has no divisor in common with `documents`
    factor = next(one for one in range(first, first + MAX_FACTOR_TRIES) if math.gcd(one, documents) == 1)
    places = (numbers * factor) % documents
    giant, planted = round(GIANT_SHARE * documents), round(share * documents)
    rest = places - giant
    ends = np.cumsum(SIZES)
    clusters = 2 + rest // ends[-1] * len(SIZES) + np.searchsorted(ends, rest % ends[-1], side="right")
    return np.where(places < giant, 1, np.where(places < planted, clusters, -1))


@kernel("uint64[::1](uint64[::1], uint64)")
def _mix_all(values: npt.NDArray[np.uint64], salt: np.uint64) -> npt.NDArray[np.uint64]:
    mixed = np.empty_like(values)
    for i in range(len(values)):
        mixed[i] = mix(mix(values[i] + salt) + salt)
    return mixed


@kernel("void(int64[::1], int64[::1], boolean[::1], uint32[:, ::1])")
def _sign(numbers: Int64s, bases: Int64s, exact: npt.NDArray[np.bool_], signatures: SignatureArray) -> None:
    """A minimum is a function of the base alone, or with probability 1 - KEPT of the document."""
    width = np.uint64(signatures.shape[1])
    for i in range(len(numbers)):
        for p in range(signatures.shape[1]):
            base = mix(np.uint64(bases[i]) * width + np.uint64(p) + GOLDEN)
            own = mix(np.uint64(numbers[i]) * width + np.uint64(p) + (GOLDEN << np.uint64(1)))
            kept = exact[i] or (own & np.uint64(0xFFFF)) < KEPT * 65536
            signatures[i, p] = np.uint32((base if kept else own) >> np.uint64(32))
