"""What one rank writes of a checkpoint: which slices, their copy in host memory, and the safetensors file they become.

torch's own planner says who writes what. Its plan depends on the layout alone, so a run asks once; a save then needs no
word between ranks before its files are written. torch's writer is not used: it joins all bytes of a file in memory,
twice, before it writes the first. Here they go from where they lie to the disk, hashed on the way. The file is the same
to torch's reader.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, cast

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.checkpoint.default_planner import DefaultSavePlanner
from torch.distributed.checkpoint.metadata import TensorStorageMetadata
from torch.distributed.checkpoint.planner import SavePlan
from torch.distributed.tensor import DTensor

from corpus.engine import durable
from pretrain.parallel.base.mesh import World

SHARD_FILE = "shard-{:05d}-model-00001-of-00001.safetensors"  # torch's name for what rank number - 1 writes
BLOCK_BYTES = 4 << 20  # hashed and written at once
SAFETENSORS_NAMES = {  # of types, in the files
    torch.float64: "F64",
    torch.float32: "F32",
    torch.bfloat16: "BF16",
    torch.float16: "F16",
}


@dataclass(frozen=True)
class Plan:
    """What this rank writes at each save."""

    offsets: Mapping[str, tuple[int, ...]]  # of its slice of each tensor, by logical name
    tensors: Mapping[str, Any]  # on rank 0: type and logical shape of every tensor of the checkpoint


@dataclass(frozen=True)
class Part:
    """A slice of a tensor, and where in the tensor it begins."""

    name: str
    offsets: tuple[int, ...]
    values: Tensor


def tensors_of(
    parameters: Mapping[str, nn.Parameter], optimizer: torch.optim.Optimizer | None = None
) -> dict[str, Tensor]:
    """Weights, and with an optimizer its state, under their logical names, as this rank holds them."""
    tensors: dict[str, Tensor] = {}
    for name, parameter in parameters.items():
        tensors[f"model.{name}"] = parameter.data
        for key, value in ({} if optimizer is None else optimizer.state[parameter]).items():
            tensors[f"optimizer.{name}.{key}"] = value
    return tensors


def make_plan(tensors: Mapping[str, Tensor], world: World) -> Plan:
    """Let torch share the slices among the ranks; all of them call it."""
    planner = DefaultSavePlanner()
    planner.set_up_planner(dict(tensors), is_coordinator=world.rank == 0)
    is_first = world.rank == 0
    plans: list[Any] = [None] * world.size
    dist.gather_object(planner.create_local_plan(), plans if is_first else None, group=world.group)
    shapes: dict[str, Any] = {}
    if is_first:
        plans, metadata = planner.create_global_plan(plans)
        for name, stored in metadata.state_dict_metadata.items():
            tensor = cast(TensorStorageMetadata, stored)
            shapes[name] = {"dtype": str(tensor.properties.dtype), "shape": list(tensor.size)}
    own: list[Any] = [None]
    dist.scatter_object_list(own, plans if is_first else None, group=world.group)
    plan: SavePlan = own[0]
    offsets = {}
    for item in plan.items:
        assert item.tensor_data is not None
        if item.tensor_data.chunk.sizes.numel() > 0:
            offsets[item.index.fqn] = tuple(item.tensor_data.chunk.offsets)
    return Plan(offsets, shapes)


def parts_of(plan: Plan, tensors: Mapping[str, Tensor]) -> list[Part]:
    """What this rank writes, as it lies in memory now."""
    parts = []
    for name, offsets in plan.offsets.items():
        tensor = tensors[name].detach()
        parts.append(Part(name, offsets, tensor.to_local() if isinstance(tensor, DTensor) else tensor))
    return parts


class HostCopies:
    """Copies of parts in host memory, the same memory at each save; pinned where the parts lie on a GPU."""

    def __init__(self) -> None:
        self._buffers: dict[str, Tensor] = {}

    def copy(self, parts: Sequence[Part]) -> list[Part]:
        """The parts as they are now, whatever becomes of their tensors."""
        copies = []
        for part in parts:
            values = part.values
            if part.name not in self._buffers:
                shape, on_gpu = values.shape, values.is_cuda
                self._buffers[part.name] = torch.empty(shape, dtype=values.dtype, device="cpu", pin_memory=on_gpu)
            copy = self._buffers[part.name].copy_(values, non_blocking=True)
            copies.append(Part(part.name, part.offsets, copy))
        if any(part.values.is_cuda for part in parts):
            torch.cuda.current_stream().synchronize()
        return copies


def write_shard(path: Path, parts: Sequence[Part]) -> dict[str, Any]:
    """Write a safetensors file of parts, complete or not at all; returns its record.

    The hash is that of the bytes that were meant, so that what a disk does to them on their way is seen at the next
    load.

    Raises:
        OSError: the disk refused.
    """
    parts = sorted(parts, key=lambda part: (-part.values.element_size(), part.name))  # each aligned to its own size
    hasher, num_bytes = hashlib.sha256(), 0
    with durable.commit(path) as temporary, open(temporary, "xb") as file:
        for block in chain([_header(parts)], (_bytes(part.values) for part in parts)):
            for start in range(0, len(block), BLOCK_BYTES):
                some = block[start : start + BLOCK_BYTES]
                hasher.update(some)
                file.write(some)
            num_bytes += len(block)
    return {"bytes": num_bytes, "sha256": hasher.hexdigest()}


def _header(parts: Sequence[Part]) -> memoryview:
    """The length and the JSON that a safetensors file begins with, and what torch's reader looks for there."""
    where = {part.name: {"saved_offsets": part.offsets} for part in parts}
    told = {"DCP_SHARDING_INFO": json.dumps(where), "DCP_VERSION": "1.0", "format": "pt"}
    header: dict[str, Any] = {"__metadata__": told}
    end = 0
    for part in parts:
        start, end = end, end + part.values.nbytes
        kind = SAFETENSORS_NAMES[part.values.dtype]
        header[part.name] = {"dtype": kind, "shape": list(part.values.shape), "data_offsets": [start, end]}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return memoryview(len(text).to_bytes(8, "little") + text)


def _bytes(values: Tensor) -> memoryview:
    """The bytes of a tensor where they lie; of one on a GPU, or one that is not contiguous, a copy."""
    flat: memoryview = values.cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data
    return flat
