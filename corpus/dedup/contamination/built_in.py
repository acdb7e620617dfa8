"""Evaluation sets that ship as hashes, without text (`python -m tools.evaluation_sets`; docs/dedup.md lists them).

Of an item's n-grams those eight stay whose hashes have the smallest lower halves, a sample that is the same in every
document: the share of them that a document holds estimates that of all.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from corpus.dedup.text.hashing import Keys
from corpus.engine import durable

# The tool prints the digest; fingerprints know the sets by it.
PATH = Path(__file__).with_name("sets.table")  # an .npz: uint64[items, 8] for each set
SHA256 = "3e2588fd72863c692a555a5576bc23e2d8f54be42f488cae420c9b1f07668eed"


def read_sets(sets: Sequence[str]) -> tuple[list[str], Keys, npt.NDArray[np.int64]]:
    """The names of the items of some sets, the hashes of all, and which item each is of.

    Raises:
        WenhaiError: the file is not the one that was shipped.
    """
    if not sets:
        return [], np.empty(0, np.uint64), np.empty(0, np.int64)
    with np.load(io.BytesIO(durable.read_shipped(PATH, SHA256)), allow_pickle=False) as table:
        hashes = [table[name] for name in sets]
    names = [f"{name} item {at + 1}" for name, found in zip(sets, hashes, strict=True) for at in range(len(found))]
    return names, np.concatenate(hashes).ravel(), np.repeat(np.arange(len(names)), hashes[0].shape[1])
