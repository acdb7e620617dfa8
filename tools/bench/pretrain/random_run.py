"""A training run on random tokens in memory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from numpy.typing import NDArray

from corpus.engine.config import parse
from pretrain.config import RunConfig
from pretrain.corpora import order_from
from pretrain.data.in_memory import memory_loader, random_tokens
from pretrain.parallel.base.mesh import World
from pretrain.training.step import Run, new_run

__all__ = ["configuration", "merged", "random_run", "random_tokens"]


def configuration(*sections: Mapping[str, Mapping[str, Any]]) -> RunConfig:
    """A run of windows of 256 tokens; later sections change earlier ones."""
    values: dict[str, Any] = {
        "model": {"sequence_length": 256},
        "optimizer": {"learning_rate": 1e-3},
        "training": {"num_steps": 1000, "device": "cpu", "timeout_minutes": 1.0},
        "checkpoint": {"every_steps": 1000},
        "evaluation": {"every_steps": 1000},
    }
    return parse(RunConfig, merged(values, *sections), "bench")


def merged(*sections: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Later sections over earlier ones."""
    values: dict[str, dict[str, Any]] = {}
    for each in sections:
        for name, section in each.items():
            values[name] = {**values.get(name, {}), **section}
    return values


def random_run(config: RunConfig, world: World, tokens: NDArray[Any]) -> Run:
    """This rank's part of a run that reads these tokens."""
    return new_run(config, world, memory_loader(tokens, config), order_from(config))
