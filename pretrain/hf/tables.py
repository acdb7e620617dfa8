"""Which of Hugging Face's tensors hold ours, and how each becomes the other."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from pretrain.config import ModelConfig


@dataclass(frozen=True)
class Entry:
    """One of our tensors and the one or more that hold it there; `there` and `back` convert."""

    ours: str
    theirs: tuple[str, ...]
    there: Callable[[Tensor], list[Tensor]]
    back: Callable[[list[Tensor]], Tensor]


def llama_entries(model: ModelConfig, num_rows: int) -> Iterator[Entry]:
    """The table of a Llama whose vocabulary has `num_rows` entries there."""
    yield _rows("embedding.weight", "model.embed_tokens.weight", num_rows)
    kinds = ("weight", "bias") if model.bias else ("weight",)
    mlp = {f"mlp.{name}": f"mlp.{name}_proj" for name in ("gate", "up", "down")}
    for index in range(model.num_layers):
        ours, theirs = f"layers.{index}.", f"model.layers.{index}."
        yield _same(f"{ours}attention_norm.weight", f"{theirs}input_layernorm.weight")
        yield _same(f"{ours}mlp_norm.weight", f"{theirs}post_attention_layernorm.weight")
        for kind in kinds:
            yield Entry(
                f"{ours}attention.qkv.{kind}",
                tuple(f"{theirs}self_attn.{part}_proj.{kind}" for part in "qkv"),
                partial(split_qkv, model=model),
                partial(join_qkv, model=model),
            )
            for one, other in {"attention.out": "self_attn.o_proj", **mlp}.items():
                yield _same(f"{ours}{one}.{kind}", f"{theirs}{other}.{kind}")
    yield _same("final_norm.weight", "model.norm.weight")
    if not model.tied:
        yield _rows("head.weight", "lm_head.weight", num_rows)


def gpt2_entries(model: ModelConfig, num_rows: int) -> Iterator[Entry]:
    """The table of a GPT-2 whose vocabulary has `num_rows` entries there."""
    yield _rows("embedding.weight", "transformer.wte.weight", num_rows)
    yield _same("position_embedding.weight", "transformer.wpe.weight")
    matrices = {"attention.out": "attn.c_proj", "mlp.up": "mlp.c_fc", "mlp.down": "mlp.c_proj"}
    for index in range(model.num_layers):
        ours, theirs = f"layers.{index}.", f"transformer.h.{index}."
        for kind in ("weight", "bias"):
            yield _same(f"{ours}attention_norm.{kind}", f"{theirs}ln_1.{kind}")
            yield _same(f"{ours}mlp_norm.{kind}", f"{theirs}ln_2.{kind}")
            yield Entry(
                f"{ours}attention.qkv.{kind}",
                (f"{theirs}attn.c_attn.{kind}",),
                lambda qkv: [torch.cat(split_qkv(qkv, model)).t()],
                lambda parts: join_qkv(list(parts[0].t().chunk(3)), model),
            )
            for one, other in matrices.items():
                yield Entry(f"{ours}{one}.{kind}", (f"{theirs}{other}.{kind}",), _turn, lambda parts: parts[0].t())
    for kind in ("weight", "bias"):
        yield _same(f"final_norm.{kind}", f"transformer.ln_f.{kind}")
    if not model.tied:
        yield _rows("head.weight", "lm_head.weight", num_rows)


def split_qkv(qkv: Tensor, model: ModelConfig) -> list[Tensor]:
    """Our fused rows (G, group + 2, K) as those of q (H, K), k (G, K) and v (G, K); of a matrix or a bias."""
    grouped = _in_heads(qkv, model)
    return [grouped[:, :-2].flatten(0, 2), grouped[:, -2].flatten(0, 1), grouped[:, -1].flatten(0, 1)]


def join_qkv(parts: list[Tensor], model: ModelConfig) -> Tensor:
    """The inverse of `split_qkv`."""
    return torch.cat([_in_heads(part, model) for part in parts], dim=1).flatten(0, 2)


def _in_heads(rows: Tensor, model: ModelConfig) -> Tensor:
    """Rows (G x heads x K) as (G, heads, K), the columns of a matrix behind."""
    return rows.reshape(model.kv_heads, -1, model.head_size, *rows.shape[1:])


def _turn(matrix: Tensor) -> list[Tensor]:
    return [matrix.t()]  # of a bias: itself


def _same(ours: str, theirs: str) -> Entry:
    return Entry(ours, (theirs,), lambda tensor: [tensor], lambda parts: parts[0])


def _rows(ours: str, theirs: str, num_rows: int) -> Entry:
    return Entry(ours, (theirs,), lambda table: [table[:num_rows]], lambda parts: parts[0])
