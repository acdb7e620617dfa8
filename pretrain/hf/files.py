"""A Hugging Face folder's weights: safetensors files of a bounded size with their index, written and read by tensor."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import safetensors.torch
import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from corpus.engine import durable
from corpus.engine.errors import UsageError, WenhaiError

WEIGHTS = "model.safetensors"
INDEX = "model.safetensors.index.json"
MAX_FILE_BYTES = 4 << 30
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


def write_weights(
    folder: Path, tensors: Mapping[str, Tensor], dtype: torch.dtype, max_bytes: int = MAX_FILE_BYTES
) -> int:
    """Write tensors in their order, as `dtype`, to files of `max_bytes` (a larger tensor has one of its own); returns
    the bytes.

    One file's tensors at a time are in memory in the new type.
    """
    groups = list(_groups(tensors, dtype.itemsize, max_bytes))
    names = (
        [WEIGHTS]
        if len(groups) == 1
        else [f"model-{i + 1:05}-of-{len(groups):05}.safetensors" for i in range(len(groups))]
    )
    for name, group in zip(names, groups, strict=True):
        held = {key: tensors[key].to(dtype).contiguous() for key in group}
        with durable.commit(folder / name) as path:
            path.touch()
            mode = path.stat().st_mode
            safetensors.torch.save_file(held, path, metadata={"format": "pt"})
            path.chmod(mode)  # what others may do; safetensors leaves its file to its owner alone
    total = sum(tensor.numel() for tensor in tensors.values()) * dtype.itemsize
    if len(groups) > 1:
        places = {key: name for name, group in zip(names, groups, strict=True) for key in group}
        durable.write_json(folder / INDEX, {"metadata": {"total_size": total}, "weight_map": places})
    return total


def _groups(tensors: Mapping[str, Tensor], itemsize: int, max_bytes: int) -> Iterator[list[str]]:
    group: list[str] = []
    size = 0
    for name, tensor in tensors.items():
        more = tensor.numel() * itemsize
        if group and size + more > max_bytes:
            yield group
            group, size = [], 0
        group.append(name)
        size += more
    yield group


class Weights:
    """The tensors of a folder by name, read one at a time.

    Raises:
        UsageError: the folder has none in safetensors files.
        WenhaiError: a file is missing or damaged.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        index = folder / INDEX
        if (folder / WEIGHTS).is_file():
            names = {WEIGHTS}
        elif index.is_file():
            places = durable.read_json(index).get("weight_map", {})
            names = {str(name) for name in places.values()}
            if beyond := [name for name in names if Path(name).name != name]:
                raise WenhaiError(f"{index}: names {min(beyond)}, outside of the folder. Get the folder again.")
        else:
            raise UsageError(_no_safetensors(folder))
        self.files: dict[str, Path] = {}
        for name in sorted(names):
            try:
                with safe_open(folder / name, "pt") as file:
                    self.files |= dict.fromkeys(file.keys(), folder / name)
            except (OSError, SafetensorError) as error:
                raise WenhaiError(f"{folder / name}: missing or damaged ({error}). Get the folder again.") from error

    def __call__(self, name: str) -> Tensor:
        """One tensor as it is stored."""
        with safe_open(self.files[name], "pt") as file:
            tensor: Tensor = file.get_tensor(name)
        return tensor


def _no_safetensors(folder: Path) -> str:
    if any(folder.glob("*.bin")) or any(folder.glob("*.pt")) or any(folder.glob("*.pth")):
        return (
            f"{folder}: has weights as pickles only, which run code when they are read. Open it with transformers "
            "where that is safe, and save_pretrained(..., safe_serialization=True)."
        )
    return f"{folder}: has no {WEIGHTS}. Name the folder of a model that was saved by transformers."
