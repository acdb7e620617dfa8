"""The join by shards against the same edges found in memory, over the stages' own files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from corpus.dedup import DedupConfig
from corpus.dedup.near.candidates import EDGE_DTYPE, Int64s, find_edges, unique_edges
from corpus.dedup.records import RECORD_DTYPE, Array, Runs, array_rows, bases, sections
from corpus.dedup.text.keys import KEY_DTYPE
from corpus.engine.stage import Folder
from tests.corpus.dedup.build import Deduplicate, Result
from tests.corpus.dedup.texts import edited, random_text


def corpus(generator: np.random.Generator) -> list[str]:
    """Clusters of many sizes: pairs, revisions of one text, exact copies, and texts of their own."""
    texts = [random_text(generator, 300) for _ in range(40)]
    for text in texts[:20]:
        texts += [edited(generator, text, 0.01) for _ in range(int(generator.integers(1, 6)))]
    texts += texts[:8] * 3
    return [texts[i] for i in generator.permutation(len(texts))]


def in_memory(signatures: Folder, config: DedupConfig) -> Array:
    files = signatures.files("keys")
    keys = np.concatenate([np.load(file.url) for file in files])
    minima = np.concatenate([np.load(file.url) for file in signatures.files("signatures")])
    bands, ordinals = [], []
    for file, base in zip(signatures.files("bands"), bases(files)[:-1], strict=True):
        found = sections([file], 0, 1 << 14, RECORD_DTYPE).read()
        bands.append(found["key"])
        ordinals.append(found["row"] + base)
    edges, _ = find_edges(
        np.concatenate(bands),
        np.concatenate(ordinals).astype(np.int64),
        keys.__getitem__,
        minima.__getitem__,
        config.threshold,
        config.max_leaders,
    )
    return edges


def of_stages(result: Result) -> Array:
    files = result.folders["candidates"].files("edges")
    runs = Runs([array_rows(file, EDGE_DTYPE) for file in files], EDGE_DTYPE)
    return unique_edges(runs.read())


@pytest.mark.parametrize(("partition_records", "max_members"), [(1 << 20, 1 << 21), (100, 1 << 21), (500, 9)])
@pytest.mark.parametrize("num_shards", [1, 3])
def test_edges_of_the_stages_are_those_found_in_memory(
    deduplicate: Deduplicate,
    monkeypatch: pytest.MonkeyPatch,
    partition_records: int,
    max_members: int,
    num_shards: int,
) -> None:
    monkeypatch.setattr("corpus.dedup.records.PARTITION_RECORDS", partition_records)
    monkeypatch.setattr("corpus.dedup.records.MAX_MEMBERS", max_members)
    texts, config = corpus(np.random.default_rng(0)), DedupConfig()
    result = deduplicate([texts[shard::num_shards] for shard in range(num_shards)], config)
    expected = in_memory(result.folders["signatures"], config)
    found = of_stages(result)
    assert len(expected) > 60 and found.tobytes() == expected.tobytes()
    partitions, tasks = (
        len(result.folders[name].files(kind)) for name, kind in (("buckets", "buckets"), ("candidates", "edges"))
    )
    assert (tasks > partitions > 1) if max_members < 10 else tasks == partitions


def test_a_pair_is_brought_together_once(deduplicate: Deduplicate) -> None:
    """Two texts that share many bands have one sketch each. Copies in a shard have one between them, and one more for
    the bands they share with nobody else."""
    generator = np.random.default_rng(1)
    text = random_text(generator, 1000)
    near = edited(generator, text, 0.002)
    alone = random_text(generator, 1000)
    config = DedupConfig(ngram=5, bands=14, rows=8)
    result = deduplicate([[text, alone], [near]], config)
    assert result.counts("buckets").extra["buckets"] > 5
    assert result.counts("members").extra == {"members": 2, "sketches": 2}
    copies = deduplicate([[text, text, text, alone], [near]], config)
    assert copies.counts("members").extra == {"members": 6, "sketches": 3}
    files = copies.folders["members"].files("sketches")
    assert [file.rows for file in files] == [2, 1]
    assert [Path(file.url).stat().st_size - file.rows * 2 * 112 for file in files] == [8 + 8 + 16] * 2
    assert len(copies.texts) == 2


def test_a_shard_without_twins_writes_nothing(deduplicate: Deduplicate) -> None:
    generator = np.random.default_rng(2)
    result = deduplicate([[random_text(generator, 100)], [random_text(generator, 100)], []])
    assert result.counts("members").extra == {"members": 0, "sketches": 0}
    signatures = result.folders["signatures"].files("keys")
    rows: Int64s = bases(signatures)
    assert rows.tolist() == [0, 1, 2, 2] and KEY_DTYPE.itemsize == 64
