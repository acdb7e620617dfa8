"""Host memory of a training run whose weights, gradients and optimizer state lie there, over its steps.

Runs of one process on the CPU, on random tokens in memory, side by side and each in a process of its own: with
`parallel.offload`, without, and with offload and an AdamW that is not fused (`foreach`: each operation over all tensors
before the next one, so that its intermediate results are as large as the model). Memory is RssAnon, what is of no file,
beyond what the process held before it had a model. The slope is that of a line through the samples from a fifth of
the steps on. "Predicted" is `pretrain.plan.memory` for the first of them.

On a CPU offload moves nothing, as everything is in host memory already: this is the path through FSDP2's policy and the update
in place, not the copies between a GPU and pinned memory. The allocator keeps what it has freed (`mesh.keep_freed_memory`),
as in every run on a CPU: what is shown never falls, and rises only where memory runs away.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from argparse import Namespace
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import torch

from pretrain.config import RunConfig
from pretrain.monitor.memory import process_bytes
from pretrain.optim import create_state
from pretrain.parallel import mesh
from pretrain.plan.memory import estimate
from pretrain.step import train_step
from tools.bench.plot import Line, write_lines
from tools.bench.random_run import configuration, random_run, random_tokens
from tools.bench.resident import status

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
NUM_POINTS = 50
NUM_COLUMNS = 10

Measured = dict[str, Any]


def run(arguments: Namespace) -> None:
    """Print the table, and draw the curves if asked to."""
    steps: int = arguments.steps
    (predicted,) = estimate(config_of("offload"), 1, "cpu")
    points = [steps * (column + 1) // NUM_COLUMNS for column in range(NUM_COLUMNS)]
    print(f"{predicted.weights / 4e6:.1f} M parameters; MB at step")
    print(
        f"{'':<30}"
        + "".join(f"{step:>8,}" for step in points)
        + f"{'peak':>8}{'MB/1,000 steps':>16}{'CPU ms/step':>13}"
    )
    curves: list[Line] = []
    with ThreadPoolExecutor(len(ROWS)) as pool:
        results = list(pool.map(lambda row: in_child(row, steps), ROWS))
    for (row, name), measured in zip(ROWS.items(), results, strict=True):
        x, y = (np.array(column, dtype=np.float64) for column in zip(*measured["curve"], strict=True))
        late = x >= steps / 5
        slope = 1000 * float(np.polyfit(x[late], y[late] / 1e6, 1)[0])
        at = [float(np.interp(step, x, y)) for step in points]
        values = "".join(f"{value / 1e6:>8,.1f}" for value in [*at, measured["peak_bytes"]])
        print(f"{name:<30}{values}{slope:>16.2f}{1e3 * measured['seconds'] / steps:>13.0f}", flush=True)
        curves.append(Line(name, x, y / 1e6, dashed=row == "plain"))
    print(f"{'predicted':<30}{predicted_bytes(predicted) / 1e6:>8,.1f}")
    if arguments.plot:
        write_lines(arguments.plot, curves, "step", "MB of host memory beyond the process's own, on a CPU")


def predicted_bytes(predicted: Any) -> int:
    """Of the model and a step, without what the process holds anyway."""
    bare: int = predicted.host_bytes - predicted.process
    return bare


def config_of(row: str) -> RunConfig:
    """The run of a row."""
    return configuration(SECTIONS, {"parallel": {"offload": row != "plain"}})


def in_child(row: str, steps: int) -> Measured:
    """What a new process measures."""
    command = [sys.executable, "-m", "tools.bench.offload", row, str(steps)]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    found: Measured = json.loads(subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True).stdout)
    return found


def measure(row: str, steps: int) -> Measured:
    """Train, and look at the memory of this process at each of `NUM_POINTS` steps."""
    torch.set_num_threads(1)
    config = config_of(row)
    tokens = random_tokens(config)
    with mesh.start(config.parallel, "cpu", config.training.timeout_minutes) as world:
        Path("/proc/self/clear_refs").write_text("5")  # forget the peak so far, that of imports
        before, before_peak = process_bytes(), status("VmRSS")
        a_run = random_run(config, world, tokens)
        if row == "foreach":
            groups = [{key: group[key] for key in ("params", "weight_decay")} for group in a_run.optimizer.param_groups]
            a_run.optimizer = torch.optim.AdamW(groups, lr=1e-3, betas=(0.9, 0.95), foreach=True)
            create_state(a_run.optimizer)
        curve, start = [], time.process_time()
        for step in range(1, steps + 1):
            train_step(a_run)
            if step % max(1, steps // NUM_POINTS) == 0:
                curve.append((step, process_bytes() - before))
        seconds = time.process_time() - start
        return {"curve": curve, "peak_bytes": status("VmHWM") - before_peak, "seconds": seconds}


if __name__ == "__main__":
    json.dump(measure(sys.argv[1], int(sys.argv[2])), sys.stdout)
