"""Our models in Hugging Face's words: two layouts, each a table of tensors that is read in both directions.

| | Llama | GPT-2 |
|---|---|---|
| positions, norm, activation | rope, rmsnorm, swiglu | learned, layernorm, gelu or gelu_tanh |
| biases | of all matrices or of none | of all matrices and norms; ours without get zeros |
| key/value heads | any number | as many as heads |
| matrices | [outputs, inputs], as ours | [inputs, outputs] (`Conv1D`) |
| attention | q, k, v apart | q, k, v below each other |

Ours has q, k and v in one matrix of rows (kv_heads, group + 2, head): the query heads of a group, its key, its value.
Query heads keep their order in both layouts, and rotary pairs are (i, i + head / 2) in all three, so no row moves
inside a head. The padding rows of our vocabulary are left out, and are zeros when they come back: no logit reads them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from corpus.engine.errors import UsageError
from pretrain.config import ModelConfig
from pretrain.parallel.base.params import param_specs

Tensors = dict[str, Tensor]
GELUS = {"gelu": "gelu", "gelu_tanh": "gelu_new"}  # ours: theirs
GELU_NAMES = {"gelu": "gelu", "gelu_new": "gelu_tanh", "gelu_pytorch_tanh": "gelu_tanh"}  # theirs: ours


@dataclass(frozen=True)
class Entry:
    """One of our tensors and the one or more that hold it there; `there` and `back` convert."""

    ours: str
    theirs: tuple[str, ...]
    there: Callable[[Tensor], list[Tensor]]
    back: Callable[[list[Tensor]], Tensor]


def llama_entries(model: ModelConfig, num_rows: int) -> Iterator[Entry]:
    """The table of a Llama whose vocabulary has `num_rows` entries there."""
    yield _same("embedding.weight", "model.embed_tokens.weight", num_rows)
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
        yield _same("head.weight", "lm_head.weight", num_rows)


def gpt2_entries(model: ModelConfig, num_rows: int) -> Iterator[Entry]:
    """The table of a GPT-2 whose vocabulary has `num_rows` entries there."""
    yield _same("embedding.weight", "transformer.wte.weight", num_rows)
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
                names = f"{ours}{one}.{kind}", (f"{theirs}{other}.{kind}",)
                yield Entry(*names, lambda matrix: [matrix.t()], lambda parts: parts[0].t())  # a bias stays itself
    for kind in ("weight", "bias"):
        yield _same(f"final_norm.{kind}", f"transformer.ln_f.{kind}")
    if not model.tied:
        yield _same("head.weight", "lm_head.weight", num_rows)


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


def _same(ours: str, theirs: str, num_rows: int | None = None) -> Entry:
    """Of a table of the vocabulary the first rows."""
    return Entry(ours, (theirs,), lambda table: [table[:num_rows]], lambda parts: parts[0])


@dataclass(frozen=True)
class Layout:
    """One of Hugging Face's architectures."""

    name: str
    architecture: str
    needs: Mapping[str, tuple[str, ...]]  # of our model's choices those that it has
    describe: Callable[[ModelConfig], dict[str, Any]]  # config.json of one of our models
    read: Callable[[Mapping[str, Any]], dict[str, Any]]  # our model's settings from a config.json; refuses by name
    entries: Callable[[ModelConfig, int], Iterator[Entry]]  # of a model and its number of vocabulary rows

    def unfit(self, model: ModelConfig) -> list[str]:
        """What of a model the layout has no words for."""
        found = [
            f"{name} {getattr(model, name)} (it has {' or '.join(able)})"
            for name, able in self.needs.items()
            if getattr(model, name) not in able
        ]
        if self is GPT2 and model.kv_heads != model.num_heads:
            found.append(f"num_kv_heads {model.kv_heads} (it has as many as num_heads, {model.num_heads})")
        return found

    def expressed(self, model: ModelConfig) -> ModelConfig:
        """The model as the layout says it: GPT-2 has biases, zeros where the model has none."""
        return model.model_copy(update={"bias": True}) if self is GPT2 else model

    def to_theirs(self, weights: Mapping[str, Tensor], model: ModelConfig) -> Tensors:
        """Their tensors of our weights; views of them where the layout allows it."""
        model = self.expressed(model)
        zeros = {spec.name: torch.zeros(spec.shape) for spec in param_specs(model) if spec.name not in weights}
        whole = {**zeros, **weights}
        tensors: Tensors = {}
        for entry in self.entries(model, model.vocab_size or model.padded_vocab_size):
            tensors |= zip(entry.theirs, entry.there(whole[entry.ours]), strict=True)
        return tensors

    def to_ours(
        self, tensors: Callable[[str], Tensor], model: ModelConfig, num_rows: int
    ) -> Iterator[tuple[str, Tensor]]:
        """Our weights, one after the other, of a model there with `num_rows` entries; `tensors` reads one by name.

        Raises:
            UsageError: a tensor is of another shape than config.json says.
        """
        shapes = {spec.name: spec.shape for spec in param_specs(model)}
        for entry in self.entries(model, num_rows):
            parts = [tensors(name).float() for name in entry.theirs]
            try:
                ours = entry.back(parts)
            except RuntimeError:  # they do not fit each other
                ours = parts[0]
            expected = shapes[entry.ours]
            if entry.ours in ("embedding.weight", "head.weight") and ours.dim() == 2 and len(ours) == num_rows:
                ours = F.pad(ours, (0, 0, 0, expected[0] - num_rows))
            if ours.shape != expected:
                raise UsageError(
                    f"{', '.join(entry.theirs)}: {', '.join(str(list(part.shape)) for part in parts)} do not make the "
                    f"{list(expected)} of {entry.ours} that config.json describes. The folder is damaged, or of a "
                    "variant."
                )
            yield entry.ours, ours


def choose(model: ModelConfig, name: str | None) -> Layout:
    """The layout that can hold a model, or the one of that name.

    Raises:
        UsageError: it cannot; the message says why.
    """
    able = [layout for layout in LAYOUTS if not layout.unfit(model)]
    for layout in able:
        if name in (None, layout.name):
            return layout
    reasons = [
        f"{layout.name} has no {', '.join(layout.unfit(model))}" for layout in LAYOUTS if name in (None, layout.name)
    ]
    hint = f" --format {able[0].name} can." if able else " transformers has no other that we write."
    raise UsageError(f"this model cannot be written as {name or 'Llama or GPT-2'}: {'; '.join(reasons)}.{hint}")


def _llama_config(model: ModelConfig) -> dict[str, Any]:
    return {
        "hidden_act": "silu",
        "hidden_size": model.hidden_size,
        "intermediate_size": model.ffn_size,
        "num_hidden_layers": model.num_layers,
        "num_attention_heads": model.num_heads,
        "num_key_value_heads": model.kv_heads,
        "head_dim": model.head_size,
        "max_position_embeddings": model.sequence_length,
        "rms_norm_eps": model.norm_epsilon,
        "rope_theta": model.rope_base,  # transformers 4 and other programs read this, transformers 5 the next
        "rope_parameters": {"rope_type": "default", "rope_theta": model.rope_base},
        "attention_bias": model.bias,
        "mlp_bias": model.bias,
        "attention_dropout": 0.0,
    }


def _gpt2_config(model: ModelConfig) -> dict[str, Any]:
    return {
        "activation_function": GELUS[model.activation],
        "n_embd": model.hidden_size,
        "n_inner": model.ffn_size,
        "n_layer": model.num_layers,
        "n_head": model.num_heads,
        "n_positions": model.sequence_length,
        "layer_norm_epsilon": model.norm_epsilon,
        "scale_attn_weights": True,
        "attn_pdrop": 0.0,
        "embd_pdrop": 0.0,
        "resid_pdrop": 0.0,
    }


def _read_llama(config: Mapping[str, Any]) -> dict[str, Any]:
    rope = config.get("rope_parameters") or config.get("rope_scaling") or {}
    kind = rope.get("rope_type", rope.get("type", "default"))
    heads = config["num_attention_heads"]
    bias = bool(config.get("attention_bias"))
    _refuse(
        {
            f"rope of type {kind!r} (ours is not scaled)": kind != "default",
            "partial rotary positions": rope.get("partial_rotary_factor", 1.0) != 1.0,
            f"hidden_act {config.get('hidden_act')!r} (ours is silu)": config.get("hidden_act", "silu") != "silu",
            "a sliding window": bool(config.get("sliding_window")),
            "biases of attention or of the MLP alone": bias != bool(config.get("mlp_bias")),
            "a head_dim that is not hidden_size / num_attention_heads": (config.get("head_dim") or 0)
            not in (0, config["hidden_size"] // heads),
        }
    )
    return {
        "num_layers": config["num_hidden_layers"],
        "hidden_size": config["hidden_size"],
        "num_heads": heads,
        "num_kv_heads": config.get("num_key_value_heads") or heads,
        "ffn_hidden_size": config["intermediate_size"],
        "sequence_length": config["max_position_embeddings"],
        "norm_epsilon": float(config.get("rms_norm_eps", 1e-6)),
        "rope_base": float(rope.get("rope_theta") or config.get("rope_theta") or 10_000.0),
        "bias": bias,
        "tied": bool(config.get("tie_word_embeddings", False)),
    }


def _read_gpt2(config: Mapping[str, Any]) -> dict[str, Any]:
    activation = config.get("activation_function", "gelu_new")
    _refuse(
        {
            f"activation_function {activation!r} (ours: {', '.join(GELU_NAMES)})": activation not in GELU_NAMES,
            "scale_attn_weights false": not config.get("scale_attn_weights", True),
            "scale_attn_by_inverse_layer_idx": bool(config.get("scale_attn_by_inverse_layer_idx")),
            "cross attention": bool(config.get("add_cross_attention")),
        }
    )
    return {
        "num_layers": config["n_layer"],
        "hidden_size": config["n_embd"],
        "num_heads": config["n_head"],
        "ffn_hidden_size": config.get("n_inner") or 4 * config["n_embd"],
        "sequence_length": config["n_positions"],
        "norm_epsilon": float(config.get("layer_norm_epsilon", 1e-5)),
        "norm": "layernorm",
        "activation": GELU_NAMES[activation],
        "positions": "learned",
        "bias": True,
        "tied": bool(config.get("tie_word_embeddings", True)),
    }


def _refuse(found: Mapping[str, bool]) -> None:
    if names := [name for name, here in found.items() if here]:
        raise UsageError(f"config.json: the model has {', '.join(names)}, which ours cannot express. Choose another.")


LLAMA = Layout(
    "llama",
    "LlamaForCausalLM",
    {"positions": ("rope",), "norm": ("rmsnorm",), "activation": ("swiglu",)},
    _llama_config,
    _read_llama,
    llama_entries,
)
GPT2 = Layout(
    "gpt2",
    "GPT2LMHeadModel",
    {"positions": ("learned",), "norm": ("layernorm",), "activation": tuple(GELUS)},
    _gpt2_config,
    _read_gpt2,
    gpt2_entries,
)
LAYOUTS = (LLAMA, GPT2)
