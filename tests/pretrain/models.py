"""Models small enough to compare with slow references, in each of the choices that a configuration has."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from pretrain.config import ModelConfig
from pretrain.model import GPT
from pretrain.parallel.base.params import init_parameters

# every choice of a model at least once
CHOICES: list[dict[str, Any]] = [
    {},
    {"tied": False, "bias": True, "num_kv_heads": 2},
    {"norm": "layernorm", "activation": "gelu", "positions": "learned", "bias": True},
    {"norm": "layernorm", "positions": "learned", "num_kv_heads": 1, "ffn_hidden_size": 40},
]


def small(**changes: Any) -> ModelConfig:
    """Two layers, a vocabulary of 120; keyword arguments change it."""
    values = {"num_layers": 2, "hidden_size": 32, "num_heads": 4, "sequence_length": 12, "vocab_size": 120,
              "padded_vocab_size": 128, "init_std": 0.2}  # fmt: skip
    return ModelConfig.model_validate(values | changes)


def build(config: ModelConfig) -> GPT:
    """The model with its first weights, on the CPU of one process."""
    with torch.device("meta"):
        model = GPT(config)
    model.to_empty(device="cpu")
    model.tie()
    init_parameters(dict(model.named_parameters()), config, seed=3)
    return model


def some_tokens(num_samples: int = 2, num_tokens: int = 12) -> Tensor:
    """The same random tokens each time."""
    return torch.randint(0, 120, (num_samples, num_tokens), generator=torch.Generator().manual_seed(1))
