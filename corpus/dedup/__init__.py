"""Exact and near-duplicate removal: `near_duplicates(texts)` in memory, or the file stages of a corpus build."""

from __future__ import annotations

from corpus.dedup.config import DedupConfig
from corpus.dedup.near.in_memory import Duplicate, near_duplicates
from corpus.dedup.near.signing import SignaturesStage
from corpus.dedup.near.stages import (
    BucketsStage,
    CandidatesStage,
    ClustersStage,
    ComponentsStage,
    MembersStage,
    SurvivorsStage,
    TextStage,
)
from corpus.engine import register_moved

__all__ = [
    "BucketsStage",
    "CandidatesStage",
    "ClustersStage",
    "ComponentsStage",
    "DedupConfig",
    "Duplicate",
    "MembersStage",
    "SignaturesStage",
    "SurvivorsStage",
    "TextStage",
    "near_duplicates",
]

register_moved({"corpus.dedup.in_memory": "corpus.dedup.near.in_memory"})
