"""Records of results: what follows from answers, the file they lie in, and the comparison of two."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from corpus.engine.errors import UsageError
from pretrain.tasks.definition import NINE
from pretrain.tasks.results import Results, TaskResult, compare_tasks, mean_of, read_results, write_results
from pretrain.tasks.statistics import mcnemar, wilson
from pretrain.tasks.table import published_baselines
from tests.pretrain.tasks.made_up import results_of, task_result


def test_figures_follow_from_the_answers() -> None:
    task = task_result(gold=(0, 0, 0, 1), plain=(1, 1, 1, 1), diagonal=(0, 0, 1, 1))
    assert (task.num_right(), task.num_right("none")) == (3, 1)
    assert (task.accuracy(), task.accuracy("none")) == (0.75, 0.25)
    assert task.interval("none") == wilson(1, 4)
    assert (task.chance, task.majority) == (0.5, 0.75)
    assert task.confusion() == [[2, 1], [0, 1]]
    assert task.confusion("none") == [[0, 3], [0, 1]]
    assert task.verdict == "at chance" and task.p_value == pytest.approx(0.625)
    assert task.calibrations == ["none", "diagonal"]


def test_the_mean_takes_the_plain_answers_of_what_is_not_calibrated() -> None:
    calibrated = task_result("a", index=(0, 1), gold=(0, 0), plain=(1, 1), diagonal=(0, 0))
    other = task_result("b", index=(0, 1), gold=(0, 0), plain=(0, 1))
    assert mean_of([calibrated, other]).value == 0.75
    assert mean_of([calibrated, other], "diagonal").value == 0.75
    assert mean_of([calibrated, other], "none").value == 0.25


def test_results_are_read_as_they_were_written(tmp_path: Path) -> None:
    results = results_of(task_result("a", diagonal=(0, 1, 1, 1)), task_result("b"))
    write_results(tmp_path, results)
    assert read_results(tmp_path) == results
    values: dict[str, Any] = json.loads((tmp_path / "results.json").read_text())
    assert values["tasks"]["a"]["accuracy"] == results.tasks["a"].accuracy()
    assert values["tasks"]["a"]["answers"] == {"甲": 1, "乙": 3}
    assert values["mean"]["num_tasks"] == 2


def test_a_folder_without_results_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"holds no results\.json"):
        read_results(tmp_path)
    (tmp_path / "results.json").write_text("[]")
    with pytest.raises(UsageError, match="not of this version"):
        read_results(tmp_path)
    write_results(tmp_path, results_of(task_result()))
    values = json.loads((tmp_path / "results.json").read_text())
    del values["answers"]["tasks"]["a"]["gold"]
    (tmp_path / "results.json").write_text(json.dumps(values))
    with pytest.raises(UsageError, match="gold"):
        read_results(tmp_path)


def test_two_results_are_compared_on_the_items_that_both_were_asked() -> None:
    ours = task_result(index=(1, 4, 7, 8), gold=(0, 0, 1, 1), plain=(0, 0, 1, 0))
    theirs = task_result(index=(0, 4, 7, 8), gold=(1, 0, 1, 1), plain=(1, 1, 1, 1))
    found = compare_tasks({"a": ours, "c": ours}, {"a": theirs, "d": ours})
    assert list(found) == ["a"]
    assert (found["a"].only_first, found["a"].only_second, found["a"].value) == (1, 1, 0.0)
    assert found["a"].p_value == mcnemar(1, 1)


def test_results_of_other_items_are_not_compared() -> None:
    with pytest.raises(UsageError, match="other files of items"):
        compare_tasks({"a": task_result()}, {"a": task_result(data="e" * 64)})
    with pytest.raises(UsageError, match="no item in common"):
        compare_tasks({"a": task_result(index=(0, 1, 2, 3))}, {"a": task_result(index=(4, 5, 6, 7))})
    with pytest.raises(UsageError, match="no item in common"):
        compare_tasks({"a": task_result()}, {"b": task_result()})


def test_published_rows_are_of_the_nine_tasks_and_their_scores_are_means() -> None:
    nine, eight = set(), set()
    for row in published_baselines().row:
        assert set(row.accuracy) == set(NINE)
        if abs(row.mean_over(NINE) - row.score) < 0.05:
            nine.add(row.name)
        if abs(row.mean_over([task for task in NINE if task != "chid"]) - row.score) < 0.05:
            eight.add(row.name)
    assert nine == {"Human", "FineTuning-B", "Zero-shot GPT", "Zero-shot RoBERTa", "PET", "LM-BFF"}
    assert eight == {"P-tuning RoBERTa", "P-tuning GPT"}  # and EFL's score is neither
    assert published_baselines().row[0].mean_over(["eprstmt", "ocnli"]) == pytest.approx(90.15)


def test_results_hold_nothing_but_what_they_say() -> None:
    assert isinstance(results_of(task_result()), Results)
    with pytest.raises(ValueError, match="an answer for each item"):
        task_result(plain=(0, 1))
    with pytest.raises(ValueError, match="none of the classes"):
        task_result(plain=(0, 1, 1, 2))
    with pytest.raises(ValueError, match="extra"):
        TaskResult.model_validate({**task_result().model_dump(), "seconds": 3.0})
