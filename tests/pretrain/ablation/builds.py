"""Two small builds of one tokenizer, and a configuration that trains on them in no time."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from tests.pretrain.texts import text_folder
from tests.tokenizer.texts import LINES
from tokenizer.model import Tokenizer

LETTERS = sorted(set("".join(LINES)))

CONFIG = """
[model]
num_layers = 1
hidden_size = 16
num_heads = 2
sequence_length = 16
padded_vocab_size = 512
[optimizer]
learning_rate = 1e-2
[training]
num_steps = 6
global_batch_size = 4
micro_batch_size = 4
device = "cpu"
seed = 7
timeout_minutes = 1.0
[checkpoint]
every_steps = 100
[metrics]
tensorboard = false
[evaluation]
every_steps = 100
max_tokens = 2000
"""


def prose(seed: int, num_characters: int = 200) -> str:
    """Text that shares no 13-gram of tokens with another seed's."""
    random = np.random.default_rng(seed)
    return "".join(random.choice(LETTERS, num_characters))


def build(
    folder: Path, tokenizer: Tokenizer, train: Sequence[str], validation: Sequence[str] = (), first_id: int = 0
) -> Path:
    """Token shards of both splits; ids count up from `first_id`, those of the training split first."""
    shards = {"00000-00-train": train, **({"00000-00-validation": validation} if validation else {})}
    text_folder(folder, tokenizer, shards, first_id)
    (folder / "model").mkdir()
    shutil.copyfile(tokenizer.path, folder / "model" / "tokenizer.model")
    return folder


def two_builds(folder: Path, tokenizer: Tokenizer) -> list[str]:
    """`NAME=FOLDER` of two builds that share no text and no id."""
    one = build(folder / "one", tokenizer, [*map(prose, range(10))], [*map(prose, range(100, 106))])
    other = build(
        folder / "other", tokenizer, [*map(prose, range(20, 35))], [*map(prose, range(200, 206))], first_id=500
    )
    return [f"one={one}", f"other={other}"]
