"""Builds of the dedup stages against earlier ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from corpus.dedup import (
    BucketsStage,
    CandidatesStage,
    ClustersStage,
    ComponentsStage,
    DedupConfig,
    MembersStage,
    SignaturesStage,
    SurvivorsStage,
    TextStage,
)
from corpus.dedup.near.earlier import EarlierBuilds, build_name
from corpus.engine.run import run_stages
from corpus.engine.stage import Stage
from tests.corpus.dedup.build import Feed, Result, Shards

Build = Callable[..., Result]
PARAMETERS: dict[str, Any] = {"ngram": 5, "num_permutations": 112, "bands": 14, "rows": 8, "threshold": 0.8}


def config(earlier: Sequence[object] = (), **settings: Any) -> DedupConfig:
    return DedupConfig(**PARAMETERS | settings, earlier=tuple(map(str, earlier)))


def stages(shards: Shards, earlier: Sequence[object] = (), **settings: Any) -> list[Stage]:
    return stages_of(shards, config(earlier, **settings))


def stages_of(shards: Shards, dedup: DedupConfig) -> list[Stage]:
    builds = EarlierBuilds(dedup)
    return [
        Feed(tuple(map(tuple, shards))),
        SignaturesStage(dedup),
        BucketsStage(earlier=builds),
        MembersStage(dedup, earlier=builds),
        CandidatesStage(dedup, earlier=builds),
        ComponentsStage(),
        SurvivorsStage(),
        ClustersStage(dedup, earlier=builds),
        TextStage(dedup),
    ]


def run(out: object, shards: Shards, earlier: Sequence[object] = (), workers: int = 0, **settings: Any) -> Result:
    return Result(run_stages(stages(shards, earlier, **settings), str(out), workers=workers))


def out_of(result: Result) -> str:
    return result.folders["text"].url.rsplit("/", 1)[0]


def name_of(result: Result) -> str:
    return build_name(result.folders["signatures"].digest, result.folders["clusters"].digest)
