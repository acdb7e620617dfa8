"""How the layers of a model are cut into pipeline stages: consecutive, and of equal work.

The head's product with the vocabulary is work too, as much as several layers of a small model: the last stage has
fewer layers than the others. A look-up in the embedding costs next to nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pretrain.config import ModelConfig


@dataclass(frozen=True)
class Stage:
    """A consecutive part of a model: the embedding belongs to the first stage, final norm and head to the last."""

    index: int
    layers: range
    is_first: bool
    is_last: bool


def whole(config: ModelConfig) -> Stage:
    """The whole model as one stage."""
    return Stage(0, range(config.num_layers), is_first=True, is_last=True)


def cut(config: ModelConfig, num_stages: int, layers_per_stage: Sequence[int] | None = None) -> list[Stage]:
    """The stages of a model, in the order of its forward."""
    raise NotImplementedError
