"""The sweep: which cells a grid has, what is kept of each, how a second run goes on, and what the table says."""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable, Iterator, Sequence
from importlib import resources
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from unittest import mock

import pytest
import torch
import torch.distributed as dist

from corpus.engine.durable import RunLock
from corpus.engine.errors import UsageError
from pretrain import sweep
from pretrain.__main__ import main
from pretrain.config import RunConfig
from pretrain.plan.tuning.measure import Measurement, RankReport
from pretrain.sweep import cells_of
from pretrain.sweep_report import Cell, Grid, Kernels, Row, table
from tests.pretrain.operations import Operations
from tests.pretrain.ranks import reused_ranks
from tests.pretrain.test_scale import TINY
from tests.pretrain.tiny import tiny_config, tiny_run, train_steps

FUSED: tuple[Kernels, ...] = ("fused",)


@pytest.fixture
def config(tmp_path: Path) -> str:
    (tmp_path / "tiny.toml").write_text(TINY)
    return str(tmp_path / "tiny.toml")


def test_a_grid_has_the_cells_that_can_run() -> None:
    places, refused = cells_of(tiny_config(), 2, ["tp=1,2", "pp=1,2", "mbs=2,8"], ["fused", "plain"])
    assert [place.name for place in places] == [
        f"{layout},kernels={kernels}"
        for layout in (
            "tp=1,pp=1,mbs=2,dp=2",
            "tp=1,pp=2,mbs=2,dp=1",
            "tp=1,pp=2,mbs=8,dp=1",
            "tp=2,pp=1,mbs=2,dp=1",
            "tp=2,pp=1,mbs=8,dp=1",
        )
        for kernels in ("fused", "plain")
    ]
    first, second = (place.config for place in places[:2])
    assert first.training.fused_kernels and not second.training.fused_kernels
    assert {place.config.parallel.tp * place.config.parallel.pp for place in places} == {1, 2}
    (too_few, few), (too_many, many) = refused.items()  # each reason once, whatever the kernels
    assert (too_few, few) == ("a rank has 4 samples, fewer than a micro-batch", ["tp=1,pp=1,mbs=8"])
    assert many == ["tp=2,pp=2,mbs=2", "tp=2,pp=2,mbs=8"] and "are 4 devices, not 2" in too_many


def test_a_cell_is_what_training_would_run() -> None:
    places, refused = cells_of(tiny_config(), 2, ["pp=2", "schedule=1f1b,zero-bubble"], ["fused", "compiled"])
    assert [place.config.training.compile for place in places] == [False, True, False]
    assert list(refused.values()) == [["pp=2,schedule=zero-bubble"]] and "training.compile" in next(iter(refused))
    assert all(place.config == RunConfig.model_validate(place.config.model_dump()) for place in places)


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("tp", "write NAME=A,B, for example"),
        ("tp=1,", "write NAME=A,B, for example"),
        ("tp=1,x", "tp is a number, 1 or more"),
        ("tpp=1", "did you mean tp?"),
        ("gbs=4,8", "all cells have one batch. Use --set training.global_batch_size=N"),
        ("pp=2", "pp is said twice"),
    ],
)
def test_a_grid_that_cannot_be_read(word: str, message: str) -> None:
    with pytest.raises(UsageError, match="--grid") as caught:
        cells_of(tiny_config(), 2, ["pp=1", word], FUSED)
    assert message in str(caught.value)


def test_compiled_kernels_need_a_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda name: None)
    places, refused = cells_of(tiny_config(), 1, ["mbs=1"], ["fused", "compiled"])
    assert [place.kernels for place in places] == ["fused"]
    assert refused == {"torch.compile needs a C++ compiler, and there is no g++ or clang++": ["kernels=compiled"]}


def steps_of(kernels: Kernels) -> tuple[set[str], list[float]]:
    [place] = cells_of(tiny_config(), 1, ["mbs=2"], [kernels])[0]
    with tiny_run(place.config) as run, Operations() as operations:
        losses = train_steps(run, 3)[0]
    return set(operations.counts), losses


def test_plain_kernels_compute_the_same_with_scores_in_memory() -> None:
    [(plain, plain_losses)] = reused_ranks(steps_of, 1, "plain")
    [(fused, losses)] = reused_ranks(steps_of, 1, "fused")  # in the same process: the switch goes both ways
    assert any("flash_attention" in name for name in fused) and any("fused_adamw" in name for name in fused)
    assert not any("flash_attention" in name or "fused_adamw" in name for name in plain)
    assert any("softmax" in name for name in plain - fused)
    assert plain_losses == pytest.approx(losses, rel=1e-5) and losses[2] < losses[0]


def words_of(config: str, out: Path, *more: str) -> list[str]:
    return ["sweep", "--config", config, "--gpus", "2", "--out", str(out), *more]


GRID = ("--grid", "tp=1,2", "pp=1,2", "mbs=2", "--kernels", "fused", "plain")


def fake_measure(calls: list[RunConfig], ends_at: int = 99) -> Callable[..., Measurement]:
    """Seconds by layout; tensor parallelism needs too much memory, and plain kernels time out with it."""

    def measure(config: RunConfig, num_ranks: int, *, steps: int, warm_up: int, timeout: float) -> Measurement:
        assert (num_ranks, steps, warm_up, timeout) == (2, 5, 2, 600.0)
        if len(calls) == ends_at:
            raise KeyboardInterrupt
        calls.append(config)
        if config.parallel.tp > 1:
            is_fused = config.training.fused_kernels
            return Measurement("out of memory" if is_fused else "failed", message="no room" if is_fused else "late")
        middle = 0.1 * config.parallel.pp * (1 if config.training.fused_kernels else 2)
        return Measurement("done", (middle / 2, middle, middle * 9), (2**30, 2**29))

    return measure


def test_a_sweep_that_was_interrupted_goes_on(
    config: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out, calls, again = tmp_path / "out", list[RunConfig](), list[RunConfig]()
    monkeypatch.setattr(sweep, "measure", fake_measure(calls, ends_at=4))
    assert main(words_of(config, out, *GRID)) == 75
    kept = {path.name: path.read_bytes() for path in (out / "cells").iterdir()}
    assert len(calls) == len(kept) == len((out / "sweep.jsonl").read_text().splitlines()) == 4
    capsys.readouterr()

    monkeypatch.setattr(sweep, "measure", fake_measure(again))
    assert main(words_of(config, out, *GRID)) == 0
    assert [(each.parallel.tp, each.training.fused_kernels) for each in again] == [(2, True), (2, False)]
    assert {name: (out / "cells" / name).read_bytes() for name in kept} == kept
    cells = [json.loads(line) for line in (out / "sweep.jsonl").read_text().splitlines()]
    assert [cell["outcome"] for cell in cells] == ["done"] * 4 + ["out of memory", "failed"]
    assert cells[0]["step_seconds"] == 0.1 and cells[0]["peak_bytes"] == 2**30
    assert cells[0]["tokens_per_second"] == pytest.approx(8 * 16 / 0.1)
    assert cells[0]["predicted_seconds"] > 0 and "predicted_seconds" not in cells[1]
    said, talk = capsys.readouterr()
    assert said == (out / "sweep.md").read_text()
    assert "- tp=2,pp=1,mbs=2,dp=1, fused: out of memory: no room" in said
    assert "plain kernels take 2.00 times as long as fused ones (geometric mean of 2 layouts)" in said
    assert "- best measured: tp=1,pp=1,mbs=2,dp=2, fused kernels, 0.100 s a step" in said
    assert "the planner would choose tp=" in said and "(cluster cpu)" in said
    assert talk.count("left out: ") == 1 and "cell 5 of 6: tp=2,pp=1,mbs=2,dp=1,kernels=fused" in talk
    drawn = ElementTree.parse(out / "sweep.svg")
    assert len(list(drawn.iter("{http://www.w3.org/2000/svg}circle"))) == 2  # fused, measured and predicted

    monkeypatch.setattr(sweep, "measure", fake_measure([], ends_at=0))
    assert main(words_of(config, out, *GRID)) == 0  # nothing is measured again
    assert main(words_of(config, out, *GRID, "--list")) == 0
    assert "    5  tp=2,pp=1,mbs=2,dp=1,kernels=plain  (done)" in capsys.readouterr().out.splitlines()


def test_cells_of_another_run_are_not_mixed_in(
    config: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    monkeypatch.setattr(sweep, "measure", fake_measure([]))
    assert main(words_of(config, out, *GRID)) == 0
    assert main(words_of(config, out, *GRID, "--set", "model.num_layers=4")) == 2
    assert "Give another --out, or remove" in capsys.readouterr().err
    with RunLock(out):
        assert main(words_of(config, out, *GRID)) == 3


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (("--steps", "0"), "--gpus and --steps must be 1 or more"),
        (("--timeout", "0"), "--timeout more than 0"),
        (("--grid", "tp=4"), "--grid: no cell can run. tp=4: "),
        (("--cluster", "nowhere", "--grid", "mbs=1"), "nowhere: no such file"),
        (("--cell", "0", "--grid", "mbs=1"), "--cell is for a rank of a job"),
    ],
)
def test_mistakes_are_told_before_anything_starts(
    config: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    more: Sequence[str],
    message: str,
) -> None:
    monkeypatch.setattr(sweep, "measure", fake_measure([], ends_at=0))
    assert main(words_of(config, tmp_path / "out", *more)) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "out" / "cells").exists()


def test_what_the_planner_cannot_say_is_said(
    config: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A GPU that it does not know; or a machine on which, by its account, nothing fits."""
    monkeypatch.setattr(sweep, "measure", fake_measure([]))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda _: "Voodoo 3")
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: SimpleNamespace(total_memory=2**24))
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    words = words_of(config, tmp_path / "gpu", *GRID, "--set", "training.device=auto")
    assert main(words) == 2
    assert "--gpus 2: 1 are here. On a cluster start each cell as a job" in capsys.readouterr().err
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert main(words) == 0
    assert (
        "- no predictions, for want of a --cluster: parallel: auto knows no cluster of Voodoo 3"
        in capsys.readouterr().out
    )

    text = (resources.files("pretrain") / "plan/machines/clusters/cpu.toml").read_text()
    (tmp_path / "small.toml").write_text(re.sub("memory_gib = .*", "memory_gib = 1e-3", text))
    assert main(words_of(config, tmp_path / "small", *GRID, "--cluster", str(tmp_path / "small.toml"))) == 0
    said = capsys.readouterr().out
    assert "- predicted steps: mean error" in said and "- the planner would choose nothing: no layout of 2" in said


def run_rank(words: Sequence[str], reports: Sequence[RankReport] = ()) -> tuple[int, str]:
    """The command on a rank of a job, which comes to a report of its own if there are some; its code and what it
    said."""
    said = io.StringIO()
    with contextlib.ExitStack() as stack:
        if reports:

            def train_rank(*_: object) -> RankReport:
                dist.barrier()
                return reports[int(os.environ["RANK"])]

            stack.enter_context(mock.patch.object(sweep, "train_rank", train_rank))
        stack.enter_context(contextlib.redirect_stderr(said))
        try:
            return main(words), said.getvalue()
        except SystemExit as end:
            return int(end.code or 0), said.getvalue()


def test_a_job_measures_its_own_cell(config: str, tmp_path: Path) -> None:
    """What `srun` does: one job for each cell, into one folder."""
    more = ("--grid", "tp=1,2", "mbs=2", "--kernels", "fused", "--steps", "2", "--warm-up", "1")
    words = words_of(config, tmp_path / "out", *more)
    assert [code for code, _ in reused_ranks(run_rank, 2, [*words, "--cell", "1"])] == [0, 0]
    [path] = (tmp_path / "out" / "cells").iterdir()
    cell = json.loads(path.read_text())
    assert path.name == "tp=2,mbs=2,dp=1,kernels=fused.json"
    assert (cell["outcome"], len(cell["seconds"])) == ("done", 2) and cell["peak_bytes"] > 0
    assert "| tp=2,mbs=2,dp=1 | fused |" in (tmp_path / "out" / "sweep.md").read_text()
    (code, said), _ = reused_ranks(run_rank, 2, words)
    assert code == 2 and "--cell must be from 0 to 1 in a job" in said
    (code, said), _ = reused_ranks(run_rank, 2, [*words, "--cell", "0", "--gpus", "1"])
    assert code == 2 and "this job has 2 ranks" in said


@pytest.mark.parametrize("at", [0, 1])
def test_the_rank_that_knows_why_tells(config: str, tmp_path: Path, at: int) -> None:
    """One that has lost it says so where nobody knows more, and the next job measures the cell again."""
    lost = RankReport(outcome="failed", message="rank 1 is gone", is_of_another=True)
    knows = RankReport(outcome="out of memory", message="no room", peak_bytes=5)
    more = ("--grid", "mbs=2", "--kernels", "fused")
    words = words_of(config, tmp_path / "out", *more, "--cell", "0")
    assert [code for code, _ in reused_ranks(run_rank, 2, words, [lost, lost])] == [1, 1]
    assert main(words_of(config, tmp_path / "out", *more)) == 0  # has nothing to measure, and draws what there is
    assert "fused: failed: rank 1 is gone" in (tmp_path / "out" / "sweep.md").read_text()

    reports = [lost, knows] if at == 1 else [knows, lost]
    assert [code for code, _ in reused_ranks(run_rank, 2, words, reports)] == [1, 1]
    assert [code for code, _ in reused_ranks(run_rank, 2, words, [lost, lost])] == [0, 0]  # is there
    assert main(words_of(config, tmp_path / "out", *more)) == 0
    assert "fused: out of memory: no room" in (tmp_path / "out" / "sweep.md").read_text()
    cell = json.loads((tmp_path / "out" / "cells" / "mbs=2,dp=2,kernels=fused.json").read_text())
    assert (cell["message"], cell["peak_bytes"]) == ("no room", 5)


def grid(**fields: Any) -> Grid:
    values = {"run": "tiny", "digest": "d" * 64, "ranks": 2, "machine": "Abacus", "steps": 5, "warm_up": 2, "cores": 2,
              "device": "cpu", "tokens_per_step": 1000, "flops_per_token": 4e9, "refused": {}}  # fmt: skip
    return Grid.model_validate({**values, **fields})


def row(layout: str, seconds: float, predicted: float | None, kernels: Kernels = "fused") -> Row:
    """A measurement, and a stand-in for its prediction."""
    cell = Cell(layout=layout, kernels=kernels, outcome="done", seconds=(seconds,), peak_bytes=2**29, of="tiny")
    known = None if predicted is None else SimpleNamespace(step_seconds=predicted, memory_bytes=2**30)
    return Row(cell, cast(Any, known))


def rows() -> Iterator[Row]:
    yield row("a", 2.0, 1.0)
    yield row("b", 1.0, 1.1)
    yield row("c", 4.0, 4.0)
    yield row("b", 3.0, None, "plain")


def test_the_table_says_how_well_steps_were_predicted() -> None:
    lines = list(table(grid(refused={"too wide": ("tp=8", "tp=16")}), list(rows()), None, "no predictions: who knows"))
    assert lines[4:8] == [  # the fastest first; 1000 tokens a step, 4 TFLOP a step on two ranks
        "| b | fused | 1.000 | 1,000 | 2 | 0.50 | 1.100 | +10.0% | 1.00 |",
        "| a | fused | 2.000 | 500 | 1 | 0.50 | 1.000 | -50.0% | 1.00 |",
        "| b | plain | 3.000 | 333 | 0.6667 | 0.50 |  |  |  |",
        "| c | fused | 4.000 | 250 | 0.5 | 0.50 | 4.000 | +0.0% | 1.00 |",
    ]
    assert "- left out: tp=8, tp=16: too wide" in lines
    assert "- plain kernels take 3.00 times as long as fused ones (geometric mean of 1 layouts)" in lines
    assert "- predicted steps: mean error 20.0%, worst 50.0%, rank correlation 0.50 (3 layouts, fused kernels)" in lines
    assert "- of these layouts the planner has a first: measured 100.0% slower than b" in lines
    assert lines[-1] == "- no predictions: who knows"
