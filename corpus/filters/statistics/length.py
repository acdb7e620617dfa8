"""Length: of the whole document, in code points. The field's limits: CCNet 300, ChineseWebText 200, MAP-CC 50..10,000
(the upper one drops every book), C4 script 5 good lines."""

from __future__ import annotations

import numpy as np

from corpus.filters.statistic import Batch, Floats, statistic
from corpus.kernels.line_kernel import NUM_CHARS
from corpus.kernels.tables import HAN, HAN_EXTENSION, HAN_RARE, HAN_SIMPLIFIED, HAN_TRADITIONAL

HAN_CLASSES = (HAN, HAN_SIMPLIFIED, HAN_TRADITIONAL, HAN_RARE, HAN_EXTENSION)


@statistic(unit="code points")
def num_chars(batch: Batch) -> Floats:
    """Unicode code points of the document, white space included. MAP-CC keeps 50 to 10,000, which drops every book.

    >>> from corpus.filters import measure
    >>> measure("length.num_chars", ["学而时习之，不亦说乎？", ""])
    array([11.,  0.])
    """
    return batch.column(NUM_CHARS).astype(np.float64)


@statistic(unit="characters")
def num_han(batch: Batch) -> Floats:
    """Han characters of all blocks. WuDaoCorpora drops pages below 10.

    >>> from corpus.filters import measure
    >>> measure("length.num_han", ["第1章 学而", "chapter 1"])
    array([4., 0.])
    """
    return batch.column(*HAN_CLASSES).astype(np.float64)
