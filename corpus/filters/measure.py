"""The families of statistics, and all statistics of a batch or one of them, from texts in any form.

A new statistic is a function under `@statistic` in a module of its family, its range in the recipes, and its row in the
documentation. A new family is a row of `FAMILIES` more.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from corpus.filters import blocklist, personal, url_rules
from corpus.filters.quality import bigrams, language_model, model, variety
from corpus.filters.resources import built_in
from corpus.filters.statistic import REGISTRY, Batch, Floats, Statistic
from corpus.filters.statistics import blocks, characters, length, lines, repetition, script, words

FAMILIES = {  # the modules whose statistics each has, in the order of the ledger's columns
    "length": (length,),
    "characters": (characters,),
    "script": (script, variety),
    "lines": (lines,),
    "blocks": (blocks,),
    "repetition": (repetition,),
    "words": (words,),
    "blocklist": (blocklist,),
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


def measure(key: str, texts: Sequence[str]) -> npt.NDArray[Any]:
    """One statistic of some texts, as they are (no normalisation, no edits), with the built-in word lists: float64,
    or the labels of a labelled one.

    >>> measure("characters.han_ratio", ["学而时习之 abc"])
    array([0.55555556])
    """
    entry = STATISTICS[key]
    values = entry.compute(Batch(pa.array(texts, pa.large_string()), built_in()))
    return np.array(entry.column(values).to_pylist()) if entry.labels else values


def measure_all(batch: Batch) -> dict[str, Floats]:
    """Every statistic of a batch, by key."""
    return {key: entry.compute(batch) for key, entry in STATISTICS.items()}


def stored(table: pa.Table, keys: Iterable[str]) -> dict[str, Floats]:
    """Some columns of a table of statistics as `measure_all` gave them; one that no statistic has is of numbers."""
    return {
        key: STATISTICS[key].values(table[key]) if key in STATISTICS else np.asarray(table[key].to_numpy(), np.float64)
        for key in keys
    }


def stored_row(row: Mapping[str, Any]) -> dict[str, Floats]:
    """`stored` of one document, whose columns are given as Python values."""
    kinds = {key: STATISTICS[key].field(key).type if key in STATISTICS else pa.float64() for key in row}
    return stored(pa.table({key: pa.array([value], kinds[key]) for key, value in row.items()}), row)
