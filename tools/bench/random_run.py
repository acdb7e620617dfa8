"""A training run on random tokens in memory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from corpus.engine.config import parse
from pretrain.config import RunConfig
from pretrain.corpora import order_from
from pretrain.data import Loader, Stream
from pretrain.parallel.mesh import World
from pretrain.step import Run, new_run

NUM_TOKENS = 1 << 20
EOD = 0


class MemoryShard:
    """Tokens in memory where the loader expects a shard."""

    eod = EOD

    def __init__(self, tokens: NDArray[Any]) -> None:
        self._tokens = tokens
        self.num_tokens = len(tokens)

    def tokens(self, start: int, stop: int) -> NDArray[Any]:
        """The tokens [start, stop)."""
        return self._tokens[start:stop]


def configuration(*sections: Mapping[str, Mapping[str, Any]]) -> RunConfig:
    """A run of windows of 256 tokens; later sections change earlier ones."""
    values: dict[str, Any] = {
        "model": {"sequence_length": 256},
        "optimizer": {"learning_rate": 1e-3},
        "training": {"num_steps": 1000, "device": "cpu", "timeout_minutes": 1.0},
        "checkpoint": {"every_steps": 1000},
        "evaluation": {"every_steps": 1000},
    }
    for each in sections:
        for name, section in each.items():
            values[name] = {**values.get(name, {}), **section}
    return parse(RunConfig, values, "bench")


def random_tokens(config: RunConfig) -> NDArray[Any]:
    """uint16 tokens of the run's vocabulary."""
    assert config.model.vocab_size is not None
    return np.random.default_rng(0).integers(EOD + 1, config.model.vocab_size, NUM_TOKENS, dtype=np.uint16)


def random_run(config: RunConfig, world: World, tokens: NDArray[Any]) -> Run:
    """This rank's part of a run that reads these tokens."""
    loader = Loader([Stream([MemoryShard(tokens)], config.model.sequence_length, seed=0)], seed=0)
    return new_run(config, world, loader, order_from(config))
