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
import numpy.typing as npt

from corpus.engine.compiled import kernel

Array = npt.NDArray[Any]


DEPTH = 4


class LineModel(NamedTuple):
    """Whole binary trees of DEPTH levels: node n of a tree has the children 2 n + 1 and 2 n + 2, its leaves come last."""

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
def score(model: Any, x: Array, row: int) -> Any:
    """Log-odds of the features in a row of x, float32[rows, features]."""
    total = model.bias[0]
    for tree in range(len(model.leaves)):
        node: Any = 0
        for _ in range(DEPTH):
            node = 2 * node + 1 + np.int64(x[row, model.features[tree, node]] > model.thresholds[tree, node])
        total += model.leaves[tree, node - (1 << DEPTH) + 1]
    return total
