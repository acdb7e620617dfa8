from __future__ import annotations

from pathlib import Path

import pytest

from tests.tokenizer.texts import documents
from tokenizer.config import TokenizerConfig
from tokenizer.model import Tokenizer
from tokenizer.train import train

collect_ignore_glob = ["peers/*.py"]  # they run where the peers are installed


@pytest.fixture(scope="session")
def model_bytes() -> bytes:
    return train(documents(200), TokenizerConfig(vocab_size=700))


@pytest.fixture(scope="session")
def model_file(tmp_path_factory: pytest.TempPathFactory, model_bytes: bytes) -> Path:
    path = tmp_path_factory.mktemp("model") / "tokenizer.model"
    path.write_bytes(model_bytes)
    return path


@pytest.fixture(scope="session")
def tokenizer(model_file: Path) -> Tokenizer:
    return Tokenizer(model_file)
