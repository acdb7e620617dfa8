"""A layout's neighbours: one parameter changed at a time, each predicted, so that what to change next has numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pydantic

from corpus.engine.errors import UsageError
from pretrain.config import RunConfig
from pretrain.plan.cost import predict
from pretrain.plan.naming import format_value
from pretrain.plan.prediction import Prediction
from pretrain.plan.search.legal import Layout, neighbours

LITTLE = 0.01  # of tokens/s: what gains less is not worth a sentence
MOST_ADVICE = 3  # changes that are named
NAMES = {
    "tp": "tensor parallel",
    "pp": "pipeline parallel",
    "micro_batch_size": "micro-batch",
    "global_batch_size": "batch",
    "stages_per_rank": "stages a rank",
    "sequence_parallel": "sequence parallel",
    "zero": "ZeRO",
}


@dataclass(frozen=True)
class Change:
    """One parameter changed."""

    name: str  # of the field
    before: Any
    after: Any
    prediction: Prediction
    gain: float  # tokens/s over those before, less one

    @property
    def words(self) -> str:
        """As in "pipeline parallel 64 -> 32 (+7.1 %)"."""
        values = " -> ".join(
            f"{value:,}" if type(value) is int else format_value(value) for value in (self.before, self.after)
        )
        return f"{NAMES.get(self.name, self.name)} {values} ({100 * self.gain:+.1f} %)"


def changes(prediction: Prediction) -> list[Change]:
    """Every neighbour that is a layout of the same devices and fits their memory, the fastest first.

    A larger batch is another run, not only another layout: the learning rate may have to follow.
    """
    start, training = _predict(prediction.config, prediction), prediction.config.training
    layout = Layout.of(prediction.config, prediction.devices)
    found = [
        (name, getattr(layout, name), value, other.configure(prediction.config))
        for name, value, other in neighbours(layout)
    ]
    doubled = training.model_copy(update={"global_batch_size": 2 * training.global_batch_size, "rampup": None})
    larger = prediction.config.model_copy(update={"training": doubled})
    found.append(("global_batch_size", training.global_batch_size, doubled.global_batch_size, larger))
    predicted = [(*change, _predict(config, prediction)) for *change, config in found]
    fitting = [
        Change(name, before, after, other, other.tokens_per_second / start.tokens_per_second - 1)
        for name, before, after, other in predicted
        if start and other is not None and other.fits
    ]
    return sorted(fitting, key=lambda change: -change.gain)


def advice(found: Sequence[Change]) -> str:
    """The changes worth trying, the best of each parameter, in a sentence."""
    each = {change.name: change for change in reversed(found) if change.gain >= LITTLE}
    better = sorted(each.values(), key=lambda change: -change.gain)[:MOST_ADVICE]
    if not better:
        return "No single parameter that could be changed gains 1 %."
    return f"To change next: {'; or '.join(change.words for change in better)}."


def _predict(config: RunConfig, like: Prediction) -> Prediction | None:
    """By the closed form; None where the layout is none."""
    try:
        checked = RunConfig.model_validate(config.model_dump())
        return predict(checked, like.devices, like.cluster, like.software, exact=False)
    except (UsageError, pydantic.ValidationError):
        return None
