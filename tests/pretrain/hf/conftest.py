from __future__ import annotations

from pathlib import Path

import pytest

from pretrain.__main__ import main
from tests.pretrain.hf.runs import OURS, write_checkpoint
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


@pytest.fixture(scope="session")
def llama(tmp_path_factory: pytest.TempPathFactory, data: Path, tokenizer: Tokenizer) -> Path:
    """A checkpoint with grouped heads, not tied, of a run that measured 4.5 held-out bits per character."""
    checkpoint = write_checkpoint(tmp_path_factory.mktemp("llama"), data, tokenizer, OURS["llama grouped, untied"])
    (checkpoint.parent.parent / "summary.json").write_text('{"steps": 0, "held_out_bits_per_character": 4.5}')
    return checkpoint


@pytest.fixture(scope="session")
def exported(tmp_path_factory: pytest.TempPathFactory, llama: Path) -> Path:
    """The folder that the command makes of it; nobody writes into it."""
    out = tmp_path_factory.mktemp("exported") / "hf"
    assert main(["export", "--checkpoint", str(llama), "--out", str(out)]) == 0
    return out
