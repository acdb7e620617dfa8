"""The output matrix and the loss in one, for logits too many to keep: of a micro-batch none are.

Dense, 8,192 tokens of a vocabulary of 152k keep a softmax of 5 GB in fp32. Here the forward keeps the input and the
log-sum-exp of each row, for which it takes some rows' logits at a time. The backward walks over entries of the
vocabulary instead, and computes the logits of some entries and all rows again: a fourth product beside three. In return
the gradient of each entry's weights is one product over all rows, as exact as the dense one (added up over parts of the
rows in bf16 it would be rounded with each part, in fp32 it would take twice the memory), nothing of the size of the
weights waits for the backward, and the loss scale of fp16 is known.

Ranks that share the vocabulary exchange two numbers a row, once. Zero-bubble schedules leave the gradients of weights
for later, and keep the dense path.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from pretrain.data import IGNORED_TARGET
from pretrain.parallel.base.tensor import TensorAxis, part_losses, reduce_losses

CHUNK_LOGITS = 1 << 25  # that are there at a time: 128 MiB in fp32
MOST_DENSE_LOGITS = 1 << 29  # of a micro-batch on one rank: a softmax of 2 GiB is kept, and no product done twice


def is_chunked(num_rows: int, num_entries: int, deferred: bool) -> bool:
    """Whether the loss of a micro-batch goes in chunks, on a rank that holds some entries of the vocabulary.

    `deferred`: the schedule leaves the gradients of weights for later.
    """
    return num_rows * num_entries > MOST_DENSE_LOGITS and not deferred


def linear_cross_entropy_sum(
    x_BTD: Tensor, weight_VD: Tensor, targets_BT: Tensor, vocab_size: int, z_loss: float, axis: TensorAxis
) -> Tensor:
    """`TensorAxis.cross_entropy_sum` of x W', from x [B, T/s, D] and this rank's part [V/t, D] of the output matrix."""
    function: Any = _LinearCrossEntropy
    total: Tensor = function.apply(x_BTD, weight_VD, targets_BT.flatten(), vocab_size, z_loss, axis)
    return total


@torch.no_grad()
def linear_losses(x_ND: Tensor, weight_VD: Tensor, targets_N: Tensor, vocab_size: int, axis: TensorAxis) -> Tensor:
    """The addends [N] of that without z-loss, from whole rows x; without a gradient."""
    return _forward(x_ND, weight_VD, targets_N, vocab_size, axis)[0]


def _forward(
    x_ND: Tensor, weight_VD: Tensor, targets_N: Tensor, vocab_size: int, axis: TensorAxis
) -> tuple[Tensor, Tensor]:
    """Losses [N] and log-sum-exps [N]."""
    num_rows = max(1, CHUNK_LOGITS // len(weight_VD))
    numbers = []
    for start in range(0, len(x_ND), num_rows):
        logits_CV = x_ND[start : start + num_rows] @ weight_VD.T
        first, all_padding = axis.mask_padding(logits_CV, vocab_size)
        part = part_losses(logits_CV, targets_N[start : start + num_rows], first, all_padding)
        numbers.append(torch.stack((part.lse_N, part.target_logits_N)))
        del logits_CV, part  # before the next ones are there
    lse_N, target_logits_N = reduce_losses(torch.cat(numbers, 1), axis)
    return (lse_N - target_logits_N).masked_fill(targets_N == IGNORED_TARGET, 0), lse_N


class _LinearCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight_VD: Tensor, targets_N: Tensor, vocab_size: int, z_loss: float, axis: TensorAxis
    ) -> Tensor:
        x_ND = axis.all_gather(x)().flatten(0, 1)
        losses_N, lse_N = _forward(x_ND, weight_VD, targets_N, vocab_size, axis)
        ctx.save_for_backward(x, weight_VD, targets_N, lse_N)
        ctx.vocab_size, ctx.z_loss, ctx.axis = vocab_size, z_loss, axis
        if z_loss:
            losses_N = losses_N + z_loss * lse_N.square().masked_fill(targets_N == IGNORED_TARGET, 0)
        return losses_N.sum()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        x, weight_VD, targets_N, lse_N = ctx.saved_tensors
        axis, num_local = ctx.axis, len(weight_VD)
        x_BTD = axis.all_gather(x)()
        x_ND = x_BTD.flatten(0, 1)
        counts_N = targets_N != IGNORED_TARGET
        of_softmax_N1 = (gradient * (1 + 2 * ctx.z_loss * lse_N)).masked_fill(~counts_N, 0)[:, None]
        rows_N = targets_N - axis.rank * num_local
        num_entries = min(max(0, ctx.vocab_size - axis.rank * num_local), num_local)

        of_x_ND = torch.zeros_like(x_ND, dtype=lse_N.dtype)
        of_weight_VD = torch.empty_like(weight_VD)
        of_weight_VD[num_entries:] = 0  # padding
        step = max(1, CHUNK_LOGITS // len(x_ND))
        for start in range(0, num_entries, step):
            stop = min(start + step, num_entries)
            weight_CD = weight_VD[start:stop]
            p_NC = torch.sub(x_ND @ weight_CD.T, lse_N[:, None]).exp_()  # as wide as lse_N
            own_N = counts_N & (rows_N >= start) & (rows_N < stop)
            places_N1 = (rows_N - start).masked_fill(~own_N, 0)[:, None]
            at_targets_N1 = p_NC.gather(1, places_N1) * of_softmax_N1 - own_N[:, None] * gradient
            gradient_NC = torch.mul(p_NC, of_softmax_N1, out=torch.empty_like(p_NC, dtype=x_ND.dtype))
            del p_NC
            gradient_NC.scatter_(1, places_N1, at_targets_N1.to(x_ND.dtype))
            torch.mm(gradient_NC.T, x_ND, out=of_weight_VD[start:stop])
            of_x_ND += gradient_NC @ weight_CD
        of_x_BTD = of_x_ND.to(x.dtype).view(x_BTD.shape)
        return axis.reduce_gradient(of_x_BTD)(), of_weight_VD, None, None, None, None
