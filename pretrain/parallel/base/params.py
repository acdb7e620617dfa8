"""The parameter table: for each parameter its name, logical shape, shard dimension, decay and first value.

One table is the source that initialisation, tensor parallelism, optimizer groups, checkpoints, parameter counts, the
planner's memory and the export derive from, and a test holds it equal to the model's own parameters.

First values do not depend on the mesh: a rank fills its slice from a counter-based generator keyed by (seed,
name), so the weights are equal bit for bit on any number of ranks, and nothing is broadcast. A value is the
sum of eight 16-bit uniform integers (Irwin-Hall): integer arithmetic only, so that replicas on different
CPUs, whose log and cos may differ in the last bit, still agree. It differs from a normal by an excess
kurtosis of -0.15 and no values beyond 4.9 sigma, less than the truncated normals in common use do. Cost: 16
bytes of Philox a value, about 15 million values a second and core.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from torch.distributed.tensor import DTensor

from pretrain.config import ModelConfig

LANES = 8  # 16-bit uniforms summed into one value
WORDS_PER_VALUE = LANES // 4  # a Philox word has 64 bits
WORDS_PER_BLOCK = 4  # and its counter counts blocks of 4 words
LANE_VARIANCE = (2**32 - 1) / 12  # of a uniform integer in [0, 65536)
SLAB_VALUES = 1 << 20  # values made at a time by a thread: bounds its memory to some 25 MB


@dataclass(frozen=True)
class ParamSpec:
    """One parameter. `init` is a standard deviation, or the constant that fills it.

    A layer takes what its rank holds of it from `TensorAxis.weight`; all else follows from this row.
    """

    name: str
    shape: tuple[int, ...]
    init: float | Literal["ones", "zeros"]
    kind: Literal["matrix", "embedding", "vector"]
    # the dimension that tensor parallelism cuts; or a copy on each rank, and what of the input it sees: "tokens"
    # between the products, its own only with sequence parallelism, or its own "heads" (or channels) always
    tp_dim: int | Literal["tokens", "heads"]


def param_specs(config: ModelConfig) -> list[ParamSpec]:
    """The table of a model, in the order of its forward. A tied output matrix is the embedding and has no row."""
    hidden, std = config.hidden_size, config.init_std
    specs = [ParamSpec("embedding.weight", (config.padded_vocab_size, hidden), std, "embedding", 0)]
    if config.positions == "learned":
        specs.append(
            ParamSpec("position_embedding.weight", (config.sequence_length, hidden), std, "embedding", "tokens")
        )
    for index in range(config.num_layers):
        specs += _layer_specs(config, f"layers.{index}.")
    specs += _norm_specs(config, "final_norm")
    if not config.tied:
        specs.append(ParamSpec("head.weight", (config.padded_vocab_size, hidden), std, "embedding", 0))
    return specs


def part_specs(config: ModelConfig) -> list[ParamSpec]:
    """The table with a row for a tied output matrix, which a last stage without the embedding holds a copy of.

    It begins and stays equal to the embedding: give `init_parameters` the copy under the embedding's name.
    """
    specs = param_specs(config)
    return [*specs, replace(specs[0], name="head.weight")] if config.tied else specs


def num_parameters(config: ModelConfig, vocab_size: int | None = None) -> int:
    """All parameters: of the padded vocabulary, or with `vocab_size` entries, as models are commonly counted."""
    if vocab_size is not None:
        config = config.model_copy(update={"padded_vocab_size": vocab_size})
    return sum(math.prod(spec.shape) for spec in param_specs(config))


def num_matmul_parameters(config: ModelConfig) -> int:
    """Parameters that take part in matrix products: all matrices and the output matrix, tied or not; no look-ups."""
    matrices = sum(math.prod(spec.shape) for spec in param_specs(config) if spec.kind == "matrix")
    return matrices + config.padded_vocab_size * config.hidden_size


@torch.no_grad()
def init_parameters(parameters: Mapping[str, nn.Parameter], config: ModelConfig, seed: int) -> None:
    """Fill each parameter, or the slice of it that this rank holds, with its first value."""
    for spec in param_specs(config):
        if spec.name in parameters:
            for local, offset in _local_slices(parameters[spec.name]):
                _fill(local, offset, spec, seed)


def normal_rows(spec_name: str, shape: tuple[int, int], seed: int, start: int, stop: int) -> NDArray[np.float32]:
    """Rows [start, stop) of the unit-variance matrix of a name: the counter is the row, so any slice is made alone."""
    columns = shape[1]
    blocks_per_row = -(-columns * WORDS_PER_VALUE // WORDS_PER_BLOCK)
    key = int.from_bytes(hashlib.blake2b(f"{seed} {spec_name}".encode(), digest_size=16).digest(), "little")
    generator = np.random.Philox(key=key, counter=start * blocks_per_row)
    words = generator.random_raw((stop - start) * blocks_per_row * WORDS_PER_BLOCK)
    lanes = (
        words.astype("<u8", copy=False)
        .view("<u2")
        .reshape(stop - start, blocks_per_row * WORDS_PER_BLOCK // WORDS_PER_VALUE, LANES)[:, :columns]
    )
    total = lanes.sum(axis=2, dtype=np.int32)  # at most 8 x 65,535
    centred = 2 * total - LANES * 65_535  # twice the distance from the mean: still an integer
    values: NDArray[np.float32] = centred.astype(np.float32) * np.float32(0.5 / math.sqrt(LANES * LANE_VARIANCE))
    return values


def _layer_specs(config: ModelConfig, prefix: str) -> Iterator[ParamSpec]:
    hidden, std = config.hidden_size, config.init_std
    residual_std = std / math.sqrt(2 * config.num_layers)  # keeps the residual sum's variance (Radford et al. 2019)
    heads = config.num_heads * config.head_size
    yield from _norm_specs(config, prefix + "attention_norm")
    yield from _linear_specs(
        config, prefix + "attention.qkv", heads + 2 * config.kv_heads * config.head_size, hidden, std, 0
    )
    yield from _linear_specs(config, prefix + "attention.out", hidden, heads, residual_std, 1)
    yield from _norm_specs(config, prefix + "mlp_norm")
    for name in ("gate", "up") if config.activation == "swiglu" else ("up",):
        yield from _linear_specs(config, prefix + f"mlp.{name}", config.ffn_size, hidden, std, 0)
    yield from _linear_specs(config, prefix + "mlp.down", hidden, config.ffn_size, residual_std, 1)


def _linear_specs(
    config: ModelConfig, name: str, rows: int, columns: int, std: float, tp_dim: int
) -> Iterator[ParamSpec]:
    yield ParamSpec(f"{name}.weight", (rows, columns), std, "matrix", tp_dim)
    if config.bias:  # the bias of a matrix cut by columns is added once, after the sum over ranks
        yield ParamSpec(f"{name}.bias", (rows,), "zeros", "vector", 0 if tp_dim == 0 else "tokens")


def _norm_specs(config: ModelConfig, name: str) -> Iterator[ParamSpec]:
    yield ParamSpec(f"{name}.weight", (config.hidden_size,), "ones", "vector", "tokens")
    if config.norm == "layernorm" and config.bias:
        yield ParamSpec(f"{name}.bias", (config.hidden_size,), "zeros", "vector", "tokens")


def _local_slices(parameter: nn.Parameter) -> Iterator[tuple[torch.Tensor, tuple[int, ...]]]:
    """The parts of a parameter this rank holds, each with its place in the logical tensor."""
    if not isinstance(parameter, DTensor):
        yield parameter.data, (0,) * parameter.dim()
        return
    local = parameter.to_local()
    # what torch's own checkpoints place their slices by
    for chunk in parameter.__create_chunk_list__():  # type: ignore[no-untyped-call]
        if local.numel():
            yield local, tuple(chunk.offsets)


def _fill(local: torch.Tensor, offset: tuple[int, ...], spec: ParamSpec, seed: int) -> None:
    if not isinstance(spec.init, float):
        local.fill_(1.0 if spec.init == "ones" else 0.0)
        return
    rows, columns = spec.shape
    first, left = offset
    step = max(1, SLAB_VALUES // columns)
    std = np.float32(spec.init)

    @torch.no_grad()  # a thread has a mode of its own
    def fill(start: int) -> None:
        stop = min(start + step, local.shape[0])
        values = normal_rows(spec.name, (rows, columns), seed, first + start, first + stop)
        local[start:stop].copy_(torch.from_numpy(values[:, left : left + local.shape[1]] * std))

    with ThreadPoolExecutor(torch.get_num_threads()) as pool:  # numpy lets other threads run while it draws
        list(pool.map(fill, range(0, local.shape[0], step)))
