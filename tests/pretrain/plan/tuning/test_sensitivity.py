"""Shapley effects: known ones of small functions, and the definition by orders, as slow as it is plain."""

from __future__ import annotations

from itertools import permutations, product
from statistics import fmean

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pretrain.plan.tuning.sensitivity import Effect, effects


def test_of_a_sum_each_has_its_own_variance() -> None:
    points = list(product((0, 1), (0, 1), (0, 1)))
    found = effects(("a", "b", "c"), points, [3.0 * a + 4.0 * b for a, b, _ in points])
    assert [effect.name for effect in found] == ["b", "a", "c"]
    for effect, share in zip(found, (16 / 25, 9 / 25, 0.0), strict=True):
        assert (effect.shapley, effect.total) == (pytest.approx(share, abs=1e-12), pytest.approx(share, abs=1e-12))


def test_what_two_do_together_they_share_and_the_total_counts_twice() -> None:
    points = list(product((-1, 1), (-1, 1)))
    assert effects(("a", "b"), points, [float(a * b) for a, b in points]) == [
        Effect("a", pytest.approx(0.5), pytest.approx(1.0)),
        Effect("b", pytest.approx(0.5), pytest.approx(1.0)),
    ]


def test_words_and_truth_values_are_choices_too() -> None:
    points = [("x", True), ("x", False), ("y", True), ("y", False)]
    found = effects(("letter", "flag"), points, [1.0, 1.0, 2.0, 2.0])
    assert found[0].name == "letter" and found[0].shapley == pytest.approx(1.0)


def test_nothing_matters_where_all_is_alike() -> None:
    with pytest.raises(ValueError, match="no parameter matters"):
        effects(("a",), [(0,), (1,)], [2.0, 2.0])


def by_orders(points: list[tuple[int, ...]], values: list[float]) -> list[float]:
    """What each parameter adds to the explained variance, over all orders in which they become known."""

    def explained(known: tuple[int, ...]) -> float:
        means = []
        for point in points:
            alike = [
                value for other, value in zip(points, values, strict=True) if all(other[i] == point[i] for i in known)
            ]
            means.append(fmean(alike))
        return float(np.var(means))

    axes = range(len(points[0]))
    orders = list(permutations(axes))
    added = [0.0 for _ in axes]
    for order in orders:
        for place, axis in enumerate(order):
            added[axis] += explained(order[: place + 1]) - explained(order[:place])
    return [one / len(orders) / float(np.var(values)) for one in added]


@settings(max_examples=30, deadline=None)
@given(st.data())
def test_any_table_with_points_missing(data: st.DataObject) -> None:
    """Points that failed are not there, so that parameters depend on each other: the definition holds all the same."""
    whole = list(product((0, 1), (0, 1, 2), (0, 1)))
    points = data.draw(st.lists(st.sampled_from(whole), min_size=4, unique=True))
    values = data.draw(st.lists(st.integers(0, 9).map(float), min_size=len(points), max_size=len(points)))
    if len(set(values)) == 1:
        return
    found = {effect.name: effect for effect in effects(("a", "b", "c"), points, values)}
    for name, share in zip("abc", by_orders(points, values), strict=True):
        assert found[name].shapley == pytest.approx(share, abs=1e-9)
    assert sum(effect.shapley for effect in found.values()) == pytest.approx(1.0)
    assert all(effect.shapley >= -1e-9 and effect.total >= -1e-9 for effect in found.values())
