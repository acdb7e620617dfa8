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

Shape suffixes: B samples, T tokens, D hidden size, H heads, G kv heads, K head size, F feed-forward size, V
padded vocabulary. On t tensor-parallel ranks H, G, F and V are this rank's share, and x_BTD outside the products has
T/s tokens: s is t with sequence parallelism, else 1.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from pretrain.config import ModelConfig, Recompute
from pretrain.layers import Embedding, Linear, Norm, PositionEmbedding, RowLinear, columns
from pretrain.parallel.recompute import recompute_fully, recompute_selectively
from pretrain.parallel.stages import Stage, whole
from pretrain.parallel.tensor import ALONE, TensorAxis

Angles = tuple[Tensor, Tensor]


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
        self.embedding = Embedding(vocabulary, width, axis) if stage.is_first else None
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
        self.head = Linear(width, vocabulary, bias=False, axis=axis) if stage.is_last else None
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
        place: int | None = None,
    ) -> Tensor:
        """From tokens [B, T], or the x [B, T/s, D] of the stage before, to logits [B, T, V], or this stage's x.

        With `place`, logits [B, 1, V] of that place of the window alone: generation asks for no more.

        With document ids a token sees its own document only. With prefix ends it also sees what lies before its prefix's
        end, to its right too. Positions (default: the places 0, 1, ..., T - 1 of the window) turn the rotary angles or
        choose the learned embeddings; who sees whom is a matter of places.

        Raises:
            ValueError: more tokens than learned positions.
        """
        num_tokens = x.shape[1]
        if self.embedding is None and self.axis.sequence_parallel:
            num_tokens *= self.axis.size
        if self.config.positions == "learned" and num_tokens > self.config.sequence_length:
            raise ValueError(f"{num_tokens} tokens, but positions are learned for {self.config.sequence_length}")
        places_T = torch.arange(num_tokens, device=x.device)
        mask_BTT = dense_mask(places_T, document_ids_BT, prefix_ends_BT)
        positions = places_T[None] if positions_BT is None else positions_BT

        if self.embedding is not None:
            x = self.embedding(x)
        if self.position_embedding is not None:
            x = x + self.position_embedding(positions)
        angles = rotary_angles(positions, self.config, x.dtype) if self.config.positions == "rope" else None
        for layer in self.layers.values():
            x = layer(x, angles, mask_BTT)
        if self.final_norm is not None:
            x = self.final_norm(x)
        if self.head is not None:
            x = self.head(x) if place is None else self.head.local(self.axis.spread(x)()[:, [place]])
            mask_padding(x, self.config.vocab_size, first=self.axis.rank * x.shape[-1])
        return x

    def loss_sum(self, logits_BTV: Tensor, targets_BT: Tensor) -> Tensor:
        """Sum of -ln p(target) over targets that count, of the logits of all tensor-parallel ranks; fp32 at least."""
        return self.axis.loss_sum(logits_BTV, targets_BT, self.config.vocab_size)


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

    def forward(self, x_BTD: Tensor, angles: Angles | None, mask_BTT: Tensor | None) -> Tensor:
        return recompute_fully(self.recompute, self.residuals, x_BTD, angles, mask_BTT)

    def residuals(self, x_BTD: Tensor, angles: Angles | None, mask_BTT: Tensor | None) -> Tensor:
        x_BTD = x_BTD + recompute_selectively(self.recompute, self.attend, x_BTD, angles, mask_BTT)
        return x_BTD + recompute_selectively(self.recompute, self.feed, x_BTD)

    def attend(self, x_BTD: Tensor, angles: Angles | None, mask_BTT: Tensor | None) -> Tensor:
        y_BTD: Tensor = self.attention(self.attention_norm(x_BTD), angles, mask_BTT)
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
        self.qkv = Linear(config.hidden_size, width, config.bias, axis)
        self.out = RowLinear(config.num_heads * config.head_size, config.hidden_size, config.bias, axis)

    def forward(self, x_BTD: Tensor, angles: Angles | None, mask_BTT: Tensor | None) -> Tensor:
        qkv = self.qkv(x_BTD).unflatten(-1, (-1, self.group_size + 2, self.head_size))
        q_BTHK = qkv[:, :, :, :-2].flatten(2, 3)
        k_BTGK, v_BTGK = qkv[:, :, :, -2], qkv[:, :, :, -1]
        if angles is not None:
            q_BTHK, k_BTGK = rotate(q_BTHK, angles), rotate(k_BTGK, angles)
        y_BHTK = F.scaled_dot_product_attention(
            q_BTHK.transpose(1, 2),
            k_BTGK.transpose(1, 2),
            v_BTGK.transpose(1, 2),
            attn_mask=None if mask_BTT is None else mask_BTT[:, None],
            is_causal=mask_BTT is None,
            enable_gqa=self.group_size > 1,
        )
        out_BTD: Tensor = self.out(y_BHTK.transpose(1, 2).flatten(2))
        return out_BTD


class MLP(nn.Module):
    """GELU(up(x)), or SwiGLU (Shazeer 2020): silu(gate(x)) * up(x); then down."""

    def __init__(self, config: ModelConfig, axis: TensorAxis) -> None:
        super().__init__()
        self.gelu = "tanh" if config.activation == "gelu_tanh" else "none"  # torch's name of the approximation
        self.gate: Linear | None = None
        if config.activation == "swiglu":
            self.gate = Linear(config.hidden_size, config.ffn_size, config.bias, axis)
        self.up = Linear(config.hidden_size, config.ffn_size, config.bias, axis)
        self.down = RowLinear(config.ffn_size, config.hidden_size, config.bias, axis)

    def forward(self, x_BTD: Tensor) -> Tensor:
        if self.gate is None:
            y_BTF = F.gelu(self.up(x_BTD), approximate=self.gelu)
        else:
            gate_BTF, up_BTF = columns(x_BTD, self.gate, self.up)
            y_BTF = F.silu(gate_BTF) * up_BTF
        out_BTD: Tensor = self.down(y_BTF)
        return out_BTD


def visible(q: Tensor, k: Tensor, same_document: Tensor | None, prefix_end: Tensor | None) -> Tensor:
    """Whether place `q` of a window sees place `k`: the one definition of the attention mask, for every back-end.

    Causal, or both ways inside the prefix that ends before `prefix_end`, which is that of `q` (prefix LM; Raffel et al.
    2020, section 3.2.1); never across documents where `same_document` is given.

    >>> q, k = torch.arange(3)[:, None], torch.arange(3)[None]
    >>> visible(q, k, None, torch.tensor(2)).int().tolist()
    [[1, 1, 0], [1, 1, 0], [1, 1, 1]]
    """
    sees = k <= q
    if prefix_end is not None:
        sees = sees | (k < prefix_end)
    return sees if same_document is None else sees & same_document


def dense_mask(places_T: Tensor, document_ids_BT: Tensor | None, prefix_ends_BT: Tensor | None) -> Tensor | None:
    """`visible` as bool [B or 1, T, T]; None means plainly causal, which back-ends know without a mask."""
    if document_ids_BT is None and prefix_ends_BT is None:
        return None
    same_BTT = None if document_ids_BT is None else document_ids_BT[:, :, None] == document_ids_BT[:, None, :]
    ends_BT1 = None if prefix_ends_BT is None else prefix_ends_BT[:, :, None]
    return visible(places_T[None, :, None], places_T[None, None, :], same_BTT, ends_BT1)


def rotary_angles(positions_BT: Tensor, config: ModelConfig, dtype: torch.dtype = torch.float32) -> Angles:
    """Cosines and sines [B or 1, T, 1, K/2] of rotary position embedding (Su et al. 2021), in `dtype`, but at least fp32."""
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


@torch.no_grad()
def mask_padding(logits_BTV: Tensor, vocab_size: int | None, first: int = 0) -> None:
    """Make the logits of vocabulary entries that the tokenizer does not have -inf, in place; theirs begin at `first`.

    A product does not need its result for its backward, and the softmax gives these entries no gradient.
    """
    if vocab_size is not None and vocab_size < first + logits_BTV.shape[-1]:
        logits_BTV[..., max(0, vocab_size - first) :] = -torch.inf
