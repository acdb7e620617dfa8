"""The tables of tensors: they are read in both directions, and transformers computes with them what we compute."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from corpus.engine.errors import UsageError
from pretrain.config import ModelConfig
from pretrain.hf import proof
from pretrain.hf.export import hf_config, weights_of
from pretrain.hf.layouts import GPT2, LLAMA, choose, join_qkv, split_qkv
from pretrain.hf.proof import ProofError
from pretrain.model import GPT
from tests.pretrain.hf.runs import OLD_FASHIONED, OURS, randomize
from tests.pretrain.models import build, small
from tokenizer.model import Tokenizer


def model_of(tokenizer: Tokenizer, **changes: Any) -> GPT:
    sizes = {"vocab_size": tokenizer.vocab_size, "padded_vocab_size": 512, "sequence_length": 40}
    model = build(small(**sizes | changes))
    randomize(list(model.parameters()))
    return model


def compared(ours: GPT, tokenizer: Tokenizer, **changes: Any) -> proof.Agreement:
    """What the proof says of the converted model, its config.json changed."""
    layout = choose(ours.config, None)
    config = hf_config(layout, ours.config, tokenizer, "float32") | changes
    return proof.compare(ours, proof.in_memory(config, layout.to_theirs(weights_of(ours), ours.config)), tokenizer)


@pytest.mark.parametrize("changes", OURS.values(), ids=OURS.keys())
def test_transformers_computes_the_same_logits(tokenizer: Tokenizer, changes: dict[str, Any]) -> None:
    agreement = compared(model_of(tokenizer, **changes), tokenizer)
    assert agreement.difference < 5e-6
    assert agreement.num_windows == 5 and agreement.num_tokens == 1 + 2 + 17 + 40 + 40


@pytest.mark.parametrize("changes", OURS.values(), ids=OURS.keys())
def test_back_come_the_same_weights_and_zeros_where_no_token_is(tokenizer: Tokenizer, changes: dict[str, Any]) -> None:
    ours = model_of(tokenizer, **changes)
    layout = choose(ours.config, None)
    theirs = layout.to_theirs(weights_of(ours), ours.config)
    model = layout.expressed(ours.config)
    back = dict(layout.to_ours(theirs.__getitem__, model, tokenizer.vocab_size))
    for name, weight in weights_of(ours).items():
        if weight.shape[0] == 512:
            assert torch.equal(back[name][:500], weight[:500]) and not back[name][500:].any(), name
        else:
            assert torch.equal(back[name], weight), name
    assert all(not tensor.any() for name, tensor in back.items() if name not in weights_of(ours))


@given(st.integers(1, 4), st.integers(1, 4), st.integers(1, 3), st.sampled_from([(), (5,)]))
def test_heads_of_a_group_lie_together_and_come_apart(
    groups: int, group: int, half: int, columns: tuple[int, ...]
) -> None:
    size = 2 * half
    model = small(num_heads=groups * group, num_kv_heads=groups, hidden_size=groups * group * size)
    rows = torch.arange(groups * (group + 2) * size)
    qkv = rows.reshape(-1, *[1] * len(columns)).expand(-1, *columns) if columns else rows
    q, k, v = split_qkv(qkv, model)
    first = {"q": q, "k": k, "v": v}
    for kind, tensor in first.items():  # by the definition in `pretrain.model.gpt.Attention`
        plain = tensor.reshape(len(tensor), -1)[:, 0]
        heads = groups * (group if kind == "q" else 1)
        for head in range(heads):
            own, place = (head // group, head % group) if kind == "q" else (head, group + "kv".index(kind))
            start = (own * (group + 2) + place) * size
            assert plain[head * size : (head + 1) * size].tolist() == list(range(start, start + size))
    assert torch.equal(join_qkv([q, k, v], model), qkv)


def test_what_is_almost_the_same_is_refused(tokenizer: Tokenizer) -> None:
    llama, gpt2 = model_of(tokenizer, num_kv_heads=2), model_of(tokenizer, **OLD_FASHIONED)
    wrong: list[tuple[GPT, dict[str, Any]]] = [
        (llama, {"rms_norm_eps": 1e-3}),
        (llama, {"rope_parameters": {"rope_type": "default", "rope_theta": 12_000.0}}),
        (gpt2, {"activation_function": "gelu_new"}),
        (gpt2, {"layer_norm_epsilon": 1e-3}),
    ]
    for ours, changes in wrong:
        with pytest.raises(ProofError, match="logits differ by"):
            compared(ours, tokenizer, **changes)


def test_weights_that_are_no_numbers_are_refused(tokenizer: Tokenizer) -> None:
    ours = model_of(tokenizer)
    weights_of(ours)["final_norm.weight"][3] = float("nan")
    with pytest.raises(ProofError):
        compared(ours, tokenizer)


def test_the_model_chooses_the_layout() -> None:
    assert choose(small(), None) is LLAMA and choose(small(), "llama") is LLAMA
    assert choose(small(**OLD_FASHIONED), None) is GPT2


@pytest.mark.parametrize(
    ("changes", "name", "told"),
    [
        ({"norm": "layernorm", "bias": True}, None, "llama has no norm layernorm.*gpt2 has no positions rope"),
        ({"positions": "learned"}, "llama", "llama has no positions learned"),
        (OLD_FASHIONED, "llama", "llama has no positions learned.*--format gpt2 can"),
        ({**OLD_FASHIONED, "num_kv_heads": 2}, None, "gpt2 has no num_kv_heads 2 .it has as many as num_heads, 4"),
        ({**OLD_FASHIONED, "activation": "swiglu"}, "gpt2", r"activation swiglu \(it has gelu or gelu_tanh\)"),
    ],
)
def test_what_no_layout_can_say_is_refused_by_name(changes: dict[str, Any], name: str | None, told: str) -> None:
    with pytest.raises(UsageError, match=told):
        choose(small(**changes), name)


def their_config(**changes: Any) -> dict[str, Any]:
    llama = {"hidden_size": 64, "intermediate_size": 100, "num_hidden_layers": 2, "num_attention_heads": 4,
             "num_key_value_heads": 2, "max_position_embeddings": 128, "rms_norm_eps": 1e-6}  # fmt: skip
    return llama | changes


def test_a_config_is_read_as_older_and_newer_versions_write_it() -> None:
    older = LLAMA.read(their_config(rope_theta=5e5, rope_scaling=None))
    newer = LLAMA.read(their_config(rope_parameters={"rope_type": "default", "rope_theta": 5e5}, head_dim=16))
    assert older == newer and older["rope_base"] == 5e5 and older["tied"] is False
    model = ModelConfig.model_validate(older | {"padded_vocab_size": 128})
    assert (model.kv_heads, model.ffn_size, model.norm_epsilon, model.norm) == (2, 100, 1e-6, "rmsnorm")
    gpt2 = GPT2.read({"n_embd": 64, "n_layer": 2, "n_head": 4, "n_positions": 128, "n_inner": None})
    assert gpt2["activation"] == "gelu_tanh" and gpt2["ffn_hidden_size"] == 256 and gpt2["tied"] is True


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"rope_scaling": {"type": "linear", "factor": 2.0}}, "rope of type 'linear'"),
        ({"rope_parameters": {"rope_type": "llama3", "rope_theta": 5e5}}, "rope of type 'llama3'"),
        ({"rope_parameters": {"rope_theta": 5e5, "partial_rotary_factor": 0.5}}, "partial rotary"),
        ({"hidden_act": "gelu"}, "hidden_act 'gelu'"),
        ({"sliding_window": 4096}, "a sliding window"),
        ({"attention_bias": True}, "biases of attention or of the MLP alone"),
        ({"head_dim": 32}, "head_dim"),
    ],
)
def test_variants_of_llama_are_refused_by_name(changes: dict[str, Any], told: str) -> None:
    with pytest.raises(UsageError, match=told):
        LLAMA.read(their_config(**changes))


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"activation_function": "relu"}, "activation_function 'relu'"),
        ({"scale_attn_weights": False}, "scale_attn_weights"),
        ({"scale_attn_by_inverse_layer_idx": True}, "scale_attn_by_inverse"),
        ({"add_cross_attention": True}, "cross attention"),
    ],
)
def test_variants_of_gpt2_are_refused_by_name(changes: dict[str, Any], told: str) -> None:
    with pytest.raises(UsageError, match=told):
        GPT2.read({"n_embd": 64, "n_layer": 2, "n_head": 4, "n_positions": 128} | changes)
