"""What an example costs: not a matter of micro-batches, of packing, or of what else is in its row."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from pretrain import checkpoint
from pretrain.config import load_config
from pretrain.data import IGNORED_TARGET, Loader
from pretrain.model.micro_batch import MicroBatch
from pretrain.run.datasets import open_datasets
from tests.pretrain.finetuning.made import finetune, write_lines


@pytest.fixture(scope="module")
def prepared(base: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Some fifty examples, for a model whose masks keep them apart, and prefixes."""
    folder = tmp_path_factory.mktemp("prepared")
    pairs = [(f"{number}+{number}=", f"{2 * number}." * (1 + number % 3)) for number in range(50)]
    finetune(
        base,
        write_lines(folder / "fifty.jsonl", pairs),
        folder / "run",
        "--prepare",
        "--prefix-lm",
        "--template",
        "plain",
    )
    return folder / "run"


def summed(model: torch.nn.Module, loader: Loader, run: Path, micro_batch_size: int) -> tuple[float, int]:
    """The loss of an epoch as `train_step` computes it: sums over micro-batches, over the counted tokens of all."""
    total, num_targets = 0.0, 0
    with torch.no_grad():
        for first in range(0, loader.num_samples_per_epoch, micro_batch_size):
            count = min(micro_batch_size, loader.num_samples_per_epoch - first)
            batch = tensors(loader.batch(first, count))
            total += float(model.cross_entropy_sum(model(*batch.inputs), batch.targets))  # type: ignore[operator]
            num_targets += batch.num_targets
    return total / num_targets, num_targets


def tensors(batch: Any) -> MicroBatch:
    one, two, three, four, five = (
        torch.from_numpy(np.array(array))
        for array in (batch.tokens, batch.targets, batch.document_ids, batch.prefix_ends, batch.positions)
    )
    return MicroBatch(one, two, three, four, five, int((batch.targets != IGNORED_TARGET).sum()))


def test_the_loss_depends_on_neither_micro_batches_nor_packing(prepared: Path) -> None:
    """Nor on how long a row is, nor on which examples share one: it is that of the examples one by one."""
    config = load_config(str(prepared / "config.toml"))
    first = checkpoint.newest(prepared)
    assert first is not None
    model = checkpoint.load_model(first)[0].double()
    found = []
    for length, seed, micro_batch_size in ((32, 1, 1), (32, 1, 5), (32, 2, 3), (24, 1, 4), (64, 1, 2)):
        training = config.training.model_copy(update={"seed": seed})
        size = config.model.model_copy(update={"sequence_length": length})
        changed = config.model_copy(update={"model": size, "training": training})
        loader = open_datasets(changed, prepared / "examples", None).loader
        assert loader.prefix_lm and loader.document_mask
        found.append(summed(model, loader, prepared, micro_batch_size))
    assert len({num_targets for _, num_targets in found}) == 1
    assert [loss for loss, _ in found] == pytest.approx([found[0][0]] * len(found), rel=1e-12)


def test_an_example_changes_no_loss_of_another_in_its_row(prepared: Path) -> None:
    config = load_config(str(prepared / "config.toml"))
    first = checkpoint.newest(prepared)
    assert first is not None
    model = checkpoint.load_model(first)[0].double()
    loader = open_datasets(config, prepared / "examples", None).loader
    batch = loader.batch(0, 1)
    ids = batch.document_ids[0]
    own = np.flatnonzero(ids == np.unique(ids)[1])  # the first example, but for its end
    tokens = batch.tokens.copy()
    tokens[0, own[:-1]] = tokens[0, own[:-1]] % 100 + 300
    before, after = (model.token_losses(tensors(each))[0] for each in (batch, replace(batch, tokens=tokens)))
    others = np.setdiff1d(np.flatnonzero(batch.targets[0] != IGNORED_TARGET), own)
    assert len(others) > 3 and torch.equal(before[others], after[others])
    assert not torch.equal(before[own], after[own])
