"""Numbers of parameters of a model's parts, from the parameter table, once for each model."""

from __future__ import annotations

import math
from functools import lru_cache

from pretrain.config import ModelConfig
from pretrain.parallel.base.params import ParamSpec, param_specs, part_specs
from pretrain.parallel.base.stages import Stage


@lru_cache(maxsize=64)
def specs_by_room(model: ModelConfig) -> dict[str, list[ParamSpec]]:
    """The parameter table by the first word of the names; that of one layer under "layer"."""
    rooms: dict[str, list[ParamSpec]] = {}
    for spec in part_specs(model.model_copy(update={"num_layers": 1})):  # layers are alike
        rooms.setdefault(spec.name.partition(".")[0].replace("layers", "layer"), []).append(spec)
    return rooms


@lru_cache(maxsize=64)
def by_room(model: ModelConfig) -> dict[str, int]:
    """Numbers of parameters, likewise."""
    return {room: sum(math.prod(spec.shape) for spec in specs) for room, specs in specs_by_room(model).items()}


@lru_cache(maxsize=64)
def of_model(model: ModelConfig) -> int:
    """All of them; a tied output matrix once."""
    one_layer = sum(math.prod(spec.shape) for spec in param_specs(model.model_copy(update={"num_layers": 1})))
    return one_layer + (model.num_layers - 1) * by_room(model)["layer"]


def of_stage(model: ModelConfig, stage: Stage) -> int:
    """A stage's, on all of its tensor-parallel ranks together; a tied output matrix on a stage of its own counts there
    too."""
    return by_room(model)["layer"] * len(stage.layers) + outside(model, stage.is_first, stage.is_last)


def outside(model: ModelConfig, is_first: bool, is_last: bool) -> int:
    """What a stage has besides its layers."""
    return sum(by_room(model).get(room, 0) for room in rooms_outside(model, is_first, is_last))


def rooms_outside(model: ModelConfig, is_first: bool, is_last: bool) -> list[str]:
    """By the first words of their names; a tied output matrix is the embedding itself where both are in one stage."""
    rooms = ["embedding", "position_embedding"] if is_first else []
    if is_last:
        rooms += ["final_norm"] if model.tied and is_first else ["final_norm", "head"]
    return rooms
