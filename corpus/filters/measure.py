"""All statistics of a batch, or one of them, from texts in any form."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from corpus.filters import characters, length, lines, repetition, script  # noqa: F401  (registers their statistics)
from corpus.filters.blocklist import Blocklist, load_blocklist
from corpus.filters.statistic import REGISTRY, Batch, Floats, Statistic

FAMILIES = ("length", "characters", "script", "lines", "repetition", "blocklist")

STATISTICS: dict[str, Statistic] = {  # by key, in the order of the ledger's columns
    key: entry for family in FAMILIES for key, entry in REGISTRY.items() if entry.family == family
}


def measure(key: str, texts: Sequence[str]) -> Floats:
    """One statistic of some texts, as they are (no normalisation, no edits), with the built-in word lists.

    >>> measure("characters.han_ratio", ["学而时习之 abc"])
    array([0.55555556])
    """
    return STATISTICS[key].compute(Batch(pa.array(texts, pa.large_string()), load_blocklist()))


def measure_all(texts: pa.LargeStringArray, words: Blocklist) -> dict[str, Floats]:
    """Every statistic, by key, of a large_string array without nulls."""
    batch = Batch(texts, words)
    return {key: entry.compute(batch) for key, entry in STATISTICS.items()}
