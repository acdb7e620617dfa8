"""Repetition inside one document: Gopher's rules (MassiveText, table A1), re-derived per character.

All n-grams are of code points, in the document without its white space; shares are of those code points. Gopher's
published thresholds count English words and mean nothing here: defaults are calibrated on Chinese. Two defects of the
field are avoided: counting distinct n-grams instead of positions (MAP-CC: 200 copies of a text score 0.004), and
shares of distinct characters, which condemn every long document.

>>> from corpus.filters import measure
>>> measure("repetition.top_2_gram_ratio", ["人之初，性本善", "天天天天"])
array([0., 1.])
>>> measure("repetition.top_4_gram_ratio", ["温故而知新，温故而知"])
array([0.8])
>>> measure("repetition.duplicate_5_gram_ratio", ["学而时习之，学而时习之"]).round(3)
array([0.455])
>>> measure("repetition.duplicate_10_gram_ratio", ["学而时习之，不亦说乎？学而时习之，不亦说乎？"])
array([0.5])
"""

from __future__ import annotations

import numpy as np

from corpus.filters.statistic import Batch, Compute, Floats, share, statistic
from corpus.kernels import repetition_kernel as kernel
from corpus.kernels.line_kernel import LONGEST_RUN

TOP = """{n} x occurrences of the most frequent {n}-gram / code points, at most 1; 0 when none occurs twice.

    After Rae et al. 2021 (Gopher, arXiv:2112.11446), table A1. FineWeb-2's cmn_Hani drops 2-grams above 0.256, MAP-CC
    above 0.20, both per word.
    """
DUPLICATE = """Code points covered by {n}-grams that started earlier in the document, over all code points.

    After Rae et al. 2021 (Gopher, arXiv:2112.11446), table A1. Every position of every such n-gram counts once,
    overlaps too: equal to marking them one by one. 10-grams are whole phrases that come again; long good documents stay
    low.
    """


def _top(n: int) -> Compute:
    def top(batch: Batch) -> Floats:
        occurrences = batch.repetition[:, kernel.TOP_2_GRAM + n - kernel.MIN_TOP]
        return np.minimum(1.0, share(n * occurrences, batch.repetition[:, kernel.REPETITION_CHARS]))

    return top


def _duplicate(n: int) -> Compute:
    column = kernel.SEEN_5_GRAM + n - kernel.MIN_SEEN
    return lambda batch: share(batch.repetition[:, column], batch.repetition[:, kernel.REPETITION_CHARS])


for _n in range(kernel.MIN_TOP, kernel.MAX_TOP + 1):
    statistic(unit="share of characters", name=f"top_{_n}_gram_ratio", doc=TOP.format(n=_n))(_top(_n))
for _n in range(kernel.MIN_SEEN, kernel.MAX_SEEN + 1):
    statistic(unit="share of characters", name=f"duplicate_{_n}_gram_ratio", doc=DUPLICATE.format(n=_n))(_duplicate(_n))


@statistic(unit="nats")
def unigram_entropy(batch: Batch) -> Floats:
    """-sum p ln p over single characters without white space. MAP-CC drops below 3; prose has 4.5 to 6.5.

    It grows with length up to a limit and never falls, so a long document is not condemned.

    >>> from corpus.filters import measure
    >>> measure("repetition.unigram_entropy", ["天地玄黄", "天天天天"]).round(3)
    array([1.386, 0.   ])
    """
    return batch.entropy


@statistic(unit="share of code points")
def longest_run_ratio(batch: Batch) -> Floats:
    """The longest run of one character (not white space), over all code points.

    >>> from corpus.filters import measure
    >>> measure("repetition.longest_run_ratio", ["子曰啊啊啊啊啊啊"])
    array([0.75])
    """
    return share(batch.column(LONGEST_RUN), batch.num_chars)
