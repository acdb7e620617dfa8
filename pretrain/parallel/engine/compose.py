"""A model laid over the ranks of a run: the order in which the parallelisms are applied is `build`, read from top to
bottom.

| axis | what it does | where |
|---|---|---|
| pp | cuts the layers into stages | `stages`, `schedule`, `pipeline` |
| tp | cuts each matrix, and the tokens between matrices | `tensor` |
| dp_shard, dp_replicate | cut weights and optimizer state; the batch | `fsdp` |

A tied output matrix on another stage than the embedding is a second storage of one parameter: it has the same first
values, the sum of both gradients, and the same state and updates, so that the two stay equal bit for bit.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from pretrain.config import RunConfig
from pretrain.hardware import compiler_missing
from pretrain.model import GPT
from pretrain.model.gpt import Block
from pretrain.model.micro_batch import MicroBatch
from pretrain.parallel.base.mesh import World
from pretrain.parallel.base.params import init_parameters, part_specs
from pretrain.parallel.base.stages import Stage, cut
from pretrain.parallel.base.tensor import TensorAxis, distribute
from pretrain.parallel.engine import fsdp
from pretrain.parallel.engine.pipeline import Pipeline
from pretrain.schedules import stage_ranks

EMBEDDING = "embedding.weight"


@dataclass(frozen=True)
class ParallelModel:
    """What this rank holds of a model, by the names that it has everywhere."""

    parts: Mapping[int, GPT]  # by stage
    parameters: Mapping[str, nn.Parameter]  # what is saved, and counted in the norm of the gradient
    copies: Mapping[str, nn.Parameter]  # second storages by the name of their original: updated alike, not saved
    tie_group: dist.ProcessGroup | None  # this rank and the one with the other storage, if that is another
    pipeline: Pipeline

    def step(self, micro_batches: Sequence[MicroBatch], num_tokens: int, loss_scale: float = 1.0) -> Tensor:
        """As `Pipeline.step`: forward and backward, and the addends of the loss that this rank has."""
        losses = self.pipeline.step(micro_batches, num_tokens, loss_scale)
        self._sum_tied()
        return losses

    def token_losses(self, micro_batch: MicroBatch) -> Tensor:
        """As `Pipeline.token_losses`; collective over all ranks whose weights are sharded."""
        return self.pipeline.token_losses(micro_batch)

    def last_logits(
        self,
        tokens_BT: Tensor,
        document_ids_BT: Tensor | None = None,
        prefix_ends_BT: Tensor | None = None,
        positions_BT: Tensor | None = None,
    ) -> Tensor:
        """Logits [B, 1, V] of the last place, on every rank, for a window that all of them hold."""
        return self.pipeline.last_logits(tokens_BT, document_ids_BT, prefix_ends_BT, positions_BT)

    def reshard(self) -> None:
        """Give up gathered weights, after forwards that no backward follows."""
        for part in self.parts.values():
            fsdp.reshard(part)

    def _sum_tied(self) -> None:
        """The gradients of both storages of a tied weight become their sum; both ranks add the same two numbers."""
        held = [_gradient(where[EMBEDDING]) for where in (self.parameters, self.copies) if EMBEDDING in where]
        if len(held) == 2:  # both ends of a V
            held[0].add_(held[1])
            held[1].copy_(held[0])
        elif self.tie_group is not None:
            with self.pipeline.phases("communication"):
                dist.all_reduce(held[0], group=self.tie_group)


def build(config: RunConfig, world: World, fill: bool = True) -> ParallelModel:
    """This rank's part of a model, with its first weights: bit for bit the same on any layout.

    `fill`: False leaves all weights as memory has them, to be read from a checkpoint.
    """
    model, parallel, precision = config.model, config.parallel, config.training.precision
    _choose_attention(config.training.fused_kernels)
    axis = TensorAxis.of(world.mesh["tp"], parallel.sequence_parallel, world.phases)
    ranks = stage_ranks(parallel.schedule, parallel.pp, parallel.chunks)
    parts: dict[int, GPT] = {}
    for stage, rank in zip(cut(model, parallel.num_stages, parallel.layers_per_stage), ranks, strict=True):
        if rank == world.pp_rank:
            parts[stage.index] = _part(config, stage, axis, world)

    parameters: dict[str, nn.Parameter] = {}
    copies: dict[str, nn.Parameter] = {}
    for part in parts.values():
        named = dict(part.named_parameters())
        if model.tied and part.stage.is_last and not part.stage.is_first:
            copies[EMBEDDING] = named.pop("head.weight")
        parameters |= named
    for storage in (parameters, copies) if fill else ():
        init_parameters(storage, model, config.training.seed)
    pipeline = Pipeline(parts, world, parallel, model, precision)
    return ParallelModel(parts, parameters, copies, _tie_group(world, ranks[0], ranks[-1], model.tied), pipeline)


def _part(config: RunConfig, stage: Stage, axis: TensorAxis, world: World) -> GPT:
    """One stage, its parameters on the device and not yet filled."""
    parallel, precision = config.parallel, config.training.precision
    with torch.device("meta"):
        part = GPT(config.model, stage, axis, parallel.recompute, parallel.recompute_every)
    part.z_loss = config.training.z_loss
    if precision == "fp64":
        part.double()
    if axis.size > 1:
        distribute(part, part_specs(config.model), world.mesh["tp"], axis.sequence_parallel)
    if compiles_blocks(config, world):
        _compile_blocks(part)
    zero = parallel.zero_over(world.mesh["dp_shard"].size())
    fsdp.shard(part, world, zero, precision, parallel.offload, always=axis.size > 1)
    part.to_empty(device="cpu" if parallel.offload else world.device)
    part.tie()
    return part


def compiles_blocks(config: RunConfig, world: World) -> bool:
    """Whether each block goes through torch.compile here: "auto" asks for no compiler that is not there."""
    on_gpu = world.device.type == "cuda"
    return config.compiles_blocks(on_gpu) and (config.training.compile is True or not compiler_missing(on_gpu))


def _compile_blocks(part: GPT) -> None:
    """Compile each block at its first training step, in place; names of parameters stay. To be called before FSDP2.

    One graph for all blocks that are alike, forward and backward. What lies around them (embeddings, head, loss) is a
    product or a fused kernel each. Selective recompute and the exchanges of tensor parallelism are part of the graph;
    FSDP2's hooks and full recompute, which runs the graph twice, lie around it. The first step of each shape of a
    micro-batch takes a minute or so longer. Evaluation and generation, whose shapes change, are not compiled.
    """
    part.is_compiled = True
    for block in part.layers.values():
        assert isinstance(block, Block)
        block.residuals = partial(_call, block.residuals, torch.compile(block.residuals))  # type: ignore[method-assign]


def _call(plain: Callable[..., Tensor], compiled: Callable[..., Tensor], *inputs: Tensor) -> Tensor:
    return (compiled if torch.is_grad_enabled() else plain)(*inputs)


def _choose_attention(fused: bool) -> None:
    """Of this process from now on: kernels that keep scores to themselves, or products and a softmax with scores in
    memory."""
    torch.backends.cuda.enable_flash_sdp(fused)  # the CPU's kernel, too
    torch.backends.cuda.enable_mem_efficient_sdp(fused)
    torch.backends.cuda.enable_cudnn_sdp(fused)


def _tie_group(world: World, first: int, last: int, tied: bool) -> dist.ProcessGroup | None:
    """Of the ranks with the first and the last stage: a pair for each position on the other axes; this rank's."""
    if not tied or first == last:
        return None
    pairs: list[list[int]] = world.mesh.mesh[[first, last]].flatten(1).T.tolist()
    return world.own_group(pairs)


def _gradient(parameter: nn.Parameter) -> Tensor:
    """What this rank holds of a gradient."""
    assert parameter.grad is not None
    return parameter.grad.to_local() if isinstance(parameter.grad, DTensor) else parameter.grad
