"""Small models of every layout for the tests of export and import: ours as checkpoints, theirs as transformers saves
them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from pretrain import checkpoint
from pretrain.checkpoint import Identity
from pretrain.config import ParallelConfig, corpus_folders
from pretrain.corpora import corpora_digest, new_loader, open_corpora, order_from
from pretrain.parallel.base import mesh
from pretrain.training.step import new_run
from tests.lazy import Lazy
from tests.pretrain.texts import smallest_config
from tokenizer.model import Tokenizer

transformers = Lazy("transformers")

OLD_FASHIONED = {"norm": "layernorm", "activation": "gelu", "positions": "learned", "bias": True}
OURS: dict[str, dict[str, Any]] = {
    "llama": {},
    "llama grouped, untied": {"num_heads": 8, "num_kv_heads": 2, "tied": False, "rope_base": 500_000.0},
    "llama with biases": {"num_kv_heads": 1, "bias": True, "norm_epsilon": 1e-6},
    "gpt2": OLD_FASHIONED,
    "gpt2 untied": {**OLD_FASHIONED, "tied": False, "ffn_hidden_size": 40},
    "gpt2 without biases": {**OLD_FASHIONED, "bias": False, "activation": "gelu_tanh"},
}


def write_checkpoint(out: Path, shards: Path, tokenizer: Tokenizer, model: dict[str, Any], **sections: Any) -> Path:
    """A checkpoint whose parameters are all random, biases and norms too."""
    shape = {"num_layers": 2, "hidden_size": 32, "num_heads": 4, "sequence_length": 24}
    config = smallest_config(model=shape | model, **sections)
    corpora = open_corpora(config.data, corpus_folders(config.data, shards))
    order = order_from(config, corpora=corpora)
    identity = Identity(corpora_digest(corpora), tokenizer.path, tokenizer.sha256)
    with mesh.start(ParallelConfig(), "cpu", 1.0) as world:
        run = new_run(config, world, new_loader(corpora, order, config), order)
        randomize(list(run.parameters.values()))
        return checkpoint.save(out, run.state, run.model, run.optimizer, config, identity, world)


@torch.no_grad()
def randomize(parameters: list[torch.nn.Parameter]) -> None:
    """Each its own values; vectors about 1."""
    generator = torch.Generator().manual_seed(5)
    for parameter in parameters:
        parameter.normal_(1.0 if parameter.dim() == 1 else 0.0, 0.3, generator=generator)


def their_llama(vocab_size: int, **changes: Any) -> transformers.LlamaForCausalLM:
    """With grouped heads and a base of its own."""
    shape = {"num_hidden_layers": 2, "hidden_size": 32, "num_attention_heads": 4, "num_key_value_heads": 2,
             "intermediate_size": 48, "max_position_embeddings": 24, "rms_norm_eps": 1e-5,
             "rope_parameters": {"rope_type": "default", "rope_theta": 1000.0}}  # fmt: skip
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(vocab_size=vocab_size, **shape | changes))
    randomize(list(model.parameters()))
    return model.eval()


def their_gpt2(vocab_size: int, **changes: Any) -> transformers.GPT2LMHeadModel:
    """As published: gelu_new."""
    shape = {"n_layer": 2, "n_embd": 32, "n_head": 4, "n_positions": 24}
    model = transformers.GPT2LMHeadModel(
        transformers.GPT2Config(vocab_size=vocab_size, bos_token_id=0, eos_token_id=0, **shape | changes)
    )
    randomize(list(model.parameters()))
    return model.eval()


def save(model: Any, folder: Path, tokenizer: Tokenizer | None) -> Path:
    """The folder that transformers writes, with the SentencePiece model in it."""
    model.save_pretrained(folder)
    if tokenizer is not None:
        (folder / "tokenizer.model").write_bytes(tokenizer.path.read_bytes())
    return folder
