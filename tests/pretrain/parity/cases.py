"""The runs that must train alike: some by hand, a set in which all pairs of choices meet, every schedule on 2 x 2 x 2.

A choice that has no effect does not count as met: `zero` 1 and 3 go with several data-parallel ranks, schedules with
pipelines, and sequence parallelism is a value of `tensor`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from corpus.engine.errors import UsageError
from pretrain.batch_size import check_batch_sizes
from pretrain.config import RunConfig
from pretrain.parallel.base.mesh import layout
from pretrain.schedules import SCHEDULES
from tests.pretrain.parity.pairs import Row, covering_rows
from tests.pretrain.tiny import tiny_config

Sections = Mapping[str, Mapping[str, Any]]

MAX_RANKS = 8
MICRO_BATCH_SIZE = 2
FACTORS: dict[str, dict[str, Sections]] = {
    "pipeline": {f"pp {pp}": {"parallel": {"pp": pp}} for pp in (1, 2, 4)},
    "schedule": {schedule: {"parallel": {"schedule": schedule}} for schedule in SCHEDULES},
    "tensor": {
        "tp 1": {},
        "tp 2": {"parallel": {"tp": 2, "sequence_parallel": False}},
        "tp 2 sp": {"parallel": {"tp": 2}},
        "tp 4": {"parallel": {"tp": 4, "sequence_parallel": False}},
        "tp 4 sp": {"parallel": {"tp": 4}},
    },
    "data": {
        "dp 1": {},
        "dp 2": {"parallel": {"dp_shard": 2}},
        "dp 2x2": {"parallel": {"dp_replicate": 2, "dp_shard": 2}},
    },
    "zero": {f"zero {zero}": {"parallel": {"zero": zero}} for zero in (2, 1, 3)},
    "kv heads": {"8 heads": {}} | {f"8/{n} heads": {"model": {"num_kv_heads": n}} for n in (4, 2)},
    "micro-batches": {f"m {m}": {"training": {"num_micro_batches": m}} for m in (1, 2, 5)},
    "mask": {
        "causal": {},
        "document": {"model": {"document_mask": True}},
        "prefix": {"data": {"prefix_lm": True}},
        "document prefix reset": {
            "model": {"document_mask": True},
            "data": {"prefix_lm": True, "reset_positions": True},
        },
    },
    "recompute": {
        "": {},
        "selective": {"parallel": {"recompute": "selective"}},
        "full": {"parallel": {"recompute": "full"}},
        "full/2": {"parallel": {"recompute": "full", "recompute_every": 2}},
    },
    "output": {"tied": {}, "untied": {"model": {"tied": False}}},
    "norm": {"rmsnorm": {}, "layernorm": {"model": {"norm": "layernorm"}}},
    "activation": {"swiglu": {}, "gelu": {"model": {"activation": "gelu"}}},
    "positions": {"rope": {}, "learned": {"model": {"positions": "learned"}}},
    "bias": {"no bias": {}, "bias": {"model": {"bias": True}}},
}  # fmt: skip
MODEL_FACTORS = ("kv heads", "mask", "output", "norm", "activation", "positions", "bias")
CONSTRAINED = ["pipeline", "schedule", "tensor", "data", "zero", "kv heads", "micro-batches"]
QUICK = [
    "tp 2, m 2",
    "tp 2 sp, 8/4 heads, document prefix reset, untied, layernorm, gelu, learned, bias",
    "pp 2, gpipe, m 5, prefix, untied",
    "pp 2, 1f1b, m 5, selective, 8/2 heads",
    "pp 2, interleaved, m 5, document prefix reset, full/2",
    "pp 2, zero-bubble, m 5, full, layernorm, learned, bias",
    "pp 2, zbv, m 2, selective",
    "dp 2, zero 1, m 5, bias",
    "dp 2, zero 2, full, document",
    "dp 2x2, zero 3, selective, gelu, learned",
    "tp 4 sp, m 1, prefix, layernorm, bias",
    "tp 2 sp, dp 2, zero 3, full",
    "pp 2, 1f1b, tp 2 sp, document, untied",
    "pp 2, zero-bubble, tp 2, m 5",
    "pp 2, interleaved, dp 2, zero 3",
    "pp 2, zero-bubble, dp 2, zero 1, m 5, untied, bias",  # the weights' gradients come outside of FSDP2's backward
    "pp 4, 1f1b, m 5, prefix",  # which shows where another layer follows
    "pp 2, zbv, tp 2 sp, dp 2, zero 3",
]


@dataclass(frozen=True)
class Case:
    """A run and the number of ranks it is for."""

    name: str
    num_ranks: int
    config: RunConfig

    @property
    def reference(self) -> RunConfig:
        """The same run on one process."""
        return RunConfig.model_validate(self.config.model_dump() | {"parallel": {}})


def new_case(name: str, *sections: Sections) -> Case:
    """A case of tiny models in float64; later sections override earlier ones.

    Besides the fields of a configuration `training` may say `num_micro_batches`, from which the batch follows.

    Raises:
        UsageError: no such run can start.
    """
    values: dict[str, dict[str, Any]] = {
        "model": {"num_heads": 8, "ffn_hidden_size": 64},
        "training": {"precision": "fp64", "micro_batch_size": MICRO_BATCH_SIZE, "num_micro_batches": 2,
                     "timeout_minutes": 2.0},
        "parallel": {"dp_shard": 1},
    }  # fmt: skip
    for section in sections:
        for key, fields in section.items():
            values[key] = {**values.get(key, {}), **fields}
    parallel, training, model = values["parallel"], values["training"], values["model"]
    num_data_ranks = parallel.get("dp_replicate", 1) * parallel["dp_shard"]
    num_ranks = num_data_ranks * parallel.get("pp", 1) * parallel.get("tp", 1)
    num_samples = training["micro_batch_size"] * training.pop("num_micro_batches") * num_data_ranks
    training.setdefault("global_batch_size", num_samples)
    num_chunks = parallel.get("stages_per_rank") or 1 + (parallel.get("schedule") in ("interleaved", "zbv"))
    model.setdefault("num_layers", max(3, parallel.get("pp", 1) * num_chunks))
    config = tiny_config(**values)
    layout(config.parallel, num_ranks)
    check_batch_sizes(config.training, num_data_ranks)
    return Case(name, num_ranks, config)


def row_case(row: Row) -> Case:
    """The case of one value of each factor."""
    return new_case(", ".join(filter(None, row.values())), *(FACTORS[factor][value] for factor, value in row.items()))


def is_legal(row: Row) -> bool:
    """Whether the configuration accepts a row, at most 8 ranks can run it, and none of its values is without effect.

    A matter of the constrained factors; that any value of the others goes with any is shown by the cases that are made.
    """
    return _is_legal(tuple(row[factor] for factor in CONSTRAINED))


@cache
def _is_legal(values: tuple[str, ...]) -> bool:
    row = dict(zip(CONSTRAINED, values, strict=True))
    if math.prod(int(n) for name in ("pipeline", "tensor", "data") for n in _degrees(row[name])) > MAX_RANKS:
        return False
    if row["pipeline"] == "pp 1" and row["schedule"] != "1f1b":
        return False
    if row["data"] == "dp 1" and row["zero"] != "zero 2":
        return False
    try:
        row_case(row)
    except UsageError:
        return False
    return True


def _degrees(value: str) -> list[str]:
    """The numbers in "pp 4" or "dp 2x2"."""
    return value.split()[1].split("x")


def labelled_case(labels: str) -> Case:
    """The case of some values of factors, "pp 2, zbv, untied"; the other factors have their first values."""
    factor_of = {value: factor for factor, values in FACTORS.items() for value in values}
    values = labels.split(", ")
    return new_case(labels, *(FACTORS[factor_of[value]][value] for value in values))


@cache
def pairwise_rows() -> list[Row]:
    """Rows in which every legal pair of choices meets."""
    return covering_rows({name: list(values) for name, values in FACTORS.items()}, CONSTRAINED, is_legal)


def pairwise_cases() -> list[Case]:
    """The cases of these rows."""
    return [row_case(row) for row in pairwise_rows()]


def model_cases() -> list[Case]:
    """Cases of one process in which every pair of choices of the model meets."""
    factors = {name: list(values) for name, values in FACTORS.items() if name in MODEL_FACTORS}
    return [row_case(row) for row in covering_rows(factors, [], lambda row: True)]


def quick_cases() -> list[Case]:
    """What `make test` runs: each schedule, each kind of sharding, each mask, mostly on two ranks; by mesh, to reuse
    ranks."""
    reset = {"data": {"reset_positions": True}}  # seen by rotary angles only where no document mask says the same
    cases = [
        *(labelled_case(labels) for labels in QUICK),
        new_case("pp 2, interleaved, reset", {"parallel": {"pp": 2, "schedule": "interleaved"}}, reset),
    ]
    return sorted(cases, key=lambda case: (case.num_ranks, case.config.parallel.pp, case.config.parallel.tp))


def cubic_cases() -> list[Case]:
    """2 x 2 x 2 ranks of pipeline, data and tensor parallelism, with every schedule."""
    cases = []
    for schedule in SCHEDULES:
        cases.append(labelled_case(f"pp 2, {schedule}, tp 2 sp, dp 2, zero 3, m 5, tied, prefix"))
        cases.append(labelled_case(f"pp 2, {schedule}, tp 2, dp 2, zero 1, m 2, untied, bias, selective"))
    return cases


def uneven_cases() -> list[Case]:
    """What does not divide: ranks, layers, micro-batches, the vocabulary, the batch while it grows."""
    three = {"model": {"hidden_size": 36, "num_heads": 6, "ffn_hidden_size": 66, "sequence_length": 18,
                       "padded_vocab_size": 384}}  # fmt: skip
    growing = {"training": {"global_batch_size": 12, "rampup": {"start": 4, "increment": 4, "num_samples": 16}}}

    def parallel(**fields: Any) -> Sections:
        return {"parallel": fields}

    def layers(number: int) -> Sections:
        return {"model": {"num_layers": number}}

    return [
        new_case("dp 3, zero 3", parallel(dp_shard=3, zero=3)),
        new_case("dp 3, pp 2, zero-bubble", parallel(dp_shard=3, pp=2, schedule="zero-bubble", zero=2)),
        new_case("2 replicas", parallel(dp_replicate=2, zero=1)),
        new_case("2 replicas, pp 2, interleaved", parallel(dp_replicate=2, pp=2, schedule="interleaved", zero=3)),
        new_case("tp 3 sp", three, parallel(tp=3)),
        new_case("tp 3, dp 2, zero 3, untied", three, parallel(tp=3, sequence_parallel=False, dp_shard=2, zero=3),
             {"model": {"tied": False}}),
        new_case("tp 4 sp, two ranks have only padding", parallel(tp=4), {"model": {"padded_vocab_size": 512}}),
        new_case("pp 4, 1f1b, 5 layers", parallel(pp=4), layers(5)),
        new_case("pp 2, zbv, 7 layers", parallel(pp=2, schedule="zbv"), layers(7)),
        new_case("pp 2, 1f1b, 3 + 1 layers", parallel(pp=2, layers_per_stage=(3, 1)), layers(4)),
        new_case("pp 2, interleaved, 1 + 2 + 1 + 1 layers",
             parallel(pp=2, schedule="interleaved", layers_per_stage=(1, 2, 1, 1)), layers(5)),
        new_case("pp 2, interleaved, 3 stages a rank, m 5", parallel(pp=2, schedule="interleaved", stages_per_rank=3),
             {"training": {"num_micro_batches": 5}}),
        new_case("pp 2, zero-bubble, 2 stages a rank, m 5",
             parallel(pp=2, schedule="zero-bubble", stages_per_rank=2), layers(4),
             {"training": {"num_micro_batches": 5}}),
        new_case("batch of 4 to 12, dp 2, pp 2, 1f1b", parallel(dp_shard=2, pp=2), growing),
        new_case("batch of 4 to 12, pp 2, zbv", parallel(pp=2, schedule="zbv"), growing),
        new_case("batch of 4 to 12, tp 2 sp, dp 2, zero 3", parallel(tp=2, dp_shard=2, zero=3), growing),
    ]  # fmt: skip
