"""A tokenizer and two builds for all tests of this folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.pretrain.ablation.builds import CONFIG, two_builds
from tests.pretrain.texts import small_tokenizer
from tokenizer.model import Tokenizer


@pytest.fixture(scope="session")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    return small_tokenizer(tmp_path_factory.mktemp("tokenizer") / "tokenizer.model")


@pytest.fixture(scope="session")
def arms(tmp_path_factory: pytest.TempPathFactory, tokenizer: Tokenizer) -> list[str]:
    """`NAME=FOLDER` of two builds, which nobody writes into."""
    return two_builds(tmp_path_factory.mktemp("builds"), tokenizer)


@pytest.fixture
def config(tmp_path: Path) -> str:
    path = tmp_path / "tiny.toml"
    path.write_text(CONFIG)
    return str(path)
