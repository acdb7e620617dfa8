"""A layout's neighbours: one parameter changed at a time, each predicted, so that what to change next has numbers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Any, get_args

import pydantic

from corpus.engine.errors import UsageError
from pretrain.config import Recompute, RunConfig, ScheduleKind, Zero
from pretrain.plan.cost import predict
from pretrain.plan.prediction import Prediction
from pretrain.plan.search.legal import Layout

NAMES = {
    "tp": "tensor parallel",
    "pp": "pipeline parallel",
    "micro_batch_size": "micro-batch",
    "global_batch_size": "batch",
    "stages_per_rank": "stages a rank",
    "sequence_parallel": "sequence parallel",
    "zero": "ZeRO",
}
WORDS = {  # for the parts of a step
    "products": "matrix products",
    "memory": "what only moves numbers",
    "launches": "starting kernels",
    "recompute": "recomputation",
    "tensor": "tensor-parallel exchange",
    "messages": "messages between stages",
    "bubble": "the pipeline's bubble",
    "data": "data-parallel exchange",
    "optimizer": "the optimizer",
    "offload": "offload",
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
        """As a sentence names it.

        "pipeline parallel 64 -> 32 (+7.1 %)"
        """
        return f"{NAMES.get(self.name, self.name)} {_shown(self.before)} -> {_shown(self.after)} ({100 * self.gain:+.1f} %)"


def changes(prediction: Prediction) -> list[Change]:
    """Every neighbour that is a layout of the same devices and fits their memory, the fastest first.

    A larger batch is another run, not only another layout: the learning rate may have to follow.
    """
    start = _predict(prediction.config, prediction)
    if start is None:
        return []
    layout = Layout.of(prediction.config, prediction.devices)
    found = []
    for name, before, after, config in _neighbours(layout, prediction.config, prediction.devices):
        other = _predict(config, prediction)
        if other is not None and other.fits:
            found.append(Change(name, before, after, other, other.tokens_per_second / start.tokens_per_second - 1))
    return sorted(found, key=lambda change: -change.gain)


def parts(prediction: Prediction) -> dict[str, float]:
    """Seconds of each part of a step, by its name in `prediction.Seconds`; only those that take time."""
    seconds = prediction.seconds
    each = {field.name: float(getattr(seconds, field.name)) for field in fields(seconds)}
    return {name: value for name, value in each.items() if value > 0}


def _predict(config: RunConfig, like: Prediction) -> Prediction | None:
    """By the closed form; None where the layout is none."""
    try:
        checked = RunConfig.model_validate(config.model_dump())
        return predict(checked, like.devices, like.cluster, like.software, exact=False)
    except (UsageError, pydantic.ValidationError):
        return None


def _neighbours(layout: Layout, config: RunConfig, devices: int) -> Iterator[tuple[str, Any, Any, RunConfig]]:
    """Name, value before and after, and the configuration."""

    def of(name: str, after: Any, **beside: Any) -> tuple[str, Any, Any, RunConfig]:
        changed = layout.but(**{name: after}, **beside)
        return name, getattr(layout, name), after, changed.configure(config)

    for name in ("tp", "pp"):
        other = layout.pp if name == "tp" else layout.tp
        for value in _halves_and_doubles(getattr(layout, name)):
            if devices % (value * other) or value * other > devices:
                continue
            beside: dict[str, Any] = {"dp_replicate": 1, "dp_shard": devices // (value * other)}
            if name == "pp":
                beside["layers_per_stage"] = None
                beside["stages_per_rank"] = layout.stages_per_rank if layout.pp > 1 and value > 1 else 1
            yield of(name, value, **beside)
    for value in _halves_and_doubles(layout.micro_batch_size):
        yield of("micro_batch_size", value)
    for recompute in get_args(Recompute):
        if recompute != layout.recompute:
            yield of("recompute", recompute, recompute_every=1)
    for zero in get_args(Zero):
        if zero != layout.zero and layout.data_parallel > 1:
            yield of("zero", zero)
    if layout.pp > 1:
        chunks = {"interleaved": max(2, layout.stages_per_rank), "zbv": 2}
        for schedule in get_args(ScheduleKind):
            if schedule != layout.schedule:
                yield of("schedule", schedule, stages_per_rank=chunks.get(schedule, 1), layers_per_stage=None)
        if layout.schedule in ("interleaved", "zero-bubble"):
            for value in _halves_and_doubles(layout.stages_per_rank):
                yield of("stages_per_rank", value, layers_per_stage=None)
    if layout.tp > 1:
        yield of("sequence_parallel", not layout.sequence_parallel)
    yield of("offload", not layout.offload)
    batch = config.training.global_batch_size
    training = config.training.model_copy(update={"global_batch_size": 2 * batch, "rampup": None})
    yield "global_batch_size", batch, 2 * batch, config.model_copy(update={"training": training})


def _halves_and_doubles(value: int) -> list[int]:
    return [value // 2, 2 * value] if value % 2 == 0 else [2 * value]


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    return f"{value:,}" if isinstance(value, int) else str(value)
