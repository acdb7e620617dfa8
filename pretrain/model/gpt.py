"""A GPT whose choices are data: norm, activation, positions, biases, grouped-query attention, tied or untied output.

Notable choices:
- Pre-norm residual blocks (Radford et al. 2019); by default RMSNorm, rotary positions and SwiGLU (Touvron et
  al. 2023).
- No buffers and no random numbers: rotary angles and masks are computed from integers in each forward
  (microseconds beside the matrix products), so a model built on the meta device becomes real by filling its
  parameters, and a step has no generator whose state would have to be saved.
- A GPT is a whole model or one stage of a pipeline: `layers` is keyed by the absolute layer number, and the parts a
  stage lacks are None, so names never change. Between stages travels x; masks and angles are made again in each.
- Tensor parallelism (Shoeybi et al. 2019; with sequence parallelism, Korthikanti et al. 2022) is inside the linear
  layers: those cut by outputs spread x over the ranks before the product, those cut by inputs collect it afterwards.
- `qkv` is one matrix laid out (kv_heads, group + 2, head): a slice of its rows is a set of whole heads.
- Logits of the padding entries of the vocabulary are -inf: the loss is that of the tokenizer's own vocabulary.
- Nothing is computed in less than the precision of its input, and angles, norms and losses in fp32 at least.
- Training, scoring and generation run the same modules: a forward can give logits of chosen rows alone, and with `past`
  (keys and values of the tokens before) it computes new tokens alone.

Shape suffixes: B samples, T tokens, D hidden size, H heads, G kv heads, K head size, F feed-forward size, V
padded vocabulary. On t tensor-parallel ranks H, G, F and V are this rank's share, and x_BTD outside the products has
T/s tokens: s is t with sequence parallelism, else 1.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from pretrain.config import ModelConfig, Recompute
from pretrain.model.attention import Attend, Dense, attention_for
from pretrain.model.attention_mask import Visibility, target_rows
from pretrain.model.layers import (
    ColumnParallelLinear,
    Norm,
    PositionEmbedding,
    RowParallelLinear,
    VocabParallelEmbedding,
    column_parallel,
)
from pretrain.model.micro_batch import MicroBatch
from pretrain.parallel.base.linear_cross_entropy import is_chunked, linear_cross_entropy_sum, linear_losses
from pretrain.parallel.base.recompute import recompute
from pretrain.parallel.base.stages import Stage, whole
from pretrain.parallel.base.tensor import ALONE, TensorAxis

Angles = tuple[Tensor, Tensor]


class Past(Protocol):
    """Keys and values of the tokens that one layer has seen."""

    def extend(self, k_BGTK: Tensor, v_BGTK: Tensor) -> tuple[Tensor, Tensor]:
        """Append those of new tokens; returns all of them."""
        ...


class GPT(nn.Module):
    """Tokens in, logits out; or one stage of that."""

    def __init__(
        self,
        config: ModelConfig,
        stage: Stage | None = None,
        axis: TensorAxis = ALONE,
        recompute: Recompute = "none",
        recompute_every: int = 1,
    ) -> None:
        super().__init__()
        stage = stage or whole(config)
        vocabulary, width = config.padded_vocab_size, config.hidden_size
        learned = config.positions == "learned"
        self.config, self.stage, self.axis = config, stage, axis
        self.is_compiled = False  # whether a training step goes through compiled layers
        self.z_loss = 0.0  # `training.z_loss`
        self.embedding = VocabParallelEmbedding(vocabulary, width, axis) if stage.is_first else None
        self.position_embedding = (
            PositionEmbedding(config.sequence_length, width, axis) if stage.is_first and learned else None
        )
        self.layers = nn.ModuleDict(
            {
                str(index): Block(config, axis, recompute if index % recompute_every == 0 else "none")
                for index in stage.layers
            }
        )
        self.final_norm = Norm(config, axis) if stage.is_last else None
        self.head = ColumnParallelLinear(width, vocabulary, bias=False, axis=axis) if stage.is_last else None
        self.tie()

    def tie(self) -> None:
        """Make the output matrix the embedding's own, if the configuration says so; needed again after `to_empty`.

        A last stage that is not the first has an output matrix of its own: two storages of one parameter.
        """
        if self.config.tied and self.embedding is not None and self.head is not None:
            self.head.weight = self.embedding.weight

    def forward(
        self,
        x: Tensor,
        document_ids_BT: Tensor | None = None,
        prefix_ends_BT: Tensor | None = None,
        positions_BT: Tensor | None = None,
        branches_BT: Tensor | None = None,
        rows_N: Tensor | None = None,
        targets_BT: Tensor | None = None,
    ) -> Tensor:
        """From tokens [B, T], or the x [B, T/s, D] of the stage before, to logits [B, T, V], or this stage's x.

        With `rows_N`, logits [N, 1, V] of those of the B x T places alone, numbered sample after sample: generation
        asks for the last of each sample, scoring for those that have a target.

        With `targets_BT` no logits but the sum of `cross_entropy_sum`; with `rows_N` too, -ln p(target) [N] of these
        rows, without a gradient.

        With document ids a token sees its own document only. With prefix ends it also sees what lies before its
        prefix's end, to its right too. With branches it sees its own branch and the trunk, branch 0. Positions
        (default: the places 0, 1, ..., T - 1 of the window) turn the rotary angles or choose the learned embeddings;
        who sees whom is a matter of places. All marks but positions may be on the host: on a device they are read back.

        Raises:
            ValueError: more tokens than learned positions, and no positions are given.
        """
        num_tokens = x.shape[1]
        if self.embedding is None and self.axis.sequence_parallel:
            num_tokens *= self.axis.size
        is_learned = self.config.positions == "learned"
        if is_learned and positions_BT is None and num_tokens > self.config.sequence_length:
            raise ValueError(f"{num_tokens} tokens, but positions are learned for {self.config.sequence_length}")
        places_T = torch.arange(num_tokens, device=x.device)
        visibility = Visibility(document_ids_BT, prefix_ends_BT, branches_BT)
        positions = places_T[None] if positions_BT is None else positions_BT
        return self._through(x, positions, visibility, rows_N, targets_BT=targets_BT)

    def extend(
        self, tokens_BT: Tensor, positions_BT: Tensor, mask: Tensor | Visibility | None, past: Mapping[int, Past]
    ) -> Tensor:
        """Logits [B, 1, V] of the last of some new tokens [B, T], after those whose keys and values `past` holds, by
        layer.

        `mask`, bool [B, T, P]: which of the P tokens, old and new, each new one sees. None: a single new token sees all
        of them. Where nothing is past, the visibility of the new ones. For a model that is whole.
        """
        num_samples, num_tokens = tokens_BT.shape
        rows_N = torch.arange(1, num_samples + 1, device=tokens_BT.device) * num_tokens - 1
        return self._through(tokens_BT, positions_BT, mask, rows_N, past)

    def token_losses(self, batch: MicroBatch) -> Tensor:
        """-ln p(target) [B, T] in fp32 at least, 0 where there is no target; for a model that is whole."""
        rows_N = target_rows(batch.targets)
        losses_N = self(*batch.inputs, rows_N, targets_BT=batch.targets)
        losses_BT = torch.zeros(batch.targets.shape, dtype=losses_N.dtype, device=losses_N.device)
        losses_BT.view(-1)[rows_N] = losses_N
        return losses_BT

    def _through(
        self,
        x: Tensor,
        positions: Tensor,
        mask: Tensor | Visibility | None,
        rows_N: Tensor | None,
        past: Mapping[int, Past] | None = None,
        targets_BT: Tensor | None = None,
    ) -> Tensor:
        """Through what this stage has, with each layer's past, and one back-end of attention for all of them."""
        if self.embedding is not None:
            x = self.embedding(x)
        if self.position_embedding is not None:
            x = x + self.position_embedding(positions)
        angles = rotary_angles(positions, self.config, x.dtype) if self.config.positions == "rope" else None
        if isinstance(mask, Visibility):
            attend = attention_for(mask, x, self.config.head_size, self.is_compiled)
        else:
            attend = Dense(mask)
        for index, layer in self.layers.items():
            x = layer(x, angles, attend, None if past is None else past[int(index)])
        if self.final_norm is not None:
            x = self.final_norm(x)
        if self.head is not None and targets_BT is not None:
            return self._loss(self.head, x, targets_BT, rows_N)
        if self.head is not None:
            x = (
                self.head(x)
                if rows_N is None
                else self.head.local(self.axis.all_gather(x)().flatten(0, 1)[rows_N, None])
            )
            self.axis.mask_padding(x, self.config.vocab_size)
        return x

    def cross_entropy_sum(self, logits_BTV: Tensor, targets_BT: Tensor) -> Tensor:
        """Sum of -ln p(target) over targets that count, of the logits of all tensor-parallel ranks; fp32 at least."""
        return self.axis.cross_entropy_sum(logits_BTV, targets_BT, self.config.vocab_size, self.z_loss)

    def _loss(self, head: ColumnParallelLinear, x_BTD: Tensor, targets_BT: Tensor, rows_N: Tensor | None) -> Tensor:
        """The sum of the loss, in chunks where a micro-batch has too many logits; or the losses of some rows."""
        weight_VD, entries = self.axis.weight(head), self.config.vocab_size or self.config.padded_vocab_size
        if rows_N is not None:
            x_ND = self.axis.all_gather(x_BTD)().flatten(0, 1)[rows_N]
            return linear_losses(x_ND, weight_VD, targets_BT.flatten()[rows_N], entries, self.axis)
        if is_chunked(targets_BT.numel(), len(weight_VD), head.deferred is not None):
            return linear_cross_entropy_sum(x_BTD, weight_VD, targets_BT, entries, self.z_loss, self.axis)
        return self.cross_entropy_sum(head(x_BTD), targets_BT)


class Block(nn.Module):
    """x + attention(norm(x)), then x + mlp(norm(x)); `recompute` says what of it the backward computes again."""

    def __init__(self, config: ModelConfig, axis: TensorAxis, recompute: Recompute = "none") -> None:
        super().__init__()
        axis = replace(axis, keeps_whole=recompute != "none")
        self.attention_norm = Norm(config, axis)
        self.attention = Attention(config, axis)
        self.mlp_norm = Norm(config, axis)
        self.mlp = MLP(config, axis)
        self.recompute = recompute

    def forward(self, x_BTD: Tensor, angles: Angles | None, attend: Attend, past: Past | None = None) -> Tensor:
        return recompute(self.recompute, "full", self.residuals, x_BTD, angles, attend, past)

    def residuals(self, x_BTD: Tensor, angles: Angles | None, attend: Attend, past: Past | None) -> Tensor:
        x_BTD = x_BTD + recompute(self.recompute, "selective", self.attend, x_BTD, angles, attend, past)
        return x_BTD + recompute(self.recompute, "selective", self.feed, x_BTD)

    def attend(self, x_BTD: Tensor, angles: Angles | None, attend: Attend, past: Past | None) -> Tensor:
        y_BTD: Tensor = self.attention(self.attention_norm(x_BTD), angles, attend, past)
        return y_BTD

    def feed(self, x_BTD: Tensor) -> Tensor:
        y_BTD: Tensor = self.mlp(self.mlp_norm(x_BTD))
        return y_BTD


class Attention(nn.Module):
    """Causal attention of H query heads over G key/value heads (Ainslie et al. 2023; G = H is ordinary attention)."""

    def __init__(self, config: ModelConfig, axis: TensorAxis) -> None:
        super().__init__()
        self.head_size = config.head_size
        self.group_size = config.num_heads // config.kv_heads
        width = config.kv_heads * (self.group_size + 2) * config.head_size
        self.qkv = ColumnParallelLinear(config.hidden_size, width, config.bias, axis)
        self.out = RowParallelLinear(config.num_heads * config.head_size, config.hidden_size, config.bias, axis)

    def forward(self, x_BTD: Tensor, angles: Angles | None, attend: Attend, past: Past | None = None) -> Tensor:
        qkv = self.qkv(x_BTD).unflatten(-1, (-1, self.group_size + 2, self.head_size))
        q_BTHK = qkv[:, :, :, :-2].flatten(2, 3)
        k_BTGK, v_BTGK = qkv[:, :, :, -2], qkv[:, :, :, -1]
        if angles is not None:
            q_BTHK, k_BTGK = rotate(q_BTHK, angles), rotate(k_BTGK, angles)
        k_BGPK, v_BGPK = k_BTGK.transpose(1, 2), v_BTGK.transpose(1, 2)
        if past is not None:
            k_BGPK, v_BGPK = past.extend(k_BGPK, v_BGPK)
        y_BHTK = attend(q_BTHK.transpose(1, 2), k_BGPK, v_BGPK)
        out_BTD: Tensor = self.out(y_BHTK.transpose(1, 2).flatten(2))
        return out_BTD


class MLP(nn.Module):
    """GELU(up(x)), or SwiGLU (Shazeer 2020): silu(gate(x)) * up(x); then down."""

    def __init__(self, config: ModelConfig, axis: TensorAxis) -> None:
        super().__init__()
        self.gelu = "tanh" if config.activation == "gelu_tanh" else "none"  # torch's name of the approximation
        self.gate: ColumnParallelLinear | None = None
        if config.activation == "swiglu":
            self.gate = ColumnParallelLinear(config.hidden_size, config.ffn_size, config.bias, axis)
        self.up = ColumnParallelLinear(config.hidden_size, config.ffn_size, config.bias, axis)
        self.down = RowParallelLinear(config.ffn_size, config.hidden_size, config.bias, axis)

    def forward(self, x_BTD: Tensor) -> Tensor:
        if self.gate is None:
            y_BTF = F.gelu(self.up(x_BTD), approximate=self.gelu)
        else:
            gate_BTF, up_BTF = column_parallel(x_BTD, self.gate, self.up)
            y_BTF = F.silu(gate_BTF) * up_BTF
        out_BTD: Tensor = self.down(y_BTF)
        return out_BTD


def rotary_angles(positions_BT: Tensor, config: ModelConfig, dtype: torch.dtype = torch.float32) -> Angles:
    """Cosines and sines [B or 1, T, 1, K/2] of rotary position embedding (Su et al. 2021), in `dtype`, but at least
    fp32."""
    dtype = torch.promote_types(dtype, torch.float32)
    channels = torch.arange(0, config.head_size, 2, device=positions_BT.device, dtype=dtype)
    frequencies = config.rope_base ** (-channels / config.head_size)
    angles = positions_BT.to(dtype)[:, :, None, None] * frequencies
    return angles.cos(), angles.sin()


def rotate(x_BTHK: Tensor, angles: Angles) -> Tensor:
    """Turn channel pairs (i, i + K/2) of each head by the angle of its position, in the precision of the angles."""
    cos, sin = angles
    a, b = x_BTHK.to(cos.dtype).chunk(2, dim=-1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), dim=-1).to(x_BTHK.dtype)
