"""The line model: boosted trees that say of a line whether it belongs to the article.

Its weights (`lines.table`, numbers only) are trained by `python -m tools.line_model` on pages whose main text was
labelled by hand (docs/extraction.md names them); the pages that extraction is measured on are not among them.
"""

from __future__ import annotations

import io
from functools import lru_cache
from importlib import resources
from typing import Any, NamedTuple

import numpy as np

from corpus.engine.compiled import kernel
from corpus.extract.tables import Array

DEPTH = 4
BLOCK = 16  # rows that are scored together


class LineModel(NamedTuple):
    """Whole binary trees of DEPTH levels: node n of a tree has the children 2 n + 1 and 2 n + 2, its leaves come
    last."""

    features: Array  # int16[trees, 2^DEPTH - 1]
    thresholds: Array  # float32[trees, 2^DEPTH - 1]: to the left goes what is not above it
    leaves: Array  # float32[trees, 2^DEPTH]
    bias: Array  # float32[1]


@lru_cache(maxsize=1)
def line_model() -> LineModel:
    """The shipped model."""
    data = (resources.files("corpus.extract") / "lines.table").read_bytes()
    with np.load(io.BytesIO(data), allow_pickle=False) as arrays:
        return LineModel(*(np.ascontiguousarray(arrays[name]) for name in LineModel._fields))


@kernel(leaf=True)
def score(model: Any, x: Array, first: int, nodes: Array, totals: Array) -> None:
    """Log-odds of BLOCK rows of x, float32[rows, features], from `first` on.

    The rows walk each tree together, so that they do not wait for one another. Unsigned indices, because a signed one
    is looked at for its sign.

    Args:
        nodes: uint64[BLOCK], where the rows are in a tree.
        totals: float32[BLOCK], the result.
    """
    row, one, two, leaf = np.uint64(first), np.uint64(1), np.uint64(2), np.uint64((1 << DEPTH) - 1)
    block = np.uint64(BLOCK)
    for i in range(block):
        totals[i] = model.bias[0]
    for tree in range(np.uint64(len(model.leaves))):
        for i in range(block):
            nodes[i] = np.uint64(0)
        for _ in range(DEPTH):
            for i in range(block):
                node = nodes[i]
                is_above = x[row + i, np.uint64(model.features[tree, node])] > model.thresholds[tree, node]
                nodes[i] = two * node + one + np.uint64(is_above)
        for i in range(block):
            totals[i] += model.leaves[tree, nodes[i] - leaf]
