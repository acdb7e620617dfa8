"""Small corpora of real text for tests of runs: a tokenizer, token shards of documents with ids and URLs,
checkpoints."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from corpus.engine.config import parse
from pretrain import checkpoint
from pretrain.checkpoint import Identity
from pretrain.config import ParallelConfig, RunConfig, corpus_folders
from pretrain.corpora import corpora_digest, new_loader, open_corpora, order_from
from pretrain.parallel.base import mesh
from pretrain.training.state import State
from pretrain.training.step import new_run
from tests.pretrain.data.test_reader import Document, write_folder
from tests.tokenizer.texts import documents
from tokenizer.config import TokenizerConfig
from tokenizer.model import Tokenizer
from tokenizer.train import train as train_tokenizer

SEQUENCE_LENGTH = 6


def small_tokenizer(path: Path, vocab_size: int = 500) -> Tokenizer:
    """A tokenizer of `vocab_size` entries; its model file is `path`."""
    path.write_bytes(_trained_tokenizer(vocab_size))
    return Tokenizer(path)


@cache
def _trained_tokenizer(vocab_size: int) -> bytes:
    config = TokenizerConfig.model_validate({"vocab_size": vocab_size, "num_threads": 1})
    return train_tokenizer(documents(200), config)


def text_folder(folder: Path, tokenizer: Tokenizer, shards: Mapping[str, Sequence[str]], first_id: int = 0) -> Path:
    """Token shards of texts by shard name; ids count up from `first_id`, URLs hold them."""
    numbers = iter(range(first_id, 1 << 30))
    rows: dict[str, list[Document]] = {
        name: [
            (f"{number:032x}", f"https://例.cn/{number}", tokenizer.encode(text))
            for text, number in zip(texts, numbers, strict=False)
        ]
        for name, texts in shards.items()
    }
    return write_folder(folder, rows, tokenizer.vocab_size, tokenizer.eod, tokenizer.sha256)


def small_corpus(folder: Path) -> Path:
    """The same folder, with `tokens` of 120 documents and 10 held-out ones, and their `tokenizer.model`."""
    shards = {"00000-00-train": documents(120), "00000-00-validation": documents(130)[120:]}
    text_folder(folder / "tokens", small_tokenizer(folder / "tokenizer.model"), shards)
    return folder


def smallest_config(vocab_size: int = 500, **sections: Any) -> RunConfig:
    """A model of one layer, and a run of seven steps of two samples."""
    values: dict[str, Any] = {
        "model": {
            "num_layers": 1,
            "hidden_size": 8,
            "num_heads": 2,
            "sequence_length": SEQUENCE_LENGTH,
            "vocab_size": vocab_size,
            "padded_vocab_size": -(-vocab_size // 128) * 128,
        },
        "optimizer": {"learning_rate": 1e-3},
        "training": {"num_steps": 7, "global_batch_size": 2, "micro_batch_size": 1, "seed": 5, "device": "cpu"},
        "checkpoint": {"every_steps": 1},
        "evaluation": {"every_steps": 1},
    }
    for name, section in sections.items():
        values[name] = {**values.get(name, {}), **section}
    return parse(RunConfig, values, "smallest")


def save_checkpoint(
    out: Path, config: RunConfig, data: Path | None, tokenizer: Tokenizer, state: State | None = None
) -> Path:
    """A checkpoint that says it is at `state`, of a model that has its first weights."""
    corpora = open_corpora(config.data, corpus_folders(config.data, data))
    order = order_from(config, corpora=corpora)
    identity = Identity(corpora_digest(corpora), tokenizer.path, tokenizer.sha256)
    with mesh.start(ParallelConfig(), "cpu", 1.0) as world:
        run = new_run(config, world, new_loader(corpora, order, config), order)
        return checkpoint.save(out, state or run.state, run.model, run.optimizer, config, identity, world)


def batch_tokens(corpora: Any, order: Any, config: RunConfig, first: int, count: int) -> list[list[int]]:
    """The T + 1 tokens of each sample, as training reads them."""
    batch = new_loader(corpora, order, config).batch(first, count)
    whole: list[list[int]] = np.concatenate([batch.tokens, batch.targets[:, -1:]], axis=1).tolist()
    return whole


def recorded(out: Path, kind: str = "train") -> dict[int, dict[str, Any]]:
    """The lines of one kind in metrics.jsonl by step; the last of a step counts."""
    lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    return {line["step"]: line for line in lines if line["kind"] == kind}


def losses(out: Path) -> dict[int, float]:
    return {step: line["loss"] for step, line in recorded(out).items()}
