"""Exact and near-duplicate removal: `near_duplicates(texts)` in memory, or the file stages of a corpus build."""

from __future__ import annotations

from corpus.dedup.config import DedupConfig
from corpus.dedup.in_memory import Duplicate, near_duplicates
from corpus.dedup.stages import Buckets, Candidates, Clusters, Members, Signatures, Survivors

__all__ = [
    "Buckets",
    "Candidates",
    "Clusters",
    "DedupConfig",
    "Duplicate",
    "Members",
    "Signatures",
    "Survivors",
    "near_duplicates",
]
