"""The checkpoint that is fine-tuned."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.pretrain.finetuning.made import base_config, write_base


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_base(tmp_path_factory.mktemp("base"), base_config())
