"""The files of weights: what torch would have written, made from memory that is not copied for it."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors import safe_open
from safetensors.torch import load_file
from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageWriter
from torch.distributed.checkpoint.state_dict_saver import save as save_tensors

from corpus.engine import durable
from pretrain.checkpoint import shards
from pretrain.checkpoint.shards import HostCopies, Part, make_plan, parts_of, tensors_of, write_shard
from tests.pretrain.ranks import reused_ranks, run_ranks
from tests.pretrain.tiny import tiny_config, tiny_run, train_steps

MIB = 1 << 20


def both_writers(parallel: dict[str, Any], folder: Path) -> None:
    """The same run saved by torch and by us."""
    with tiny_run(tiny_config(parallel=parallel)) as run:
        train_steps(run, 1)
        tensors = tensors_of(run.model.parameters, run.optimizer)
        save_tensors(tensors, storage_writer=HuggingFaceStorageWriter(str(folder / "torch"), save_distributed=True))
        plan = make_plan(tensors, run.world)
        write_shard(folder / "ours" / shards.SHARD_FILE.format(run.world.rank + 1), parts_of(plan, tensors))


@pytest.mark.parametrize("parallel", [{}, {"pp": 2}, {"tp": 2}, {"dp_replicate": 2}])
def test_the_files_hold_what_torch_would_have_written(parallel: dict[str, Any], tmp_path: Path) -> None:
    """The same slices in the same files, and the same words about them."""
    reused_ranks(both_writers, 2, parallel, tmp_path)
    names = sorted(path.name for path in (tmp_path / "torch").iterdir())
    assert names == sorted(path.name for path in (tmp_path / "ours").iterdir()) and names
    for name in names:
        with safe_open(tmp_path / "ours" / name, "pt") as ours, safe_open(tmp_path / "torch" / name, "pt") as theirs:
            assert sorted(ours.keys()) == sorted(theirs.keys())
            words, their_words = ours.metadata(), theirs.metadata()
            assert sorted(words) == sorted(their_words)
            assert {**words, "DCP_SHARDING_INFO": ""} == {**their_words, "DCP_SHARDING_INFO": ""}
            assert sharding(words) == sharding(their_words)
            for key in ours.keys():  # noqa: SIM118 (no dict)
                assert torch.equal(ours.get_tensor(key), theirs.get_tensor(key))


def sharding(words: dict[str, str]) -> Any:
    return durable.parse_json(words["DCP_SHARDING_INFO"].encode(), "sharding")


@given(
    shapes=st.lists(st.lists(st.integers(1, 5), max_size=3), min_size=1, max_size=5),
    kinds=st.lists(st.sampled_from(sorted(shards.SAFETENSORS_NAMES, key=str)), min_size=5, max_size=5),
    transposed=st.booleans(),
    block_bytes=st.integers(1, 64),
)
def test_any_parts_are_read_back_by_safetensors(
    shapes: list[list[int]], kinds: list[torch.dtype], transposed: bool, block_bytes: int, tmp_path_factory: Any
) -> None:
    path = tmp_path_factory.mktemp("shard") / "a.safetensors"
    values = [torch.randn(shape).to(kind) for shape, kind in zip(shapes, kinds, strict=False)]
    values = [value.T if transposed and value.ndim == 2 else value for value in values]
    parts = [Part(f"tensor {i}", (0,) * value.ndim, value) for i, value in enumerate(values)]
    with mock.patch.object(shards, "BLOCK_BYTES", block_bytes):
        record = write_shard(path, parts)
    data = path.read_bytes()
    assert record == {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    loaded = load_file(path)
    assert len(loaded) == len(parts)
    for part in parts:
        assert loaded[part.name].dtype == part.values.dtype
        assert torch.equal(loaded[part.name], part.values)


def peaks(folder: Path) -> tuple[float, float, float]:
    """What 64 MiB of weights cost more, in MiB: their first copy, the second, and the file."""
    weights = [Part(f"weight {i}", (0, 0), torch.rand(4 * MIB, 1)) for i in range(4)]
    copies = HostCopies()
    write_shard(folder / "warm", weights[:1])

    def peak(work: Any) -> float:
        Path("/proc/self/clear_refs").write_text("5")  # forget the peak so far
        before = _status("VmRSS")
        work()
        return (_status("VmHWM") - before) / 1024

    return (
        peak(lambda: copies.copy(weights)),
        peak(lambda: copies.copy(weights)),
        peak(lambda: write_shard(folder / "shard", weights)),
    )


def _status(field: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(field))


def test_a_save_holds_one_copy_and_always_the_same(tmp_path: Path) -> None:
    """And its file is written from there: torch's writer holds it twice more."""
    ((first, second, write),) = run_ranks(peaks, 1, tmp_path)
    assert 60 < first < 70
    assert second < 4
    assert write < 12


def test_a_copy_is_of_that_moment() -> None:
    weight = torch.zeros(3)
    copies = HostCopies()
    (copy,) = copies.copy([Part("a", (0,), weight)])
    weight += 1
    assert copy.values.tolist() == [0, 0, 0]
    (again,) = copies.copy([Part("a", (0,), weight)])
    assert again.values.tolist() == [1, 1, 1] and again.values.data_ptr() == copy.values.data_ptr()
