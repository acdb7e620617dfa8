"""From a checkpoint's files into a run or a model, on any mesh: everything is checked before a weight is touched."""

from __future__ import annotations

import functools
import math
import warnings
from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageReader
from torch.distributed.checkpoint.metadata import Metadata
from torch.distributed.checkpoint.state_dict_loader import load as load_tensors

from corpus.engine.errors import WenhaiError
from pretrain.checkpoint.records import (
    Commit,
    FileRecord,
    Identity,
    TensorRecord,
    advice,
    describe,
    read_commit,
    read_saved,
    read_state,
)
from pretrain.checkpoint.shards import tensors_of
from pretrain.config import RunConfig, to_json
from pretrain.console import log_message
from pretrain.model import GPT
from pretrain.parallel.base.mesh import World
from pretrain.parallel.engine.compose import ParallelModel
from pretrain.run_folder import COMMIT
from pretrain.training.state import State

NFS_LEFTOVER = ".nfs"  # how names begin that a client of NFS gives to open files that are removed ("silly rename")


def load(
    folder: Path,
    model: ParallelModel,
    optimizer: torch.optim.Optimizer,
    config: RunConfig,
    identity: Identity,
    world: World,
) -> State:
    """Check the checkpoint, fill weights and optimizer state in place, and return the counters; all ranks call it.

    Raises:
        WenhaiError: a file is missing, altered or of another run; the message names it.
    """
    commit = _checked_commit(folder, world)
    with world.propagate_errors():  # files that no rank refused
        state, saved = read_state(folder), read_saved(folder)
        _check_model(folder, saved.config, config)
        if (saved.data, saved.tokenizer_sha256) != (identity.data, identity.tokenizer_sha256):
            raise WenhaiError(f"{folder}: was trained on other token shards. Use those, or another --out.")
    copies, originals = (tensors_of(parameters, optimizer) for parameters in (model.copies, model.parameters))
    _fill_on_all(folder, commit, originals, copies, world)
    return state


def load_weights(folder: Path, model: ParallelModel, world: World) -> None:
    """Check the checkpoint, and fill the weights of a model of its configuration in place, on any mesh; all ranks call
    it.

    Raises:
        WenhaiError: a file is missing or altered, or the weights are not those of the model; the message names it.
    """
    commit = _checked_commit(folder, world)
    _fill_on_all(folder, commit, tensors_of(model.parameters), tensors_of(model.copies), world)


def load_model(folder: Path) -> tuple[GPT, RunConfig]:
    """The model of a checkpoint, on the CPU of one process without peers, ready to predict.

    Its files are checked, `tokenizer.model` with them.

    Raises:
        WenhaiError: a file is missing or altered; the message names it.
    """
    commit = read_commit(folder)
    _check_files(folder, commit, 0, 1)
    saved = read_saved(folder)
    with torch.device("meta"):
        model = GPT(saved.config.model)
    if saved.config.training.precision == "fp64":
        model.double()
    model.to_empty(device="cpu")
    model.tie()
    weights = tensors_of(dict(model.named_parameters()))
    reader = _Reader(folder)
    _check_tensors(folder, commit, reader.metadata, weights)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "torch.distributed is disabled")  # as asked
        _fill(folder, weights, reader, no_dist=True)
    return model.eval(), saved.config


class _Reader(HuggingFaceStorageReader):
    """torch's reader, which reads the header of every file once instead of each time it is asked."""

    def __init__(self, folder: Path) -> None:
        super().__init__(str(folder))

    @functools.cached_property
    def metadata(self) -> Metadata:
        """Which slices of which tensors the files hold."""
        return super().read_metadata()

    def read_metadata(self) -> Metadata:
        return self.metadata


def _checked_commit(folder: Path, world: World) -> Commit:
    """The commit record of a folder whose files are as it says; each rank looks at its share of them."""
    with world.propagate_errors():
        commit = read_commit(folder)
        _check_files(folder, commit, world.rank, world.size)
    return commit


def _fill_on_all(
    folder: Path, commit: Commit, originals: dict[str, Tensor], copies: dict[str, Tensor], world: World
) -> None:
    """Fill what the ranks hold of the tensors, and second storages of them."""
    tensors = copies | originals
    reader = _Reader(folder)
    with world.propagate_errors():
        _check_tensors(folder, commit, reader.metadata, tensors)
    _fill(folder, tensors, reader)
    for name in copies.keys() & originals.keys():  # both ends of a V: one tensor of the files, two places here
        copies[name].copy_(originals[name])


def _fill(folder: Path, tensors: dict[str, Tensor], reader: _Reader, no_dist: bool = False) -> None:
    try:
        load_tensors(tensors, storage_reader=reader, no_dist=no_dist)
    except CheckpointException as error:
        raise WenhaiError(f"{folder}: cannot be read ({_reasons(error)}). {advice(folder)}") from error


def _reasons(error: CheckpointException) -> str:
    return "; ".join(f"rank {rank}: {reason[0]}" for rank, reason in sorted(error.failures.items()))


def _check_files(folder: Path, commit: Commit, rank: int, num_ranks: int) -> None:
    """Compare the folder with its commit record; each rank hashes its share of the files."""
    unexpected = {path.name for path in folder.iterdir()} - set(commit.files) - {COMMIT}
    leftovers = sorted(name for name in unexpected if name.startswith(NFS_LEFTOVER))
    if leftovers and rank == 0:
        log_message(
            f"{folder}: {', '.join(leftovers)} ignored: NFS keeps there what was removed while a process had it open."
        )
    if unexpected := unexpected.difference(leftovers):
        raise WenhaiError(f"{folder / min(unexpected)}: does not belong to this checkpoint. Remove it.")
    for name, expected in sorted(commit.files.items())[rank::num_ranks]:
        if not (folder / name).is_file():
            raise WenhaiError(f"{folder / name}: is missing. {advice(folder)}")
        if FileRecord(**describe(folder / name)) != expected:
            raise WenhaiError(f"{folder / name}: was altered: its size or sha256 is not as recorded. {advice(folder)}")


def _check_tensors(folder: Path, commit: Commit, metadata: Metadata, wanted: Mapping[str, Tensor]) -> None:
    """Every tensor we want is recorded with our shape and type, and the files hold all of it."""
    stored = metadata.state_dict_metadata
    for name, tensor in wanted.items():
        ours = TensorRecord(dtype=str(tensor.dtype), shape=list(tensor.shape))
        recorded = commit.tensors.get(name)
        if recorded != ours:
            raise WenhaiError(
                f"{folder}: {name} is {_spelled(recorded)}, this run needs {_spelled(ours)}. Use the model and the "
                "training.precision it was saved with."
            )
        chunks = getattr(stored.get(name), "chunks", [])
        if sum(math.prod(chunk.sizes) for chunk in chunks) != tensor.numel():
            raise WenhaiError(f"{folder}: the files hold only a part of {name}. {advice(folder)}")


def _spelled(tensor: TensorRecord | None) -> str:
    return "not there" if tensor is None else f"{tensor.dtype.removeprefix('torch.')} {tensor.shape}"


def _check_model(folder: Path, saved_config: RunConfig, config: RunConfig) -> None:
    saved, ours = to_json(saved_config)["model"], to_json(config)["model"]
    different = [key for key in sorted(saved | ours) if saved.get(key) != ours.get(key)]
    if different:
        listing = ", ".join(f"{key} {saved.get(key)} there and {ours.get(key)} here" for key in different)
        raise WenhaiError(f"{folder}: is of another model ({listing}). Use its settings, or another --out.")
