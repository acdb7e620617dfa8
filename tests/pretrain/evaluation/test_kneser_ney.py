"""Character n-grams: sums to one, the formulas in dictionaries, numbers on paper, and real text."""

from __future__ import annotations

from collections import Counter
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pretrain.evaluation.kneser_ney import (
    DISCOUNT,
    END,
    NUM_SYMBOLS,
    KneserNey,
    character_baselines,
    discounts,
    symbols,
)

ANALECTS = ["学而时习之，不亦说乎？", "有朋自远方来，不亦乐乎？", "人不知而不愠，不亦君子乎？"]
WORDS = ["而", "之", "不亦", "乎？", "君子", "学", "人，", "时习", "有朋自远", "方来"]


def drawn_texts(seed: int, num_words: int = 400) -> list[str]:
    """Texts with enough repetition that every discount can be estimated."""
    rng = np.random.default_rng(seed)
    chosen = (rng.zipf(1.5, num_words) - 1) % len(WORDS)
    return ["".join(WORDS[word] for word in part) for part in np.split(chosen, [7, 30, 31, 200])]


class Dictionaries:
    """The formulas of the module's docstring, n-gram by n-gram."""

    def __init__(self, texts: list[str], order: int) -> None:
        self.order = order
        stream = [END] * (order - 1) + symbols(texts).tolist()
        grams = [tuple(stream[place : place + order]) for place in range(len(stream) - order + 1)]
        self.counts = {order: Counter(grams)}
        for length in range(order - 1, 0, -1):
            self.counts[length] = Counter(gram[1:] for gram in self.counts[length + 1])
        self.discounts = {length: self.estimated(counts) for length, counts in self.counts.items()}

    @staticmethod
    def estimated(counts: Counter[tuple[int, ...]]) -> list[float]:
        of = Counter(counts.values())
        if all(of[number] for number in (1, 2, 3, 4)):
            y = of[1] / (of[1] + 2 * of[2])
            found = [number - (number + 1) * y * of[number + 1] / of[number] for number in (1, 2, 3)]
            if min(found) > 0:
                return [0.0, *found]
        return [0.0, DISCOUNT, DISCOUNT, DISCOUNT]

    def probability(self, context: tuple[int, ...], symbol: int) -> float:
        length = len(context) + 1
        below = self.probability(context[1:], symbol) if context else 1 / NUM_SYMBOLS
        followers = {gram: count for gram, count in self.counts[length].items() if gram[:-1] == context}
        total = sum(followers.values())
        if total == 0:
            return below
        taken = {gram: self.discounts[length][min(count, 3)] for gram, count in followers.items()}
        gram = (*context, symbol)
        return (followers.get(gram, 0) - taken.get(gram, 0.0)) / total + sum(taken.values()) / total * below

    def probabilities(self, texts: list[str]) -> list[float]:
        stream = [END] * (self.order - 1) + symbols(texts).tolist()
        places = range(self.order - 1, len(stream))
        return [self.probability(tuple(stream[at - self.order + 1 : at]), stream[at]) for at in places]


texts = st.lists(st.text("学而时😀\x00", max_size=8), max_size=5)


@given(texts, texts, st.integers(1, 5))
def test_it_is_the_formulas(train: list[str], held_out: list[str], order: int) -> None:
    found = KneserNey(symbols(train), order).probabilities(symbols(held_out))
    assert found == pytest.approx(Dictionaries(train, order).probabilities(held_out))


@pytest.mark.parametrize("order", [1, 2, 3, 5])
def test_it_is_the_formulas_where_discounts_are_estimated(order: int) -> None:
    train, held_out = drawn_texts(0), [*drawn_texts(1, 60), "猫而"]
    by_hand = Dictionaries(train, order)
    if order in (2, 3, 5):
        assert by_hand.discounts[order][1] != DISCOUNT
    assert KneserNey(symbols(train), order).probabilities(symbols(held_out)) == pytest.approx(
        by_hand.probabilities(held_out)
    )


@pytest.mark.parametrize("order", [1, 2, 3, 5])
def test_probabilities_sum_to_one_after_every_context(order: int) -> None:
    """All contexts of the training text's own symbols, the mark and one new symbol; all other symbols are alike."""
    train = ["abab", "", "ba", "aaba"]
    model = KneserNey(symbols(train), order)
    known, new = [ord("a"), ord("b"), END], ord("猫")
    for context in product([*known, new], repeat=order - 1):
        streams = [np.array([*context, symbol]) for symbol in (*known, new)]
        *of_known, of_new = (model.probabilities(stream)[-1] for stream in streams)
        assert min(*of_known, of_new) > 0
        assert sum(of_known) + (NUM_SYMBOLS - len(known)) * of_new == pytest.approx(1.0, abs=1e-9)


def test_a_bigram_on_paper() -> None:
    """The text is END 甲 乙 甲 丙 END, whose five bigrams occur once each.

    甲 stands behind END and 乙, the others behind one symbol: so p1(甲) = (2 - .75)/5 + .6/S and
    p1(丙) = .25/5 + .6/S. After 甲 come 乙 and 丙: p(丙|甲) = .25/2 + .75 p1(丙); after 乙 only 甲: p(甲|乙) = .25 + .75 p1(甲).
    """
    model = KneserNey(symbols(["甲乙甲丙"]), 2)
    of_jia, of_bing = 1.25 / 5 + 0.6 / NUM_SYMBOLS, 0.25 / 5 + 0.6 / NUM_SYMBOLS
    found = model.probabilities(symbols(["乙甲丙"]))
    assert found[1] == pytest.approx(0.25 + 0.75 * of_jia)
    assert found[2] == pytest.approx(0.25 / 2 + 0.75 * of_bing)
    assert model.probabilities(symbols(["猫丙"]))[1] == pytest.approx(of_bing), "nothing is known after 猫"


def test_discounts_on_paper() -> None:
    """Eight occur once, four twice, two three times and one four times: Y = 1/2."""
    counts = np.repeat([0, 1, 2, 3, 4, 9], [5, 8, 4, 2, 1, 3])
    assert discounts(counts).tolist() == [0, 1 - 1 / 2, 2 - 3 / 4, 3 - 1]
    assert discounts(counts[counts != 4]).tolist() == [0, DISCOUNT, DISCOUNT, DISCOUNT]
    many_of_three = np.repeat([1, 2, 3, 4], [9, 2, 9, 1])
    assert discounts(many_of_three).tolist() == [0, DISCOUNT, DISCOUNT, DISCOUNT], "D2 would be negative"


def test_what_stands_before_decides_how_often_a_symbol_counts() -> None:
    """Kneser and Ney's point: 兰 is frequent, but only after 伊, so elsewhere it is no likelier than 学, seen once."""
    model = KneserNey(symbols(["伊兰伊兰伊兰学"]), 2)
    of_lan, of_xue = (model.probabilities(symbols([f"猫{character}"]))[1] for character in "兰学")
    assert of_lan == pytest.approx(of_xue)


def test_no_held_out_characters_is_an_error() -> None:
    for held_out in ([], [""]):
        with pytest.raises(ValueError, match="no held-out characters"):
            character_baselines(ANALECTS, held_out)
