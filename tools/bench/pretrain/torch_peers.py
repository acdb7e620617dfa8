"""The same step by torch's own parallel runtimes, on the plain model: `distributed.pipelining` and
`parallelize_module`.

Written as torchtitan does it: stages are the model with the layers of others deleted; norms and embeddings are sequence
parallel, the loss is parallel over the vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed import pipelining
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    loss_parallel,
    parallelize_module,
)
from torch.nn import functional as F

from pretrain.config import RunConfig, ScheduleKind
from pretrain.parallel.base.stages import Stage, cut
from pretrain.schedules import stage_ranks
from tools.bench.pretrain.plain_gpt import PlainGPT, PlainRun, new_optimizer
from tools.bench.pretrain.random_run import random_tokens

Step = Callable[[], object]
SCHEDULES: dict[str, Any] = {
    "gpipe": pipelining.ScheduleGPipe,
    "1f1b": pipelining.Schedule1F1B,
    "interleaved": pipelining.ScheduleInterleaved1F1B,
    "zero-bubble": pipelining.ScheduleInterleavedZeroBubble,
    "zbv": pipelining.ScheduleZBVZeroBubble,
}


def pipelined(config: RunConfig, schedule: ScheduleKind) -> Step:
    """This rank's step of a pipeline over all ranks."""
    rank, num_ranks = dist.get_rank(), dist.get_world_size()
    chunks = 1 if schedule in ("gpipe", "1f1b") else 2
    ranks = stage_ranks(schedule, num_ranks, chunks)
    own = [stage for stage in cut(config.model, len(ranks)) if ranks[stage.index] == rank]
    parts = [part_of(new_model(config), stage) for stage in own]
    device = torch.device("cpu")
    stages = [
        pipelining.PipelineStage(part, stage.index, len(ranks), device) for part, stage in zip(parts, own, strict=True)
    ]
    batch_size = config.training.global_batch_size
    num_tokens = batch_size * config.model.sequence_length

    def loss_of(logits: Tensor, targets: Tensor) -> Tensor:
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="sum") / num_tokens

    runtime = SCHEDULES[schedule](
        stages[0] if chunks == 1 else stages,
        n_microbatches=batch_size // config.training.micro_batch_size,
        loss_fn=loss_of,
        scale_grads=False,
    )
    modules = nn.ModuleList(parts)
    optimizer = new_optimizer(modules.named_parameters())
    reader = PlainRun(parts[0], optimizer, random_tokens(config), config.model, batch_size, batch_size)

    def step() -> float:
        tokens, targets = reader.batch()
        losses: list[Tensor] = []
        inputs = (tokens.contiguous(),) if own[0].is_first else ()
        if own[-1].is_last:
            runtime.step(*inputs, target=targets.contiguous(), losses=losses)
        else:
            runtime.step(*inputs)
        total = torch.stack([*losses, torch.zeros(())]).sum().detach()
        norm = torch.nn.utils.get_total_norm([p.grad for p in modules.parameters() if p.grad is not None]) ** 2
        dist.all_reduce(norm)
        dist.all_reduce(total)
        torch.nn.utils.clip_grads_with_norm_(modules.parameters(), 1.0, norm.sqrt())
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return float(total)

    return step


def new_model(config: RunConfig) -> PlainGPT:
    """With the same weights on every rank, and every rank's batches the same after it."""
    torch.manual_seed(0)
    return PlainGPT(config.model)


def part_of(model: PlainGPT, stage: Stage) -> PlainGPT:
    """A model without what other stages have."""
    if not stage.is_first:
        model.embedding = None
    if not stage.is_last:
        model.norm = model.head = None
    for index in set(map(int, model.layers)) - set(stage.layers):
        del model.layers[str(index)]
    return model


def parallelized(config: RunConfig) -> Step:
    """This rank's step with every matrix cut over all ranks."""
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    model = new_model(config)
    cut_tokens, whole_tokens = Shard(1), Replicate()
    outside: dict[str, Any] = {
        "embedding": RowwiseParallel(input_layouts=Replicate(), output_layouts=cut_tokens),
        "norm": SequenceParallel(),
        "head": ColwiseParallel(input_layouts=cut_tokens, output_layouts=Shard(-1), use_local_output=False),
    }
    inside: dict[str, Any] = {
        "attention_norm": SequenceParallel(),
        "attention": PrepareModuleInput(
            input_layouts=(cut_tokens, None, None), desired_input_layouts=(whole_tokens, None, None)
        ),
        "attention.qkv": ColwiseParallel(),
        "attention.out": RowwiseParallel(output_layouts=cut_tokens),
        "mlp_norm": SequenceParallel(),
        "mlp": PrepareModuleInput(input_layouts=(cut_tokens,), desired_input_layouts=(whole_tokens,)),
        "mlp.gate": ColwiseParallel(),
        "mlp.up": ColwiseParallel(),
        "mlp.down": RowwiseParallel(output_layouts=cut_tokens),
    }
    parallelize_module(model, mesh, outside)
    for layer in model.layers.values():
        parallelize_module(layer, mesh, inside)
    training = config.training
    run = PlainRun(
        model,
        new_optimizer(model.named_parameters()),
        random_tokens(config),
        config.model,
        training.global_batch_size,
        training.micro_batch_size,
    )

    def step() -> float:
        with loss_parallel():
            return run.step()

    return step
