"""The loss scale of fp16: its counters, through a checkpoint too."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pretrain import checkpoint
from pretrain.config import ParallelConfig, RunConfig
from pretrain.evaluation.bits import evaluate
from pretrain.evaluation.held_out import read_held_out
from pretrain.inference.batcher import EvaluationBatcher
from pretrain.training import loss_scale
from pretrain.training.state import State
from pretrain.training.step import train_step
from tests.faults.test_f28_not_finite import config, recorded, run, write_corpus
from tests.pretrain.checkpoints import Result, assert_equal, contents, resume, save
from tests.pretrain.ranks import reused_ranks
from tests.pretrain.texts import small_tokenizer
from tests.pretrain.tiny import tiny_config, tiny_run
from tokenizer.model import Tokenizer


def fp16(initial: float, growth_steps: int, **sections: Any) -> RunConfig:
    values = {"initial": initial, "growth_steps": growth_steps}
    return tiny_config(training={"precision": "fp16", "loss_scale": values, "num_steps": 10}, **sections)


@given(st.lists(st.integers(0, 3), max_size=40), st.integers(1, 5))
def test_it_doubles_after_so_many_steps_without_an_overflow(overflows: list[int], growth_steps: int) -> None:
    training = fp16(2.0**20, growth_steps).training
    state, scale, since = State(), 2.0**20, 0
    for number in overflows:
        assert loss_scale.current(state, training) == scale
        for _ in range(number):
            scale, since = scale / 2, 0
        loss_scale.advance(state, training, scale, number)
        since += 1
        if since == growth_steps:
            scale, since = scale * 2, 0
        assert (state.loss_scale, state.steps_at_scale) == (scale, since)


def test_its_bounds() -> None:
    training = fp16(2.0**32, 1).training
    state = State()
    loss_scale.advance(state, training, 2.0**32, 0)
    assert loss_scale.current(state, training) == 2.0**32
    assert [loss_scale.halve(scale) for scale in (2.0**32, 2.0, 1.5, 1.0)] == [2.0**31, 1.0, 1.0, 1.0]


@pytest.mark.parametrize("precision", ["fp32", "bf16", "fp64"])
def test_other_precisions_have_none(precision: str) -> None:
    training = tiny_config(training={"precision": precision}).training
    state = State(loss_scale=8.0)
    assert loss_scale.current(state, training) == 1.0
    loss_scale.advance(state, training, 1.0, 0)
    assert state == State(loss_scale=8.0)


def train_seven(config: RunConfig, out: Path | None) -> tuple[list[tuple[float, float | None]], Result]:
    """Seven steps, or five and a checkpoint that the last two go on from; the scale doubles after each three."""
    with tiny_run(config) as run:
        done = [train_step(run) for _ in range(5)]
        if out is not None:
            save(run, out)
            run.state = State()
            resume(run, out)
        done += [train_step(run) for _ in range(2)]
        return [(result.loss, result.loss_scale) for result in done], contents(run)


@pytest.mark.parametrize("parallel", [{}, {"zero": 3}])
def test_a_resumed_run_has_the_scale_of_one_that_never_stopped(tmp_path: Path, parallel: dict[str, Any]) -> None:
    """And its losses and weights, bit for bit."""
    settings, num_ranks = fp16(16.0, growth_steps=3, parallel=parallel), 1 + len(parallel)
    never, stopped = (reused_ranks(train_seven, num_ranks, settings, out) for out in (None, tmp_path))
    for (expected, last), (resumed, last_resumed) in zip(never, stopped, strict=True):
        assert [scale for _, scale in expected] == [16.0] * 3 + [32.0] * 3 + [64.0]
        assert resumed == expected
        assert_equal(last_resumed, last)


def test_a_run_in_fp16_is_evaluated_and_generates(tmp_path: Path) -> None:
    """On two stages, from a scale that is too large; its checkpoint predicts as the run does, in fp32."""
    corpus = write_corpus(tmp_path, small_tokenizer(tmp_path / "tokenizer.model"))
    values = config(precision="fp16", loss_scale={"initial": 2.0**32}, num_steps=3)
    values = values.model_copy(
        update={
            "parallel": ParallelConfig(pp=2),
            "model": values.model.model_copy(update={"num_layers": 2}),
            "evaluation": values.evaluation.model_copy(update={"sample_tokens": 5}),
        }
    )
    out = tmp_path / "out"
    for error, said in reused_ranks(run, 2, values, corpus, out):
        assert (error, said) == ("", [])
    (overflow,) = recorded(out, "overflow")
    assert overflow["step"] == 1 and overflow["loss_scale"] < 2.0**32
    assert [line["loss_scale"] for line in recorded(out, "train")] == [overflow["loss_scale"]] * 2
    summary = json.loads((out / "summary.json").read_bytes())
    assert len(summary["sample"]) > len(values.evaluation.prompt)
    folder = checkpoint.newest(out)
    assert folder is not None
    model, saved = checkpoint.load_model(folder)
    assert {parameter.dtype for parameter in model.parameters()} == {torch.float32}
    tokenizer = Tokenizer(corpus.tokenizer)
    held_out = read_held_out(corpus.folder, "validation", tokenizer)
    found = evaluate(model, held_out, EvaluationBatcher.of(saved, tokenizer.eod), 4, torch.device("cpu"))
    assert found.bits_per_character == pytest.approx(summary["held_out_bits_per_character"], rel=2e-3)
