"""Loss spikes: what is one, and what is not."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pretrain.monitor.spikes import NEW_LEVEL, WARM_UP, WINDOW, Spike, SpikeDetector

LOSSES = st.lists(st.floats(0.0, 20.0), min_size=WARM_UP, max_size=3 * WARM_UP)


def warm(limit: float = 6.0, losses: list[float] | None = None) -> SpikeDetector:
    """A detector that has seen losses that go down, with noise of deviation 0.01 or so."""
    detector = SpikeDetector(limit)
    noise = np.random.default_rng(1).normal(0, 0.01, 2 * WARM_UP)
    for loss in losses or (3.0 - 0.0005 * np.arange(2 * WARM_UP) + noise).tolist():
        assert detector.observe(loss) is None
    return detector


def weighted(losses: list[float]) -> tuple[float, float]:
    """Mean and deviation by their definition: with each new loss all older ones lose 1 / min(n, WINDOW) of their
    weight."""
    weights = np.array([], dtype=np.float64)
    for number in range(1, len(losses) + 1):
        new = 1 / min(number, WINDOW)
        weights = np.append(weights * (1 - new), new)
    mean = float(weights @ losses)
    return mean, math.sqrt(float(weights @ (np.array(losses) - mean) ** 2))


@given(LOSSES, st.floats(0.5, 10.0))
def test_deviations_are_those_of_the_weighted_losses(losses: list[float], limit: float) -> None:
    detector = SpikeDetector(math.inf)
    assert [detector.observe(loss) for loss in losses] == [None] * len(losses)
    mean, deviation = weighted(losses)
    deviation = max(deviation, 1e-3)
    detector._limit = limit
    assert detector.observe(mean + (limit - 0.01) * deviation) is None
    detector = SpikeDetector(math.inf)
    for loss in losses:
        detector.observe(loss)
    detector._limit = limit
    spike = detector.observe(mean + (limit + 0.01) * deviation)
    assert spike is not None
    assert spike.mean == pytest.approx(mean, abs=1e-9)
    assert spike.deviations == pytest.approx(limit + 0.01, rel=1e-3)


def test_a_spike_does_not_hide_the_next() -> None:
    detector = warm()
    first = detector.observe(3.5)
    assert isinstance(first, Spike) and first.loss == 3.5 and first.mean == pytest.approx(2.96, abs=0.01)
    assert detector.observe(2.95) is None
    second = detector.observe(3.5)
    assert second is not None and second.deviations == pytest.approx(first.deviations, rel=0.05)


def test_neither_a_fall_nor_what_is_not_finite_is_a_spike() -> None:
    detector = warm()
    assert [detector.observe(loss) for loss in (math.nan, math.inf, -math.inf, 1.0)] == [None] * 4
    assert warm().observe(math.inf) is None
    tested = warm()
    tested.observe(math.nan)
    assert tested.observe(3.5) == warm().observe(3.5)


def test_the_first_steps_have_no_spikes() -> None:
    detector = SpikeDetector(6.0)
    assert [detector.observe(loss) for loss in [1.0] * (WARM_UP - 2) + [9.0, 1.0]] == [None] * WARM_UP
    assert detector.observe(30.0) is not None


def test_a_loss_that_hardly_moves_has_no_spikes_that_matter() -> None:
    assert warm(losses=[2.0] * WARM_UP).observe(2.005) is None
    assert warm(losses=[2.0] * WARM_UP).observe(2.007) is not None


def test_a_loss_that_stays_high_is_no_spike_for_ever() -> None:
    detector = warm()
    found = [detector.observe(3.5) for _ in range(NEW_LEVEL + WARM_UP)]
    assert [spike is not None for spike in found] == [True] * NEW_LEVEL + [False] * WARM_UP
    assert detector.observe(4.5) is not None, "of the new level"
    interrupted = warm()
    found = [interrupted.observe(loss) for loss in ([3.5] * (NEW_LEVEL - 1) + [2.95]) * 3]
    assert sum(spike is not None for spike in found) == 3 * (NEW_LEVEL - 1)
