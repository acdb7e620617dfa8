"""The planner's command line, called in this process."""

from __future__ import annotations

from typing import Any

import pytest

from pretrain.__main__ import main
from pretrain.plan.machines.cluster import Cluster, load_cluster


@pytest.fixture(scope="session")
def cluster() -> Cluster:
    """Selene, on which most published figures were measured."""
    return load_cluster("selene-a100-80")


@pytest.fixture
def ask(capsys: pytest.CaptureFixture[str]) -> Any:
    """Run a command that succeeds; returns what it printed."""

    def run(*words: str) -> str:
        code = main(words)
        said = capsys.readouterr()
        assert code == 0, said.err
        return said.out

    return run


@pytest.fixture
def refuse(capsys: pytest.CaptureFixture[str]) -> Any:
    """Run a command that is a mistake; returns the sentence."""

    def run(*words: str) -> str:
        assert main(words) == 2
        said = capsys.readouterr()
        assert not said.out
        assert "Traceback" not in said.err
        [line] = said.err.splitlines()
        return line.removeprefix("pretrain: ")

    return run
