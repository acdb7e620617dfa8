from __future__ import annotations

from pathlib import Path

import pytest

from tests.tokenizer.texts import documents
from tokenizer.config import TokenizerConfig
from tokenizer.model import Tokenizer
from tokenizer.pieces import on_grid
from tokenizer.train import train

ASCII = "".join(map(chr, range(32, 127)))
KINDS = ("bpe", "unigram", "bpe with symbols", "unigram with symbols")
USER_SYMBOLS = ("<n>", "<|img|>", "之乎", "乎者")
CONTROL_SYMBOLS = ("<|im_start|>", "<|im_end|>")


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Tokenizer]:
    """A tokenizer of each kind, Unigram with its scores on the grid."""
    folder = tmp_path_factory.mktemp("models")
    texts = [*documents(150), *(text.replace("君子", "哈哈哈哈哈哈") for text in documents(50, 150)), ASCII]
    symbols = {"user_symbols": USER_SYMBOLS, "control_symbols": CONTROL_SYMBOLS, "reserved_ids": 2}
    found = {}
    for model_type in ("bpe", "unigram"):
        for name, more in ((model_type, {"character_coverage": 0.99}), (f"{model_type} with symbols", symbols)):
            config = {"model_type": model_type, "vocab_size": 800, "character_coverage": 1.0, "num_threads": 1}
            model = train(texts, TokenizerConfig.model_validate(config | more))
            found[name] = write(folder / f"{name}.model", on_grid(model) if model_type == "unigram" else model)
    return found


@pytest.fixture(scope="session", params=KINDS)
def tokenizer(request: pytest.FixtureRequest, models: dict[str, Tokenizer]) -> Tokenizer:
    return models[request.param]


def write(path: Path, model: bytes) -> Tokenizer:
    path.write_bytes(model)
    return Tokenizer(path)
