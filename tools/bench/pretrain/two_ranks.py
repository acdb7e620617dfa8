"""What each way of using two ranks costs: ours, and torch's own pipeline runtime and `parallelize_module`."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import torch.distributed as dist

from pretrain.config import RunConfig
from pretrain.parallel.base import mesh
from pretrain.training.step import train_step
from tools.bench.pretrain import torch_peers
from tools.bench.pretrain.random_run import configuration, random_run, random_tokens
from tools.bench.pretrain.ranks import on_ranks

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
PEERS: dict[str, tuple[str, Callable[[RunConfig], Callable[[], object]]]] = {
    "torch parallelize_module, sequence parallel": ("tp 2, sequence parallel", torch_peers.parallelized),
    "torch ScheduleGPipe": ("pp 2, gpipe", partial(torch_peers.pipelined, schedule="gpipe")),
    "torch Schedule1F1B": ("pp 2, 1f1b", partial(torch_peers.pipelined, schedule="1f1b")),
    "torch ScheduleInterleaved1F1B": ("pp 2, interleaved", partial(torch_peers.pipelined, schedule="interleaved")),
    "torch ScheduleInterleavedZeroBubble": (
        "pp 2, zero-bubble",
        partial(torch_peers.pipelined, schedule="zero-bubble"),
    ),
    "torch ScheduleZBVZeroBubble": ("pp 2, zbv", partial(torch_peers.pipelined, schedule="zbv")),
}


class Cost(NamedTuple):
    """Of a token, in seconds."""

    wall: float
    cpu: float  # of all ranks together


def run() -> None:
    """Print a row for each layout, and for each peer beside the layout of ours that is like it."""
    config = configuration(SECTIONS)
    print(f"{'two ranks':<46}{'tokens/s':>12}{'to one rank':>13}{'CPU a token':>13}{'to ours':>10}")
    alone = measured(1, ours, config)
    tell("one rank", alone, alone)
    costs = {}
    for name, layout in LAYOUTS.items():
        costs[name] = measured(2, ours, configuration(SECTIONS, {"parallel": layout}))
        tell(name, costs[name], alone)
    for name, (like, new_step) in PEERS.items():
        if like in costs:
            tell(name, measured(2, theirs, config, new_step), alone, costs[like])


def tell(name: str, cost: Cost, alone: Cost, of_ours: Cost | None = None) -> None:
    """A row of the table; ratios are of speed, and for CPU time of time."""
    speed, cpu = alone.wall / cost.wall, cost.cpu / alone.cpu
    row = f"{name:<46}{1 / cost.wall:>12,.0f}{f'x {speed:.2f}':>13}{f'x {cpu:.2f}':>13}"
    print(row + (f"{f'x {of_ours.wall / cost.wall:.2f}':>10}" if of_ours else ""), flush=True)


def measured(num_ranks: int, work: Callable[..., tuple[list[float], float]], config: RunConfig, *more: Any) -> Cost:
    """The median step of the slowest rank, and the CPU time of all."""
    by_rank = on_ranks(work, num_ranks, config, *more)
    num_tokens = config.training.global_batch_size * config.model.sequence_length
    walls = [max(of_step) for of_step in zip(*(walls for walls, _ in by_rank), strict=True)]
    return Cost(statistics.median(walls) / num_tokens, sum(cpu for _, cpu in by_rank) / num_tokens)


def ours(config: RunConfig) -> tuple[list[float], float]:
    """`train_step` on this rank."""
    with mesh.start(config.parallel, "cpu", timeout_minutes=2.0) as world:
        return timed(partial(train_step, random_run(config, world, random_tokens(config))))


def theirs(config: RunConfig, new_step: Callable[[RunConfig], Callable[[], object]]) -> tuple[list[float], float]:
    """A peer's step on this rank, with the allocator set as ours."""
    mesh.keep_freed_memory()
    return timed(new_step(config))


def timed(step: Callable[[], object]) -> tuple[list[float], float]:
    """Seconds of each step on the clock, and of CPU for one, after two that are not counted."""
    for _ in range(2):
        step()
    walls = []
    cpu = time.process_time()
    for _ in range(RUNS):
        dist.barrier()
        start = time.perf_counter()
        step()
        walls.append(time.perf_counter() - start)
    return walls, (time.process_time() - cpu) / RUNS
