"""The families of statistics, and all statistics of a batch or one of them, from texts in any form.

A new statistic is a function under `@statistic` in a module of its family, its range in the recipes, and its row in the
documentation. A new family is a row of `FAMILIES` more.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from corpus.filters import blocklist, personal, site_talk, url_rules
from corpus.filters.quality import bigrams, language_model, model
from corpus.filters.resources import built_in
from corpus.filters.statistic import REGISTRY, Batch, Floats, Statistic
from corpus.filters.statistics import characters, length, lines, repetition, script

FAMILIES = {  # the modules whose statistics each has, in the order of the ledger's columns
    "length": (length,),
    "characters": (characters,),
    "script": (script,),
    "lines": (lines,),
    "repetition": (repetition,),
    "blocklist": (blocklist, site_talk),
    "quality": (bigrams, language_model, model),
    "personal": (personal,),
    "url": (url_rules,),
}
STATISTICS: dict[str, Statistic] = {
    f"{family}.{name}": entry
    for family, modules in FAMILIES.items()
    for module in modules
    for name, entry in REGISTRY[module.__name__].items()
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
