"""`python -m pretrain tasks` from its options to its table, with a model whose answers are known."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from corpus.engine.errors import UsageError
from pretrain.tasks import command
from pretrain.tasks.baselines import published
from pretrain.tasks.definition import NINE
from pretrain.tasks.progress import Progress
from pretrain.tasks.results import read_results
from pretrain.tasks.statistics import difference
from pretrain.tasks.table import comparable, lines
from tests.pretrain.tasks.made_up import Asked, Knows, results_of, task_result, write_task


@pytest.fixture(name="task")
def _task(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    @contextmanager
    def opened(args: argparse.Namespace) -> Iterator[Any]:
        asked = Asked(Knows(lambda character: -5.0 if character == args.checkpoint else 0.0))
        asked.tokenizer.sha256 = "e" * 64  # type: ignore[attr-defined]
        yield SimpleNamespace(**vars(asked), checkpoint=args.checkpoint, is_first=True, together=nullcontext)

    monkeypatch.setattr(command, "opened", opened)
    monkeypatch.setattr("pretrain.checkpoint.read_commit", lambda folder: SimpleNamespace(digest=folder))
    return write_task(tmp_path)


def called(task: Path, *words: str, likes: str = "无") -> None:
    """The command with a model that likes one character."""
    parser = argparse.ArgumentParser()
    command.add_arguments(parser)
    common = ["--checkpoint", likes, "--data", str(task.parent / "data"), "--task", str(task)]
    command.main(parser.parse_args([*common, *words]))


def test_a_table_with_interval_chance_and_verdict(task: Path, capsys: pytest.CaptureFixture[str]) -> None:
    called(task)
    how, head, line, mean, note = capsys.readouterr().out.splitlines()
    assert how == "zero-shot, uncalibrated; accuracy in %"
    assert head.split() == ["task", "items", "accuracy", "95", "%", "chance", "majority"]
    assert line.split() == "weather 24 100.0 86.2 to 100.0 33.3 33.3 above chance".split()
    assert mean.split() == "mean 100.0 86.2 to 100.0".split()
    assert note == "not comparable with published figures, which are of the whole test_public: weather"


def test_calibrated_beside_plain(task: Path, capsys: pytest.CaptureFixture[str]) -> None:
    called(task, "--calibrate", "diagonal", "--shots", "2", "--expand", "--normalise", "token", likes="雨")
    how, head, line, *_ = capsys.readouterr().out.splitlines()
    assert how == (
        "2 examples before each item (seed 0), calibrated (diagonal), all words of a class, log-likelihood per token; accuracy in %"
    )
    assert "plain" in head and line.split()[6] == "33.3"


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
    assert "-66.7 (-85.5 to -47.8)" in capsys.readouterr().out


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
    monkeypatch.setattr(command, "opened", lambda args: pytest.fail("opened"))
    with pytest.raises(UsageError, match=message):
        called(task, *words)


def test_published_figures_stand_beside_the_whole_split_only() -> None:
    nine = [task_result(name) for name in NINE]
    text = "\n".join(lines(results_of(*nine), published()))
    assert "Zero-shot GPT" in text and "not comparable" not in text
    ocnli = next(line for line in text.splitlines() if line.startswith("ocnli"))
    assert ocnli.split()[-3:] == ["90.3", "34.4", "40.3"]
    mean = next(line for line in text.splitlines() if line.startswith("mean"))
    assert mean.split()[-3:] == ["82.5", "43.4", "44.6"]
    sample = task_result("ocnli", num_in_split=2520)
    text = "\n".join(lines(results_of(sample, task_result("csl")), published()))
    assert "not comparable with published figures, which are of the whole test_public: ocnli" in text
    assert "ocnli: a sample of 4 of 2,520 items" in text
    assert not any(line.startswith("ocnli") and "34.4" in line for line in text.splitlines())
    assert next(line for line in text.splitlines() if line.startswith("mean")).split()[-1] != "44.6"
    assert not comparable(task_result("ocnli", split="dev"), published())
    assert not comparable(task_result("weather"), published())


def test_what_one_must_know_is_said_below() -> None:
    task = task_result("csl", num_unlabelled=3, num_cut=2, num_short_of_shots=1, calibratable=False)
    (note,) = [line for line in lines(results_of(task, calibration="diagonal"), published()) if line.startswith("csl:")]
    for words in ("3 lines without", "2 items lost a part", "before 1 items", "no context to calibrate by"):
        assert words in note


def test_a_difference_of_a_task_that_the_other_lacks_is_left_open() -> None:
    differences = {"a": difference([True, False], [False, False])}
    text = list(lines(results_of(task_result("a"), task_result("b")), published(), differences))
    assert "+50.0" in next(line for line in text if line.startswith("a "))
    assert "+" not in next(line for line in text if line.startswith("b "))


def test_progress_tells_speed_and_time_left(capsys: pytest.CaptureFixture[str]) -> None:
    times = iter([0.0, 10.0, 20.0, 50.0])
    progress = Progress(clock=lambda: next(times), is_live=False)
    progress.begin("tnews", 200, 100)
    progress.advance(10)  # after 10 s: too soon to say
    progress.advance(30)  # 40 in 20 s
    progress.end()
    first, last = capsys.readouterr().err.splitlines()
    assert first == "tnews      140/200 prompts  2.0/s  0:00:30 left"
    assert last == "tnews      200 prompts in 0:00:50: 0.8/s (100 scored earlier)"
