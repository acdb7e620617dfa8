"""What autograd saves of a micro-batch, byte for byte: predicted from the configuration alone, and counted.

`workload.activations` counts what is wide and rounds the rest up, as one wants of a limit. Here the narrow tensors are
as they are: rotary angles once and not for each sample, the ids of tokens and positions, the loss' mask and its one
number a token.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks
from torch.distributed.tensor import DTensor

from pretrain.config import RunConfig
from pretrain.model.micro_batch import MicroBatch
from pretrain.training.step import Run
from pretrain.workload.activations import INT64, activations_of
from pretrain.workload.memory import ITEM_BYTES

BOOL = 1


def predicted_bytes(config: RunConfig) -> int:
    """Of one micro-batch of a model that is in one part; recompute full keeps what it computes from, selective is not
    counted."""
    model, training, parallel = config.model, config.training, config.parallel
    item = ITEM_BYTES[training.precision]
    wide = max(item, 4)
    kept = activations_of(
        model, parallel.tp, parallel.sequence_parallel, parallel.recompute, item, "causal", on_cpu=True
    )
    blocks = [
        kept.whole_block if index % parallel.recompute_every else kept.first_block for index in range(model.num_layers)
    ]
    num_whole = sum(block == kept.whole_block for block in blocks)
    of_token = sum(blocks) + kept.head - wide + kept.logits
    of_token += INT64 + BOOL * (2 if parallel.tp > 1 else 1)  # ids; which targets count; which ids are of this rank
    if model.norm == "layernorm":  # on a CPU its mean and deviation are no wider than x
        shared = parallel.tp if parallel.sequence_parallel else 1
        of_token -= (2 * num_whole + 1) * 2 * (wide - item) // shared
    once = 0
    if model.positions == "learned":
        once = INT64
    elif num_whole:  # where all blocks are computed again nothing saves the angles
        once = kept.of_stage
    return training.micro_batch_size * model.sequence_length * of_token + once * model.sequence_length


def counted_bytes(run: Run, micro_batch: MicroBatch) -> int:
    """On a rank: of all storages that the forward and its loss save, each once, weights left out."""
    (part,) = run.model.parts.values()
    saved: list[Tensor] = []

    def keep(tensor: Tensor) -> Tensor:
        saved.append(tensor)
        return tensor

    with saved_tensors_hooks(keep, lambda tensor: tensor):
        part.cross_entropy_sum(part(micro_batch.tokens), micro_batch.targets)
    weights = {_storage(parameter).data_ptr() for parameter in part.parameters()}
    storages = {storage.data_ptr(): storage.nbytes() for storage in map(_storage, saved)}
    return sum(size for pointer, size in storages.items() if pointer not in weights)


def _storage(tensor: Tensor) -> torch.UntypedStorage:
    local = tensor.to_local() if isinstance(tensor, DTensor) else tensor
    return local.untyped_storage()
