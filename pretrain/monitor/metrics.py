"""What a run says of itself: `metrics.jsonl`, console lines (`console`), and TensorBoard where installed. Rank 0 alone
writes.

Of the records of kind "train", one a report:

| field | what it is |
|---|---|
| phases | share of the time since the last report, by phase; the mean of all ranks; they add up to 1 (`phases`) |
| bubble | of the time in pipeline steps without a forward or backward: the mean of all ranks; null: no pipeline |
| tokens_per_second, seconds_per_step | of the time without evaluations and without what saves cost |
| flops_per_second | of the model: tokens_per_second x `workload.flops.flops_per_token` = 6 N + 12 L H K T |
| mfu | flops_per_second / (ranks x dense peak of a device, `hardware`); null where the table has no peak |
| hfu | the same of `hardware_flops_per_token`: what is recomputed counts |
| grad_norms | L2 norm of the gradient by group of parameters, before clipping |
| host_bytes | resident memory of rank 0's process |
| device_bytes, device_peak_bytes | on a GPU: what rank 0's allocator has given out, now and at most since the start |

With p equal stages and m micro-batches 1F1B has a bubble of (p - 1) / (m + p - 1): here of all the time, where
Narayanan et al. (2021) divide by the time without it.
"""

from __future__ import annotations

import errno
import json
import math
import os
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from pretrain.config import MetricsConfig, RunConfig
from pretrain.console import Console, log_message, percent, time_split
from pretrain.hardware import peak_flops
from pretrain.monitor.log import numbers
from pretrain.parallel.base.mesh import AXES, World
from pretrain.phases import PHASES, PIPELINE
from pretrain.phases import Path as PhasePath
from pretrain.workload.flops import flops_per_token, hardware_flops_per_token

if TYPE_CHECKING:
    from pretrain.training.step import StepResult

NOT_TRAINING = ("evaluate", "save")


class Interval(NamedTuple):
    """Where the time between two reports went, the mean of all ranks."""

    seconds: dict[str, float]  # by phase, all of `PHASES`
    bubble: float | None

    @property
    def training_seconds(self) -> float:
        """Evaluations and saves left out."""
        return sum(seconds for name, seconds in self.seconds.items() if name not in NOT_TRAINING)

    @property
    def shares(self) -> dict[str, float]:
        """Of all the time, by phase."""
        total = sum(self.seconds.values())
        return {name: seconds / total for name, seconds in self.seconds.items()}


def measure(world: World) -> Interval:
    """The time since the last call; all ranks take part."""
    taken = world.phases.take()
    *seconds, busy, pipeline = world.sum_over(AXES, *by_phase(taken).values(), *busy_and_whole(taken))
    means = {name: total / world.size for name, total in zip(PHASES, seconds, strict=True)}
    return Interval(means, 1 - busy / pipeline if world.pp_size > 1 and pipeline else None)


def by_phase(taken: Mapping[PhasePath, float]) -> dict[str, float]:
    """Seconds of each phase: an evaluation's or a save's with all that it does, else those of the innermost."""
    seconds = dict.fromkeys(PHASES, 0.0)
    for path, spent in taken.items():
        outer = next((name for name in path if name in NOT_TRAINING), None)
        name = outer or (path[-1] if path else "other")
        seconds[name if name in seconds else "other"] += spent
    return seconds


def busy_and_whole(taken: Mapping[PhasePath, float]) -> tuple[float, float]:
    """Seconds that forwards and backwards took of pipeline steps, their exchanges included, and those of the steps."""
    steps = {path: spent for path, spent in taken.items() if PIPELINE in path}
    busy = sum(spent for path, spent in steps.items() if "forward" in path or "backward" in path)
    return busy, sum(steps.values())


def is_reported(step: int, config: MetricsConfig, num_steps: int) -> bool:
    """Whether a step (from 1) is: the first, each `every_steps` and the last."""
    return step == 1 or step % config.every_steps == 0 or step == num_steps


def memory_bytes(device: torch.device) -> dict[str, int]:
    """Memory of this process: resident, and what a GPU's allocator has given out, now and at most."""
    with open("/proc/self/status", encoding="ascii", errors="replace") as file:
        fields = dict(line.split(":", 1) for line in file)
    used = {"host_bytes": int(fields["VmRSS"].split()[0]) * 1024}
    if device.type == "cuda":
        used["device_bytes"] = torch.cuda.memory_allocated(device)
        used["device_peak_bytes"] = torch.cuda.max_memory_allocated(device)
    return used


class Metrics:
    """The outputs of one run. Between two reports it counts what was trained on since the last."""

    def __init__(
        self, out: Path, config: RunConfig, *, tokens_per_character: float, device: torch.device, num_ranks: int = 1
    ) -> None:
        training = config.training
        self.config = config.metrics
        self.num_steps = training.num_steps
        self.tokens_per_character = tokens_per_character
        self.flops_per_token = flops_per_token(config.model)
        self.hardware_flops_per_token = hardware_flops_per_token(config.model, config.parallel)
        self.peak = peak_flops(device, training.precision)
        self.num_ranks = num_ranks
        self.device = device
        self.shows_batch_size = training.rampup is not None  # on the console too, where it changes
        out.mkdir(parents=True, exist_ok=True)
        self.file = open(out / "metrics.jsonl", "ab", buffering=0)  # noqa: SIM115 (closed by __exit__)
        self.tensorboard = _tensorboard(out) if self.config.tensorboard else None
        self.console = Console(self.num_steps)
        self.began = time.monotonic()
        self.tokens = self.steps = 0

    def __enter__(self) -> Metrics:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.console.close()
        self.file.close()
        if self.tensorboard is not None:
            with suppress(OSError):
                self.tensorboard.close()

    def step(self, step: int, result: StepResult, interval: Interval | None) -> None:
        """Take note of a step (from 1); with an interval, which ends with it, report."""
        self.tokens += result.num_tokens
        self.steps += 1
        self.console.show(step, result.loss)
        if interval is not None:
            self._report(step, result, interval)
            self.tokens = self.steps = 0

    def end(self, step: int) -> None:
        """The run is done; what else it says is its result."""
        self.record("end", step, {"seconds": time.monotonic() - self.began})
        self.console.close()

    def record(self, kind: str, step: int, values: Mapping[str, Any]) -> None:
        """One line of metrics.jsonl; numbers that are not finite are written as null.

        A step that a killed run had reported and a resumed one does again has two lines: the last counts.
        """
        line = {"kind": kind, "step": step, "at": time.time(), **_finite(values)}
        self._write(json.dumps(line, allow_nan=False, ensure_ascii=False).encode() + b"\n")
        if self.tensorboard is None:
            return
        try:
            for name, value in numbers(values, kind):
                self.tensorboard.add_scalar(name, value, step)
        except OSError as error:  # its thread died of a full disk some steps ago
            log_message(f"WARNING: no TensorBoard from step {step} on ({error.strerror}); metrics.jsonl has all.")
            self.tensorboard = None

    def _report(self, step: int, result: StepResult, interval: Interval) -> None:
        tokens_per_second = self.tokens / interval.training_seconds
        flops = tokens_per_second * self.flops_per_token
        mfu = hfu = None
        if self.peak is not None:
            mfu = flops / (self.peak * self.num_ranks)
            hfu = mfu * self.hardware_flops_per_token / self.flops_per_token
        bits, memory = result.loss / math.log(2) * self.tokens_per_character, memory_bytes(self.device)
        scale = {} if result.loss_scale is None else {"loss_scale": result.loss_scale}
        values = {
            "loss": result.loss,
            "bits_per_character": bits,
            "learning_rate": result.learning_rate,
            "grad_norm": result.grad_norm,
            "grad_norms": dict(result.grad_norms),
            "batch_size": result.batch_size,
            "tokens_per_second": tokens_per_second,
            "seconds_per_step": interval.training_seconds / self.steps,
            "flops_per_second": flops,
            "mfu": mfu,
            "hfu": hfu,
            "phases": interval.shares,
            "bubble": interval.bubble,
            **scale,
            **memory,
        }
        self.record("train", step, values)
        self.console.show_speed(tokens_per_second, mfu)
        fields = [
            f"step {step:>{len(str(self.num_steps))}}/{self.num_steps}",
            f"loss {result.loss:.4f}",
            f"{bits:.3f} bits/char",
            f"norm {result.grad_norm:.2f}",
            f"lr {result.learning_rate:.2e}",
            *([f"batch {result.batch_size}"] if self.shows_batch_size else []),
            f"{tokens_per_second:,.0f} tokens/s",
            *([] if mfu is None else [f"{flops / self.num_ranks / 1e12:,.1f} TFLOP/s a rank"]),
            f"mfu {percent(mfu)}",
            *([] if hfu == mfu else [f"hfu {percent(hfu)}"]),
            f"{memory['host_bytes'] / 2**30:.2f} GiB",
            *(
                [f"{memory['device_peak_bytes'] / 2**30:.1f} GiB on the device"]
                if "device_peak_bytes" in memory
                else []
            ),
            *time_split(interval.shares),
            *([] if interval.bubble is None else [f"bubble {interval.bubble:.0%}"]),
        ]
        self.console.report(fields)

    def _write(self, line: bytes) -> None:
        """Append a line whole or not at all; where the disk refuses it, training goes on without."""
        try:
            size = os.fstat(self.file.fileno()).st_size
            if self.file.write(line) != len(line):
                self.file.truncate(size)
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except OSError as error:
            log_message(f"WARNING: {self.file.name}: a line is lost ({error.strerror}). Free space there.")


def _finite(value: Any) -> Any:
    """What JSON can hold of a value: mappings as they are, numbers that are not finite as None."""
    if isinstance(value, Mapping):
        return {key: _finite(part) for key, part in value.items()}
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _tensorboard(out: Path) -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        return None
    try:
        return SummaryWriter(str(out / "tensorboard"))
    except OSError as error:
        log_message(f"WARNING: {out / 'tensorboard'}: cannot be written ({error.strerror}); metrics.jsonl has all.")
        return None
