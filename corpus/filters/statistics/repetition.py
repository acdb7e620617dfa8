"""Repetition inside one document: Gopher's rules (MassiveText, table A1), re-derived per character.

All n-grams are of code points, in the document without its white space; shares are of those code points. Gopher's
published thresholds count English words and mean nothing here: defaults are calibrated on Chinese. Two defects of the
field are avoided: counting distinct n-grams instead of positions (MAP-CC: 200 copies of a text score 0.004), and
shares of distinct characters, which condemn every long document.
"""

from __future__ import annotations

import numpy as np

from corpus.filters.statistic import Batch, Floats, share, statistic
from corpus.kernels import repetition_kernel as kernel
from corpus.kernels.line_kernel import LONGEST_RUN


def _top(batch: Batch, n: int) -> Floats:
    occurrences = batch.repetition[:, kernel.TOP_2_GRAM + n - kernel.MIN_TOP]
    return np.minimum(1.0, share(n * occurrences, batch.repetition[:, kernel.REPETITION_CHARS]))


def _seen(batch: Batch, n: int) -> Floats:
    covered = batch.repetition[:, kernel.SEEN_5_GRAM + n - kernel.MIN_SEEN]
    return share(covered, batch.repetition[:, kernel.REPETITION_CHARS])


@statistic(unit="share of characters")
def top_2_gram_ratio(batch: Batch) -> Floats:
    """2 x occurrences of the most frequent 2-gram / code points, at most 1; 0 when none occurs twice.

    FineWeb-2's cmn_Hani drops above 0.256, MAP-CC above 0.20, both per word.

    >>> from corpus.filters import measure
    >>> measure("repetition.top_2_gram_ratio", ["人之初，性本善", "天天天天"])
    array([0., 1.])
    """
    return _top(batch, 2)


@statistic(unit="share of characters")
def top_3_gram_ratio(batch: Batch) -> Floats:
    """3 x occurrences of the most frequent 3-gram / code points, at most 1; 0 when none occurs twice.

    >>> from corpus.filters import measure
    >>> measure("repetition.top_3_gram_ratio", ["温故而知新，温故而知"])
    array([0.6])
    """
    return _top(batch, 3)


@statistic(unit="share of characters")
def top_4_gram_ratio(batch: Batch) -> Floats:
    """4 x occurrences of the most frequent 4-gram / code points, at most 1; 0 when none occurs twice.

    >>> from corpus.filters import measure
    >>> measure("repetition.top_4_gram_ratio", ["温故而知新，温故而知"])
    array([0.8])
    """
    return _top(batch, 4)


@statistic(unit="share of characters")
def duplicate_5_gram_ratio(batch: Batch) -> Floats:
    """Code points covered by a 5-gram that started earlier in the document, over all code points.

    Every position of every such n-gram counts once, overlaps too: equal to marking them one by one.

    >>> from corpus.filters import measure
    >>> measure("repetition.duplicate_5_gram_ratio", ["学而时习之，学而时习之"]).round(3)
    array([0.455])
    """
    return _seen(batch, 5)


@statistic(unit="share of characters")
def duplicate_6_gram_ratio(batch: Batch) -> Floats:
    """As `duplicate_5_gram_ratio`, of 6-grams."""
    return _seen(batch, 6)


@statistic(unit="share of characters")
def duplicate_7_gram_ratio(batch: Batch) -> Floats:
    """As `duplicate_5_gram_ratio`, of 7-grams."""
    return _seen(batch, 7)


@statistic(unit="share of characters")
def duplicate_8_gram_ratio(batch: Batch) -> Floats:
    """As `duplicate_5_gram_ratio`, of 8-grams."""
    return _seen(batch, 8)


@statistic(unit="share of characters")
def duplicate_9_gram_ratio(batch: Batch) -> Floats:
    """As `duplicate_5_gram_ratio`, of 9-grams."""
    return _seen(batch, 9)


@statistic(unit="share of characters")
def duplicate_10_gram_ratio(batch: Batch) -> Floats:
    """As `duplicate_5_gram_ratio`, of 10-grams: whole phrases that come again. Long good documents stay low.

    >>> from corpus.filters import measure
    >>> measure("repetition.duplicate_10_gram_ratio", ["学而时习之，不亦说乎？学而时习之，不亦说乎？"])
    array([0.5])
    """
    return _seen(batch, 10)


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
