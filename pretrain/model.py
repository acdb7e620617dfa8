"""A GPT whose choices are data: norm, activation, positions, biases, grouped-query attention, tied or untied output.

Notable choices:
- Pre-norm residual blocks (Radford et al. 2019); by default RMSNorm, rotary positions and SwiGLU (Touvron et
  al. 2023).
- No buffers and no random numbers: rotary angles and masks are computed from integers in each forward
  (microseconds beside the matrix products), so a model built on the meta device becomes real by filling its
  parameters, and a step has no generator whose state would have to be saved.
- `layers` is keyed by the absolute layer number, and the parts a pipeline stage lacks are None: names never change.
- `qkv` is one matrix laid out (kv_heads, group + 2, head): a slice of its rows is a set of whole heads.
- Logits of the padding entries of the vocabulary are -inf: the loss is that of the tokenizer's own vocabulary.

Shape suffixes: B samples, T tokens, D hidden size, H heads, G kv heads, K head size, F feed-forward size, V
padded vocabulary.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from pretrain.config import ModelConfig

IGNORED_TARGET = -1  # a target that no loss is taken of


class GPT(nn.Module):
    """Tokens in, logits out."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        self.embedding: nn.Embedding | None = nn.Embedding(config.padded_vocab_size, config.hidden_size)
        self.position_embedding: nn.Embedding | None = None
        if config.positions == "learned":
            self.position_embedding = nn.Embedding(config.sequence_length, config.hidden_size)
        self.layers = nn.ModuleDict({str(index): Block(config) for index in range(config.num_layers)})
        self.final_norm: nn.Module | None = new_norm(config)
        self.head: nn.Linear | None = nn.Linear(config.hidden_size, config.padded_vocab_size, bias=False)
        self.tie()

    def tie(self) -> None:
        """Make the output matrix the embedding's own, if the configuration says so; needed again after `to_empty`."""
        if self.config.tied and self.embedding is not None and self.head is not None:
            self.head.weight = self.embedding.weight

    def forward(
        self,
        tokens_BT: Tensor,
        document_ids_BT: Tensor | None = None,
        prefix_ends_BT: Tensor | None = None,
        positions_BT: Tensor | None = None,
    ) -> Tensor:
        """Logits [B, T, V].

        With document ids a token sees its own document only. With prefix ends it also sees what lies before its prefix's
        end, to its right too. Positions (default: the places 0, 1, ..., T - 1 of the window) turn the rotary angles or
        choose the learned embeddings; who sees whom is a matter of places.

        Raises:
            ValueError: more tokens than learned positions.
        """
        num_tokens = tokens_BT.shape[1]
        if self.position_embedding is not None and num_tokens > self.config.sequence_length:
            raise ValueError(f"{num_tokens} tokens, but positions are learned for {self.config.sequence_length}")
        places_T = torch.arange(num_tokens, device=tokens_BT.device)
        mask_BTT = dense_mask(places_T, document_ids_BT, prefix_ends_BT)
        positions = places_T[None] if positions_BT is None else positions_BT
        angles = rotary_angles(positions, self.config) if self.config.positions == "rope" else None

        x_BTD = self.embedding(tokens_BT) if self.embedding is not None else tokens_BT
        if self.position_embedding is not None:
            x_BTD = x_BTD + self.position_embedding(positions)
        for layer in self.layers.values():
            x_BTD = layer(x_BTD, angles, mask_BTT)
        if self.final_norm is not None:
            x_BTD = self.final_norm(x_BTD)
        return mask_padding(self.head(x_BTD), self.config.vocab_size) if self.head is not None else x_BTD


class Block(nn.Module):
    """x + attention(norm(x)), then x + mlp(norm(x))."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.attention_norm = new_norm(config)
        self.attention = Attention(config)
        self.mlp_norm = new_norm(config)
        self.mlp = MLP(config)

    def forward(self, x_BTD: Tensor, angles: tuple[Tensor, Tensor] | None, mask_BTT: Tensor | None) -> Tensor:
        x_BTD = x_BTD + self.attention(self.attention_norm(x_BTD), angles, mask_BTT)
        residual_BTD: Tensor = x_BTD + self.mlp(self.mlp_norm(x_BTD))
        return residual_BTD


class Attention(nn.Module):
    """Causal attention of H query heads over G key/value heads (Ainslie et al. 2023; G = H is ordinary attention)."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.head_size = config.head_size
        self.group_size = config.num_heads // config.kv_heads
        width = config.kv_heads * (self.group_size + 2) * config.head_size
        self.qkv = nn.Linear(config.hidden_size, width, bias=config.bias)
        self.out = nn.Linear(config.num_heads * config.head_size, config.hidden_size, bias=config.bias)

    def forward(self, x_BTD: Tensor, angles: tuple[Tensor, Tensor] | None, mask_BTT: Tensor | None) -> Tensor:
        num_samples, num_tokens, _ = x_BTD.shape
        # -1, not G: under tensor parallelism a rank holds some of the heads
        qkv = self.qkv(x_BTD).view(num_samples, num_tokens, -1, self.group_size + 2, self.head_size)
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

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.gate: nn.Linear | None = None
        if config.activation == "swiglu":
            self.gate = nn.Linear(config.hidden_size, config.ffn_size, bias=config.bias)
        self.up = nn.Linear(config.hidden_size, config.ffn_size, bias=config.bias)
        self.down = nn.Linear(config.ffn_size, config.hidden_size, bias=config.bias)

    def forward(self, x_BTD: Tensor) -> Tensor:
        y_BTF = F.gelu(self.up(x_BTD)) if self.gate is None else F.silu(self.gate(x_BTD)) * self.up(x_BTD)
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


def rotary_angles(positions_BT: Tensor, config: ModelConfig) -> tuple[Tensor, Tensor]:
    """Cosines and sines [B or 1, T, 1, K/2] of rotary position embedding (Su et al. 2021), fp32."""
    channels = torch.arange(0, config.head_size, 2, device=positions_BT.device, dtype=torch.float32)
    frequencies = config.rope_base ** (-channels / config.head_size)
    angles = positions_BT.float()[:, :, None, None] * frequencies
    return angles.cos(), angles.sin()


def rotate(x_BTHK: Tensor, angles: tuple[Tensor, Tensor]) -> Tensor:
    """Turn channel pairs (i, i + K/2) of each head by the angle of its position; computed in fp32."""
    cos, sin = angles
    a, b = x_BTHK.float().chunk(2, dim=-1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), dim=-1).to(x_BTHK.dtype)


def mask_padding(logits_BTV: Tensor, vocab_size: int | None) -> Tensor:
    """-inf for vocabulary entries the tokenizer does not have: one copy of the logits, nothing in the backward."""
    num_padded = logits_BTV.shape[-1]
    if vocab_size is None or vocab_size == num_padded:
        return logits_BTV
    entries_V = torch.arange(num_padded, device=logits_BTV.device)
    return logits_BTV + torch.where(entries_V < vocab_size, 0.0, -torch.inf).to(logits_BTV.dtype)


def loss_sum(logits_BTV: Tensor, targets_BT: Tensor) -> Tensor:
    """Sum of -ln p(target) over targets that count, fp32; the caller divides by the global number of targets."""
    return F.cross_entropy(
        logits_BTV.flatten(0, 1).float(), targets_BT.flatten(), ignore_index=IGNORED_TARGET, reduction="sum"
    )


def new_norm(config: ModelConfig) -> nn.Module:
    """RMSNorm (Zhang and Sennrich 2019) or LayerNorm."""
    if config.norm == "rmsnorm":
        return nn.RMSNorm(config.hidden_size, eps=config.norm_epsilon)
    return nn.LayerNorm(config.hidden_size, eps=config.norm_epsilon, bias=config.bias)
