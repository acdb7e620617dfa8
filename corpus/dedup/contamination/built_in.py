"""Evaluation sets that ship as hashes, without text (`python -m tools.evaluation_sets`; docs/dedup.md lists them).

Of an item's n-grams those eight stay whose hashes have the smallest lower halves, a sample that is the same in every
document: the share of them that a document holds estimates that of all. Items of fewer than four are left out.
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Sequence
from importlib import resources

import numpy as np
import numpy.typing as npt

from corpus.dedup.text.hashing import Keys
from corpus.engine.errors import WenhaiError
from corpus.filters.quality.bigrams import DAMAGE


def table_bytes() -> bytes:
    """The shipped file: an .npz with `SET`, uint64[hashes], and `SET.sizes`, uint8[items], for each set."""
    return (resources.files("corpus.dedup.contamination") / "sets.table").read_bytes()


def digest() -> str:
    """What a fingerprint knows the shipped sets by."""
    return hashlib.sha256(table_bytes()).hexdigest()


def read_sets(sets: Sequence[str]) -> tuple[list[str], Keys, npt.NDArray[np.int64]]:
    """The names of the items of some sets, the hashes of all, and which item each is of.

    Raises:
        WenhaiError: the file is not the one that was shipped.
    """
    if not sets:
        return [], np.empty(0, np.uint64), np.empty(0, np.int64)
    try:
        with np.load(io.BytesIO(table_bytes()), allow_pickle=False) as table:
            hashes, sizes = ([table[f"{name}{part}"] for name in sets] for part in ("", ".sizes"))
    except DAMAGE as error:
        raise WenhaiError(
            "corpus/dedup/contamination/sets.table: not the table that was shipped. Install the package again."
        ) from error
    names = [f"{name} item {at + 1}" for name, found in zip(sets, sizes, strict=True) for at in range(len(found))]
    return names, np.concatenate(hashes), np.repeat(np.arange(len(names)), np.concatenate(sizes))
