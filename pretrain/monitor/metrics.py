"""What a run says of itself: console lines, `metrics.jsonl`, and TensorBoard where installed. Rank 0 alone writes.

FLOPs of a token, forward and backward: 6 N + 12 L H K T (Chowdhery et al. 2022, appendix B), N the parameters
in matrix products and T the sequence length; `causal` counts only the half of the attention that is seen.
Model FLOP utilisation (MFU) is that over the device's dense peak. A device that is not in the table has no
MFU, rather than a guessed one.
"""

from __future__ import annotations

import errno
import json
import math
import os
import sys
import time
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

import torch

from pretrain.config import MetricsConfig, ModelConfig
from pretrain.parallel.params import num_matmul_parameters
from pretrain.plan.hardware import PEAK_FLOPS

if TYPE_CHECKING:
    from pretrain.step import StepResult


def flops_per_token(model: ModelConfig, causal: bool = False) -> float:
    """Floating-point operations of one training token, without recomputation."""
    attention = 12 * model.num_layers * model.num_heads * model.head_size * model.sequence_length
    return 6 * num_matmul_parameters(model) + attention * (0.5 if causal else 1.0)


def peak_flops(device: torch.device, precision: str) -> float | None:
    """The dense peak of this process's device, or None where the table does not know it."""
    if device.type != "cuda":
        return None
    name = torch.cuda.get_device_name(device)
    return next((peak for known, peak in PEAK_FLOPS[precision].items() if known in name), None)


def memory_bytes(device: torch.device) -> dict[str, int]:
    """Resident memory of this process, and the most a GPU's allocator ever held."""
    with open("/proc/self/status", encoding="ascii", errors="replace") as file:
        fields = dict(line.split(":", 1) for line in file)
    used = {"host_bytes": int(fields["VmRSS"].split()[0]) * 1024}
    if device.type == "cuda":
        used["device_peak_bytes"] = torch.cuda.max_memory_allocated(device)
    return used


class Metrics:
    """The outputs of one run. Between two reports it holds what was measured since the last."""

    def __init__(
        self,
        out: Path,
        config: MetricsConfig,
        model: ModelConfig,
        *,
        num_steps: int,
        tokens_per_character: float,
        peak: float | None,
        device: torch.device,
        shows_batch_size: bool = False,
    ) -> None:
        self.config = config
        self.num_steps = num_steps
        self.tokens_per_character = tokens_per_character
        self.flops_per_token = flops_per_token(model)
        self.peak = peak  # of all ranks together
        self.device = device
        self.shows_batch_size = shows_batch_size  # on the console too, where it changes
        out.mkdir(parents=True, exist_ok=True)
        self.file = open(out / "metrics.jsonl", "ab", buffering=0)  # noqa: SIM115 (closed by __exit__)
        self.tensorboard = _tensorboard(out) if config.tensorboard else None
        self.tokens = 0
        self.started = time.perf_counter()

    def __enter__(self) -> Metrics:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.file.close()
        if self.tensorboard is not None:
            with suppress(OSError):
                self.tensorboard.close()

    def step(self, step: int, result: StepResult) -> None:
        """Take note of a step (from 1); report at the first, each `every_steps` and the last."""
        self.tokens += result.num_tokens
        if step != 1 and step % self.config.every_steps and step != self.num_steps:
            return
        seconds = time.perf_counter() - self.started
        tokens_per_second = self.tokens / seconds
        mfu = tokens_per_second * self.flops_per_token / self.peak if self.peak else None
        bits, memory = result.loss / math.log(2) * self.tokens_per_character, memory_bytes(self.device)
        values = {
            "loss": result.loss,
            "bits_per_character": bits,
            "learning_rate": result.learning_rate,
            "grad_norm": result.grad_norm,
            "batch_size": result.batch_size,
            "tokens_per_second": tokens_per_second,
            "mfu": mfu,
            **memory,
        }
        self.record("train", step, values)
        say(
            f"step {step:>{len(str(self.num_steps))}}/{self.num_steps}  loss {result.loss:.4f}  "
            f"{bits:.3f} bits/char  norm {result.grad_norm:.2f}  lr {result.learning_rate:.2e}  "
            f"{f'batch {result.batch_size}  ' if self.shows_batch_size else ''}"
            f"{tokens_per_second:,.0f} tokens/s  mfu {'n/a' if mfu is None else f'{mfu:.1%}'}  "
            f"{memory['host_bytes'] / 2**30:.2f} GiB"
        )
        self.restart_clock()

    def restart_clock(self) -> None:
        """Leave what happened since the last report out of the speed: an evaluation, a checkpoint."""
        self.tokens = 0
        self.started = time.perf_counter()

    def record(self, kind: str, step: int, values: dict[str, Any]) -> None:
        """One line of metrics.jsonl; numbers that are not finite are written as null.

        A step that a killed run had reported and a resumed one does again has two lines: the last counts.
        """
        finite = {
            key: None if isinstance(value, float) and not math.isfinite(value) else value
            for key, value in values.items()
        }
        self._write(json.dumps({"kind": kind, "step": step, **finite}, allow_nan=False).encode() + b"\n")
        try:
            for key, value in finite.items():
                if self.tensorboard is not None and isinstance(value, int | float):
                    self.tensorboard.add_scalar(f"{kind}/{key}", value, step)
        except OSError as error:  # its thread died of a full disk some steps ago
            say(f"WARNING: no TensorBoard from step {step} on ({error.strerror}); metrics.jsonl has all.")
            self.tensorboard = None

    def _write(self, line: bytes) -> None:
        """Append a line whole or not at all; where the disk refuses it, training goes on without."""
        try:
            size = os.fstat(self.file.fileno()).st_size
            if self.file.write(line) != len(line):
                self.file.truncate(size)
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except OSError as error:
            say(f"WARNING: {self.file.name}: a line is lost ({error.strerror}). Free space there.")


def say(message: str) -> None:
    """Talk goes to stderr: plain lines, one write each, so that ranks do not mix."""
    sys.stderr.write(message + "\n")
    sys.stderr.flush()


def _tensorboard(out: Path) -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        return None
    try:
        return SummaryWriter(str(out / "tensorboard"))
    except OSError as error:
        say(f"WARNING: {out / 'tensorboard'}: cannot be written ({error.strerror}); metrics.jsonl has all.")
        return None
