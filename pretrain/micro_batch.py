"""Micro-batches: what one forward takes, as tensors on the device."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True)
class MicroBatch:
    """Tensors [B, T]; all ranks of one data-parallel position, every stage of a pipeline, hold the same."""

    tokens: Tensor
    targets: Tensor
    document_ids: Tensor | None
    prefix_ends: Tensor | None
    positions: Tensor | None
    num_targets: int  # of them count in the loss
