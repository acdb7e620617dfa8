"""All statistics of a batch, or one of them, from texts in any form."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from corpus.filters import blocklist, personal, site_talk, url  # noqa: F401  (importing a family registers its statistics)
from corpus.filters.quality import bigrams, language_model, model  # noqa: F401
from corpus.filters.resources import built_in
from corpus.filters.statistic import REGISTRY, Batch, Floats, Statistic
from corpus.filters.statistics import characters, length, lines, repetition, script  # noqa: F401

FAMILIES = ("length", "characters", "script", "lines", "repetition", "blocklist", "quality", "personal", "url")

STATISTICS: dict[str, Statistic] = {  # by key, in the order of the ledger's columns
    key: entry for family in FAMILIES for key, entry in REGISTRY.items() if entry.family == family
}


def measure(key: str, texts: Sequence[str]) -> Floats:
    """One statistic of some texts, as they are (no normalisation, no edits), with the built-in word lists.

    >>> measure("characters.han_ratio", ["学而时习之 abc"])
    array([0.55555556])
    """
    return STATISTICS[key].compute(Batch(pa.array(texts, pa.large_string()), built_in()))


def measure_all(batch: Batch) -> dict[str, Floats]:
    """Every statistic of a batch, by key."""
    return {key: entry.compute(batch) for key, entry in STATISTICS.items()}
