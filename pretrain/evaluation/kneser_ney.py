"""Character n-gram models with interpolated, modified Kneser-Ney smoothing (Chen and Goodman 1999, section 3).

They are what a GPT has to beat: orders 1, 2 and 5 price the same held-out text, the ends of its documents included. An
n-gram model predicts a symbol w from the n - 1 symbols h before it; h' is h without its first:

    p(w | h) = (c(h w) - D) / c(h .) + (sum of all D over what follows h) / c(h .) * p(w | h')
    p(w | h) = p(w | h') where h is new

The highest order counts how often an n-gram occurs, the others how many different symbols stand before it. D depends on
c(h w): D1, D2 and D3+ of each order are estimated from how many n-grams occur once, twice, three and four times. Below
the first order every symbol of Unicode is equally likely, so that none has probability zero.

The text is one stream of code points, each document closed by END; contexts reach across ends. An n-gram is one
integer: the rank of its first n - 1 symbols in the table of those, and its last symbol. The tables are sorted, so that
whatever follows one context lies together, and there is no object for each n-gram.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pretrain.evaluation.texts import blocks

ORDERS = {"unigram": 1, "bigram": 2, "5gram": 5}
END = 0xD800  # the end-of-document mark among code points: a surrogate, which no text contains
NUM_SYMBOLS = 0x110000 - 0x800 + 1  # Unicode's scalar values and the mark
MAX_BASELINE_TOKENS = 4_000_000  # of training text: some 15 seconds and 1 GB
PRICED_TOGETHER = 4_000_000  # characters, or a little more; the contexts of an n-gram end with them
DISCOUNT = 0.75  # where a text is too small to estimate any; Church and Gale 1991 measure 0.75 on bigrams
NEW = -1  # the rank of what the training text does not have; as an index, the last entry

Integers = NDArray[np.int64]
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Level:
    """The n-grams of one order, and what their context gives them; the last entry of both shares is that of NEW."""

    grams: Integers  # [n-grams] sorted: rank of the context * size of the alphabet + rank of the last symbol
    shares: Floats  # [n-grams + 1] (c(h w) - D) / c(h .)
    passed_on: Floats  # [contexts + 1] what all D of a context leave to the order below


class KneserNey:
    """An n-gram model of `stream`; before the first symbol stands END, as often as there is room for."""

    def __init__(self, stream: Integers, order: int) -> None:
        self.alphabet = np.unique(np.append(stream, END))
        codes = np.searchsorted(self.alphabet, pad_context(stream, order))
        ranks = np.zeros(len(codes) + 1, dtype=np.int64)  # of the n-gram of no symbols, before the first and after each
        tables: list[tuple[Integers, Integers, int]] = []
        counts = np.empty(0, dtype=np.int64)
        num_contexts = 1
        for length in range(1, order + 1):
            keys = ranks[:-1] * len(self.alphabet) + codes[length - 1 :]
            grams, places, longer, counts = np.unique(keys, return_index=True, return_inverse=True, return_counts=True)
            tables.append(
                (grams, ranks[1:][places], num_contexts)
            )  # ranks[1:]: the same n-grams without their first symbol
            ranks, num_contexts = longer, len(grams)
        levels = []
        for grams, suffixes, num_contexts in reversed(tables):
            levels.append(_level(grams, counts, grams // len(self.alphabet), num_contexts))
            counts = np.bincount(suffixes[counts > 0], minlength=num_contexts)  # how many symbols stand before it
        self.levels = levels[::-1]

    def probabilities(self, stream: Integers) -> Floats:
        """What the model gives to each symbol, float64[symbols]."""
        codes = _rank(self.alphabet, pad_context(stream, len(self.levels)))
        ranks = np.zeros(len(codes) + 1, dtype=np.int64)
        found = np.full(len(codes) + 1, 1 / NUM_SYMBOLS)
        for length, level in enumerate(self.levels, start=1):
            contexts, last = ranks[:-1], codes[length - 1 :]
            keys = contexts * len(self.alphabet) + last  # negative where the context is new, which is in no table
            ranks = _rank(level.grams, np.where(last == NEW, NEW, keys))
            found = level.shares[ranks] + level.passed_on[contexts] * found[1:]
        return found

    def bits(self, stream: Integers, with_ends: bool = True) -> float:
        """What all symbols cost together, or all but the ends of documents."""
        costs = -np.log2(self.probabilities(stream))
        return float(costs.sum() if with_ends else costs[stream != END].sum())


def character_baselines(
    train_texts: Sequence[str], held_out_texts: Iterable[str], with_ends: bool = True
) -> dict[str, float]:
    """Bits per held-out character of n-gram models of `train_texts`, by the names of ORDERS.

    Held-out texts are priced as they come, and never held all at once.
    """
    train = symbols(train_texts)
    models = {name: KneserNey(train, order) for name, order in ORDERS.items()}
    bits = dict.fromkeys(models, 0.0)
    num_characters = 0
    for block in blocks(held_out_texts, len, PRICED_TOGETHER):
        num_characters += sum(map(len, block))
        stream = symbols(block)
        for name, model in models.items():
            bits[name] += model.bits(stream, with_ends)
    if num_characters == 0:
        raise ValueError("no held-out characters to score")
    return {name: cost / num_characters for name, cost in bits.items()}


def symbols(texts: Sequence[str]) -> Integers:
    """The code points of all texts, with the mark END after each."""
    joined = "".join(text + chr(END) for text in texts)
    return np.frombuffer(joined.encode("utf-32-le", "surrogatepass"), dtype="<u4").astype(np.int64)


def pad_context(stream: Integers, order: int) -> Integers:
    """The stream behind a context for its first symbol."""
    return np.concatenate((np.full(order - 1, END), stream))


def discounts(counts: Integers) -> Floats:
    """What is taken from an n-gram that occurs 0, 1, 2, and 3 or more times; DISCOUNT where the formula has no
    answer."""
    once, twice, thrice, four = (int(np.count_nonzero(counts == number)) for number in range(1, 5))
    if min(once, twice, thrice, four) > 0:
        y = once / (once + 2 * twice)
        found = np.array([0.0, 1 - 2 * y * twice / once, 2 - 3 * y * thrice / twice, 3 - 4 * y * four / thrice])
        if found[1:].min() > 0:
            return found
    return np.array([0.0, DISCOUNT, DISCOUNT, DISCOUNT])


def _level(grams: Integers, counts: Integers, contexts: Integers, num_contexts: int) -> Level:
    """The shares of one order's n-grams."""
    taken = discounts(counts)[np.minimum(counts, 3)]
    totals = np.bincount(contexts, counts, minlength=num_contexts)
    sums = np.bincount(contexts, taken, minlength=num_contexts)
    passed_on = np.divide(sums, totals, out=np.ones(num_contexts), where=totals > 0)
    shares = np.divide(counts - taken, totals[contexts], out=np.zeros(len(grams)), where=counts > 0)
    return Level(grams, np.append(shares, 0.0), np.append(passed_on, 1.0))


def _rank(table: Integers, wanted: Integers) -> Integers:
    """Where each of `wanted` stands in a sorted table, NEW where it does not."""
    places = np.searchsorted(table, wanted)
    return np.where(np.append(table, np.iinfo(np.int64).min)[places] == wanted, places, NEW)
