"""Tensor and sequence parallelism (Shoeybi et al. 2019; Korthikanti et al. 2022): t ranks share each matrix.

Parameters are DTensors, so that sharded data parallelism, clipping, optimizers and checkpoints know what each rank
holds. Activations are plain local tensors, and every collective is written where it happens:

| place | with sequence parallelism | without |
|---|---|---|
| between products | [B, T/t, D], a part of the tokens | [B, T, D], the same on every rank |
| `all_gather`, into a product cut by rows | all-gather; backward reduce-scatter | nothing; backward all-reduce |
| `reduce_scatter`, out of one cut by columns | reduce-scatter; backward all-gather | all-reduce; backward nothing |
| gradient of a parameter that each rank has a copy of | a part from each rank, summed later | the same on every rank |

Both send as much: an all-reduce is a reduce-scatter and an all-gather; but what was spread over the tokens is not kept,
and gathered once more in the backward (`products`). So sequence parallelism keeps 1/t of the activations between
products. The loss never sees a whole row of logits: ranks exchange two numbers a token.

Collectives are torch's functional ones: each returns a new tensor, which recompute may keep, and torch.compile can see
them. (Of the two operations of each, recompute must not keep the second, `wait_tensor`.) What they are handed is
detached: a thread of gloo's keeps it beyond the wait, and would destroy what it held last of autograd's graph, beside a
backward.

Shape suffixes as in `pretrain.model.gpt`; t is the number of tensor-parallel ranks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Partial, Placement, Replicate, Shard
from torch.nn import functional as F

from pretrain.data import IGNORED_TARGET
from pretrain.parallel.base.params import ParamSpec
from pretrain.phases import Phases

Exchange = Callable[[], Tensor]  # under way: the call waits for its end and gives the result

_ops = torch.ops._c10d_functional


@dataclass(frozen=True)
class TensorAxis:
    """This rank among the tensor-parallel ranks. Without a group it is alone and exchanges nothing."""

    group: str | None = None  # the process group's name, as functional collectives take it
    rank: int = 0
    size: int = 1
    sequence_parallel: bool = False
    keeps_whole: bool = False  # what was spread is kept for the backward, which follows at once: recompute
    phases: Phases = field(default_factory=Phases, compare=False)  # that count the time of exchanges

    @classmethod
    def of(cls, mesh_tp: DeviceMesh, sequence_parallel: bool, phases: Phases | None = None) -> TensorAxis:
        """The axis of a mesh of one dimension."""
        if mesh_tp.size() == 1:
            return ALONE
        return cls(
            mesh_tp.get_group().group_name,
            mesh_tp.get_local_rank(),
            mesh_tp.size(),
            sequence_parallel,
            phases=phases or Phases(),
        )

    def weight(self, module: nn.Module, name: str = "weight") -> Tensor:
        """What this rank holds of a module's parameter, for use in a forward.

        The gradient comes back with the placement that the table of parameters gives it (`distribute`), and FSDP2
        brings it to the parameter's.
        """
        parameter: Tensor = getattr(module, name)
        if not isinstance(parameter, DTensor):
            return parameter
        gradients: Any = module.gradient_placements
        return parameter.to_local(grad_placements=(gradients[name],))

    def own_tokens(self, num_tokens: int) -> slice:
        """Which of T tokens this rank holds between products."""
        if not self.sequence_parallel:
            return slice(0, num_tokens)
        share = num_tokens // self.size
        return slice(self.rank * share, (self.rank + 1) * share)

    def all_gather(self, x: Tensor) -> Exchange:
        """[B, T/t, D], or the same [B, T, D] on each rank, as the whole input [B, T, D] of each rank's product.

        A batch of one needs no copy, here and in `reduce_gradient`. Of both autograd knows nothing: see `products`.
        """
        if self.group is None or not self.sequence_parallel:
            return lambda: x
        gathered = _ops.all_gather_into_tensor(x.detach().contiguous(), self.size, self.group)
        return lambda: self.wait(gathered).view(self.size, *x.shape).transpose(0, 1).flatten(1, 2)

    def reduce_gradient(self, gradient_BTD: Tensor) -> Exchange:
        """From each rank's gradient of what `all_gather` gave to the gradient of what it took."""
        if self.group is None:
            return lambda: gradient_BTD
        x_BTD = gradient_BTD.detach()
        if self.sequence_parallel:
            parts = x_BTD.view(len(x_BTD), self.size, -1, x_BTD.shape[2]).transpose(0, 1).flatten(0, 1)
            sent = _ops.reduce_scatter_tensor(parts.contiguous(), "sum", self.size, self.group)
        else:
            sent = _ops.all_reduce(x_BTD.contiguous(), "sum", self.group)
        return lambda: self.wait(sent)

    def reduce_scatter(self, x_BTD: Tensor) -> Tensor:
        """Each rank's addend [B, T, D] as their sum: this rank's tokens of it [B, T/t, D], or all of it [B, T, D]."""
        if self.group is None:
            return x_BTD
        function: Any = _Collect
        collected: Tensor = function.apply(x_BTD, self)
        return collected

    def embed(self, tokens_BT: Tensor, weight_VD: Tensor) -> Tensor:
        """Look-up in a table whose rows (V/t of them here) are cut over the ranks, collected."""
        if self.group is None:
            return F.embedding(tokens_BT, weight_VD)
        rows_BT = tokens_BT - self.rank * weight_VD.shape[0]
        elsewhere_BT = (rows_BT < 0) | (rows_BT >= weight_VD.shape[0])
        x_BTD = F.embedding(rows_BT.masked_fill(elsewhere_BT, 0), weight_VD)
        return self.reduce_scatter(x_BTD.masked_fill(elsewhere_BT[..., None], 0))

    def cross_entropy_sum(
        self, logits_BTV: Tensor, targets_BT: Tensor, vocab_size: int | None = None, z_loss: float = 0.0
    ) -> Tensor:
        """Sum of -ln p(target) over targets that count, from this rank's logits [B, T, V/t]; the same on every rank.

        In fp32 or wider. With `z_loss`, plus that times the square of each row's log-sum-exp, which keeps logits near
        0 (PaLM; Chowdhery et al. 2022, section 5). Entries of the vocabulary from `vocab_size` on are padding, whose
        logits become -inf in place: a target there has an infinite loss.
        """
        first, all_padding = self.mask_padding(logits_BTV, vocab_size)
        function: Any = _CrossEntropy
        logits_NV = logits_BTV.flatten(0, 1)
        total: Tensor = function.apply(logits_NV, targets_BT.flatten(), first, all_padding, z_loss, self)
        return total

    @torch.no_grad()  # the gradient of padding is zero without a word to autograd, which would copy all logits
    def mask_padding(self, logits_BTV: Tensor, vocab_size: int | None) -> tuple[int, bool]:
        """Make the logits of padding -inf, in place; returns this rank's first entry, and whether it has no other."""
        num_local = logits_BTV.shape[-1]
        first = self.rank * num_local
        num_entries = num_local if vocab_size is None else min(max(0, vocab_size - first), num_local)
        if num_entries < num_local:
            logits_BTV[..., num_entries:] = -torch.inf
        return first, num_entries == 0

    def whole_logits(self, logits_BTV: Tensor) -> Tensor:
        """[B, T, V] of each rank's [B, T, V/t]; for generation, without a gradient."""
        if self.group is None:
            return logits_BTV
        return torch.cat(_all_gather(logits_BTV, self).unbind(), dim=-1)

    def wait(self, started: Tensor) -> Tensor:
        """The result of a collective under way."""
        result: Tensor
        if torch.compiler.is_compiling():  # a graph has no clock
            result = _ops.wait_tensor(started)
            return result
        with self.phases("communication"):
            result = _ops.wait_tensor(started)
        return result


ALONE = TensorAxis()


def distribute(model: nn.Module, specs: Iterable[ParamSpec], mesh_tp: DeviceMesh, sequence_parallel: bool) -> None:
    """Turn every parameter of a module on the meta device into a DTensor on the tensor-parallel mesh, in place.

    Each module also learns how the gradients of its parameters come out of a backward: cut as the parameters are, or,
    of a copy that sees only a part of what it is applied to, as addends. Nothing is sent. A parameter that two modules
    share stays one.
    """
    table = {spec.name: spec for spec in specs}
    distributed: dict[nn.Parameter, tuple[nn.Parameter, Placement]] = {}
    for module_name, module in model.named_modules():
        gradients: dict[str, Placement] = {}
        for name, parameter in list(module._parameters.items()):
            if parameter is None:
                continue
            if parameter not in distributed:
                spec = table[f"{module_name}.{name}" if module_name else name]
                distributed[parameter] = _distributed(parameter, spec, mesh_tp, sequence_parallel)
            new, gradients[name] = distributed[parameter]
            setattr(module, name, new)
        module.gradient_placements = gradients


def _distributed(
    parameter: nn.Parameter, spec: ParamSpec, mesh_tp: DeviceMesh, sequence_parallel: bool
) -> tuple[nn.Parameter, Placement]:
    """The DTensor of a parameter, and how its gradient comes out of a backward."""
    assert parameter.is_meta and parameter.shape == spec.shape, spec.name
    shape = list(spec.shape)
    placement: Placement = Replicate()
    gradient: Placement = Partial() if sequence_parallel or spec.tp_dim == "heads" else Replicate()
    if isinstance(spec.tp_dim, int):
        assert shape[spec.tp_dim] % mesh_tp.size() == 0, f"{spec.name}: {mesh_tp.size()} ranks cannot share {shape}"
        shape[spec.tp_dim] //= mesh_tp.size()
        placement = gradient = Shard(spec.tp_dim)
    local = torch.empty(shape, dtype=parameter.dtype, device=parameter.device)
    whole = DTensor.from_local(local, mesh_tp, (placement,), shape=parameter.shape, stride=parameter.stride())
    return nn.Parameter(whole, requires_grad=parameter.requires_grad), gradient


def _all_gather(x: Tensor, axis: TensorAxis) -> Tensor:
    """[t, ...]: the tensors of all ranks."""
    gathered = axis.wait(_ops.all_gather_into_tensor(x.detach().contiguous(), axis.size, axis.group))
    return gathered.view(axis.size, *x.shape)


class _Collect(torch.autograd.Function):
    """The exchanges of `all_gather`, the other way round."""

    @staticmethod
    def forward(ctx: Any, x_BTD: Tensor, axis: TensorAxis) -> Tensor:
        ctx.axis = axis
        return axis.reduce_gradient(x_BTD)()

    @staticmethod
    def backward(ctx: Any, gradient_BTD: Tensor) -> tuple[Tensor, None]:
        return ctx.axis.all_gather(gradient_BTD)(), None


class PartLosses(NamedTuple):
    """What this rank's part of N rows of logits says of their losses, and what their gradient is made of."""

    p_NV: Tensor  # the softmax of the part
    lse_N: Tensor  # its log-sum-exp
    target_logits_N: Tensor  # -inf where the target is no entry of the part
    rows_N1: Tensor  # the target as an entry of the part; 0 where it is none
    own_N: Tensor  # whether it is one


def part_losses(logits_NV: Tensor, targets_N: Tensor, first: int, all_padding: bool) -> PartLosses:
    """-ln p(target) = ln sum exp(logits) - the target's logit, where ranks hold parts of each row of logits.

    Each rank softmaxes its part, which is one fused kernel, and the log-sum-exps of all parts say what each part
    weighs.
    """
    dtype = torch.promote_types(logits_NV.dtype, torch.float32)
    p_NV = torch.softmax(logits_NV, dim=-1, dtype=dtype)
    if all_padding:  # -inf alone has no softmax; with these the part weighs nothing
        p_NV = torch.ones_like(p_NV)
    # the largest entry's softmax is 1 / sum exp(logits - the largest)
    lse_N = logits_NV.amax(-1).to(dtype) - p_NV.amax(-1).log()
    rows_N = targets_N - first
    own_N = (rows_N >= 0) & (rows_N < logits_NV.shape[1])  # a target that does not count is nobody's
    rows_N1 = rows_N.masked_fill(~own_N, 0)[:, None]
    target_logits_N = logits_NV.gather(1, rows_N1)[:, 0].to(dtype).masked_fill(~own_N, -torch.inf)
    return PartLosses(p_NV, lse_N, target_logits_N, rows_N1, own_N)


def reduce_losses(numbers_2N: Tensor, axis: TensorAxis) -> tuple[Tensor, Tensor]:
    """Log-sum-exps [N] and the target's logits [N], of the parts of all ranks."""
    if axis.group is None:
        return numbers_2N[0], numbers_2N[1]
    numbers = _all_gather(numbers_2N, axis)
    return numbers[:, 0].logsumexp(0), numbers[:, 1].amax(0)


class _CrossEntropy(torch.autograd.Function):
    """The sum of losses. Kept for the backward: the part's softmax, as large as the local logits, in fp32 at least."""

    @staticmethod
    def forward(
        ctx: Any,
        logits_NV: Tensor,
        targets_N: Tensor,
        first: int,
        all_padding: bool,
        z_loss: float,
        axis: TensorAxis,
    ) -> Tensor:
        part = part_losses(logits_NV, targets_N, first, all_padding)
        lse_N, target_logits_N = reduce_losses(torch.stack((part.lse_N, part.target_logits_N)), axis)
        ignored_N = targets_N == IGNORED_TARGET
        weights_N = (part.lse_N - lse_N).exp()  # which share of the whole the part is
        losses_N = lse_N - target_logits_N
        if z_loss:
            losses_N = losses_N + z_loss * lse_N.square()
            weights_N = weights_N * (1 + 2 * z_loss * lse_N)
        ctx.save_for_backward(part.p_NV, weights_N.masked_fill(ignored_N, 0), part.rows_N1, part.own_N)
        ctx.dtype = logits_NV.dtype
        return losses_N.masked_fill(ignored_N, 0).sum()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None, None, None, None]:
        p_NV, weights_N, rows_N1, own_N = ctx.saved_tensors
        weights_N1 = (weights_N * gradient)[:, None]
        gradient_NV = torch.mul(p_NV, weights_N1, out=torch.empty_like(p_NV, dtype=ctx.dtype))
        at_targets_N1 = p_NV.gather(1, rows_N1) * weights_N1 - own_N[:, None] * gradient
        return gradient_NV.scatter_(1, rows_N1, at_targets_N1.to(ctx.dtype)), None, None, None, None, None
