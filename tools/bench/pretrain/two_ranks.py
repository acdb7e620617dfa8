"""What each way of using two ranks costs: ours, and torch's own pipeline runtime and `parallelize_module`.

The peers are written as torchtitan does it, on the plain model: stages are the model with the layers of others deleted;
norms and embeddings are sequence parallel, the loss is parallel over the vocabulary.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

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
from pretrain.parallel.base import mesh
from pretrain.parallel.base.stages import Stage, cut
from pretrain.schedules import stage_ranks
from pretrain.training.step import train_step
from tools.bench.pretrain.plain_gpt import PlainGPT, PlainRun
from tools.bench.pretrain.random_run import configuration, on_ranks, random_run, random_tokens
from tools.bench.timing import timed

Step = Callable[[], object]
RUNS = 5
SECTIONS: dict[str, dict[str, Any]] = {
    "model": {
        "num_layers": 6,
        "hidden_size": 320,
        "num_heads": 10,
        "vocab_size": 4096,
        "padded_vocab_size": 4096,
        "tied": False,  # as torch's pipelines want it
    },
    "training": {"global_batch_size": 4, "micro_batch_size": 1},
}
LAYOUTS: dict[str, dict[str, Any]] = {
    "dp 2, zero 1": {"zero": 1},
    "dp 2, zero 2": {"zero": 2},
    "dp 2, zero 3": {"zero": 3},
    "tp 2": {"tp": 2, "sequence_parallel": False},
    "tp 2, sequence parallel": {"tp": 2},
    "pp 2, gpipe": {"pp": 2, "schedule": "gpipe", "zero": 1},
    "pp 2, 1f1b": {"pp": 2, "schedule": "1f1b", "zero": 1},
    "pp 2, interleaved": {"pp": 2, "schedule": "interleaved", "zero": 1},
    "pp 2, zero-bubble": {"pp": 2, "schedule": "zero-bubble", "zero": 1},
    "pp 2, zbv": {"pp": 2, "schedule": "zbv", "zero": 1},
}

SCHEDULES: dict[str, Any] = {
    "gpipe": pipelining.ScheduleGPipe,
    "1f1b": pipelining.Schedule1F1B,
    "interleaved": pipelining.ScheduleInterleaved1F1B,
    "zero-bubble": pipelining.ScheduleInterleavedZeroBubble,
    "zbv": pipelining.ScheduleZBVZeroBubble,
}


class Cost(NamedTuple):
    """Of a token, in seconds."""

    wall: float
    cpu: float  # of all ranks together


def run() -> None:
    """Print a row for each layout, and for each peer beside the layout of ours that is like it."""
    config = configuration(SECTIONS)
    print(f"{'two ranks':<46}{'tokens/s':>12}{'to one rank':>13}{'CPU a token':>13}{'to ours':>10}")
    alone = measure(1, ours, config)
    print_row("one rank", alone, alone)
    costs = {}
    for name, layout in LAYOUTS.items():
        costs[name] = measure(2, ours, configuration(SECTIONS, {"parallel": layout}))
        print_row(name, costs[name], alone)
    for name, (like, new_step) in PEERS.items():
        if like in costs:
            print_row(name, measure(2, theirs, config, new_step), alone, costs[like])


def print_row(name: str, cost: Cost, alone: Cost, of_ours: Cost | None = None) -> None:
    """A row of the table; ratios are of speed, and for CPU time of time."""
    speed, cpu = alone.wall / cost.wall, cost.cpu / alone.cpu
    row = f"{name:<46}{1 / cost.wall:>12,.0f}{f'x {speed:.2f}':>13}{f'x {cpu:.2f}':>13}"
    print(row + (f"{f'x {of_ours.wall / cost.wall:.2f}':>10}" if of_ours else ""), flush=True)


def measure(num_ranks: int, work: Callable[..., tuple[list[float], float]], config: RunConfig, *more: Any) -> Cost:
    """The median step of the slowest rank, and the CPU time of all."""
    by_rank = on_ranks(work, num_ranks, config, *more)
    num_tokens = config.training.global_batch_size * config.model.sequence_length
    walls = [max(of_step) for of_step in zip(*(walls for walls, _ in by_rank), strict=True)]
    return Cost(statistics.median(walls) / num_tokens, sum(cpu for _, cpu in by_rank) / num_tokens)


def ours(config: RunConfig) -> tuple[list[float], float]:
    """`train_step` on this rank."""
    with mesh.start(config.parallel, "cpu", timeout_minutes=2.0) as world:
        return time_steps(partial(train_step, random_run(config, world, random_tokens(config))))


def theirs(config: RunConfig, new_step: Callable[[RunConfig], Step]) -> tuple[list[float], float]:
    """A peer's step on this rank, with the allocator set as ours."""
    mesh.keep_freed_memory()
    return time_steps(new_step(config))


def time_steps(step: Callable[[], object]) -> tuple[list[float], float]:
    """Seconds of each step on the clock, and of CPU for one, after two that are not counted."""
    for _ in range(2):
        step()
    walls = []
    cpu = time.process_time()
    for _ in range(RUNS):
        dist.barrier()
        walls.append(timed(step, time.perf_counter)[0])
    return walls, (time.process_time() - cpu) / RUNS


def pipeline(config: RunConfig, schedule: ScheduleKind) -> Step:
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
    reader = PlainRun(modules, config, random_tokens(config))
    optimizer = reader.optimizer

    def step() -> float:
        tokens, targets = reader.batch(batch_size)
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


def parallelize(config: RunConfig) -> Step:
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
    run = PlainRun(model, config, random_tokens(config))

    def step() -> float:
        with loss_parallel():
            return run.step()

    return step


PEERS: dict[str, tuple[str, Callable[[RunConfig], Step]]] = {
    "torch parallelize_module, sequence parallel": ("tp 2, sequence parallel", parallelize),
    "torch ScheduleGPipe": ("pp 2, gpipe", partial(pipeline, schedule="gpipe")),
    "torch Schedule1F1B": ("pp 2, 1f1b", partial(pipeline, schedule="1f1b")),
    "torch ScheduleInterleaved1F1B": ("pp 2, interleaved", partial(pipeline, schedule="interleaved")),
    "torch ScheduleInterleavedZeroBubble": (
        "pp 2, zero-bubble",
        partial(pipeline, schedule="zero-bubble"),
    ),
    "torch ScheduleZBVZeroBubble": ("pp 2, zbv", partial(pipeline, schedule="zbv")),
}
