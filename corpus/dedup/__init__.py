"""Exact and near-duplicate removal: `near_duplicates(texts)` in memory, or the file stages of a corpus build."""

from __future__ import annotations

from corpus.dedup.config import DedupConfig
from corpus.dedup.near.in_memory import Duplicate, near_duplicates
from corpus.dedup.near.signing import Signatures
from corpus.dedup.near.stages import Buckets, Candidates, Clusters, Members, Survivors
from corpus.engine import moved

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

moved({"corpus.dedup.in_memory": "corpus.dedup.near.in_memory"})
