"""FAULTS row 2: a signal that comes while a checkpoint is being written costs neither that one nor the one it asks for.

Kills at every named point of a save are in `tests/pretrain/test_checkpoint_killed.py`.
"""

from __future__ import annotations

import json
import os
import signal
import threading
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from corpus.engine.errors import Stopped
from pretrain import checkpoint
from pretrain.checkpoint import saving
from pretrain.checkpoint.shards import write_shard
from pretrain.config import RunConfig
from pretrain.run import train
from pretrain.training.step import Run, StepResult, train_step
from tests.pretrain.ranks import reused_ranks
from tests.pretrain.texts import small_corpus
from tests.pretrain.tiny import tiny_config


def stopped(config: RunConfig, data: Path, out: Path, number: int) -> str:
    """Rank 1 gets the signal in step 2, while no file of step 1's checkpoint is written yet."""
    signalled = threading.Event()

    def stepping(run: Run) -> StepResult:
        result = train_step(run)
        if run.state.step == 2:
            if run.world.rank == 1:
                os.kill(os.getpid(), number)
            run.world.any_of(False)
            signalled.set()
        return result

    def writing(path: Path, parts: Any) -> Any:
        assert signalled.wait(60)
        return write_shard(path, parts)

    try:
        with mock.patch.object(train, "train_step", stepping), mock.patch.object(saving, "write_shard", writing):
            train.train(config, data / "tokens", out, data / "tokenizer.model")
    except Stopped as error:
        return str(error)
    return "went on"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1])
def test_a_signal_waits_for_the_save_under_way_and_saves_once_more(number: int, tmp_path: Path) -> None:
    config = tiny_config(
        model={"vocab_size": None, "padded_vocab_size": 512},
        checkpoint={"every_steps": 1},
        evaluation={"every_steps": 100, "sample_tokens": 1},
    )
    for message in reused_ranks(stopped, 2, config, small_corpus(tmp_path), tmp_path / "out", number):
        assert message == "stopped after step 2, saved. Run the same command again to go on from there."
    for folder, step in zip(checkpoint.committed_checkpoints(tmp_path / "out"), (1, 2), strict=True):
        checkpoint.load_model(folder)
        assert checkpoint.read_state(folder).step == step
    lines = [json.loads(line) for line in (tmp_path / "out/metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines if line["kind"] == "save"] == [1, 2]
