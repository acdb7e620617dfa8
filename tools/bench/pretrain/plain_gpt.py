"""The training loop one would write without us, after nanoGPT: the peer of `train_step`, on one process.

The same model as ours (RMSNorm, rotary positions, SwiGLU, tied output; the same shapes and number of weights) in
torch's own modules, with rotary tables computed once; fused AdamW with the same two groups, `clip_grad_norm_`, batches
at random places of tokens in memory, micro-batches whose gradients add up, one loss a step read on the host. As in
nanoGPT nothing is masked: neither padding of the vocabulary nor the ends of documents.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from pretrain.config import ModelConfig, RunConfig


class PlainGPT(nn.Module):
    """Tokens [B, T] to logits [B, T, V]."""

    cos: Tensor
    sin: Tensor

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        width = config.hidden_size
        self.embedding: nn.Module | None = nn.Embedding(config.padded_vocab_size, width)
        self.layers = nn.ModuleDict({str(index): PlainBlock(config) for index in range(config.num_layers)})
        self.norm: nn.Module | None = nn.RMSNorm(width, eps=config.norm_epsilon)
        self.head: nn.Module | None = nn.Linear(width, config.padded_vocab_size, bias=False)
        if config.tied:
            self.head.weight = self.embedding.weight
        channels = torch.arange(0, config.head_size, 2)
        frequencies = config.rope_base ** (-channels / config.head_size)
        angles = torch.arange(config.sequence_length)[:, None, None] * frequencies
        self.register_buffer("cos", angles.cos(), persistent=False)
        self.register_buffer("sin", angles.sin(), persistent=False)
        for parameter in self.parameters():
            if parameter.dim() > 1:
                nn.init.normal_(parameter, std=config.init_std)

    def forward(self, x: Tensor) -> Tensor:
        """Parts that a pipeline stage lacks are None."""
        if self.embedding is not None:
            x = self.embedding(x)
        for layer in self.layers.values():
            x = layer(x, self.cos, self.sin)
        return x if self.norm is None or self.head is None else self.head(self.norm(x))


class PlainBlock(nn.Module):
    """x + attention(norm(x)), then x + mlp(norm(x))."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.attention_norm = nn.RMSNorm(config.hidden_size, eps=config.norm_epsilon)
        self.attention = PlainAttention(config)
        self.mlp_norm = nn.RMSNorm(config.hidden_size, eps=config.norm_epsilon)
        self.mlp = PlainMLP(config)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        x = x + self.attention(self.attention_norm(x), cos, sin)
        out: Tensor = x + self.mlp(self.mlp_norm(x))
        return out


class PlainAttention(nn.Module):
    """Causal attention; rows of `qkv` are laid out (head, 3, channel), so that a slice of them is whole heads."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.head_size = config.head_size
        self.qkv = nn.Linear(config.hidden_size, 3 * config.hidden_size, bias=False)
        self.out = nn.Linear(config.hidden_size, config.hidden_size, bias=False)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        batch, length, _ = x.shape
        q, k, v = self.qkv(x).view(batch, length, -1, 3, self.head_size).unbind(3)
        q, k = (turn(each, cos, sin).transpose(1, 2) for each in (q, k))
        y = F.scaled_dot_product_attention(q, k, v.transpose(1, 2), is_causal=True)
        out: Tensor = self.out(y.transpose(1, 2).reshape(batch, length, -1))
        return out


class PlainMLP(nn.Module):
    """SwiGLU."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.gate = nn.Linear(config.hidden_size, config.ffn_size, bias=False)
        self.up = nn.Linear(config.hidden_size, config.ffn_size, bias=False)
        self.down = nn.Linear(config.ffn_size, config.hidden_size, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.down(F.silu(self.gate(x)) * self.up(x))
        return out


def turn(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotary positions of [B, T, H, K]."""
    a, b = x.chunk(2, dim=-1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), dim=-1)


def new_optimizer(named: Iterable[tuple[str, nn.Parameter]]) -> torch.optim.AdamW:
    """Fused AdamW as nanoGPT groups it, but that embeddings do not decay, as in ours."""
    matrices: list[nn.Parameter] = []
    rest: list[nn.Parameter] = []
    for name, parameter in named:
        (matrices if parameter.dim() > 1 and "embedding" not in name else rest).append(parameter)
    groups: list[dict[str, Any]] = [{"params": matrices, "weight_decay": 0.1}, {"params": rest, "weight_decay": 0.0}]
    return torch.optim.AdamW([group for group in groups if group["params"]], lr=1e-3, betas=(0.9, 0.95), fused=True)


class PlainRun:
    """Everything that a step needs; with precision bf16 fp32 weights under autocast, as nanoGPT has it."""

    def __init__(self, model: nn.Module, config: RunConfig, tokens: NDArray[Any], device: str = "cpu") -> None:
        self.model, self.tokens, self.device = model, tokens, torch.device(device)
        self.optimizer = new_optimizer(model.named_parameters())
        self.length, self.training = config.model.sequence_length, config.training

    def batch(self, size: int) -> tuple[Tensor, Tensor]:
        """nanoGPT's get_batch: tokens and targets [size, T] at random places, by way of pinned memory."""
        starts = torch.randint(len(self.tokens) - self.length, (size,)).tolist()
        windows = np.stack([self.tokens[start : start + self.length + 1] for start in starts]).astype(np.int64)
        both = torch.from_numpy(windows)
        both = both.pin_memory() if self.device.type == "cuda" else both
        both = both.to(self.device, non_blocking=True)
        return both[:, :-1], both[:, 1:]

    def step(self) -> float:
        """One update; the loss before it."""
        size = self.training.micro_batch_size
        num_micro_batches = self.training.global_batch_size // size
        losses = []
        for _ in range(num_micro_batches):
            tokens, targets = self.batch(size)
            with torch.autocast(self.device.type, torch.bfloat16, enabled=self.training.precision == "bf16"):
                logits = self.model(tokens)
                loss = F.cross_entropy(logits.view(-1, logits.size(-1)), targets.flatten()) / num_micro_batches
            loss.backward()  # type: ignore[no-untyped-call]
            losses.append(loss.detach())
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return float(torch.stack(losses).sum())
