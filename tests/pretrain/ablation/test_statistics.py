"""Statistics over seeds, by hand and against tables."""

from __future__ import annotations

import math

import pytest
from hypothesis import strategies as st

from pretrain.ablation.results import compare, summarize, t_probability, t_quantile

TABLE = {1: 12.706, 2: 4.303, 3: 3.182, 4: 2.776, 5: 2.571, 7: 2.365, 9: 2.262, 14: 2.145, 29: 2.045, 120: 1.980}
VALUES = st.floats(-100, 100).map(lambda value: round(value, 3))


@pytest.mark.parametrize(("degrees", "quantile"), TABLE.items())
def test_quantiles_are_those_of_the_tables(degrees: int, quantile: float) -> None:
    assert t_quantile(degrees) == pytest.approx(quantile, abs=5e-4)


@pytest.mark.parametrize("degrees", [1, 2, 3, 4, 9, 10])
@pytest.mark.parametrize("t", [0.0, 0.3, 1.0, 2.5])
def test_probabilities_are_the_integral_of_the_density(degrees: int, t: float) -> None:
    scale = math.exp(math.lgamma((degrees + 1) / 2) - math.lgamma(degrees / 2)) / math.sqrt(degrees * math.pi)
    steps = 2000  # Simpson's rule
    weights = [1, *([4, 2] * (steps // 2 - 1)), 4, 1]
    density = [scale * (1 + (t * place / steps) ** 2 / degrees) ** (-(degrees + 1) / 2) for place in range(steps + 1)]
    integral = 2 * t / steps / 3 * math.fsum(w * d for w, d in zip(weights, density, strict=True))
    assert t_probability(t, degrees) == pytest.approx(integral, abs=1e-9)


def test_a_difference_by_hand() -> None:
    # differences 0.1, 0.2, 0.3: mean 0.2, deviation 0.1, half width 4.3027 * 0.1 / sqrt(3)
    found = compare([3.1, 3.3, 3.5], [3.0, 3.1, 3.2], lower_is_better=True)
    assert found.mean == pytest.approx(0.2)
    assert found.half_width == pytest.approx(4.30265 * 0.1 / math.sqrt(3), rel=1e-5)
    assert found.verdict == "not told apart (< 0.25)"


@pytest.mark.parametrize(
    ("values", "lower_is_better", "verdict"),
    [
        ([3.2, 3.31, 3.4], True, "worse"),
        ([3.2, 3.31, 3.4], False, "better"),
        ([2.8, 2.89, 3.0], True, "better"),
        ([2.8, 2.89, 3.0], False, "worse"),
    ],
)
def test_verdicts(values: list[float], lower_is_better: bool, verdict: str) -> None:
    assert compare(values, [3.0, 3.1, 3.2], lower_is_better=lower_is_better).verdict == verdict


def test_pairs_take_out_what_seeds_have_in_common() -> None:
    first = [3.0, 4.0, 5.0]
    assert compare([3.11, 4.10, 5.09], first, lower_is_better=True).verdict == "worse"
    assert compare([4.10, 5.09, 3.11], first, lower_is_better=True).verdict.startswith("not told apart")


def test_equal_values_are_not_told_apart() -> None:
    assert compare([1.0, 2.0], [1.0, 2.0], lower_is_better=True).verdict == "not told apart (< 0)"


def test_one_seed_has_no_interval() -> None:
    found = compare([3.0], [2.0], lower_is_better=True)
    assert (found.mean, found.half_width) == (1.0, None)
    assert "not told apart with 1 seed" in found.verdict
    assert summarize([3.0]).deviation is None


def test_values_of_different_seeds_are_refused() -> None:
    with pytest.raises(ValueError, match="zip"):
        compare([1.0, 2.0], [1.0], lower_is_better=True)
    with pytest.raises(ValueError, match="degrees of freedom"):
        t_quantile(0)
