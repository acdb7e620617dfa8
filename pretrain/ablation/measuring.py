"""What held-out text and tasks cost the checkpoints of a run; kept in OUT/measured/RUN.json, and measured once.

The last checkpoint is asked about everything; those before it, and it, about the beginning of each arm's held-out
documents, for the learning curves. Where a run was stopped by a signal it may have left a checkpoint between; that one
is passed over.
"""

from __future__ import annotations

import math
from argparse import Namespace
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from corpus.engine import durable
from corpus.engine.config import Strict, parse
from corpus.engine.errors import WenhaiError
from pretrain.ablation.unseen import Held
from pretrain.checkpoint import committed_checkpoints, read_commit
from pretrain.evaluation.bits import evaluate
from pretrain.inference.loading import LoadedCheckpoint, load_checkpoint
from pretrain.run_folder import step_of
from pretrain.tasks.definition import load_tasks
from pretrain.tasks.items import read_items

FORMAT = 1
MICRO_BATCH = 8  # windows in a forward
CURVE_PART = 4  # of the held-out tokens, one in so many is for the curves


class Accuracy(Strict):
    """Of one task."""

    share: float  # of the items that were answered rightly
    num_items: int
    chance: float


class Measured(Strict):
    """One run's figures."""

    of: str  # digest of checkpoint, texts and settings
    bits_per_character: dict[str, float]  # by Held.key
    curves: dict[str, dict[str, float]]  # by Held.key: bits per character after each step that has a checkpoint
    accuracy: dict[str, Accuracy]  # by task


@dataclass(frozen=True)
class Tasks:
    """Tasks to ask, and how many items of each."""

    data: Path
    names: tuple[str, ...]
    limit: int | None
    digest: str  # of definitions, items and limit


def tasks_of(data: Path, names: tuple[str, ...], limit: int | None) -> Tasks:
    """Tasks that can be asked: what is wrong with them is told before hours of training, not after.

    Raises:
        UsageError: a task is none, or its items are not there or not those that were published.
    """
    asked = [(task.model_dump(mode="json"), read_items(task, data).path) for task in load_tasks(names)]
    parts = [[definition, durable.sha256_file(path)] for definition, path in asked]
    return Tasks(data, names, limit, durable.digest({"tasks": parts, "limit": limit}))


@dataclass(frozen=True)
class Questions:
    """What every run is asked."""

    held: tuple[Held, ...]
    max_tokens: int  # of each
    tasks: Tasks | None
    device: str
    texts: tuple[str, ...] = ()  # files, and the field of a line that names its source
    by: str | None = None

    @property
    def identity(self) -> dict[str, Any]:
        """What figures depend on beside the checkpoint; two runs can be compared where it is the same."""
        return {
            "format": FORMAT,
            "held": {each.key: each.identity for each in self.held},
            "max_tokens": self.max_tokens,
            "tasks": self.tasks and self.tasks.digest,
        }


def measure_run(out: Path, run_name: str, steps: Sequence[int], questions: Questions) -> Measured:
    """The figures of a run whose last checkpoint is there: as they were measured, or now.

    Args:
        steps: of the checkpoints that are asked, the last one among them.

    Raises:
        WenhaiError: a checkpoint is damaged, or its weights are; a task's data.
    """
    num_steps = max(steps)
    folders = {
        step: found
        for found in committed_checkpoints(out / "runs" / run_name)
        if (step := step_of(found.name)) in steps
    }
    of = durable.digest({**questions.identity, "checkpoint": read_commit(folders[num_steps]).digest})
    path = out / "measured" / f"{run_name}.json"
    if path.exists():
        found = parse(Measured, durable.read_json(path), str(path))
        if found.of == of:
            return found
    curves: dict[str, dict[str, float]] = {}
    for step, folder in sorted(folders.items()):
        asking = Namespace(checkpoint=str(folder), device=questions.device, set=[], nproc=1)
        with load_checkpoint(asking) as model:
            for held in questions.held:
                if held.kind == "held out":
                    curves.setdefault(held.key, {})[str(step)] = _bits(model, held, questions.max_tokens // CURVE_PART)
            if step == num_steps:
                bits = {held.key: _bits(model, held, None) for held in questions.held}
                accuracy = _accuracy(model, questions.tasks, out / "measured", run_name)
    found = Measured(of=of, bits_per_character=bits, curves=curves, accuracy=accuracy)
    durable.write_json(path, found.model_dump(mode="json"))
    return found


def _bits(model: LoadedCheckpoint, held: Held, max_tokens: int | None) -> float:
    text = held.for_model(model.tokenizer.eod, max_tokens)
    bits = evaluate(model.model, text, model.batcher, MICRO_BATCH, model.device).bits_per_character
    if not math.isfinite(bits):
        raise WenhaiError(
            f"{model.checkpoint}: what it makes of {held.kind} {held.name} is not a finite number of bits, since its "
            "training diverged. Such an arm cannot be compared: give another --out and a smaller --set "
            "optimizer.learning_rate"
        )
    return bits


def _accuracy(model: LoadedCheckpoint, tasks: Tasks | None, out: Path, run_name: str) -> dict[str, Accuracy]:
    """Of each task; what was asked before a kill is not asked again, and other tasks get a folder of their own."""
    if tasks is None:
        return {}
    from pretrain.tasks.run import Options, run_tasks

    folder = out / f"{run_name}-tasks-{tasks.digest[:12]}"
    of = {"checkpoint": read_commit(model.checkpoint).digest, "tokenizer": model.tokenizer.sha256}
    found = run_tasks(model, load_tasks(tasks.names), tasks.data, Options(limit=tasks.limit), folder, of)
    return {
        name: Accuracy(share=result.accuracy(), num_items=result.num_items, chance=result.chance)
        for name, result in found.items()
    }
