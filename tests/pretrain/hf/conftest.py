from __future__ import annotations

from pathlib import Path

import pytest

from tests.pretrain.texts import small_tokenizer, text_folder
from tests.tokenizer.texts import document
from tokenizer.model import Tokenizer


@pytest.fixture(scope="session")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    """500 entries: 12 rows of a padded vocabulary are no token's."""
    return small_tokenizer(tmp_path_factory.mktemp("tokenizer") / "small.model")


@pytest.fixture(scope="session")
def data(tmp_path_factory: pytest.TempPathFactory, tokenizer: Tokenizer) -> Path:
    """Token shards of some sixty documents."""
    texts = {"00000-00-train": [document(seed) for seed in range(50)],
             "00000-00-validation": [document(seed) for seed in range(50, 60)]}  # fmt: skip
    return text_folder(tmp_path_factory.mktemp("data") / "shards", tokenizer, texts)
