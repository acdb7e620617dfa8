"""The synthetic run, small: planted clusters are found, and memory does not follow the corpus."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from corpus.dedup import (
    BucketsStage,
    CandidatesStage,
    ClustersStage,
    ComponentsStage,
    DedupConfig,
    MembersStage,
    SurvivorsStage,
)
from corpus.engine.run import run_stages
from corpus.engine.stage import Folder, Stage
from tools.bench.corpus import dedup

CONFIG = DedupConfig()
SHARE = 0.2


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dedup, "SHARD_DOCUMENTS", 2_000)
    monkeypatch.setattr("corpus.dedup.records.PARTITION_RECORDS", 20_000)
    monkeypatch.setattr("corpus.dedup.near.clusters.GROUP_EDGES", 1_000)
    monkeypatch.setattr("corpus.dedup.records.BLOCK_RECORDS", 1_000)


def build(out: Path, documents: int) -> tuple[dict[str, Folder], dict[str, int]]:
    """The stages' folders, and the most bytes that each stage held at once."""
    stages: list[Stage] = [dedup.Planted(documents, SHARE, CONFIG), BucketsStage(), MembersStage(CONFIG)]
    stages += [CandidatesStage(CONFIG), ComponentsStage(), SurvivorsStage(), ClustersStage(CONFIG)]
    folders, peaks = {}, {}
    for count, stage in enumerate(stages, 1):
        tracemalloc.start()
        folders = run_stages(stages[:count], str(out), workers=0)
        peaks[stage.name] = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    return folders, peaks


def test_planted_clusters_are_found(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folders, _ = build(tmp_path, 5_000)
    dedup.recall(folders["clusters"], 5_000, SHARE)
    told = capsys.readouterr().out
    assert "planted: 1,000 documents" in told and "of the largest 50; " in told
    assert float(told.split("(")[1].split(")")[0]) > 0.999
    assert told.endswith("components of more than one cluster: 0\n")


@pytest.mark.long
def test_memory_stays_flat_when_the_corpus_grows_eightfold(tmp_path: Path) -> None:
    build(tmp_path / "warm", 100)
    (_, few), (_, many) = build(tmp_path / "few", 5_000), build(tmp_path / "many", 40_000)
    for stage in ("buckets", "members", "candidates", "components", "survivors", "clusters"):
        assert many[stage] < 2 * few[stage], (stage, few, many)


def test_clusters_are_spread_over_the_shards() -> None:
    clusters = dedup.cluster_of(np.arange(10_000), 10_000, SHARE)
    assert (clusters > 0).sum() == 2_000 and (clusters == 1).sum() == 100
    assert np.bincount(np.flatnonzero(clusters == 1) // 2_000, minlength=5).min() > 10
    sizes = np.bincount(clusters[clusters > 1])[2:]
    assert sizes[: len(dedup.SIZES)].tolist() == dedup.SIZES.tolist()
