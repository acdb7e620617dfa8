"""What the forward of a micro-batch leaves in memory for its backward, in bytes, by what this model's operations save.

The count is that of Korthikanti et al. 2022 ("Reducing activation recomputation in large transformer models", section
4) with the operations that are here instead of theirs: a fused attention writes no scores (their 5 a s² b term is not
there), there is no dropout (no masks), the gated MLP has three wide products, rotary positions make new queries and
keys beside the product they came from, which stays because the values are a view of it. Bytes a token of a block, where
e is the size of a number, h the hidden size, a and k the widths of the queries and of keys or values, f that of the MLP
(a, k and f are a rank's share of tensor parallelism), and s the ranks that share the tokens between products:

| what | bytes | saved for |
|---|---|---|
| norm's input and output, twice | 4 e h / s | the norm, the product after it |
| qkv | e (a + 2 k) | attention (values are a view of it) |
| rotated queries and keys | e (a + k) | attention |
| attention's result and log-sum-exps | e a + 4 heads | attention, the product after it |
| gate, up, silu(gate), their product | 4 e f | SwiGLU and the product after it; with GELU 2 e f |
| back-end `dense`: its mask in e bytes a pair, T of them a token | e T | attention, in each layer |
| back-end `parts`: the results of the parts beside the whole | e a | attention |
| back-end `varlen` with groups: keys, values for each query head | e 3 a for e (2 a + 3 k), if more | attention |

Which back-end computes attention under document masks or prefixes says `pretrain.attention_backend`.

On a CPU RMSNorm is no fused operation and saves its input and its normalised input in fp32.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from pretrain.attention_backend import Backend
from pretrain.config import ModelConfig, Recompute

INT64 = 8


class Activations(NamedTuple):
    """Bytes a token (of one sample) of a model on one rank of its tensor-parallel group."""

    whole_block: int  # that a layer keeps without recompute
    first_block: int  # and what one of those that are computed again does, where any are
    block_in_backward: int  # the most beyond that in a layer's backward: what it computes again, and gradients
    block_deferred: int  # between the two halves of a backward: each product's input, the gradient of its output
    of_stage: int  # besides the layers: rotary angles, and a mask that is needed again
    head: int  # the final norm, and per target three numbers of the loss
    logits: int  # the softmax of this rank's logits, which the loss keeps
    logits_in_passing: int  # the logits, before the softmax replaces them, or their gradient
    head_deferred: int  # between the two halves of a backward: the head's input and the gradient of the logits
    message: int  # what travels between two stages


@lru_cache(maxsize=4096)
def activations_of(
    model: ModelConfig,
    tp: int,
    sequence_parallel: bool,
    recompute: Recompute,
    item: int,
    backend: Backend,
    on_cpu: bool = False,
) -> Activations:
    """Once for many layouts.

    Args:
        item: bytes of a number of the forward.
        backend: of attention.
    """
    hidden, wide = model.hidden_size, max(item, 4)  # wide: where the forward takes fp32 at least
    token_ranks = tp if sequence_parallel else 1
    token = item * hidden // token_ranks  # x between products
    queries, keys = (heads * model.head_size // tp for heads in (model.num_heads, model.kv_heads))
    qkv = queries + 2 * keys
    log_sum_exps = wide * model.num_heads // tp
    num_wide = 2 if model.activation == "swiglu" else 1
    of_mlp = num_wide * model.ffn_size // tp
    mask = model.sequence_length if backend == "dense" else 0

    if model.norm == "layernorm":
        norm = 2 * item * hidden + 2 * wide
    elif on_cpu:
        norm = (2 * wide + item) * hidden + wide
    else:
        norm = 2 * item * hidden + wide
    norm //= token_ranks
    rotated = keys + queries if model.positions == "rope" else 0
    if model.positions == "learned" and model.num_heads > model.kv_heads > tp:
        rotated = queries  # those of several groups are no view of the product
    inputs = qkv + rotated
    if backend == "varlen" and queries > keys:
        inputs = max(inputs, 3 * queries)
    results = 2 * queries if backend == "parts" else queries
    attention = item * (inputs + results + mask) + log_sum_exps
    whole_block = 2 * norm + attention + 2 * num_wide * item * model.ffn_size // tp
    first_block = {
        "none": whole_block,
        "selective": 2 * token + item * (qkv + queries + of_mlp) + log_sum_exps,
        "full": token,
    }[recompute]
    # of the MLP its products, and what lies between them and the last one
    in_backward = item * (max(2 * of_mlp, 2 * qkv + queries) + 2 * hidden)
    vocabulary = model.padded_vocab_size // tp
    return Activations(
        whole_block=whole_block,
        first_block=first_block,
        block_in_backward=max(0, whole_block - first_block) + in_backward,
        block_deferred=item * (qkv + queries + of_mlp + of_mlp // num_wide + 2 * hidden) + 2 * token,
        of_stage=(wide * model.head_size if model.positions == "rope" else 0) + (mask if recompute != "none" else 0),
        head=norm + 2 * wide + INT64,
        logits=wide * vocabulary,
        logits_in_passing=item * vocabulary,
        head_deferred=token + item * vocabulary,
        message=token,
    )
