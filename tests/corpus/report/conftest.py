"""One small build for the tests that only read; tests that damage one make their own copy."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.corpus.report.build import build


@pytest.fixture(scope="session")
def out(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A complete build, not to be changed."""
    return build(tmp_path_factory.mktemp("build") / "toy")


@pytest.fixture
def copy(out: str, tmp_path: Path) -> Path:
    """A copy of the build that a test may damage."""
    return Path(shutil.copytree(out, tmp_path / "copy"))
