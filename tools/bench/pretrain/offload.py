"""Host memory of a training run whose weights, gradients and optimizer state lie there, over its steps.

Runs of one process on the CPU, on random tokens in memory, side by side and each in a process of its own: with
`parallel.offload`, without, and with offload and an AdamW that is not fused (`foreach`: each operation over all tensors
before the next one, so that its intermediate results are as large as a group of its parameters, here the embedding's).
Of each, beyond what the process held after a step of a tiny model, which loads what torch loads late:

| | |
|---|---|
| in use | what malloc has given out and not got back (glibc's mallinfo2), between steps: rises where memory leaks |
| held | RssAnon, what is of no file: also what malloc keeps to give it out again, in pieces that need not fit |
| peak in use | the most in use after any of torch's operations of the second step, not within one |
| update | the same of the update alone, beyond what was in use before it: what a fused AdamW saves |

"Predicted" is `pretrain.workload.memory` for the first of them, to be held against its peak in use.

On a CPU offload moves nothing, as everything is in host memory already: this is the path through FSDP2's policy and the
update in place, not the copies between a GPU and pinned memory, and gathered weights lie in host memory beside their
shards. The allocator keeps what it has freed (`mesh.keep_freed_memory`), as in every run on a CPU: what is held never
falls, and rises until the pieces fit.
"""

from __future__ import annotations

import ctypes
import gc
import time
from argparse import Namespace
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from typing import Any

import torch
from numpy.typing import NDArray
from torch.utils._python_dispatch import TorchDispatchMode

from pretrain.config import RunConfig
from pretrain.monitor.memory import process_bytes
from pretrain.parallel.base import mesh
from pretrain.training.optim import create_state
from pretrain.training.step import Run, train_step
from pretrain.workload.memory import estimate
from tools.bench.pretrain.random_run import configuration, random_run, random_tokens
from tools.bench.timing import in_child

ROWS = {
    "offload": "offload, fused AdamW",
    "plain": "without offload",
    "foreach": "offload, AdamW(foreach=True)",
}
SECTIONS: dict[str, dict[str, Any]] = {
    "model": {"num_layers": 2, "hidden_size": 256, "num_heads": 4, "sequence_length": 32, "vocab_size": 8_000,
              "padded_vocab_size": 8_192},
    "training": {"global_batch_size": 2, "micro_batch_size": 1, "num_steps": 100_000},
    "checkpoint": {"every_steps": 100_000, "async_save": False},
}  # fmt: skip
TINY = {"model": {"num_layers": 1, "hidden_size": 32, "vocab_size": 500, "padded_vocab_size": 512}}

Measured = dict[str, Any]


def run(arguments: Namespace) -> None:
    """Print the table: what a run has in use and holds after a tenth of its steps and after all."""
    steps: int = arguments.steps
    (predicted,) = estimate(config_of("offload"), 1, "cpu")
    early, late = (f"in use, held {step:,}" for step in (steps // 10, steps))
    print(f"{predicted.weights / 4e6:.1f} M parameters; MB after steps")
    print(f"{'':<32}{early:>18}{late:>18}{'peak in use':>13}{'update':>9}{'CPU ms/step':>13}")
    with ThreadPoolExecutor(len(ROWS)) as pool:
        results = pool.map(lambda row: in_child(measure, row, steps), ROWS)
    for name, found in zip(ROWS.values(), results, strict=True):
        pairs = (found["curve"][step - 1] for step in (steps // 10, steps))
        cells = "".join(f"{f'{in_use / 1e6:,.1f} {held / 1e6:,.1f}':>18}" for in_use, held in pairs)
        peak, update = found["peak_bytes"] / 1e6, found["update_bytes"] / 1e6
        print(f"{name:<32}{cells}{peak:>13,.1f}{update:>9,.1f}{1e3 * found['seconds'] / steps:>13.0f}")
    print(f"{'predicted':<68}{predicted_bytes(predicted) / 1e6:>13,.1f}")


def predicted_bytes(predicted: Any) -> int:
    """Of the model and a step, without what the process holds anyway."""
    bare: int = predicted.host_bytes - predicted.process
    return bare


def config_of(row: str, *sections: Any) -> RunConfig:
    """The run of a row."""
    return configuration(SECTIONS, {"parallel": {"offload": row != "plain"}}, *sections)


class _Mallinfo(ctypes.Structure):
    """glibc's struct mallinfo2 (malloc.h); sums over all of malloc's arenas."""

    _fields_ = [
        (name, ctypes.c_size_t)
        for name in "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost".split()
    ]  # fmt: skip


def bytes_in_use() -> int:
    """What malloc has given out to this process, in its heaps and as mappings of their own (glibc 2.33 and later)."""
    mallinfo = ctypes.CDLL(None).mallinfo2
    mallinfo.restype = _Mallinfo
    found = mallinfo()
    return int(found.uordblks + found.hblkhd)


class Peaks(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Looks at the bytes in use after each of torch's operations: the most of a step, and of its update alone."""

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.of_step = self.of_update = self._most = self._before = 0
        optimizer.register_step_pre_hook(self._begin)
        optimizer.register_step_post_hook(self._end)

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = function(*args, **(kwargs or {}))
        self._most = max(self._most, bytes_in_use())
        self.of_step = max(self.of_step, self._most)
        return result

    def _begin(self, *_: Any) -> None:
        self._most = self._before = bytes_in_use()

    def _end(self, *_: Any) -> None:
        self.of_update = max(self.of_update, self._most - self._before)


def measure(row: str, steps: int) -> Measured:
    """Train, and look at this process after each step (`curve`: bytes in use and held); at the peaks in the second."""
    torch.set_num_threads(1)
    config = config_of(row)
    with mesh.start(config.parallel, "cpu", config.training.timeout_minutes) as world:
        tiny, tokens = config_of(row, TINY), random_tokens(config)
        train_step(start_run(row, tiny, world, random_tokens(tiny)))  # loads what a step loads
        gc.collect()
        held, in_use = process_bytes(), bytes_in_use()
        a_run = start_run(row, config, world, tokens)
        peaks = Peaks(a_run.optimizer)
        curve, start = [], time.process_time()
        for step in range(1, steps + 1):
            with peaks if step == 2 else nullcontext():
                train_step(a_run)
            curve.append((bytes_in_use() - in_use, process_bytes() - held))
        seconds, peak = time.process_time() - start, peaks.of_step - in_use
        return {"curve": curve, "peak_bytes": peak, "update_bytes": peaks.of_update, "seconds": seconds}


def start_run(row: str, config: RunConfig, world: mesh.World, tokens: NDArray[Any]) -> Run:
    """The run of a row, before its first step."""
    a_run = random_run(config, world, tokens)
    if row == "foreach":
        groups = [{key: group[key] for key in ("params", "weight_decay")} for group in a_run.optimizer.param_groups]
        a_run.optimizer = torch.optim.AdamW(groups, lr=1e-3, betas=(0.9, 0.95), foreach=True)
        create_state(a_run.optimizer)
    return a_run
