"""The table of operations of Megatron-LM in 2021 and 2022 (Shoeybi et al. 2019, Narayanan et al. 2021): scores, softmax
and dropout masks are in memory. Symbols as in `workload.operations`.

Without fused kernels (`FrameworkProfile.fuses_kernels`) what one kernel does otherwise takes several, which read and
write what the one keeps in registers. Of each number, e = 2:

| | fused | apart |
|---|---|---|
| scale, mask, softmax of a score; back | 2 e; 3 e | casts 2 (e + w), scale 2 w, mask 2 w + 1, softmax 2 w; + w |
| bias and GELU; back | 2 e; 3 e | 4 e; 5 e |
| bias, dropout, residual | 3 e + 1 | 7 e + 1 |
"""

from __future__ import annotations

from pretrain.workload.framework_profiles import FrameworkProfile
from pretrain.workload.operations import WIDE, Operation, Shape, Work, fused_attention, matrices, product, products

MASK = 1  # bytes of a dropout mask's entry


def layer(shape: Shape, software: FrameworkProfile) -> Work:
    """One block."""
    item, x = shape.item, shape.between
    norm = Operation("norm", bytes=2 * item * x)
    norm_back = Operation("norm backward", bytes=3 * item * x)
    fused = software.fuses_kernels
    residual = Operation("residual", bytes=((3 if fused else 7) * item + MASK) * x, kernels=1 if fused else 3)
    forward, inputs, weights = products(matrices(shape), shape, _added(shape, software))
    forward += [norm, norm, residual, residual]
    inputs += [norm_back, norm_back, residual, residual]
    for own, back in (_stored_attention(shape, software), _activation(shape, software)):
        forward += own
        inputs += back
    return Work(tuple(forward), tuple(inputs), tuple(weights))


def head(shape: Shape, software: FrameworkProfile) -> Work:
    """Final norm, logits and loss (its softmax in fp32)."""
    item, vocabulary = shape.item, shape.model.padded_vocab_size // shape.tensor
    logits, gradient, of_weight = product("logits", shape, vocabulary, shape.model.hidden_size, _added(shape, software))
    numbers = shape.tokens * vocabulary
    loss = Operation("loss", bytes=(item + 5 * WIDE) * numbers, kernels=6)
    back = Operation("loss backward", bytes=(2 * WIDE + item) * numbers, kernels=3)
    norm = Operation("norm", bytes=2 * item * shape.between)
    return Work((norm, logits, loss), (back, gradient, norm), (of_weight,))


def embedding(shape: Shape, software: FrameworkProfile) -> Work:
    """Look-up, positions and dropout."""
    return Work((Operation("embedding", bytes=3 * shape.item * shape.between, kernels=0),), (), ())


def _added(shape: Shape, software: FrameworkProfile) -> float:
    """Bytes of a weight by which its gradient is added up, beside the product that writes it."""
    return 2 * software.gradient_bytes - (shape.item if software.fuses_accumulation else -shape.item)


def _stored_attention(shape: Shape, software: FrameworkProfile) -> tuple[list[Operation], list[Operation]]:
    """Scores, softmax, dropout, and their product with the values."""
    if software.fuses_attention:
        return fused_attention(shape)
    model, item, tokens = shape.model, shape.item, shape.tokens
    heads = model.num_heads // shape.tensor
    scores = tokens * heads * model.sequence_length
    flops, narrow = 2.0 * scores * model.head_size, item * tokens * heads * model.head_size
    of_scores = Operation("scores", flops, 2 * narrow + item * scores)
    apart = 2 * (item + WIDE) + 6 * WIDE + MASK
    if software.fuses_kernels:
        softmax = Operation("softmax", bytes=2 * item * scores)
        softmax_back = Operation("softmax backward", bytes=3 * item * scores)
    else:
        softmax = Operation("softmax", bytes=apart * scores, kernels=5)
        softmax_back = Operation("softmax backward", bytes=(apart + WIDE) * scores, kernels=5)
    dropout = Operation("dropout", bytes=(2 * item + MASK) * scores)
    context = Operation("context", flops, 2 * narrow + item * scores)
    copy = Operation("context copy", bytes=2 * narrow)
    back = [
        Operation("context backward", 2 * flops, 4 * narrow + 2 * item * scores, kernels=2),
        dropout,
        softmax_back,
        Operation("scores backward", 2 * flops, 4 * narrow + 2 * item * scores, kernels=2),
        Operation("qkv copies", bytes=2 * 3 * narrow, kernels=4),
    ]
    return [of_scores, softmax, dropout, context, copy], back


def _activation(shape: Shape, software: FrameworkProfile) -> tuple[list[Operation], list[Operation]]:
    numbers = shape.tokens * shape.model.ffn_size / shape.tensor
    if shape.model.activation == "swiglu":  # silu, then its product with `up`: two kernels
        return (
            [Operation("swiglu", bytes=5 * shape.item * numbers, kernels=2)],
            [Operation("swiglu backward", bytes=8 * shape.item * numbers, kernels=3)],
        )
    more, kernels = (0, 1) if software.fuses_kernels else (2, 2)
    return (
        [Operation("gelu", bytes=(2 + more) * shape.item * numbers, kernels=kernels)],
        [Operation("gelu backward", bytes=(3 + more) * shape.item * numbers, kernels=kernels)],
    )
