"""Loss spikes: losses far above the recent ones, told from an exponentially weighted mean and deviation of those.

Weights are those of an average of the last `WINDOW` losses or so; while there are fewer, all weigh the same. Updates of
mean and variance as in West (1979): with weight w, d = x - mean: mean += w d, variance = (1 - w) (variance + w d^2).

A spike does not enter them, or the next would hide behind it; but after `NEW_LEVEL` of them in a row the loss is taken
to stay there, and the statistics begin anew, as they do when a run is resumed: the `WARM_UP` steps after that have no
spikes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

WINDOW = 50
WARM_UP = 50
NEW_LEVEL = 20
LEAST_DEVIATION = 1e-3  # nats: a loss that hardly moves has no spikes that matter


@dataclass(frozen=True)
class Spike:
    """A loss, and what it was expected to be."""

    loss: float
    mean: float
    deviations: float  # above the mean


class SpikeDetector:
    """Takes the losses of a run one after the other."""

    def __init__(self, limit: float) -> None:
        self._limit = limit  # deviations above the mean, from which on a loss is a spike
        self._begin()

    def _begin(self) -> None:
        self._num_losses, self._num_spikes = 0, 0  # that entered; in a row
        self._mean, self._variance = 0.0, 0.0

    def observe(self, loss: float) -> Spike | None:
        """What a loss is, if it is a spike; one that is not finite is neither that nor part of the statistics."""
        if not math.isfinite(loss):
            return None
        if self._num_losses >= WARM_UP:
            deviation = max(math.sqrt(self._variance), LEAST_DEVIATION)
            if (deviations := (loss - self._mean) / deviation) > self._limit:
                spike = Spike(loss, self._mean, deviations)
                self._num_spikes += 1
                if self._num_spikes == NEW_LEVEL:
                    self._begin()
                return spike
        self._num_spikes = 0
        self._num_losses += 1
        weight = max(1 / WINDOW, 1 / self._num_losses)
        difference = loss - self._mean
        self._mean += weight * difference
        self._variance = (1 - weight) * (self._variance + weight * difference**2)
        return None
