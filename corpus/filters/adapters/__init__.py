"""Doors to the filter for other people's corpora: JSON lines, Parquet folders, `datasets.Dataset.map`."""

from __future__ import annotations

from corpus.filters.adapters.tables import for_datasets

__all__ = ["for_datasets"]
