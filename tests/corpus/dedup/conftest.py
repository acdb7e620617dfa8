"""The dedup stages, run on given texts."""

from __future__ import annotations

from pathlib import Path

import pytest

from corpus.dedup import Buckets, Candidates, Clusters, DedupConfig, Members, Signatures, Survivors
from corpus.engine.run import run_stages
from tests.corpus.dedup.build import Deduplicate, Feed, Result, Shards


@pytest.fixture
def deduplicate(tmp_path: Path) -> Deduplicate:
    """Run the stages on shards of texts; each call in a folder of its own."""
    calls = iter(range(1_000_000))

    def run(shards: Shards, config: DedupConfig | None = None, workers: int = 0) -> Result:
        config = config or DedupConfig()
        stages = [
            Feed(tuple(map(tuple, shards))),
            Signatures(config),
            Buckets(),
            Members(config),
            Candidates(config),
            Clusters(config),
            Survivors(config),
        ]
        return Result(run_stages(stages, str(tmp_path / f"build-{next(calls)}"), workers=workers))

    return run
