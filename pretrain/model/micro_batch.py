"""Micro-batches: what one forward takes, as tensors on the device."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor

from pretrain.batch_size import local_batches
from pretrain.config import RunConfig
from pretrain.data import Loader
from pretrain.parallel.base.mesh import World


@dataclass(frozen=True)
class MicroBatch:
    """Tensors [B, T]; all ranks of one data-parallel position, every stage of a pipeline, hold the same.

    What says who sees whom (document ids, prefix ends, branches) is on the host, where the back-ends of attention read
    it without waiting for the device.
    """

    tokens: Tensor
    targets: Tensor
    document_ids: Tensor | None
    prefix_ends: Tensor | None
    positions: Tensor | None
    num_targets: int  # of them count in the loss
    branches: Tensor | None = None  # only in scoring: 0 for the trunk, which all branches of its sample see, 1, 2, ...

    @property
    def inputs(self) -> tuple[Tensor, Tensor | None, Tensor | None, Tensor | None, Tensor | None]:
        """What the forward of a whole model takes."""
        return self.tokens, *self.marks

    @property
    def marks(self) -> tuple[Tensor | None, Tensor | None, Tensor | None, Tensor | None]:
        """What the forward of every stage takes besides tokens or x."""
        return self.document_ids, self.prefix_ends, self.positions, self.branches


def read_micro_batches(
    loader: Loader, first: int, batch_size: int, config: RunConfig, world: World
) -> Iterator[MicroBatch]:
    """This rank's part of the global batch of `batch_size` samples from `first` on, in micro-batches."""
    num_local, micro_batch_size = local_batches(config.training, batch_size, world.dp_size)
    start = first + world.dp_rank * num_local
    for sample in range(start, start + num_local, micro_batch_size):
        yield read_micro_batch(loader, sample, micro_batch_size, config, world.device)


def read_micro_batch(loader: Loader, first: int, size: int, config: RunConfig, device: torch.device) -> MicroBatch:
    """The `size` samples from `first` on."""

    def on_host(array: NDArray[Any]) -> Tensor:
        tensor = torch.from_numpy(array.copy())
        if device.type == "cuda":  # from pinned memory the copy goes on while the GPU is busy with other things
            tensor = tensor.pin_memory()
        return tensor

    def on_device(array: NDArray[Any]) -> Tensor:
        return on_host(array).to(device, non_blocking=True)

    batch = loader.batch(first, size)
    return MicroBatch(
        on_device(batch.tokens),
        on_device(batch.targets),
        on_host(batch.document_ids) if config.model.document_mask else None,
        None if batch.prefix_ends is None else on_host(batch.prefix_ends),
        None if batch.positions is None else on_device(batch.positions),
        int((batch.targets >= 0).sum()),
    )
