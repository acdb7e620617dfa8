"""Floating-point operations of a training token: the model's own, and those that the hardware does.

| | of a token, forward and backward |
|---|---|
| model | 6 N + 12 L H K T |
| hardware | the same, and the forward of what the backward computes again |

N are the parameters in matrix products, the output matrix once and no look-ups; L layers of H heads of K channels, T
tokens in a window (Chowdhery et al. 2022, appendix B, whose model FLOP utilisation, MFU, and hardware FLOP utilisation,
HFU, are these two times the tokens per second over the peak of the devices). Attention counts the whole square, as most
published figures do.

Hardware FLOPs follow `pretrain.parallel.base.recompute`: full repeats the products and the attention of a block but for
its last product, whose result nobody needs (zero-bubble schedules save that product's input as it ends, and repeat it
too); selective repeats no product. What a fused attention computes again for its own backward is not counted.
"""

from __future__ import annotations

from pretrain.config import ModelConfig, ParallelConfig
from pretrain.parallel.base.params import num_matmul_parameters
from pretrain.parallel.base.stages import layer_flops


def flops_per_token(model: ModelConfig) -> float:
    """Of the model, without recomputation."""
    attention = 12 * model.num_layers * model.num_heads * model.head_size * model.sequence_length
    return 6 * num_matmul_parameters(model) + attention


def hardware_flops_per_token(model: ModelConfig, parallel: ParallelConfig) -> float:
    """Of the hardware, what is computed again counted again."""
    if parallel.recompute != "full":
        return flops_per_token(model)
    num_recomputed = len(range(0, model.num_layers, parallel.recompute_every))
    last_product = 2 * model.ffn_size * model.hidden_size
    of_layer = layer_flops(model) - (0 if parallel.splits_backward else last_product)
    return flops_per_token(model) + num_recomputed * of_layer
