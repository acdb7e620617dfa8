"""Checkpoints: complete or absent, checked before use, readable by any number of ranks, and free of pickle.

    OUT/checkpoints/step-00000100/
        shard-00001-model-00001-of-00001.safetensors    what rank 0 holds of weights and optimizer state
        config.json                                     the run's configuration and what it read
        tokenizer.model                                 what turns its tokens into text
        state.json                                      the counters
        COMMIT.json                                     written last: every file's size and sha256, every tensor's shape

The commit file is the existence: a folder without one is a save that died, which is ignored and swept. A
committed folder is never written into again. Tensors travel through torch's own distributed checkpoint and
its safetensors storage, by logical name and slice, so they load bit for bit on any mesh. Before loading,
sizes, hashes and the exact cover of every tensor are checked: torch's reader alone can succeed with a shard
file missing and leave rows uninitialised. There is no state of a random number generator: nothing in training
draws from one (see `model`, `params`, `data`).

What several ranks hold the same is written by one of them, the one that has the least to write; so the files are as
large together as the model, on any mesh. The second storage of a tied weight, on the last stage of a pipeline, is not
written: it is filled with what its original is filled with.

Cost: hashing reads the files back once after a save and once before a load, shared among the ranks; a core's 1.5 GB/s
with SHA instructions. A save holds what its rank writes twice more in memory (torch gathers a file before it writes it).
A load opens every file on every rank, to read what slices it has.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import re
import shutil
import warnings
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, Literal

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageReader, HuggingFaceStorageWriter
from torch.distributed.checkpoint.metadata import Metadata
from torch.distributed.checkpoint.state_dict_loader import load as load_tensors
from torch.distributed.checkpoint.state_dict_saver import save as save_tensors

from corpus.engine.config import Strict, parse
from corpus.engine.durable import digest, read_json, sha256_file, sync_folder, write_bytes, write_json
from corpus.engine.errors import WenhaiError
from pretrain.config import RunConfig, to_json
from pretrain.model import GPT
from pretrain.parallel.compose import ParallelModel
from pretrain.parallel.mesh import World
from pretrain.state import Order, State

FORMAT: Literal[2] = 2
COMMIT = "COMMIT.json"
TOKENIZER = "tokenizer.model"
STEP_FOLDER = re.compile(r"step-(\d{8,})")
SHARD_FILE = "shard-{:05d}-model-00001-of-00001.safetensors"  # torch's name for what rank number - 1 writes


@dataclasses.dataclass(frozen=True)
class Identity:
    """What a run is made of besides its configuration; a resumed run must have the same."""

    data: str  # digest of the tokens, see `pretrain.corpora`
    tokenizer: Path  # copied into every checkpoint, so that one folder is all that `generate` needs
    tokenizer_sha256: str


class FileRecord(Strict):
    """One file as it was written."""

    bytes: Annotated[int, Field(ge=0)]
    sha256: Annotated[str, Field(pattern="^[0-9a-f]{64}$")]


class TensorRecord(Strict):
    """The logical type and shape of one tensor."""

    dtype: str
    shape: list[Annotated[int, Field(ge=0)]]


class Commit(Strict):
    """COMMIT.json: what makes a folder a checkpoint. `digest` is that of all the rest."""

    format: Literal[2]
    step: Annotated[int, Field(ge=0)]
    files: dict[Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")], FileRecord]
    tensors: dict[str, TensorRecord]
    digest: str


class Saved(Strict):
    """config.json: what was trained, on what."""

    config: RunConfig
    data: str
    tokenizer_sha256: str


def step_folder(out: Path, step: int) -> Path:
    """The folder of one step's checkpoint."""
    return out / "checkpoints" / f"step-{step:08d}"


def committed(out: Path) -> list[Path]:
    """The committed checkpoints of a run, oldest first."""
    return [folder for folder in _step_folders(out) if (folder / COMMIT).is_file()]


def newest(out: Path) -> Path | None:
    """The newest committed checkpoint of a run."""
    return max(committed(out), default=None)


def sweep(out: Path) -> list[str]:
    """Remove the folders of saves that died; call it alone, with the run's lock held. Returns their names."""
    dead = [folder for folder in _step_folders(out) if not (folder / COMMIT).exists()]
    for folder in dead:
        _remove(folder)
    return [folder.name for folder in dead]


def save(
    out: Path,
    state: State,
    model: ParallelModel,
    optimizer: torch.optim.Optimizer,
    config: RunConfig,
    identity: Identity,
    world: World,
) -> Path:
    """Write and commit the checkpoint of `state.step`; all ranks call it. Older ones beyond `keep_last` then go.

    Raises:
        WenhaiError: the disk refused. Nothing of the step remains, and no older checkpoint was touched.
    """
    folder = step_folder(out, state.step)
    with world.together():
        if world.rank == 0 and (folder / COMMIT).exists():
            raise WenhaiError(f"{folder}: is committed already; a checkpoint is never written twice.")
    try:
        _write(folder, state, _tensors(model.parameters, optimizer), config, identity, world)
    except WenhaiError:
        if world.rank == 0:
            with suppress(OSError):
                _remove(folder)
        raise
    with world.together():
        if world.rank == 0:
            for old in committed(out)[: -config.checkpoint.keep_last]:
                _remove(old)
    return folder


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
    with world.together():
        commit = read_commit(folder)
        _check_files(folder, commit, world.rank, world.size)
    with world.together():  # files that no rank refused
        state, saved = read_state(folder), read_saved(folder)
        _check_model(folder, saved.config, config)
        if (saved.data, saved.tokenizer_sha256) != (identity.data, identity.tokenizer_sha256):
            raise WenhaiError(f"{folder}: was trained on other token shards. Use those, or another --out.")
    copies, originals = (_tensors(parameters, optimizer) for parameters in (model.copies, model.parameters))
    tensors = copies | originals
    reader = _Reader(folder)
    with world.together():
        _check_tensors(folder, commit, reader.metadata, tensors)
    _fill(folder, tensors, reader)
    for name in copies.keys() & originals.keys():  # both ends of a V: one tensor of the files, two places here
        copies[name].copy_(originals[name])
    return state


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
    weights: dict[str, Tensor] = {f"model.{name}": p.data for name, p in model.named_parameters()}
    reader = _Reader(folder)
    _check_tensors(folder, commit, reader.metadata, weights)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "torch.distributed is disabled")  # as asked
        _fill(folder, weights, reader, no_dist=True)
    return model.eval(), saved.config


def read_commit(folder: Path) -> Commit:
    """The commit record of a checkpoint, its own digest checked.

    Raises:
        WenhaiError: there is none, or it is not one of ours.
    """
    path = folder / COMMIT
    if not path.is_file():
        raise WenhaiError(f"{folder}: is not a checkpoint (it has no {COMMIT}). Choose a step-... folder that has.")
    values = read_json(path)
    if isinstance(values, dict) and values.get("format", FORMAT) != FORMAT:
        raise WenhaiError(
            f"{folder}: is a checkpoint of format {values['format']}, and this version reads format {FORMAT}. Use the "
            "version that wrote it, or begin anew in another --out."
        )
    commit = parse(Commit, values, str(path))
    if commit.digest != digest({key: value for key, value in values.items() if key != "digest"}):
        raise WenhaiError(f"{path}: was altered. {_advice(folder)}")
    return commit


def read_saved(folder: Path) -> Saved:
    """The configuration a checkpoint was trained with, and its data."""
    return parse(Saved, read_json(folder / "config.json"), str(folder / "config.json"))


def read_state(folder: Path) -> State:
    """The counters of a checkpoint.

    Raises:
        WenhaiError: they are not ours.
    """
    path = folder / "state.json"
    values = read_json(path)
    try:
        return State(**values | {"orders": [parse(Order, order, str(path)) for order in values["orders"]]})
    except (KeyError, TypeError) as error:
        raise WenhaiError(f"{path}: was altered. {_advice(folder)}") from error


def _write(
    folder: Path,
    state: State,
    tensors: dict[str, Tensor],
    config: RunConfig,
    identity: Identity,
    world: World,
) -> None:
    with world.together():
        if world.rank == 0:
            if folder.exists():  # of a save that failed earlier in this run
                _remove(folder)
            folder.mkdir(parents=True)
    try:
        save_tensors(tensors, storage_writer=HuggingFaceStorageWriter(str(folder), save_distributed=True))
    except CheckpointException as error:
        raise WenhaiError(f"{folder}: cannot be written ({_reasons(error)}). Free space there.") from error

    files: dict[str, Any] = {}
    with world.together():
        own = folder / SHARD_FILE.format(world.rank + 1)
        if own.exists():  # a rank that holds no slice writes no file
            files[own.name] = _describe(own)
        if world.rank == 0:
            counters = dataclasses.asdict(dataclasses.replace(state, orders=[]))
            orders = [order.model_dump(mode="json", exclude_defaults=True) for order in state.orders]
            write_json(folder / "state.json", counters | {"orders": orders})
            saved = {"data": identity.data, "tokenizer_sha256": identity.tokenizer_sha256}
            write_json(folder / "config.json", {"config": to_json(config), **saved})
            write_bytes(folder / TOKENIZER, identity.tokenizer.read_bytes())
            files |= {name: _describe(folder / name) for name in ("state.json", "config.json", TOKENIZER)}
    shapes: dict[str, Any] = {}
    if world.dp_rank == 0 and world.tp_rank == 0:  # the others hold parts of the same tensors
        shapes = {name: {"dtype": str(t.dtype), "shape": list(t.shape)} for name, t in tensors.items()}
    reports = world.gather((files, shapes))
    body: dict[str, Any] = {"format": FORMAT, "step": state.step, "files": {}, "tensors": {}}
    for one_files, one_shapes in reports:
        body["files"] |= one_files
        body["tensors"] |= one_shapes
    with world.together():
        if world.rank == 0:
            write_json(folder / COMMIT, body | {"digest": digest(body)})
            sync_folder(folder.parent)


def _tensors(parameters: Mapping[str, nn.Parameter], optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """Weights and optimizer state under their logical names, as this rank holds them."""
    tensors: dict[str, Tensor] = {}
    for name, parameter in parameters.items():
        tensors[f"model.{name}"] = parameter.data
        for key, value in optimizer.state[parameter].items():
            tensors[f"optimizer.{name}.{key}"] = value
    return tensors


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


def _fill(folder: Path, tensors: dict[str, Tensor], reader: _Reader, no_dist: bool = False) -> None:
    try:
        load_tensors(tensors, storage_reader=reader, no_dist=no_dist)
    except CheckpointException as error:
        raise WenhaiError(f"{folder}: cannot be read ({_reasons(error)}). {_advice(folder)}") from error


def _reasons(error: CheckpointException) -> str:
    return "; ".join(f"rank {rank}: {reason[0]}" for rank, reason in sorted(error.failures.items()))


def _check_files(folder: Path, commit: Commit, rank: int, num_ranks: int) -> None:
    """Compare the folder with its commit record; each rank hashes its share of the files."""
    unexpected = {path.name for path in folder.iterdir()} - set(commit.files) - {COMMIT}
    if unexpected:
        raise WenhaiError(f"{folder / min(unexpected)}: does not belong to this checkpoint. Remove it.")
    for name, expected in sorted(commit.files.items())[rank::num_ranks]:
        if not (folder / name).is_file():
            raise WenhaiError(f"{folder / name}: is missing. {_advice(folder)}")
        if FileRecord(**_describe(folder / name)) != expected:
            raise WenhaiError(f"{folder / name}: was altered: its size or sha256 is not as recorded. {_advice(folder)}")


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
            raise WenhaiError(f"{folder}: the files hold only a part of {name}. {_advice(folder)}")


def _spelled(tensor: TensorRecord | None) -> str:
    return "not there" if tensor is None else f"{tensor.dtype.removeprefix('torch.')} {tensor.shape}"


def _check_model(folder: Path, saved_config: RunConfig, config: RunConfig) -> None:
    saved, ours = to_json(saved_config)["model"], to_json(config)["model"]
    different = [key for key in sorted(saved | ours) if saved.get(key) != ours.get(key)]
    if different:
        listing = ", ".join(f"{key} {saved.get(key)} there and {ours.get(key)} here" for key in different)
        raise WenhaiError(f"{folder}: is of another model ({listing}). Use its settings, or another --out.")


def _remove(folder: Path) -> None:
    """Remove a checkpoint, or what there is of one."""
    (folder / COMMIT).unlink(missing_ok=True)  # first: what dies half-deleted is no checkpoint
    shutil.rmtree(folder)


def _describe(path: Path) -> dict[str, Any]:
    return {"bytes": path.stat().st_size, "sha256": sha256_file(path)}


def _advice(folder: Path) -> str:
    return f"Restore it, or delete {folder.name} to go on from the checkpoint before."


def _step_folders(out: Path) -> list[Path]:
    folder = out / "checkpoints"
    if not folder.is_dir():
        return []
    return sorted(path for path in folder.iterdir() if STEP_FOLDER.fullmatch(path.name))
