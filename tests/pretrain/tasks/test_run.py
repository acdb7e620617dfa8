"""Tasks asked of models whose answers are known, whole, cut off and gone on, on one process and on a mesh."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest

from corpus.engine.durable import RunLock
from corpus.engine.errors import LockHeld, UsageError, WenhaiError
from pretrain.inference.batcher import EvaluationBatcher
from pretrain.parallel.base import mesh
from pretrain.tasks import run
from pretrain.tasks.definition import load_tasks
from pretrain.tasks.results import TaskResult
from pretrain.tasks.run import Options, run_tasks, sample
from tests.pretrain.ranks import RanksFailed, reused_ranks, run_ranks
from tests.pretrain.tasks.made_up import Knows, made_up_model, write_items, write_task
from tests.pretrain.tiny import tiny_config

PLAIN = Options()
CALIBRATED = Options(calibration="diagonal")


@pytest.fixture(autouse=True)
def _small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "BATCH_TOKENS", 100)


@pytest.fixture(name="task")
def _task(tmp_path: Path) -> Path:
    return write_task(tmp_path)


def asked(task: Path, model: Knows | None = None, options: Options = PLAIN, out: Path | None = None) -> TaskResult:
    """The made-up task, asked of a model."""
    tasks = load_tasks([str(task)])
    return run_tasks(made_up_model(model), tasks, task.parent / "data", options, out, {"checkpoint": "c" * 64})[
        "weather"
    ]


def likes_rain(character: str) -> float:
    """An advantage of five nats, more than knowing."""
    return -5.0 if character == "雨" else 0.0


def test_a_model_that_knows_has_all_right(task: Path) -> None:
    result = asked(task)
    assert result.gold == (0,) * 8 + (1,) * 8 + (2,) * 8
    assert result.predicted == {"none": result.gold}
    assert (result.num_items, result.num_in_split, result.is_whole) == (24, 24, True)
    assert (result.accuracy(), result.chance, result.verdict) == (1.0, 1 / 3, "above chance")
    assert result.names == ["sun 晴天", "rain 雨天", "snow 雪天"]
    assert result.prompt == "label" and result.split == "test" and result.calibratable


def test_calibration_takes_away_what_a_model_prefers(task: Path) -> None:
    biased = asked(task, Knows(likes_rain), CALIBRATED)
    assert biased.predicted["none"] == (1,) * 24
    assert biased.accuracy("none") == biased.majority == 1 / 3
    assert biased.accuracy() == biased.accuracy("diagonal") == 1.0
    assert biased.confusion("none") == [[0, 8, 0]] * 3


def test_a_prompt_without_a_context_is_not_calibrated(task: Path) -> None:
    result = asked(task, options=Options(prompt="loss", calibration="diagonal"))
    assert (result.calibration, result.calibrations, result.calibratable) == ("none", ["none"], False)


def test_equal_content_free_prompts_are_scored_once(task: Path) -> None:
    plain, calibrated, shots = Knows(), Knows(), Knows()
    asked(task, plain)
    asked(task, calibrated, CALIBRATED)
    assert calibrated.num_rows - plain.num_rows == 2 * plain.num_rows // 24  # two texts for all items
    asked(task, shots, Options(calibration="diagonal", shots=3))
    assert shots.num_rows == calibrated.num_rows


def test_batches_are_of_similar_length_the_longest_prompts_first(task: Path) -> None:
    """In an order that nothing but the prompts decides, so that a run that goes on finds the batches of before."""
    (found,) = load_tasks([str(task)])
    questions = run.read_questions(found, task.parent / "data", CALIBRATED, made_up_model())
    prompts = run.Prompts(questions, calibrated=True)
    batches = [list(batch) for batch in prompts.batches(100)]
    units = [unit for batch in batches for unit in batch]
    sizes = {unit: len(prompted.request.context) for unit, prompted in prompts.own.items()}  # answers are equally long
    own = sorted(sizes, key=lambda unit: (-sizes[unit], unit.item))
    assert units[:24] == own and own != sorted(own)
    assert set(units[24:]) == set(prompts.content_free)
    assert all(sum(sizes[unit] + 6 for unit in batch) <= 100 for batch in batches if batch[0] in sizes)


def test_all_words_of_a_class_are_asked(task: Path) -> None:
    def misled(character: str) -> float:
        return -8.0 if character == "大" else 0.0  # of the second words of rain and snow

    assert asked(task, Knows(misled)).accuracy() == 1.0
    assert asked(task, Knows(misled), Options(expand=True)).accuracy() == 2 / 3  # sun is not sunny enough


def test_a_sample_is_of_all_parts_of_the_file_and_drawn_by_the_seed(task: Path) -> None:
    result = asked(task, options=Options(limit=9))
    assert (result.num_items, result.num_in_split, result.is_whole) == (9, 24, False)
    assert list(result.index) == sorted(set(result.index))
    assert len(set(result.gold)) == 3  # the file is sorted by class: its first nine items are of two
    assert asked(task, options=Options(limit=9)) == result
    assert asked(task, options=Options(limit=9, seed=1)).index != result.index
    assert [*sample([], 3, 0)] == []


@pytest.mark.parametrize("num_batches", [0, 1, 3, 5])
def test_a_run_that_was_cut_off_goes_on_to_the_same_bytes(task: Path, tmp_path: Path, num_batches: int) -> None:
    whole = asked(task, Knows(likes_rain), CALIBRATED, tmp_path / "whole")
    model = Knows(likes_rain)
    model.dies_after = num_batches
    with pytest.raises(KeyboardInterrupt):
        asked(task, model, CALIBRATED, tmp_path / "cut")
    again = Knows(likes_rain)
    assert asked(task, again, CALIBRATED, tmp_path / "cut") == whole
    assert _file(tmp_path / "cut") == _file(tmp_path / "whole")
    third = Knows(likes_rain)
    assert asked(task, third, CALIBRATED, tmp_path / "cut") == whole
    assert third.num_rows == 0
    if num_batches > 1:
        assert again.num_rows < 26


def test_wherever_the_file_was_torn(task: Path, tmp_path: Path) -> None:
    whole = asked(task, options=CALIBRATED, out=tmp_path / "whole")
    data = _file(tmp_path / "whole")
    path = tmp_path / "torn" / "items" / "weather.jsonl"
    path.parent.mkdir(parents=True)
    first = data.index(b"\n") + 1
    for cut in (first + 1, len(data) // 2, len(data) - 1):
        path.write_bytes(data[:cut])
        assert asked(task, options=CALIBRATED, out=tmp_path / "torn") == whole
        assert path.read_bytes() == data


def test_a_batch_of_which_a_part_is_there_is_scored_as_a_whole(task: Path, tmp_path: Path) -> None:
    asked(task, out=tmp_path)
    lines = _file(tmp_path).splitlines(keepends=True)
    _path(tmp_path).write_bytes(b"".join(lines[:-1]))
    model = Knows()
    asked(task, model, out=tmp_path)
    assert 1 < model.num_rows < 24
    assert _file(tmp_path) == b"".join(lines)


def test_calibration_asks_only_what_is_not_there_yet(task: Path, tmp_path: Path) -> None:
    asked(task, Knows(likes_rain), out=tmp_path)
    model = Knows(likes_rain)
    assert asked(task, model, CALIBRATED, tmp_path).accuracy() == 1.0
    assert model.num_rows == 2
    other = Knows()
    assert (
        asked(task, other, Options(calibration="identity", normalisation="token"), tmp_path).calibration == "identity"
    )
    assert other.num_rows == 0


def test_scores_of_something_else_are_refused(task: Path, tmp_path: Path) -> None:
    asked(task, out=tmp_path)
    for options, words in (
        (Options(prompt="loss"), "prompt None there and loss here"),
        (Options(shots=2), "examples None there and"),
        (Options(limit=3), "limit None there and 3 here"),
        (Options(expand=True), "expand False there and True here"),
    ):
        with pytest.raises(UsageError, match=f"something else .*{words}.*another --out"):
            asked(task, options=options, out=tmp_path)
    with pytest.raises(UsageError, match="checkpoint cccccccccccc there and dddddddddddd here"):
        run_tasks(
            made_up_model(),
            load_tasks([str(task)]),
            task.parent / "data",
            Options(),
            tmp_path,
            {"checkpoint": "d" * 64},
        )
    items = [json.loads(line) for line in (task.parent / "data/weather/test.json").read_text().splitlines()]
    write_items(task.parent / "data/weather/test.json", items[::-1])
    with pytest.raises(UsageError, match=r"data .* there and .* here"):
        asked(task, out=tmp_path)


def test_an_altered_file_is_refused(task: Path, tmp_path: Path) -> None:
    asked(task, out=tmp_path)
    data = _file(tmp_path)
    _path(tmp_path).write_bytes(data.replace(b'"words":[[', b'"words":[["x",', 1))
    with pytest.raises(WenhaiError, match=r"weather.jsonl:2: was altered"):
        asked(task, out=tmp_path)
    _path(tmp_path).write_bytes(b"{}\n" + data)
    with pytest.raises(UsageError, match="no file of scores"):
        asked(task, out=tmp_path)
    _path(tmp_path).write_bytes(b"")
    with pytest.raises(UsageError, match="no file of scores"):
        asked(task, out=tmp_path)


def test_a_model_that_has_diverged_gets_no_accuracy(task: Path, tmp_path: Path) -> None:
    with pytest.raises(WenhaiError, match=r"item \d+: its log-likelihood is not a finite number"):
        asked(task, Knows(lambda character: float("nan")), out=tmp_path)


def test_one_evaluation_at_a_time_writes_to_a_folder(task: Path, tmp_path: Path) -> None:
    with RunLock(tmp_path / "out"), pytest.raises(LockHeld):
        asked(task, out=tmp_path / "out")
    asked(task, out=tmp_path / "out")


def test_examples_stand_before_items_and_are_no_items(task: Path) -> None:
    assert asked(task, options=Options(shots=3)).num_short_of_shots == 0
    with pytest.raises(UsageError, match="both the examples and the items"):
        asked(task, options=Options(shots=1, split="train"))
    tasks, data = load_tasks([str(task)]), task.parent / "data"
    narrow = made_up_model(batcher=EvaluationBatcher(20, eod=0))
    assert run_tasks(narrow, tasks, data, Options(shots=3))["weather"].num_short_of_shots == 24
    tight = made_up_model(batcher=EvaluationBatcher(11, eod=0))
    assert 0 < run_tasks(tight, tasks, data, Options())["weather"].num_cut < 24


def _killed(task: str, out: str, num_batches: int) -> None:
    """Ask the task until SIGKILL."""
    run.BATCH_TOKENS = 100
    model = Knows(likes_rain)
    model.dies_after, model.death = num_batches, lambda: os.kill(os.getpid(), signal.SIGKILL)
    asked(Path(task), model, CALIBRATED, Path(out))


@pytest.mark.long
def test_a_killed_process_leaves_what_it_has_scored(task: Path, tmp_path: Path) -> None:
    whole = asked(task, Knows(likes_rain), CALIBRATED, tmp_path / "whole")
    with pytest.raises(RanksFailed) as failed:
        run_ranks(_killed, 1, str(task), str(tmp_path / "cut"), 3)
    assert failed.value.codes == [-signal.SIGKILL]
    assert 1 < len(_file(tmp_path / "cut").splitlines()) < len(_file(tmp_path / "whole").splitlines())
    again = Knows(likes_rain)
    assert asked(task, again, CALIBRATED, tmp_path / "cut") == whole
    assert 0 < again.num_rows < 26
    assert _file(tmp_path / "cut") == _file(tmp_path / "whole")


def _on_a_rank(task: str, out: str) -> tuple[str, int]:
    """The task on this rank; its result, and how many rows this rank was asked."""
    run.BATCH_TOKENS = 100
    model = Knows(likes_rain)
    with mesh.start(tiny_config().parallel, "cpu", 1.0) as world:
        tasks, data = load_tasks([task]), Path(task).parent / "data"
        result = run_tasks(
            made_up_model(model, world=world), tasks, data, CALIBRATED, Path(out), {"checkpoint": "c" * 64}
        )
    return result["weather"].model_dump_json(), model.num_rows


@pytest.mark.long
def test_ranks_share_the_items_and_all_get_the_result(task: Path, tmp_path: Path) -> None:
    alone = asked(task, Knows(likes_rain), CALIBRATED, tmp_path / "alone")
    (first, rows), (second, other_rows) = reused_ranks(_on_a_rank, 2, str(task), str(tmp_path / "ranks"))
    assert first == second == alone.model_dump_json()
    assert rows + other_rows == 26
    assert _file(tmp_path / "ranks") == _file(tmp_path / "alone")
    again = reused_ranks(_on_a_rank, 2, str(task), str(tmp_path / "ranks"))
    assert again == [(first, 0), (first, 0)]


def _path(out: Path) -> Path:
    return out / "items" / "weather.jsonl"


def _file(out: Path) -> bytes:
    return _path(out).read_bytes()
