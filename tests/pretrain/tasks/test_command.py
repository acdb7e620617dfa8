"""`python -m pretrain tasks` from its options to its table, with a model whose answers are known."""

from __future__ import annotations

import argparse
import json
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.cells import cell_len

from corpus.engine.errors import UsageError
from pretrain.tasks import command, run
from pretrain.tasks.definition import NINE
from pretrain.tasks.results import read_results
from pretrain.tasks.statistics import difference
from pretrain.tasks.table import comparable, lines, published_baselines
from tests.pretrain.tasks.made_up import Knows, made_up_model, results_of, task_result, write_task


@pytest.fixture(name="task")
def _task(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    def opened(args: argparse.Namespace) -> Any:
        knows = Knows(lambda character: -5.0 if character == args.checkpoint else 0.0)
        return nullcontext(made_up_model(knows, checkpoint=args.checkpoint))

    monkeypatch.setattr(command, "load_checkpoint", opened)
    monkeypatch.setattr("pretrain.checkpoint.read_commit", lambda folder: SimpleNamespace(digest=folder))
    return write_task(tmp_path)


def called(task: Path, *words: str, likes: str = "无") -> None:
    """The command with a model that likes one character."""
    parser = argparse.ArgumentParser()
    command.add_arguments(parser)
    common = ["--checkpoint", likes, "--data", str(task.parent / "data"), "--task", str(task)]
    command.main(parser.parse_args([*common, *words]))


def test_json_results_and_page(task: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    called(task, "--out", str(tmp_path / "a"), "--json", "--report", str(tmp_path / "a.html"))
    values = json.loads(capsys.readouterr().out)
    assert values["tasks"]["weather"]["accuracy"] == values["mean"]["accuracy"] == 1.0
    assert values["of"] == {"checkpoint": "无", "tokenizer": "e" * 64}
    assert "weather" in (tmp_path / "a.html").read_text()
    assert read_results(tmp_path / "a").summary() == values
    called(task, "--out", str(tmp_path / "b"), "--compare", str(tmp_path / "a"), "--json", likes="雨")
    found = json.loads(capsys.readouterr().out)["differences"]["weather"]
    assert found["value"] == -2 / 3 and (found["only_first"], found["only_second"]) == (0, 16)
    called(task, "--compare", str(tmp_path / "a"), likes="雨")
    shown = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert "weather 24 33.3 18.0 to 53.3 33.3 33.3 at chance".split() in shown
    assert ["weather", "-66.7", "-85.5", "to", "-47.8", "0", "16", "3.1e-05"] in shown


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--shots", "-1"], "--shots -1: it must be 0 or more"),
        (["--limit", "0"], "--limit 0: it must be 1 or more"),
        (["--method", "guess"], "no prompt 'guess'"),
        (["--compare", "nowhere"], "holds no results.json"),
        (["--nproc", "0"], "--nproc 0"),
    ],
)
def test_mistakes_are_told_before_a_model_is_read(
    task: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], message: str
) -> None:
    monkeypatch.setattr(command, "load_checkpoint", lambda args: pytest.fail("opened"))
    with pytest.raises(UsageError, match=message):
        called(task, *words)


def test_published_figures_stand_beside_the_whole_split_only() -> None:
    nine = [task_result(name) for name in NINE]
    text = "\n".join(lines(results_of(*nine), published_baselines()))
    assert "Zero-shot GPT" in text and "not comparable" not in text
    table = text.split("\n\n")[1].splitlines()
    ocnli = next(line for line in table if line.startswith("ocnli"))
    assert ocnli.split() == ["ocnli", "75.0", "90.3", "34.4", "40.3"]
    assert table[-1].split() == ["mean", "75.0", "82.5", "43.4", "44.6"]
    assert not comparable(task_result("ocnli", num_in_split=2520), published_baselines())
    assert not comparable(task_result("ocnli", split="dev"), published_baselines())
    assert not comparable(task_result("weather"), published_baselines())


def test_tables_fit_into_80_columns() -> None:
    gold = tuple(number % 2 for number in range(2520))
    diagonal, plain = tuple(1 - number % 2 for number in range(2520)), (0,) * 2520
    nine = [
        task_result(name, index=tuple(range(2520)), gold=gold, plain=plain, diagonal=diagonal, num_cut=1000)
        for name in NINE
    ]
    differences = {name: difference([True] * 2520, [False] * 2520) for name in NINE}
    text = list(
        lines(results_of(*nine, calibration="diagonal", normalisation="token"), published_baselines(), differences)
    )
    assert max(map(cell_len, text)) <= 80
    assert sum("published" in line for line in text) == 1


def test_progress_tells_speed_and_time_left(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    times = iter([0.0, 10.0, 20.0, 50.0])
    monkeypatch.setattr(run, "time", SimpleNamespace(monotonic=lambda: next(times)))
    with run.progress("tnews", 200, 100) as advance:
        advance(10)  # after 10 s: too soon to say
        advance(30)  # 40 in 20 s
    first, last = capsys.readouterr().err.splitlines()
    assert first == "tnews      140/200 prompts  2.0/s  0:00:30 left"
    assert last == "tnews      200 prompts in 0:00:50: 0.8/s (100 scored earlier)"
