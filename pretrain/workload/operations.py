"""What a rank computes of one micro-batch, operation by operation: floating-point operations, and bytes read and
written.

This is the table of our own model: fused attention, which reads and writes no scores, and everything else as torch runs
it, one kernel after the other; `workload.megatron_operations` is the one of published tables. Norms, additions and
activation functions move numbers and multiply few: their bytes are what they cost.

T tokens of a micro-batch, s window, h hidden, a and k the widths of queries and of keys (a rank's), f feed-forward
width, V vocabulary, e bytes of a number, w = max(e, 4). With sequence parallelism each rank has a share of the tokens
between products.

| operation | bytes forward | bytes backward |
|---|---|---|
| norm | 2 e T h | 3 e T h |
| residual | 3 e T h | 3 e T h (two gradients become one) |
| rotary, for each number of queries and keys | 2 (e + w) + 9 w | 2 (e + w) + 10 w |
| cutting q, k and v out of their product | views | 11 e T (a + 2 k): three gradients of the whole, mostly zeros |
| SwiGLU | 5 e T f | 9 e T f, and 3 e T h where the gradients of its two inputs meet |
| loss | (3 e + 2 w) T V | (w + e) T V |
| loss in chunks (`linear_cross_entropy`) | (3 e + 2 w) T V | (2 e + 4 w) T V, and the product of the logits again |

torch.compile fuses what lies between products into one kernel, which reads its inputs and writes its result. On the CPU
RMSNorm is no fused kernel, and its parts work in fp32.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from pretrain.attention_backend import Backend
from pretrain.config import ModelConfig

FUSED_ATTENTION = 0.6  # of the rate of large products, about: Dao 2023 reports 225 of 312 TFLOP/s on A100 at most
MASKED_ATTENTION = 0.3  # of the kernel that takes a dense mask, or fp32: about half of that (Dao 2023, figure 4)
WIDE = 4  # bytes of a number in fp32


class Operation(NamedTuple):
    """One kernel, or a few that are always together."""

    name: str
    flops: float = 0.0  # of matrix products
    bytes: float = 0.0  # read and written
    rate: float = 1.0  # of its products, relative to large ones
    kernels: int = 1
    depth: float = 0.0  # of a product the length of its sums; 0: no matter


class Work(NamedTuple):
    """A layer's, a head's or an embedding's, for one micro-batch on one rank."""

    forward: tuple[Operation, ...]
    inputs: tuple[Operation, ...]  # backward: gradients of activations
    weights: tuple[Operation, ...]  # backward: gradients of weights


class Shape(NamedTuple):
    """What the numbers of operations depend on."""

    model: ModelConfig
    tokens: int  # of a micro-batch
    tensor: int  # ranks that share each matrix
    token_ranks: int  # ranks that share the tokens between products
    item: int  # bytes of a number
    samples: int = 1  # of a micro-batch
    backend: Backend = "causal"  # of attention
    is_compiled: bool = False
    on_cpu: bool = False
    loss_in_chunks: bool = False

    @property
    def between(self) -> float:
        """Numbers of x between products, on one rank."""
        return self.tokens * self.model.hidden_size / self.token_ranks

    @property
    def wide(self) -> int:
        """Bytes of a number where fp32 at least is taken."""
        return max(self.item, WIDE)


def layer(shape: Shape) -> Work:
    """One block."""
    model, item, x = shape.model, shape.item, shape.between
    forward, inputs, weights = products(matrices(shape), shape)
    norm, norm_back = _norm(shape)
    residual = Operation("residual", bytes=(2 if shape.is_compiled else 3) * item * x)
    forward += [norm, norm, residual, residual]
    inputs += [norm_back, norm_back, residual, residual]
    for own, back in (fused_attention(shape), _activation(shape)):
        forward += own
        inputs += back
    if shape.samples > 1 and shape.token_ranks > 1:  # what ranks exchange is in the order of the tokens
        turned = 2 * item * shape.tokens * model.hidden_size
        forward.append(Operation("order of tokens", bytes=4 * turned, kernels=4))
        inputs.append(Operation("order of tokens", bytes=6 * turned, kernels=6))
    if model.bias:
        widths = sum(rows for _, rows, _ in matrices(shape))
        inputs.append(Operation("bias gradients", bytes=item * shape.tokens * widths, kernels=len(weights)))
        if shape.tensor > 1:  # added after the sum over the ranks
            forward.append(Operation("biases", bytes=2 * 2 * item * x, kernels=2))
    return Work(tuple(forward), tuple(inputs), tuple(weights))


def head(shape: Shape) -> Work:
    """Final norm, logits and loss (its softmax in fp32)."""
    vocabulary = shape.model.padded_vocab_size // shape.tensor
    logits, gradient, of_weight = product("logits", shape, vocabulary, shape.model.hidden_size)
    numbers = shape.tokens * vocabulary
    loss = Operation("loss", bytes=(3 * shape.item + 2 * shape.wide) * numbers, kernels=20)
    back = Operation("loss backward", bytes=(shape.wide + shape.item) * numbers, kernels=8)
    norm, norm_back = _norm(shape)
    if shape.loss_in_chunks:
        back = Operation("loss backward", bytes=(2 * shape.item + 4 * shape.wide) * numbers, kernels=10)
        return Work((norm, logits, loss), (logits, back, gradient, norm_back), (of_weight,))
    return Work((norm, logits, loss), (back, gradient, norm_back), (of_weight,))


def embedding(shape: Shape) -> Work:
    """Look-up, and positions where they are learned; the gradient of the table is a whole one, mostly zeros."""
    model, item = shape.model, shape.item
    whole = shape.tokens * model.hidden_size
    rows = model.padded_vocab_size * model.hidden_size / shape.tensor
    look_up = Operation(
        "embedding", bytes=(2 if shape.tensor == 1 else 4) * item * whole, kernels=1 if shape.tensor == 1 else 6
    )
    table = Operation("embedding gradient", bytes=item * (rows * (4 if model.tied else 1) + 2 * whole), kernels=8)
    if model.positions == "rope":
        return Work((look_up,), (), (table,))
    added = Operation("positions", bytes=3 * item * shape.between, kernels=2)
    return Work(
        (look_up, added), (), (table, Operation("position gradients", bytes=2 * item * shape.between, kernels=4))
    )


def matrices(shape: Shape) -> Iterator[tuple[str, int, int]]:
    """Of a block on one rank: rows (of outputs) and columns."""
    model = shape.model
    queries, keys, ffn = _widths(shape)
    yield "qkv", queries + 2 * keys, model.hidden_size
    yield "attention out", model.hidden_size, queries
    for name in ("gate", "up") if model.activation == "swiglu" else ("up",):
        yield name, ffn, model.hidden_size
    yield "down", model.hidden_size, ffn


def product(
    name: str, shape: Shape, rows: int, columns: int, added: float = 0.0
) -> tuple[Operation, Operation, Operation]:
    """A product with a weight, and its two gradients; `added`: bytes of a weight that adding up its gradient takes."""
    tokens = shape.tokens
    flops = 2.0 * tokens * rows * columns
    moved = shape.item * (tokens * (rows + columns) + rows * columns)
    return (
        Operation(name, flops, moved, depth=columns),
        Operation(f"{name} inputs", flops, moved, depth=rows),
        Operation(f"{name} weights", flops, moved + added * rows * columns, depth=tokens),
    )


def products(
    sizes: Iterable[tuple[str, int, int]], shape: Shape, added: float = 0.0
) -> tuple[list[Operation], list[Operation], list[Operation]]:
    """Those of several matrices: forward, gradients of inputs, gradients of weights."""
    forward, inputs, weights = zip(
        *(product(name, shape, rows, columns, added) for name, rows, columns in sizes), strict=True
    )
    return list(forward), list(inputs), list(weights)


def _widths(shape: Shape) -> tuple[int, int, int]:
    """Of queries, of keys (or values) and of the MLP, on one rank."""
    model, ranks = shape.model, shape.tensor
    return (
        model.num_heads * model.head_size // ranks,
        model.kv_heads * model.head_size // ranks,
        model.ffn_size // ranks,
    )


def _norm(shape: Shape) -> tuple[Operation, Operation]:
    x = shape.between
    if shape.on_cpu and shape.model.norm == "rmsnorm":
        return (
            Operation("norm", bytes=7 * shape.wide * x, kernels=6),
            Operation("norm backward", bytes=14 * shape.wide * x, kernels=12),
        )
    return Operation("norm", bytes=2 * shape.item * x), Operation("norm backward", bytes=3 * shape.item * x, kernels=2)


def fused_attention(shape: Shape) -> tuple[list[Operation], list[Operation]]:
    """Rotary positions and one kernel that keeps scores to itself (Dao 2023), which computes them again in the
    backward; of documents as if a window were one."""
    model, item, tokens = shape.model, shape.item, shape.tokens
    queries, keys, _ = _widths(shape)
    seen, rate = model.sequence_length / 2, FUSED_ATTENTION
    mask, is_dense = 0.0, shape.backend == "dense"
    if shape.backend == "flex":  # prefixes: of a uniform length they add a third
        seen *= 4 / 3
    if is_dense:  # as biases: made of bits in each layer, read by each head, and what they hide is computed too
        seen = model.sequence_length
        mask = item * tokens * model.sequence_length
    if (is_dense or item > 2) and not shape.on_cpu:
        rate = MASKED_ATTENTION
    flops = 4.0 * tokens * queries * seen
    read = mask * model.num_heads / shape.tensor
    moved = item * tokens * (2 * queries + 2 * keys)
    forward = [Operation("attention", flops, moved + read, rate)]
    backward = [Operation("attention backward", 2.5 * flops, 2 * moved + read, 0.8 * rate)]
    if is_dense:
        forward.append(Operation("mask", bytes=1.5 * mask, kernels=2))
    if model.positions == "rope":
        own, back = _rotary(shape, tokens * (queries + keys))
        forward.append(own)
        backward.append(back)
    if not shape.is_compiled:
        cut = Operation("qkv gradients", bytes=11 * item * tokens * (queries + 2 * keys), kernels=8)
    else:
        cut = Operation("qkv gradients", bytes=2 * item * tokens * (queries + 2 * keys))
    return forward, [*backward, cut]


def _rotary(shape: Shape, numbers: float) -> tuple[Operation, Operation]:
    """Turned in fp32: four products of halves, a difference, a sum and their concatenation."""
    item, wide = shape.item, shape.wide
    if shape.is_compiled:
        return (
            Operation("rotary", bytes=2 * item * numbers, kernels=2),
            Operation("rotary backward", bytes=2 * item * numbers, kernels=2),
        )
    casts = 0 if item == wide else 2
    to_wide = casts * (item + wide)
    return (
        Operation("rotary", bytes=(to_wide + 9 * wide) * numbers, kernels=2 * (casts + 7)),
        Operation("rotary backward", bytes=(to_wide + 10 * wide) * numbers, kernels=2 * (casts + 8)),
    )


def _activation(shape: Shape) -> tuple[list[Operation], list[Operation]]:
    numbers = shape.item * shape.tokens * shape.model.ffn_size / shape.tensor
    if shape.model.activation != "swiglu":
        return [Operation("gelu", bytes=2 * numbers)], [Operation("gelu backward", bytes=3 * numbers)]
    met = Operation("gate and up", bytes=3 * shape.item * shape.tokens * shape.model.hidden_size)
    if shape.is_compiled:
        return [Operation("swiglu", bytes=3 * numbers)], [Operation("swiglu backward", bytes=5 * numbers), met]
    # silu, then its product with `up`: two kernels forward, three backward
    return (
        [Operation("swiglu", bytes=5 * numbers, kernels=2)],
        [Operation("swiglu backward", bytes=9 * numbers, kernels=3), met],
    )
