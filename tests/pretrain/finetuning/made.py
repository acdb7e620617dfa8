"""Small things to fine-tune: a tokenizer, a base checkpoint, files of examples, and the command line that trains on
them."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

from pretrain import checkpoint
from pretrain.__main__ import planner
from pretrain.checkpoint import Identity
from pretrain.config import RunConfig
from pretrain.corpora import order_from
from pretrain.finetuning import command
from pretrain.parallel.base import mesh
from pretrain.training.step import new_run
from tests.pretrain.texts import small_tokenizer
from tests.pretrain.tiny import tiny_config, tiny_loader_of
from tokenizer.model import Tokenizer

EIGHT = [
    ("天", "蓝"), ("地", "黄色的"), ("人", "口"), ("手", "足够"), ("日", "月"), ("水", "火"), ("山", "石头"), ("上", "下"),
]  # fmt: skip


def base_config(**model: Any) -> RunConfig:
    """Of a tiny model with a window of 32 tokens, and weights that are not those a run of the default seed begins
    with."""
    size = {"sequence_length": 32, "hidden_size": 64, "padded_vocab_size": 512, "vocab_size": None}
    return tiny_config(model=size | model, optimizer={"learning_rate": 1e-2}, training={"seed": 7})


def write_base(folder: Path, config: RunConfig) -> Path:
    """The checkpoint of a run of `config` that has not learned anything, and beside it `tokenizer.model`."""
    tokenizer = small_tokenizer(folder / "tokenizer.model")
    size = config.model.model_copy(update={"vocab_size": tokenizer.vocab_size})
    config = config.model_copy(update={"model": size})
    identity = Identity("d" * 64, tokenizer.path, tokenizer.sha256)
    with mesh.start(config.parallel, "cpu", 1.0) as world:
        run = new_run(config, world, tiny_loader_of(config), order_from(config))
        return checkpoint.save(folder / "base", run.state, run.model, run.optimizer, config, identity, world)


def tokenizer_of(folder: Path) -> Tokenizer:
    """That of a checkpoint, or of any folder with a `tokenizer.model`."""
    return Tokenizer(folder / "tokenizer.model")


def write_lines(path: Path, pairs: Sequence[tuple[str, str]]) -> Path:
    path.write_text("".join(f"{json.dumps({'prompt': one, 'completion': two})}\n" for one, two in pairs))
    return path


def arguments(base: Path, examples: Path, out: Path, *words: str) -> argparse.Namespace:
    """What `python -m pretrain finetune` parses."""
    parser = argparse.ArgumentParser()
    command.add_arguments(parser)
    return parser.parse_args(["--checkpoint", str(base), "--examples", str(examples), "--out", str(out), *words])


QUICK = (
    "--set", "evaluation.sample_tokens=0", "--set", "training.device=cpu", "--set", "metrics.tensorboard=false",
    "--set", "training.timeout_minutes=1.0",
)  # fmt: skip


SETTINGS = (
    *QUICK, "--template", "dialogue", "--epochs", "30",
    "--set", "optimizer.learning_rate=5e-3", "--set", "training.global_batch_size=2",
    "--set", "schedule.kind=\"constant\"",
)  # fmt: skip


def finetune(base: Path, lines: Path, out: Path, *words: str) -> None:
    """The command, with settings under which eight examples are learned; they are held out, too."""
    with redirect_stdout(StringIO()):
        command.main(arguments(base, lines, out, "--held-out", str(lines), *SETTINGS, *words), planner())
