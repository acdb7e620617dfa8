"""Activation recompute: what the forward of a block keeps for its backward, and what the backward computes again.

| recompute | kept of a block, in values a token | computed again |
|---|---|---|
| none | everything that a gradient needs | nothing |
| selective | x before attention and MLP, results of qkv, attention, gate and up | norms, rotary, activation functions |
| full | x | the whole block |

Selective repeats no product: it drops what is cheap to compute beside its bytes. (Korthikanti et al. 2022 drop the
attention's scores, which a fused kernel never writes.) Under sequence parallelism none of them keeps the gathered
tokens, so that what is kept falls with the number of ranks: with none they are gathered again beside the first product
of the backward, with the others before it, in what is recomputed. Full costs another forward, a third of the step's
arithmetic more, for the blocks that do it. Gradients are the same bit for bit: nothing draws random numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from functools import partial
from typing import Any, Literal, TypeVarTuple

import torch
from torch import Tensor
from torch.nn.attention import flex_attention as _flex  # noqa: F401  # brings its operator
from torch.nn.attention import varlen as _varlen  # noqa: F401
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts, noop_context_fn

from pretrain.config import Recompute

_aten = torch.ops.aten
KEPT = frozenset(
    {
        _aten.mm.default,
        _aten.addmm.default,
        _aten._scaled_dot_product_flash_attention_for_cpu.default,
        _aten._scaled_dot_product_flash_attention.default,
        _aten._scaled_dot_product_efficient_attention.default,
        _aten._scaled_dot_product_cudnn_attention.default,
        torch.ops.torch_attn._varlen_attn.default,
        torch.ops.higher_order.flex_attention,  # in a compiled block; what is compiled alone is computed again
    }
)  # what selective recompute keeps the results of

_in_last_product: ContextVar[bool] = ContextVar("in_last_product", default=False)

Inputs = TypeVarTuple("Inputs")


def recompute(
    kind: Recompute, level: Literal["selective", "full"], function: Callable[[*Inputs], Tensor], *inputs: *Inputs
) -> Tensor:
    """`function(*inputs)`; if `kind` is `level`, its inputs are kept, and with selective what products and attention
    give."""
    if kind != level or not torch.is_grad_enabled():
        return function(*inputs)
    contexts = partial(create_selective_checkpoint_contexts, _policy) if level == "selective" else noop_context_fn
    result: Tensor = checkpoint(function, *inputs, use_reentrant=False, preserve_rng_state=False, context_fn=contexts)
    return result


def last_product(is_dropped: bool = True) -> AbstractContextManager[None]:
    """Around the product that ends what is recomputed: the backward stops before it, and nobody needs its result.

    torch.compile sees that by itself, and cannot trace the mark.
    """
    return nullcontext() if torch.compiler.is_compiling() else _marked(is_dropped)


@contextmanager
def _marked(is_dropped: bool) -> Iterator[None]:
    token = _in_last_product.set(is_dropped)
    try:
        yield
    finally:
        _in_last_product.reset(token)


def _policy(_context: Any, operator: Any, *_args: Any, **_kwargs: Any) -> CheckpointPolicy:
    kept = operator in KEPT and not _in_last_product.get()
    return CheckpointPolicy.MUST_SAVE if kept else CheckpointPolicy.PREFER_RECOMPUTE
