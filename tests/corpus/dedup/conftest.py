"""The dedup stages, run on given texts."""

from __future__ import annotations

import itertools
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from corpus.dedup import (
    BucketsStage,
    CandidatesStage,
    ClustersStage,
    DedupConfig,
    MembersStage,
    SignaturesStage,
    TextStage,
)
from corpus.engine.run import run_stages
from tests.corpus.dedup.build import Deduplicate, Feed, Result, Shards
from tests.corpus.dedup.earlier import Build, run


@pytest.fixture(autouse=True)
def no_flush(monkeypatch: pytest.MonkeyPatch) -> None:
    """No machine dies here."""
    monkeypatch.setattr(os, "fsync", lambda fd: None)


@pytest.fixture
def deduplicate(tmp_path: Path) -> Deduplicate:
    """Run the stages on shards of texts; each call in a folder of its own."""
    calls = iter(range(1_000_000))

    def call(shards: Shards, config: DedupConfig | None = None, workers: int = 0) -> Result:
        config = config or DedupConfig()
        stages = [
            Feed(tuple(map(tuple, shards))),
            SignaturesStage(config),
            BucketsStage(),
            MembersStage(config),
            CandidatesStage(config),
            ClustersStage(config),
            TextStage(config),
        ]
        return Result(run_stages(stages, str(tmp_path / f"build-{next(calls)}"), workers=workers))

    return call


@pytest.fixture
def build(tmp_path: Path) -> Build:
    """Run the stages on shards of texts, in a new folder each time."""
    numbers = itertools.count()

    def call(shards: Shards, earlier: Sequence[object] = (), **settings: Any) -> Result:
        return run(tmp_path / f"build-{next(numbers)}", shards, earlier, **settings)

    return call
