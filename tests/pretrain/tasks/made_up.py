"""A made-up task with made-up items, and models that know, guess or prefer an answer."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from pretrain.data import IGNORED_TARGET
from pretrain.inference.batcher import EvaluationBatcher
from pretrain.inference.loading import LoadedCheckpoint
from pretrain.model.micro_batch import MicroBatch
from pretrain.parallel.base.mesh import World
from pretrain.tasks.calibration import Calibration
from pretrain.tasks.results import Results, TaskResult

TASK = """
name = "weather"
description = "what is the weather like"
folder = ["weather"]
id = "id"
label = "label"
prompt = "label"
split = "test"
splits = [{ name = "train", files = ["train.json"] }, { name = "test", files = ["test.json"], num_items = [24] }]
content_free = ["", "N/A"]

[words]
sun = ["晴天", "日光"]
rain = ["雨天", "大雨"]
snow = ["雪天", "大雪"]

[prompts.label]
context = "{text}。天气："
scored = "{word}"

[prompts.loss]
given = "{word}："
scored = "{text}"
"""
WORDS = {"sun": "晴", "rain": "雨", "snow": "雪"}  # what a text of the class says


def write_task(folder: Path) -> Path:
    """The definition, and beside it `data/weather` with three examples and 24 items; returns the definition."""
    place = folder / "data" / "weather"
    place.mkdir(parents=True)
    labels = [label for label in WORDS for _ in range(8)]  # in order, as files of tasks are
    lines = [
        {"id": at, "text": f"第{at}日{'早' * (at % 5)}有{WORDS[label]}", "label": label}
        for at, label in enumerate(labels)
    ]
    write_items(place / "test.json", lines)
    write_items(
        place / "train.json", [{"id": label, "text": f"见{word}", "label": label} for label, word in WORDS.items()]
    )
    path = folder / "weather.toml"
    path.write_text(TASK)
    return path


def write_items(path: Path, lines: list[dict[str, object]]) -> None:
    """JSON lines."""
    path.write_text("".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines))


class Characters:
    """A tokenizer whose tokens are characters."""

    sha256 = "e" * 64

    def encode(self, text: str) -> list[int]:
        """Code points; 0 ends a document."""
        return [ord(character) for character in text]


class Knows:
    """A model to which a character costs 0.5 if the context holds it, and 4 otherwise; and `cost` of it besides."""

    def __init__(self, cost: Callable[[str], float] = lambda character: 0.0) -> None:
        self.cost = cost
        self.num_rows = 0
        self.dies_after: int | None = None  # batches
        self.death: Callable[[], None] = _interrupt

    def token_losses(self, batch: MicroBatch) -> Tensor:
        """[B, T]; rows count where they have a target."""
        if self.dies_after is not None:
            if self.dies_after == 0:
                self.death()
            self.dies_after -= 1
        losses = torch.zeros(batch.targets.shape)
        for row, (tokens, targets) in enumerate(zip(batch.tokens.tolist(), batch.targets.tolist(), strict=True)):
            branches = [0] * len(tokens) if batch.branches is None else batch.branches[row].tolist()
            trunk = {token for token, branch in zip(tokens, branches, strict=True) if branch == 0}
            for at, target in enumerate(targets):
                if target != IGNORED_TARGET:
                    losses[row, at] = (0.5 if target in trunk else 4.0) + self.cost(chr(target))
            self.num_rows += any(target != IGNORED_TARGET for target in targets)
        return losses


def _interrupt() -> None:
    raise KeyboardInterrupt


def made_up_model(
    model: Knows | None = None,
    batcher: EvaluationBatcher | None = None,
    world: World | None = None,
    checkpoint: Path = Path(),
) -> LoadedCheckpoint:
    """A model with what it takes to ask it."""
    parts: Any = (model or Knows(), None, Characters(), batcher or EvaluationBatcher(64, eod=0))
    return LoadedCheckpoint(*parts, torch.device("cpu"), world, checkpoint)


def task_result(
    name: str = "a",
    *,
    index: tuple[int, ...] = (0, 1, 2, 3),
    gold: tuple[int, ...] = (0, 0, 1, 1),
    plain: tuple[int, ...] = (0, 1, 1, 1),
    diagonal: tuple[int, ...] | None = None,
    **fields: Any,
) -> TaskResult:
    """Answers to the items of a task of two classes."""
    predicted: dict[Calibration, tuple[int, ...]] = {"none": plain}
    if diagonal is not None:
        predicted["diagonal"] = diagonal
    values: dict[str, Any] = {
        "prompt": "label",
        "split": "test_public",
        "task": "t" * 64,
        "data": "d" * 64,
        "labels": ("甲", "乙"),
        "calibratable": True,
        "num_in_split": len(gold),
        "calibration": "none" if diagonal is None else "diagonal",
    }
    return TaskResult(name=name, index=index, gold=gold, predicted=predicted, **{**values, **fields})


def results_of(*tasks: TaskResult, **options: str | int | bool | None) -> Results:
    """An evaluation of these tasks."""
    values = {"shots": 0, "seed": 0, "expand": False, "calibration": "none", "normalisation": "sum", **options}
    return Results(of={"checkpoint": "c" * 64}, options=values, tasks={task.name: task for task in tasks})
