"""What a rank computes of one micro-batch, operation by operation: floating-point operations, and bytes read and written.

Two tables. `ours` is this model: fused attention, which reads and writes no scores. `megatron-2021` is the layer of
Shoeybi et al. 2019 and Narayanan et al. 2021 with scores, softmax and dropout masks in memory. Norms, additions and
activation functions move numbers and multiply few: their bytes are what they cost.

b micro-batch, s window, T = b s tokens, h hidden, a heads of d, f feed-forward width, V vocabulary; t tensor-parallel
ranks; e bytes of a number. With sequence parallelism each rank has T / t of the tokens between products.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from pretrain.config import ModelConfig
from pretrain.plan.software import Software

FUSED_ATTENTION = 0.6  # of the rate of large products, about: Dao 2023 reports 225 of 312 TFLOP/s on A100 at most
MASK = 1  # bytes of a dropout mask's entry
WIDE = 4  # bytes of a number in fp32


@dataclass(frozen=True)
class Operation:
    """One kernel, or a few that are always together."""

    name: str
    flops: float = 0.0  # of matrix products
    bytes: float = 0.0  # read and written
    rate: float = 1.0  # of its products, relative to large ones
    kernels: int = 1


@dataclass(frozen=True)
class Work:
    """A layer's, or a head's, for one micro-batch on one rank."""

    forward: tuple[Operation, ...]
    inputs: tuple[Operation, ...]  # backward: gradients of activations
    weights: tuple[Operation, ...]  # backward: gradients of weights


@dataclass(frozen=True)
class Shape:
    """What the numbers of operations depend on."""

    model: ModelConfig
    tokens: int  # of a micro-batch
    tensor: int  # ranks that share each matrix
    token_ranks: int  # ranks that share the tokens between products
    item: int  # bytes of a number

    @property
    def between(self) -> float:
        """Numbers of x between products, on one rank."""
        return self.tokens * self.model.hidden_size / self.token_ranks


def layer(shape: Shape, software: Software) -> Work:
    """One block."""
    forward, inputs, weights = [], [], []
    item, x = shape.item, shape.between
    norm = Operation("norm", bytes=2 * item * x)
    norm_back = Operation("norm backward", bytes=3 * item * x)
    for name, rows, columns in _matrices(shape):
        product, gradient, of_weight = _products(name, shape, rows, columns, software)
        forward.append(product)
        inputs.append(gradient)
        weights.append(of_weight)
    has_dropout = software.operations != "ours"
    residual = Operation("residual", bytes=(3 * item + MASK * has_dropout) * x)
    forward += [norm, norm, residual, residual]
    inputs += [norm_back, norm_back, residual, residual]
    attention = _stored_attention if has_dropout else _fused_attention
    for own, back in (attention(shape), _activation(shape)):
        forward += own
        inputs += back
    return Work(tuple(forward), tuple(inputs), tuple(weights))


def head(shape: Shape, software: Software) -> Work:
    """Final norm, logits and loss (its softmax in fp32)."""
    item, vocabulary = shape.item, shape.model.padded_vocab_size // shape.tensor
    product, gradient, of_weight = _products("logits", shape, vocabulary, shape.model.hidden_size, software)
    logits = shape.tokens * vocabulary
    loss = Operation("loss", bytes=(item + 5 * WIDE) * logits, kernels=6)
    back = Operation("loss backward", bytes=(2 * WIDE + item) * logits, kernels=3)
    norm = Operation("norm", bytes=2 * item * shape.between)
    return Work((norm, product, loss), (back, gradient, norm), (of_weight,))


def _matrices(shape: Shape) -> Iterator[tuple[str, int, int]]:
    """Of a block on one rank: rows (of outputs) and columns."""
    model, ranks = shape.model, shape.tensor
    queries = model.num_heads * model.head_size // ranks
    keys = model.kv_heads * model.head_size // ranks
    ffn = model.ffn_size // ranks
    yield "qkv", queries + 2 * keys, model.hidden_size
    yield "attention out", model.hidden_size, queries
    for name in ("gate", "up") if model.activation == "swiglu" else ("up",):
        yield name, ffn, model.hidden_size
    yield "down", model.hidden_size, ffn


def _products(
    name: str, shape: Shape, rows: int, columns: int, software: Software
) -> tuple[Operation, Operation, Operation]:
    """A product with a weight, and its two gradients."""
    item, tokens = shape.item, shape.tokens
    flops = 2.0 * tokens * rows * columns
    moved = item * (tokens * (rows + columns) + rows * columns)
    added = 2 * software.gradient_bytes - (item if software.fuses_accumulation else -item)
    return (
        Operation(name, flops, moved),
        Operation(f"{name} inputs", flops, moved),
        Operation(f"{name} weights", flops, moved + added * rows * columns),
    )


def _stored_attention(shape: Shape) -> tuple[list[Operation], list[Operation]]:
    """Scores, softmax (scaled and masked in one kernel), dropout, and their product with the values."""
    model, item, tokens = shape.model, shape.item, shape.tokens
    heads = model.num_heads // shape.tensor
    scores = tokens * heads * model.sequence_length
    flops, narrow = 2.0 * scores * model.head_size, item * tokens * heads * model.head_size
    product = Operation("scores", flops, 2 * narrow + item * scores)
    softmax = Operation("softmax", bytes=2 * item * scores)
    dropout = Operation("dropout", bytes=(2 * item + MASK) * scores)
    context = Operation("context", flops, 2 * narrow + item * scores)
    copy = Operation("context copy", bytes=2 * narrow)
    back = [
        Operation("context backward", 2 * flops, 4 * narrow + 2 * item * scores, kernels=2),
        dropout,
        Operation("softmax backward", bytes=3 * item * scores),
        Operation("scores backward", 2 * flops, 4 * narrow + 2 * item * scores, kernels=2),
        Operation("qkv copies", bytes=2 * 3 * narrow, kernels=4),
    ]
    return [product, softmax, dropout, context, copy], back


def _fused_attention(shape: Shape) -> tuple[list[Operation], list[Operation]]:
    """Rotary positions and one kernel that keeps scores to itself (Dao 2023), which computes them again in the backward."""
    model, item, tokens = shape.model, shape.item, shape.tokens
    queries = model.num_heads * model.head_size // shape.tensor
    keys = model.kv_heads * model.head_size // shape.tensor
    seen = model.sequence_length if model.document_mask else model.sequence_length / 2
    flops = 4.0 * tokens * queries * seen
    turned = item * tokens * (queries + keys) * (model.positions == "rope")
    rotary = Operation("rotary", bytes=3 * turned, kernels=4 if turned else 0)
    moved = item * tokens * (2 * queries + 2 * keys)
    attention = Operation("attention", flops, moved, FUSED_ATTENTION)
    back = Operation("attention backward", 2.5 * flops, 2 * moved, 0.8 * FUSED_ATTENTION)
    gathered = Operation("qkv gradients", bytes=2 * item * tokens * (queries + 2 * keys))
    return [rotary, attention], [back, rotary, gathered]


def _activation(shape: Shape) -> tuple[list[Operation], list[Operation]]:
    numbers = shape.tokens * shape.model.ffn_size / shape.tensor
    if shape.model.activation == "swiglu":  # silu, then its product with `up`: two kernels
        return (
            [Operation("swiglu", bytes=5 * shape.item * numbers, kernels=2)],
            [Operation("swiglu backward", bytes=8 * shape.item * numbers, kernels=3)],
        )
    return (
        [Operation("gelu", bytes=2 * shape.item * numbers)],
        [Operation("gelu backward", bytes=3 * shape.item * numbers)],
    )
