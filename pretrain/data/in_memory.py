"""Tokens in memory where the loader expects shards: to measure training where there is no corpus, and for tests."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from pretrain.config import RunConfig
from pretrain.data.loader import Loader
from pretrain.data.stream import Stream

NUM_RANDOM_TOKENS = 1 << 20
EOD = 0


class MemoryShard:
    """A shard of these tokens."""

    eod = EOD

    def __init__(self, tokens: NDArray[Any]) -> None:
        self._tokens = tokens
        self.num_tokens = len(tokens)

    def tokens(self, start: int, stop: int) -> NDArray[Any]:
        """The tokens [start, stop)."""
        return self._tokens[start:stop]


def random_tokens(config: RunConfig) -> NDArray[Any]:
    """Tokens of the run's vocabulary, drawn alike: the same for every rank. There is one document."""
    size = config.model.vocab_size or config.model.padded_vocab_size
    dtype = np.uint16 if size <= 1 << 16 else np.int32
    return np.random.default_rng(0).integers(EOD + 1, size, NUM_RANDOM_TOKENS, dtype=dtype)


def memory_loader(tokens: NDArray[Any], config: RunConfig) -> Loader:
    """Windows of these tokens, as a run reads them."""
    return Loader.of([Stream([MemoryShard(tokens)], config.model.sequence_length, seed=0)], None, config, seed=0)
