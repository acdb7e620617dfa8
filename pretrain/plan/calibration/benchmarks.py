"""What `plan calibrate` measures, on each rank that it starts: `python -m pretrain.plan.calibration.benchmarks FOLDER`.

| kind | what is timed | work |
|---|---|---|
| products | matrix products of several sizes, in each precision | floating-point operations |
| memory | sums of two tensors into a third | bytes read and written |
| operation | sums of a few numbers: what an operation takes beside its work | one |
| all_reduce, all_gather, reduce_scatter, send | messages of several sizes, all ranks | bytes of the whole tensor |
| host | copies to the GPU from pinned memory | bytes |
| steps | training steps of small models (`training_configs`), data-parallel over the ranks | |

All ranks do the same at the same time: more ranks than one tell how much they take from each other. Sizes are gone
through in rounds, so that a machine that is busy for a moment slows one sample of many sizes and not all samples of
one. Of samples the median counts.
"""

from __future__ import annotations

import os
import statistics
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch
import torch.distributed as dist

from corpus.engine import durable
from corpus.engine.config import Strict, parse
from pretrain.config import ParallelConfig, Precision, RunConfig
from pretrain.corpora import order_from
from pretrain.data.in_memory import memory_loader, random_tokens
from pretrain.hardware import device_name
from pretrain.parallel.base import mesh
from pretrain.parallel.base.mesh import World
from pretrain.training.step import new_run
from pretrain.training.timing import timed_steps

DTYPES: dict[Precision, torch.dtype] = {
    "fp32": torch.float32,
    "bf16": torch.bfloat16,
    "fp16": torch.float16,
    "fp64": torch.float64,
}
PRODUCT_SIZES = {"cpu": (64, 128, 256, 512, 1024), "cuda": (512, 1024, 2048, 4096, 8192)}  # rows, columns and depth
MEMORY_NUMBERS = {"cpu": (1 << 14, 1 << 17, 1 << 20, 1 << 22), "cuda": (1 << 20, 1 << 24, 1 << 28)}
MESSAGE_BYTES = tuple(1 << power for power in range(10, 25, 2))
HOST_BYTES = 1 << 28
SHAPES = (  # layers, hidden size, window, vocabulary, samples of a micro-batch; a GPU's are wider (`training_configs`)
    (4, 64, 32, 512, 1),
    (4, 128, 64, 1024, 2),
    (2, 256, 128, 2048, 2),
    (2, 256, 256, 8192, 1),
    (4, 256, 128, 512, 4),
)
STEPS = 5
FEWEST_CONFIGS = 2
ROUNDS, FEWEST_ROUNDS = 7, 3
MOST_SECONDS = 8.0  # of the rounds of one kind, and of training steps, where the machine is busy with something else
SAMPLE_SECONDS = 0.004  # at least: short functions are called several times for one sample
WARM_UP = 2
MOST_CALLS = 1000


class Sample(Strict):
    """One thing that was timed, on the mean rank."""

    kind: str
    work: float
    seconds: list[float]  # of one call, in each round
    precision: Precision | None = None

    @property
    def median(self) -> float:
        """Seconds."""
        return statistics.median(self.seconds)

    @property
    def spread(self) -> float:
        """Between the quartiles, relative to the median; of one measurement nobody knows it."""
        if len(self.seconds) < 2:
            return 0.0
        low, median, high = statistics.quantiles(self.seconds, n=4)
        return (high - low) / median

    @property
    def rate(self) -> float:
        """Work a second."""
        return self.work / self.median


class Findings(Strict):
    """What rank 0 writes."""

    device: str  # its product name, or "cpu"
    memory_bytes: int  # of the device, or of the machine
    ranks: int
    samples: list[Sample]
    steps: list[list[float]]  # of the first of `training_configs`: seconds of each measured step, on the slowest rank

    def of(self, kind: str, precision: Precision | None = None) -> list[Sample]:
        """Samples of a kind, by size."""
        return [sample for sample in self.samples if (sample.kind, sample.precision) == (kind, precision)]


@dataclass(frozen=True)
class Case:
    """Something to time."""

    kind: str
    work: float
    call: Callable[[], object]
    precision: Precision | None = None


def findings(world: World) -> Findings:
    """On a rank: measure everything; the same on every rank."""
    groups = [_product_cases(world), _memory_cases(world), _collective_cases(world)]
    if world.device.type == "cuda":
        groups.append(_host_cases(world))
    samples = [sample for cases in groups for sample in _time_all(list(cases), world)]
    return Findings(
        device=device_name(world.device),
        memory_bytes=_memory_bytes(world),
        ranks=world.size,
        samples=samples,
        steps=list(_all_steps(world)),
    )


def training_configs(device: str, ranks: int) -> list[RunConfig]:
    """Small models whose steps tell products, moved bytes and starts of operations apart; and, over ranks, their
    exchanges."""
    precision = "fp32" if device == "cpu" else "bf16"
    scale = 1 if device == "cpu" else 8
    shapes = SHAPES if ranks == 1 else SHAPES[1:3]
    return [
        parse(
            RunConfig,
            {
                "model": {
                    "num_layers": layers,
                    "hidden_size": hidden * scale,
                    "num_heads": hidden // 32,
                    "sequence_length": window * scale,
                    "padded_vocab_size": vocabulary * scale,
                },
                "optimizer": {"learning_rate": 1e-4},
                "training": {
                    "num_steps": 100,
                    "global_batch_size": 2 * samples * ranks,
                    "micro_batch_size": samples,
                    "precision": precision,
                },
                "parallel": {"zero": zero},
                "checkpoint": {"every_steps": 100},
                "evaluation": {"every_steps": 100},
            },
            "calibration",
        )
        for layers, hidden, window, vocabulary, samples in shapes
        for zero in ((2,) if ranks == 1 else (1, 2))
    ]


def _all_steps(world: World) -> Iterator[list[float]]:
    """Of `training_configs`, one after the other; a machine that is too busy measures the first of them."""
    deadline = time.perf_counter() + MOST_SECONDS
    for number, config in enumerate(training_configs(world.device.type, world.size)):
        (late,) = world.any_of(time.perf_counter() > deadline)
        if late and number >= FEWEST_CONFIGS:
            return
        yield _steps(config, world)


def _steps(config: RunConfig, world: World) -> list[float]:
    run = new_run(config, world, memory_loader(random_tokens(config), config), order_from(config))
    return timed_steps(run, WARM_UP, STEPS)


def _time_all(cases: list[Case], world: World) -> Iterator[Sample]:
    """Each case in rounds of all of them, as the mean of the ranks."""
    calls = [_num_calls(case, world) for case in cases]
    seconds: list[list[float]] = [[] for _ in cases]
    deadline = time.perf_counter() + MOST_SECONDS
    for number_round in range(ROUNDS):
        (late,) = world.any_of(time.perf_counter() > deadline)
        if late and number_round >= FEWEST_ROUNDS:
            break
        for number, case in enumerate(cases):
            world.any_of(False)  # all begin together
            seconds[number].append(_time(case, calls[number], world) / calls[number])
    of_ranks = world.gather(seconds)
    for number, case in enumerate(cases):
        mean = [statistics.mean(together) for together in zip(*(own[number] for own in of_ranks), strict=True)]
        yield Sample(kind=case.kind, work=case.work, seconds=mean, precision=case.precision)


def _num_calls(case: Case, world: World) -> int:
    for _ in range(WARM_UP):
        case.call()
    once = max(world.gather(_time(case, 1, world)))  # or ranks would differ in how often they talk
    return max(1, min(MOST_CALLS, int(SAMPLE_SECONDS / max(once, 1e-9))))


def _time(case: Case, calls: int, world: World) -> float:
    start = time.perf_counter()
    for _ in range(calls):
        case.call()
    if world.device.type == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - start


def _product_cases(world: World) -> Iterator[Case]:
    kind = world.device.type
    for precision, dtype in DTYPES.items():
        if kind == "cuda" and precision == "fp64":
            continue  # nobody trains in it there
        sizes = PRODUCT_SIZES[kind] if precision == "fp32" or kind == "cuda" else PRODUCT_SIZES[kind][-2:-1]
        for size in sizes:
            left, right = (torch.ones(size, size, dtype=dtype, device=world.device) for _ in range(2))
            out = torch.empty_like(left)
            yield Case("products", 2.0 * size**3, partial(torch.mm, left, right, out=out), precision)


def _memory_cases(world: World) -> Iterator[Case]:
    for numbers in MEMORY_NUMBERS[world.device.type]:
        left, right = (torch.ones(numbers, device=world.device) for _ in range(2))
        out = torch.empty_like(left)
        yield Case("memory", 12.0 * numbers, partial(torch.add, left, right, out=out))
    few = torch.ones(8, device=world.device)
    yield Case("operation", 1.0, lambda: few + few)


def _collective_cases(world: World) -> Iterator[Case]:
    """Of bytes of the whole tensor; each rank has its part of a gather's input and a scatter's result."""
    if world.size == 1:
        return
    for size in MESSAGE_BYTES:
        numbers = size // 4 // world.size * world.size
        whole = torch.zeros(numbers, device=world.device)
        part = torch.zeros(numbers // world.size, device=world.device)
        yield Case("all_reduce", size, partial(dist.all_reduce, whole))
        yield Case("all_gather", size, partial(dist.all_gather_into_tensor, whole, part))
        yield Case("reduce_scatter", size, partial(dist.reduce_scatter_tensor, part, whole))
        yield Case("send", size, partial(_send_to_next, whole, world))


def _send_to_next(message: torch.Tensor, world: World) -> None:
    """Around all ranks at once, as the stages of a pipeline do."""
    received = torch.empty_like(message)
    waiting = dist.batch_isend_irecv(
        [
            dist.P2POp(dist.isend, message, (world.rank + 1) % world.size),
            dist.P2POp(dist.irecv, received, (world.rank - 1) % world.size),
        ]
    )
    for work in waiting:
        work.wait()


def _host_cases(world: World) -> Iterator[Case]:
    there = torch.empty(HOST_BYTES, dtype=torch.uint8, pin_memory=True)
    here = torch.empty_like(there, device=world.device)
    yield Case("host", HOST_BYTES, lambda: here.copy_(there, non_blocking=True))


def _memory_bytes(world: World) -> int:
    if world.device.type == "cuda":
        return torch.cuda.get_device_properties(world.device).total_memory
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def rank_main(folder: Path) -> None:
    """On a rank: measure; rank 0 writes FOLDER/findings.json."""
    # torch 2.13 renames two collectives, 2.11 has no other names
    warnings.filterwarnings("ignore", category=FutureWarning)
    with mesh.start(ParallelConfig(), "auto", timeout_minutes=2.0) as world:
        found = findings(world)
        if world.rank == 0:
            durable.write_json(folder / "findings.json", found.model_dump(mode="json"))


if __name__ == "__main__":
    rank_main(Path(sys.argv[1]))
    sys.stderr.flush()
    os._exit(0)  # as `pretrain.__main__` does: a gloo thread may keep a process from ending
