"""What others measured and published, as data: tables of layouts with their step times or memory
(tests/fidelity/tables).

A file says where its figures are from, on which cluster and with which software they were measured, and column by
column what each row is. `[same]` holds what all rows share. A measured figure of 0 was not published.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from corpus.engine.config import Strict, load_toml, parse
from pretrain.config import Precision, Recompute, RunConfig, Zero
from pretrain.plan.cost import predict
from pretrain.plan.machines.cluster import Cluster, load_cluster
from pretrain.plan.prediction import Prediction
from pretrain.workload.framework_profiles import FrameworkProfile, find_software

TABLES = Path(__file__).parent / "tables"


class Row(Strict):
    """One layout of one model, and what was measured of it."""

    name: str
    software: str
    layers: int
    hidden: int
    heads: int
    kv_heads: int | None = None
    ffn: int | None = None
    gated: bool = False  # RMSNorm, SwiGLU, rotary positions, no biases, instead of GPT-2's block
    tied: bool = True
    balanced: bool = False  # stages of equal work, with the head's, instead of as many layers
    sequence: int
    vocabulary: int
    gpus: int
    tp: int = 1
    pp: int = 1
    interleave: int = 1
    micro_batch: int
    batch: int
    recompute: Recompute = "none"
    sequence_parallel: bool = False
    zero: Zero = 1
    offload: bool = False
    precision: Precision = "fp16"
    # measured
    seconds: float = 0  # of a step
    tflops: float = 0  # a device, with what is recomputed (equation 3 of Narayanan et al. 2021)
    tokens_per_second: float = 0  # of all devices
    device_tokens_per_second: float = 0
    mfu_percent: float = 0  # without what is recomputed
    peak_percent: float = 0  # with it
    memory_gb: float = 0
    out_of_memory: bool = False
    # measured, of memory: see fidelity.memory_lines
    state_gib: float = 0
    activations_gib: float = 0
    sequence_parallel_percent: float = 0
    selective_percent: float = 0
    both_percent: float = 0
    full_percent: float = 0

    @property
    def config(self) -> RunConfig:
        """As a run of ours."""
        parallel: dict[str, Any] = {
            "tp": self.tp,
            "pp": self.pp,
            "recompute": self.recompute,
            "sequence_parallel": self.sequence_parallel,
            "zero": self.zero,
            "offload": self.offload,
        }
        if self.pp > 1:
            parallel["schedule"] = "interleaved" if self.interleave > 1 else "1f1b"
            parallel["stages_per_rank"] = self.interleave
            if not self.balanced:
                parallel["layers_per_stage"] = layers_per_stage(self.layers, self.pp * self.interleave)
        block = ("rmsnorm", "swiglu", "rope", False) if self.gated else ("layernorm", "gelu", "learned", True)
        model = {
            "num_layers": self.layers,
            "hidden_size": self.hidden,
            "num_heads": self.heads,
            "num_kv_heads": self.kv_heads,
            "ffn_hidden_size": self.ffn,
            "sequence_length": self.sequence,
            "padded_vocab_size": self.vocabulary,
            "tied": self.tied,
            **dict(zip(("norm", "activation", "positions", "bias"), block, strict=True)),
        }
        training = {
            "num_steps": 1,
            "global_batch_size": self.batch,
            "micro_batch_size": self.micro_batch,
            "precision": self.precision,
        }
        return RunConfig.model_validate(
            {
                "model": model,
                "optimizer": {"learning_rate": 1e-4},
                "training": training,
                "parallel": parallel,
                "checkpoint": {"every_steps": 1, "async_save": False},
                "evaluation": {"every_steps": 1},
            }
        )

    @property
    def layout(self) -> str:
        """In a few characters."""
        data = self.gpus // (self.tp * self.pp)
        return f"{self.tp} x {self.pp} x {data}" + (f", {self.interleave} stages" if self.interleave > 1 else "")

    def predict(self, cluster: Cluster, software: FrameworkProfile | None = None) -> Prediction:
        """The same on a cluster, by our model; `software`: instead of its own."""
        return predict(self.config, self.gpus, cluster, software or find_software(self.software))

    def error(self, prediction: Prediction) -> float | None:
        """Predicted speed over the measured one, less one; None where no time was published."""
        for measured, predicted in (
            (self.tflops, prediction.tflops_per_gpu),
            (self.seconds and 1 / self.seconds, 1 / prediction.step_seconds),
            (self.tokens_per_second, prediction.tokens_per_second),
            (self.device_tokens_per_second, prediction.tokens_per_second / self.gpus),
            (self.mfu_percent, 100 * prediction.mfu),
            (self.peak_percent, 100 * prediction.hfu),
        ):
            if measured:
                return predicted / measured - 1
        return None


class _File(Strict):
    title: str
    cluster: str
    software: str | None = None
    recalled: bool = False  # by somebody from memory, not read again
    same: dict[str, Any]
    rows: dict[str, list[Any]]


@dataclass(frozen=True)
class Published:
    """One table."""

    name: str
    title: str
    recalled: bool
    cluster_name: str
    rows: tuple[Row, ...]

    @cached_property
    def cluster(self) -> Cluster:
        """What it was measured on."""
        return load_cluster(self.cluster_name)


def published_tables() -> list[str]:
    """Names of the tables that come with the package."""
    return sorted(path.stem for path in TABLES.glob("*.toml"))


def load_published(name: str) -> Published:
    """One of them; raises `UsageError`, which names the errors of its file."""
    file = parse(_File, load_toml(TABLES / f"{name}.toml"), f"published table {name}")
    shared = {"software": file.software, **file.same} if file.software else file.same
    rows = tuple(
        parse(Row, {**shared, **dict(zip(file.rows, values, strict=True))}, f"published table {name}, row {number}")
        for number, values in enumerate(zip(*file.rows.values(), strict=True))
    )
    return Published(name, file.title, file.recalled, file.cluster, rows)


def layers_per_stage(layers: int, stages: int) -> list[int]:
    """As Megatron and DeepSpeed cut a model; where the embedding and the head count as layers, the ends have one fewer.

    >>> layers_per_stage(8, 4), layers_per_stage(10, 4), layers_per_stage(9, 4)
    ([2, 2, 2, 2], [2, 3, 3, 2], [3, 2, 2, 2])
    """
    if (layers + 2) % stages == 0 and layers % stages and stages > 1:
        share = (layers + 2) // stages
        return [share - 1, *[share] * (stages - 2), share - 1]
    share, rest = divmod(layers, stages)
    return [share + 1] * rest + [share] * (stages - rest)
