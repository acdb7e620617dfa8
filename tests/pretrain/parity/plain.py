"""A GPT and its training written a second time, plainly: one process, whole matrices, whole batches, torch's autograd.

Nothing of the model, the loss, the masks, the optimizer's groups, the schedule or the clipping is taken from
`pretrain`: what this shares with it are names of weights, the layout of the fused projection and the tokens.

Shape suffixes as in `pretrain.model.gpt`: B samples, T tokens, D hidden size, H heads, G kv heads, K head size, V
vocabulary.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from pretrain.config import ModelConfig, RunConfig
from pretrain.data import Loader
from pretrain.data.loader import Batch
from tests.pretrain.parity.measure import NUM_STEPS, Arrays, Training

Weights = Mapping[str, Tensor]


def train_plainly(config: RunConfig, first: Arrays, loader: Loader) -> Training:
    """`NUM_STEPS` steps of AdamW in float64 from the weights `first`, each on a global batch in one piece."""
    weights = {name: torch.tensor(array, dtype=torch.float64, requires_grad=True) for name, array in first.items()}
    optimizer = torch.optim.AdamW(
        [
            {"params": [w for name, w in weights.items() if _decays(name, w)], "weight_decay": 0.1},
            {"params": [w for name, w in weights.items() if not _decays(name, w)], "weight_decay": 0.0},
        ],
        betas=(0.9, 0.95),
        eps=1e-8,
        foreach=False,
    )
    size = config.training.global_batch_size
    gradients: Arrays = {}
    losses, norms, counts = [], [], []
    for step in range(NUM_STEPS):
        batch = loader.batch(step * size, size)
        targets = torch.from_numpy(batch.targets.copy())
        log_p_BTV = torch.log_softmax(_logits(weights, config.model, batch), dim=-1)
        counted = targets >= 0
        loss = -log_p_BTV.gather(-1, targets.clamp(min=0)[..., None])[..., 0][counted].sum() / counted.sum()
        optimizer.zero_grad()
        loss.backward()
        grads = {name: w.grad for name, w in weights.items() if w.grad is not None}
        gradients = gradients or {name: grad.numpy().copy() for name, grad in grads.items()}
        norm = math.sqrt(sum((grad**2).sum().item() for grad in grads.values()))
        for grad in grads.values():
            grad.mul_(min(1.0, config.training.max_grad_norm / norm))
        for group in optimizer.param_groups:
            group["lr"] = _learning_rate(config, step)
        optimizer.step()
        losses.append(loss.item())
        norms.append(norm)
        counts.append(int(counted.sum()))
    last = {name: w.detach().numpy().copy() for name, w in weights.items()}
    return Training(first, gradients, last, losses, norms, counts, [size] * NUM_STEPS, seconds=0.0)


def _decays(name: str, weight: Tensor) -> bool:
    return weight.dim() == 2 and name.startswith("layers.")


def _learning_rate(config: RunConfig, step: int) -> float:
    """Warm-up over two steps, then a cosine to a tenth at the last of six."""
    assert (config.schedule.warmup_steps, config.schedule.kind, config.training.num_steps) == (2, "cosine", NUM_STEPS)
    parts = [1 / 2, 1.0, *(0.1 + 0.9 * (1 + math.cos(math.pi * quarter / 4)) / 2 for quarter in (1, 2, 3, 4))]
    return config.optimizer.learning_rate * parts[step]


def _logits(w: Weights, config: ModelConfig, batch: Batch) -> Tensor:
    """Logits [B, T, V] of the tokenizer's own entries."""
    tokens = torch.from_numpy(batch.tokens.copy())
    _num_samples, num_tokens = tokens.shape
    positions = np.broadcast_to(np.arange(num_tokens), tokens.shape) if batch.positions is None else batch.positions
    positions_BT = torch.tensor(positions, dtype=torch.int64)
    sees_BTT = torch.tensor(_sees(config, batch))
    x_BTD = w["embedding.weight"][tokens]
    if config.positions == "learned":
        x_BTD = x_BTD + w["position_embedding.weight"][positions_BT]
    for index in range(config.num_layers):
        layer = f"layers.{index}."
        y_BTD = _norm(w, config, layer + "attention_norm", x_BTD)
        x_BTD = x_BTD + _attention(w, config, layer + "attention.", y_BTD, positions_BT, sees_BTT)
        x_BTD = x_BTD + _mlp(w, config, layer + "mlp.", _norm(w, config, layer + "mlp_norm", x_BTD))
    x_BTD = _norm(w, config, "final_norm", x_BTD)
    output_VD = w["embedding.weight" if config.tied else "head.weight"]
    return x_BTD @ output_VD[: config.vocab_size].T


def _sees(config: ModelConfig, batch: Batch) -> list[list[list[bool]]]:
    """Whether a token sees another, asked one by one."""
    num_samples, num_tokens = batch.tokens.shape

    def sees(b: int, q: int, k: int) -> bool:
        if config.document_mask and batch.document_ids[b, q] != batch.document_ids[b, k]:
            return False
        return k <= q or (batch.prefix_ends is not None and k < batch.prefix_ends[b, q])

    places = range(num_tokens)
    return [[[bool(sees(b, q, k)) for k in places] for q in places] for b in range(num_samples)]


def _attention(w: Weights, config: ModelConfig, name: str, x_BTD: Tensor, positions_BT: Tensor, sees: Tensor) -> Tensor:
    num_samples, num_tokens, _ = x_BTD.shape
    num_groups, group = config.kv_heads, config.num_heads // config.kv_heads
    qkv = _linear(w, name + "qkv", x_BTD).reshape(num_samples, num_tokens, num_groups, group + 2, config.head_size)
    heads = []
    for index in range(config.num_heads):
        of_group = qkv[:, :, index // group]
        q_BTK, k_BTK, v_BTK = of_group[:, :, index % group], of_group[:, :, group], of_group[:, :, group + 1]
        if config.positions == "rope":
            q_BTK, k_BTK = _turned(q_BTK, positions_BT, config), _turned(k_BTK, positions_BT, config)
        scores_BTT = (q_BTK @ k_BTK.transpose(1, 2) / math.sqrt(config.head_size)).masked_fill(~sees, -math.inf)
        heads.append(torch.softmax(scores_BTT, dim=-1) @ v_BTK)
    return _linear(w, name + "out", torch.cat(heads, dim=-1))


def _turned(x_BTK: Tensor, positions_BT: Tensor, config: ModelConfig) -> Tensor:
    """Channels i and i + K/2 as a complex number, times e^(i position base^(-2i/K))."""
    half = config.head_size // 2
    frequencies = torch.tensor([config.rope_base ** (-i / half) for i in range(half)], dtype=torch.float64)
    angles = positions_BT[..., None] * frequencies
    turned = torch.complex(x_BTK[..., :half], x_BTK[..., half:]) * torch.polar(torch.ones_like(angles), angles)
    return torch.cat((turned.real, turned.imag), dim=-1)


def _mlp(w: Weights, config: ModelConfig, name: str, x_BTD: Tensor) -> Tensor:
    up = _linear(w, name + "up", x_BTD)
    if config.activation == "gelu":
        return _linear(w, name + "down", up * (1 + torch.erf(up / math.sqrt(2))) / 2)
    gate = _linear(w, name + "gate", x_BTD)
    return _linear(w, name + "down", gate / (1 + torch.exp(-gate)) * up)


def _norm(w: Weights, config: ModelConfig, name: str, x: Tensor) -> Tensor:
    if config.norm == "layernorm":
        x = x - x.mean(-1, keepdim=True)
    y = x / torch.sqrt((x**2).mean(-1, keepdim=True) + config.norm_epsilon) * w[name + ".weight"]
    return y + w[name + ".bias"] if name + ".bias" in w else y


def _linear(w: Weights, name: str, x: Tensor) -> Tensor:
    y = x @ w[name + ".weight"].T
    return y + w[name + ".bias"] if name + ".bias" in w else y
