"""Which examples are drawn."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpus.engine.errors import UsageError
from pretrain.tasks.items import Item, draw_shots


def make(*choices: int) -> list[Item]:
    return [Item(index, str(index), choice, {}) for index, choice in enumerate(choices)]


@given(st.lists(st.integers(0, 3), max_size=30), st.integers(0, 30), st.integers(0, 5))
def test_each_answer_has_as_many_as_another_that_has_them(choices: list[int], num_shots: int, seed: int) -> None:
    items = make(*choices)
    num_shots = min(num_shots, len(items))
    drawn = draw_shots(items, num_shots, seed)
    assert len({item.index for item in drawn}) == len(drawn) == num_shots
    assert drawn == draw_shots(items, num_shots, seed)
    there, taken = Counter(choices), Counter(item.choice for item in drawn)
    for one in there:
        for other in there:
            assert taken[one] >= taken[other] - 1 or taken[one] == there[one]


def test_the_seed_says_which_and_in_what_order() -> None:
    items = make(*[0, 1] * 16)
    orders = {tuple(item.choice for item in draw_shots(items, 4, seed)) for seed in range(40)}
    assert len(orders) == 6  # all orders of two and two
    assert len({tuple(item.index for item in draw_shots(items, 4, seed)) for seed in range(40)}) == 40


def test_fewer_examples_than_answers_are_of_any_answer() -> None:
    drawn = [draw_shots(make(0, 1, 2), 2, seed) for seed in range(40)]
    assert {frozenset(item.choice for item in shots) for shots in drawn} == {
        frozenset(pair) for pair in ((0, 1), (0, 2), (1, 2))
    }


def test_no_more_than_there_are() -> None:
    with pytest.raises(UsageError, match="5 examples: there are 3 to draw from"):
        draw_shots(make(0, 1, 0), 5, seed=0)
    with pytest.raises(UsageError):
        draw_shots(make(0), -1, seed=0)
