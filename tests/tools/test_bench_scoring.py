"""The benchmark of scoring: both ways answer the same questions, and a row of the table says so."""

from __future__ import annotations

from pathlib import Path

import pytest

from pretrain.checkpoint import load_model
from pretrain.reading import Reading
from tests.pretrain.evaluation.test_opened import save_trained
from tests.pretrain.texts import smallest_config
from tools.bench import scoring
from tools.bench.scoring import Shape, ask, drawn, run, separate

SHAPE = Shape("3 labels", 3, 2, 4)


def test_both_ways_answer_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = save_trained(tmp_path / "run", smallest_config())
    model, config = load_model(folder)
    requests, reading = drawn(SHAPE, 500), Reading.of(config, 0)
    assert len(requests) == 4 and len(separate(requests)) == 12
    assert ask(model, separate(requests), reading) == pytest.approx(ask(model, requests, reading), rel=1e-5)
    seconds = iter([2.0, 8.0])
    monkeypatch.setattr(scoring, "cpu_seconds", lambda work: work() and next(seconds))
    monkeypatch.setattr(scoring, "SHAPES", (SHAPE,))
    run(folder)
    assert capsys.readouterr().out.splitlines()[-1].split() == ["3", "labels", "2.00", "0.50", "4.00"]
