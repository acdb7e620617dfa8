"""The dedup stages, run on given texts."""

from __future__ import annotations

import itertools
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from corpus.dedup import DedupConfig
from corpus.engine.run import run_stages
from tests.corpus.dedup.build import Deduplicate, Result, Shards
from tests.corpus.dedup.earlier import Build, run, stages_of


@pytest.fixture(autouse=True)
def no_flush(monkeypatch: pytest.MonkeyPatch) -> None:
    """No machine dies here."""
    monkeypatch.setattr(os, "fsync", lambda fd: None)


@pytest.fixture
def deduplicate(tmp_path: Path) -> Deduplicate:
    """Run the stages on shards of texts; each call in a folder of its own."""
    calls = itertools.count()

    def call(shards: Shards, config: DedupConfig | None = None, workers: int = 0) -> Result:
        out = tmp_path / f"build-{next(calls)}"
        return Result(run_stages(stages_of(shards, config or DedupConfig()), str(out), workers=workers))

    return call


@pytest.fixture
def build(tmp_path: Path) -> Build:
    """Run the stages on shards of texts, in a new folder each time."""
    numbers = itertools.count()

    def call(shards: Shards, earlier: Sequence[object] = (), **settings: Any) -> Result:
        return run(tmp_path / f"build-{next(numbers)}", shards, earlier, **settings)

    return call
