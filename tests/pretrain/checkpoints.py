"""What tests of checkpoints do on ranks: train and save, resume from garbage, and tell what a load refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch

from corpus.engine.errors import WenhaiError
from pretrain import checkpoint
from pretrain.config import RunConfig
from pretrain.run.train import Run
from tests.pretrain.tiny import IDENTITY, tiny_run, train_steps, whole, whole_state, whole_weights

Result = dict[str, Any]


def save(run: Run, out: Path) -> Path:
    return checkpoint.save(out, run.state, run.model, run.optimizer, run.config, IDENTITY, run.world)


def saver_of(run: Run, out: Path) -> checkpoint.Saver:
    """As a run has it."""
    place = checkpoint.place_of(out, run.config.checkpoint)
    return checkpoint.Saver(place, run.model, run.optimizer, run.config, IDENTITY, run.world)


def save_and_wait(saver: checkpoint.Saver, run: Run) -> None:
    """Save in the way of the configuration; raises what became of it."""
    saver.save(run.state)
    saver.wait()
    for ended in saver.ended():
        if ended.error is not None:
            raise ended.error


def newest_folder(out: Path) -> Path:
    folder = checkpoint.newest(out)
    assert folder is not None
    return folder


def resume(run: Run, out: Path) -> None:
    """Load the newest checkpoint."""
    resume_from(newest_folder(out), run)


def resume_from(folder: Path, run: Run) -> None:
    """Load a checkpoint over garbage: whatever is not loaded is seen."""
    with torch.no_grad():
        for held in (run.model.parameters, run.model.copies):
            for parameter in held.values():
                for tensor in (parameter, *run.optimizer.state[parameter].values()):
                    tensor.fill_(7.0)
    run.state = checkpoint.load(folder, run.model, run.optimizer, run.config, IDENTITY, run.world)


def train_and_save(config: RunConfig, out: Path, *step_counts: int) -> Result:
    """Resume if there is something to resume; then train each number of steps, saving after each."""
    with tiny_run(config) as run:
        if checkpoint.newest(out) is not None:
            resume(run, out)
        loaded = contents(run)
        losses: list[float] = []
        norms: list[float] = []
        for num_steps in step_counts:
            more = train_steps(run, num_steps)
            losses += more[0]
            norms += more[1]
            save(run, out)
        return {"losses": losses, "norms": norms, "loaded": loaded, "last": contents(run), "step": run.state.step}


def load_only(config: RunConfig, out: Path) -> Result:
    return train_and_save(config, out)


def contents(run: Run) -> Result:
    """Weights, optimizer state, and both of each second storage that this rank holds, in their logical shapes."""
    copies = {}
    for name, copy in run.model.copies.items():
        copies[name] = whole(copy)
        copies |= {f"{name}.{key}": whole(value) for key, value in run.optimizer.state[copy].items()}
    return {"weights": whole_weights(run), "state": whole_state(run), "copies": copies}


def assert_equal(ours: Result, theirs: Result) -> None:
    """The same bits in all `contents`."""
    for kind in ("weights", "state"):
        assert ours[kind].keys() == theirs[kind].keys()
        for name, values in theirs[kind].items():
            np.testing.assert_array_equal(ours[kind][name], values, err_msg=name)


def refusals(config: RunConfig, folders: list[Path]) -> list[str]:
    """Of each folder what a load says; one that loads says nothing."""
    messages = []
    with tiny_run(config) as run:
        for folder in folders:
            try:
                checkpoint.load(folder, run.model, run.optimizer, run.config, IDENTITY, run.world)
                messages.append("")
            except WenhaiError as error:
                messages.append(str(error))
    return messages
