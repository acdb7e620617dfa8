"""Numbers of parameters of a model's parts, from the parameter table, once for each model."""

from __future__ import annotations

import math
from functools import lru_cache

from pretrain.config import ModelConfig
from pretrain.parallel.base.params import param_specs, part_specs
from pretrain.parallel.base.stages import Stage


@lru_cache(maxsize=64)
def by_room(model: ModelConfig) -> dict[str, int]:
    """Parameters by the first word of their name; those of one layer under "layer"."""
    one_layer = model.model_copy(update={"num_layers": 1})  # layers are alike
    rooms: dict[str, int] = {}
    for spec in part_specs(one_layer):
        room = spec.name.partition(".")[0].replace("layers", "layer")
        rooms[room] = rooms.get(room, 0) + math.prod(spec.shape)
    return rooms


@lru_cache(maxsize=64)
def of_model(model: ModelConfig) -> int:
    """All of them; a tied output matrix once."""
    one_layer = sum(math.prod(spec.shape) for spec in param_specs(model.model_copy(update={"num_layers": 1})))
    return one_layer + (model.num_layers - 1) * by_room(model)["layer"]


def of_stage(model: ModelConfig, stage: Stage) -> int:
    """A stage's, on all of its tensor-parallel ranks together; a tied output matrix on a stage of its own counts there
    too."""
    rooms = by_room(model)
    total = rooms["layer"] * len(stage.layers)
    if stage.is_first:
        total += rooms["embedding"] + rooms.get("position_embedding", 0)
    if stage.is_last:
        total += rooms["final_norm"] + (0 if model.tied and stage.is_first else rooms["head"])
    return total
