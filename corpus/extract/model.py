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


class LineModel(NamedTuple):
    """Trees as arrays over all their nodes; a leaf has feature -1 and its value as threshold."""

    roots: Array  # int32[trees]
    features: Array  # int16[nodes]
    thresholds: Array  # float32[nodes]: to the left goes what is not above it
    children: Array  # int32[nodes, 2]
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
    for tree in range(len(model.roots)):
        node = model.roots[tree]
        while model.features[node] >= 0:
            is_above = x[row, model.features[node]] > model.thresholds[node]
            node = model.children[node, 1 if is_above else 0]
        total += model.thresholds[node]
    return total
