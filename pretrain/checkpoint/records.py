"""The JSON files of a checkpoint: what was trained, how far, and the commit that makes a folder a checkpoint."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from corpus.engine.config import Strict, parse
from corpus.engine.durable import digest, read_json, sha256_file
from corpus.engine.errors import DiskError, WenhaiError
from pretrain.config import RunConfig, to_json
from pretrain.run_folder import COMMIT
from pretrain.training.state import Order, State

FORMAT: Literal[2] = 2
TOKENIZER = "tokenizer.model"


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


def new_commit(step: int, files: dict[str, Any], tensors: dict[str, Any]) -> dict[str, Any]:
    """The commit of a step, as JSON."""
    body = {"format": FORMAT, "step": step, "files": files, "tensors": tensors}
    return body | {"digest": digest(body)}


def state_json(state: State) -> dict[str, Any]:
    """state.json; `read_state` reads it back."""
    orders = [order.model_dump(mode="json", exclude_defaults=True) for order in state.orders]
    return dataclasses.asdict(dataclasses.replace(state, orders=[])) | {"orders": orders}


def saved_json(config: RunConfig, identity: Identity) -> dict[str, Any]:
    """config.json; `read_saved` reads it back."""
    return {"config": to_json(config), "data": identity.data, "tokenizer_sha256": identity.tokenizer_sha256}


def read_commit(folder: Path) -> Commit:
    """The commit record of a checkpoint, its own digest checked.

    Raises:
        WenhaiError: there is none, or it is not one of ours.
    """
    path = folder / COMMIT
    if not path.is_file():
        raise WenhaiError(f"{folder}: is not a checkpoint (it has no {COMMIT}). Choose a step-... folder that has.")
    return parse_commit(read_json(path), str(folder))


def parse_commit(values: Any, folder: str) -> Commit:
    """The same of its JSON value; `folder` is the folder or URL it was read from."""
    if isinstance(values, dict) and values.get("format", FORMAT) != FORMAT:
        raise WenhaiError(
            f"{folder}: is a checkpoint of format {values['format']}, and this version reads format {FORMAT}. Use the "
            "version that wrote it, or begin anew in another --out."
        )
    where = f"{folder}/{COMMIT}"
    commit = parse(Commit, values, where)
    if commit.digest != digest({key: value for key, value in values.items() if key != "digest"}):
        raise WenhaiError(f"{where}: was altered. {advice(folder)}")
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
        raise WenhaiError(f"{path}: was altered. {advice(folder)}") from error


def describe(path: Path) -> dict[str, Any]:
    """The record of a file as it lies on the disk."""
    return {"bytes": path.stat().st_size, "sha256": sha256_file(path)}


def advice(folder: Path | str) -> str:
    """What to do about a checkpoint that is not as it was written."""
    name = str(folder).rsplit("/", 1)[-1]
    return f"Restore it, or delete {name} to go on from the checkpoint before."


@contextmanager
def refusals(where: str) -> Iterator[None]:
    """Tell what a disk refuses in words that fit a run which goes on."""
    try:
        yield
    except (DiskError, OSError) as error:
        cause = error if isinstance(error, OSError) else error.__cause__
        reason = getattr(cause, "strerror", None) or cause
        raise WenhaiError(f"{where}: cannot be written ({reason}). Free space there.") from error
