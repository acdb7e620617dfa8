"""Measuring a run: every checkpoint for the curves, the last one for the rest, and nothing twice."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from corpus.engine.errors import UsageError, WenhaiError
from pretrain.ablation import measuring
from pretrain.ablation.measuring import Questions, Tasks, measure_run, tasks_of
from pretrain.ablation.plan import new_plan
from pretrain.ablation.unseen import Held, read_held
from pretrain.config import with_vocab_size
from pretrain.training.state import State
from tests.pretrain.tasks.made_up import write_task
from tests.pretrain.texts import save_checkpoint
from tokenizer.model import Tokenizer

TASKS = Tasks(Path("fewclue"), ("tnews",), 8, "f" * 64)


@pytest.fixture
def held(tmp_path: Path, arms: list[str], tokenizer: Tokenizer, config: str) -> tuple[Held, ...]:
    """Of two arms; below OUT/runs lies a run with checkpoints of steps 2 and 4."""
    plan = new_plan(arms, config, [], num_seeds=1, num_steps=4)
    own = with_vocab_size(plan.config, tokenizer.vocab_size)
    for step in (2, 3, 4):  # 3: where a signal stopped it
        save_checkpoint(tmp_path / "runs" / "one-seed7", own, plan.arms[0].folder, tokenizer, State(step=step))
    (tmp_path / "prose.txt").write_text("学而时习之，不亦说乎？" * 5)
    return tuple(read_held(plan.arms, [str(tmp_path / "prose.txt")], None, tokenizer, "validation", 2000))


def test_what_is_measured_and_when_it_is_again(
    held: tuple[Held, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[str, int]] = []
    evaluate = measuring.evaluate

    def noting(model: Any, text: Any, *more: Any) -> Any:
        asked.append((text.texts[0][:4], len(text.tokens)))
        return evaluate(model, text, *more)

    monkeypatch.setattr(measuring, "evaluate", noting)
    questions = Questions(held, 2000, None, "cpu")
    found = measure_run(tmp_path, "one-seed7", [2, 4], questions)
    assert list(found.bits_per_character) == ["held out/one", "held out/other", "text/prose.txt"]
    assert {key: list(steps) for key, steps in found.curves.items()} == {
        "held out/one": ["2", "4"],
        "held out/other": ["2", "4"],
    }
    assert all(5 < bits < 15 for bits in found.bits_per_character.values())  # weights that nothing has trained
    assert len(asked) == 4 + 3
    assert sorted(size for _, size in asked)[:4] < sorted(size for _, size in asked)[3:]  # curves: of a part

    asked.clear()
    assert measure_run(tmp_path, "one-seed7", [2, 4], questions) == found
    assert asked == []
    assert measure_run(
        tmp_path, "one-seed7", [2, 4], Questions(held[:1], 2000, None, "cpu")
    ).bits_per_character.keys() == {"held out/one"}


def test_tasks_are_asked_of_the_last_checkpoint(
    held: tuple[Held, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[str, Any, Any, int | None, Any]] = []

    def run_tasks(model: Any, tasks: Any, data: Path, options: Any, out: Path, of: Any) -> Any:
        asked.append((model.checkpoint.name, [task.name for task in tasks], data, options.limit, out))
        return {"tnews": SimpleNamespace(accuracy=lambda: 0.25, num_items=8, chance=1 / 15)}

    monkeypatch.setattr("pretrain.tasks.run.run_tasks", run_tasks)
    found = measure_run(tmp_path, "one-seed7", [2, 4], Questions(held[2:], 2000, TASKS, "cpu"))
    assert (found.accuracy["tnews"].share, found.accuracy["tnews"].num_items) == (0.25, 8)
    assert asked == [
        ("step-00000004", ["tnews"], Path("fewclue"), 8, tmp_path / "measured" / "one-seed7-tasks-ffffffffffff")
    ]


def test_tasks_are_known_by_definition_items_and_limit(tmp_path: Path) -> None:
    """So that with other ones a run is measured again, beside what an earlier command kept, and not refused."""
    task = write_task(tmp_path)
    data, names = tmp_path / "data", (str(task),)
    first = tasks_of(data, names, 8)
    assert tasks_of(data, names, 8) == first
    digests = {first.digest, tasks_of(data, names, 9).digest}
    items = data / "weather" / "test.json"
    items.write_text("".join(reversed(items.read_text().splitlines(keepends=True))))
    digests.add(tasks_of(data, names, 8).digest)
    task.write_text(task.read_text() + "# the same\n")
    assert tasks_of(data, names, 8).digest in digests
    assert len(digests) == 3
    with pytest.raises(UsageError, match="none of"):
        tasks_of(tmp_path, names, 8)


def test_a_model_that_has_diverged_is_no_measure(
    held: tuple[Held, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(measuring, "evaluate", lambda *anything: SimpleNamespace(bits_per_character=float("nan")))
    with pytest.raises(WenhaiError, match="step-00000002: what it makes of held out one is not a finite"):
        measure_run(tmp_path, "one-seed7", [2, 4], Questions(held, 2000, None, "cpu"))
    assert not (tmp_path / "measured").exists()
