"""FAULTS row 29: a loss spike is recorded with the documents of its step."""

from __future__ import annotations

import json
from pathlib import Path
from unittest import mock

import pytest
from torch import Tensor

from pretrain import checkpoint
from pretrain.config import RunConfig
from pretrain.monitor import spikes
from pretrain.parallel.engine.compose import ParallelModel
from pretrain.run.trace import Trace
from tests.faults.test_f28_not_finite import Corpus, config, recorded, run, write_corpus
from tests.pretrain.ranks import reused_ranks
from tests.pretrain.texts import small_tokenizer


def run_spiking(config: RunConfig, corpus: Corpus, out: Path, steps: list[int]) -> tuple[str, list[str]]:
    """The loss of some steps is half as much again; two losses are enough to know what is usual."""
    attempts: list[int] = []
    original = ParallelModel.step

    def step(model: ParallelModel, *args: object) -> Tensor:
        attempts.append(1)
        return original(model, *args) * (1.5 if len(attempts) in steps else 1.0)  # type: ignore[arg-type]

    with mock.patch.object(ParallelModel, "step", step), mock.patch.object(spikes, "WARM_UP", 2):
        return run(config, corpus, out)


@pytest.mark.long
@pytest.mark.parametrize("limit", [6.0, 1e6])
def test_a_spike_is_recorded_with_its_documents(tmp_path: Path, limit: float) -> None:
    corpus = write_corpus(tmp_path, small_tokenizer(tmp_path / "tokenizer.model"))
    out = tmp_path / "out"
    settings = config(spike_deviations=limit)
    (error, said), (_, silent) = reused_ranks(run_spiking, 2, settings, corpus, out, [7, 9])
    assert error == "" and silent == []
    lines = recorded(out, "loss_spike")
    if limit > 6.0:
        assert lines == [] and not (out / "loss_spikes").exists()
        return
    assert [line["step"] for line in lines] == [7, 9]
    folder = checkpoint.newest(out)
    assert folder is not None
    trace = Trace.of_checkpoint(folder, {"tokens": corpus.folder})
    for line, message in zip(lines, said, strict=True):
        assert line["loss"] == pytest.approx(1.5 * line["mean"], rel=0.05) and line["deviations"] > limit
        assert line["file"] == f"loss_spikes/step-{line['step']:08d}.jsonl"
        listed = [json.loads(text) for text in (out / line["file"]).read_text("utf-8").splitlines()]
        expected = trace.sightings(trace.step(line["step"]))
        assert [(row["sample"], row["id"]) for row in listed] == [(each.sample, each.id) for each in expected]
        assert f"step {line['step']}: loss " in message and line["file"] in message
