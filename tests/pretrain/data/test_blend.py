"""Which corpus gives which sample: never a whole sample away from its share, at any prefix, for any weights."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corpus.engine.errors import UsageError
from pretrain.data.blend import MAX_CORPORA, MAX_PERIOD, Blend, chairman_assignment, round_to_sum
from tests.pretrain.data.plain import chairmen

weights_of_any_kind = st.one_of(
    st.lists(st.integers(1, 40).map(Fraction), min_size=1, max_size=12),
    st.lists(st.fractions(Fraction(1, 9), 9, max_denominator=9), min_size=1, max_size=6),
    st.integers(1, 50).map(lambda size: [Fraction(1)] * size),
    st.tuples(st.integers(1, 20), st.integers(1, 200)).map(lambda c: [Fraction(1, c[1])] + [Fraction(1)] * c[0]),
    st.lists(st.integers(1, 100).map(Fraction), min_size=20, max_size=50),
)


def check_error(blend: Blend) -> None:
    """|count_c(s) - w_c s| <= 1 - 1 / (2 K - 2) at every prefix of two periods, in whole numbers."""
    corpora, _ = blend.origins(0, 2 * blend.period)
    num_corpora = len(blend.weights)
    samples = np.arange(1, len(corpora) + 1)
    for corpus, count in enumerate(blend.counts.tolist()):
        error = np.abs(np.cumsum(corpora == corpus) * blend.period - count * samples).max()
        if num_corpora == 1:
            assert error == 0
        else:
            assert error * (2 * num_corpora - 2) <= blend.period * (2 * num_corpora - 3), (corpus, blend.weights)


@given(weights_of_any_kind)
def test_no_prefix_is_a_whole_sample_away_from_the_weights(weights: list[Fraction]) -> None:
    check_error(Blend(weights))


@given(st.lists(st.floats(0.01, 1).map(Fraction), min_size=2, max_size=50))
@settings(max_examples=5)
def test_rounded_weights_are_kept_as_well(weights: list[Fraction]) -> None:
    check_error(Blend(weights))


@given(weights_of_any_kind.filter(lambda weights: len(weights) <= 12))
def test_it_is_the_chairman_assignment(weights: list[Fraction]) -> None:
    blend = Blend(weights)
    size = min(2 * blend.period, 150)
    assert blend.origins(0, size)[0].tolist() == chairmen(blend.weights, size)


@given(weights_of_any_kind, st.integers(0, 2**55), st.lists(st.integers(0, 40), min_size=1, max_size=4))
def test_any_part_is_the_part_of_the_whole(weights: list[Fraction], start: int, counts: list[int]) -> None:
    """Random access is sequential access, beyond 2**53 too, and `samples` is the way back."""
    blend = Blend(weights)
    corpora, indices = blend.origins(start, sum(counts))
    assert (corpora.dtype, indices.dtype) == (np.int16, np.int64)
    first = start
    for part in np.split(np.arange(sum(counts)), np.cumsum(counts)[:-1]):
        other = blend.origins(first, len(part))
        assert np.array_equal(other[0], corpora[part]) and np.array_equal(other[1], indices[part])
        first += len(part)
    again = blend.origins(start % blend.period, sum(counts))
    assert np.array_equal(corpora, again[0]), "everything repeats after a period"
    for corpus in set(corpora.tolist()):
        taken = np.flatnonzero(corpora == corpus)
        assert indices[taken].tolist() == list(range(indices[taken[0]], indices[taken[0]] + len(taken))), "no gaps"
        assert np.array_equal(blend.samples(corpus, indices[taken]), start + taken)
        expected = blend.weights[corpus] * (start + int(taken[0]))
        assert abs(int(indices[taken[0]]) - expected) < 1, "the number of a sample is the number of those before it"


def test_weights_are_exact_up_to_the_longest_period() -> None:
    for weights, counts in (
        (["1/3", "2/3"], [1, 2]),
        (["0.7", "0.2", "0.1"], [7, 2, 1]),
        (["14", "4", "2"], [7, 2, 1]),
        (["1/99999", "99998/99999"], [1, 99_998]),
        ([f"1/{MAX_PERIOD}", f"{MAX_PERIOD - 1}/{MAX_PERIOD}"], [1, MAX_PERIOD - 1]),
        (["5"], [1]),
    ):
        blend = Blend([Fraction(weight) for weight in weights])
        assert blend.counts.tolist() == counts
        assert blend.weights == [Fraction(count, sum(counts)) for count in counts]


def test_longer_periods_are_rounded_to_the_longest() -> None:
    blend = Blend([Fraction(1, 7), Fraction(1, 11), Fraction(1, 13), Fraction(1, 17), Fraction(1, 19)])
    assert blend.period == MAX_PERIOD
    total = sum(Fraction(1, prime) for prime in (7, 11, 13, 17, 19))
    for weight, prime in zip(blend.weights, (7, 11, 13, 17, 19), strict=True):
        assert abs(weight - Fraction(1, prime) / total) < Fraction(1, MAX_PERIOD)
    assert sum(blend.weights) == 1
    assert Blend([Fraction(200_001), Fraction(200_002)]).counts.tolist() == [1, 1], "rounded, then in lowest terms"


@given(st.lists(st.integers(0, 999), min_size=1, max_size=20), st.integers(1, 60))
def test_rounding_keeps_the_sum_and_moves_nothing_by_a_whole(parts: list[int], unit: int) -> None:
    values = [Fraction(part, unit) for part in parts]
    values = [*values, -sum(values, Fraction(0)) % 1]
    rounded = round_to_sum(values)
    assert sum(rounded) == sum(values)
    assert all(abs(count - value) < 1 for count, value in zip(rounded, values, strict=True))
    ups = [value % 1 for count, value in zip(rounded, values, strict=True) if count > value]
    downs = [value % 1 for count, value in zip(rounded, values, strict=True) if count <= value]
    assert not ups or min(ups) >= max(downs, default=0), "the largest remainders go up"


def test_what_cannot_be_blended_is_refused() -> None:
    for weight in (0, -1):
        with pytest.raises(UsageError, match=r"corpus books: its weight is (0|-1)\."):
            Blend([Fraction(1), Fraction(weight)], ["web", "books"])
        with pytest.raises(UsageError, match=r"corpus 1: its weight"):
            Blend([Fraction(1), Fraction(weight)])
    with pytest.raises(UsageError, match=r"corpus books: its share of 1e-06 is less than one sample in 100,000"):
        Blend([Fraction(999_999), Fraction(1)], ["web", "books"])
    with pytest.raises(UsageError, match=r"^0 corpora"):
        Blend([])
    with pytest.raises(UsageError, match=r"^32,?768 corpora"):
        Blend([Fraction(1)] * (MAX_CORPORA + 1))


def test_as_many_corpora_as_int16_counts() -> None:
    chosen = chairman_assignment(np.ones(MAX_CORPORA, dtype=np.int64))
    assert np.array_equal(np.sort(chosen), np.arange(MAX_CORPORA))


def test_the_blend_is_frozen() -> None:
    corpora, indices = Blend([Fraction(7), Fraction(2), Fraction(1)]).origins(0, 20)
    assert corpora.tolist() == FROZEN_BLEND, "a run resumed after an upgrade would see other samples"
    assert indices.tolist() == [FROZEN_BLEND[:place].count(corpus) for place, corpus in enumerate(FROZEN_BLEND)]


FROZEN_BLEND = [0, 0, 1, 0, 0, 2, 0, 0, 1, 0] * 2
