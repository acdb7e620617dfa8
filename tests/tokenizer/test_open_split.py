"""The shards of a split: what the manifest lists, and nothing else that lies in the folder."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from corpus.engine import durable
from corpus.engine.manifest import commit_files
from tests.tokenizer.shard_files import write
from tokenizer.shards import MAPPED_SHARDS, open_split
from tokenizer.shards.manifest import listed_files
from tokenizer.shards.record import ShardError


def stage_folder(out: Path, shards: dict[str, tuple[str, list[list[int]]]], **identity: Any) -> Path:
    """A build whose tokens stage holds shards of the given names, splits and documents."""
    folder = out / "tokens-0123456789ab"
    for name, (split, documents) in shards.items():
        write(folder / "data" / name, documents, split=split, **identity)
    files = {
        f"data/{path.name}": {"bytes": path.stat().st_size, "sha256": durable.sha256_file(path), "rows": 0}
        for path in sorted((folder / "data").iterdir())
    }
    commit_files(str(folder), files, "tokens")
    durable.write_json(out / "run.json", {"format": 1, "stages": {"tokens": {"folder": folder.name, "upstream": {}}}})
    return folder


def test_open_split_reads_the_manifest_and_not_the_folder(tmp_path: Path) -> None:
    shards = {"b-train": ("train", [[3]]), "a-train": ("train", [[2]]), "a-validation": ("validation", [[4]])}
    folder = stage_folder(tmp_path, shards)
    write(folder / "data" / "c-train", [[9]])  # in the folder, in no manifest
    for data in (tmp_path, folder, str(tmp_path)):
        assert [shard.sequence(0).tolist() for shard in open_split(data, "train")] == [[2, 1], [3, 1]]
        assert [shard.sequence(0).tolist() for shard in open_split(data, "validation")] == [[4, 1]]
    assert [shard.sequence(0).tolist() for shard in open_split([folder / "data" / "b-train"], "train")] == [[3, 1]]
    with pytest.raises(ShardError, match="holds validation documents"):
        open_split([folder / "data" / "a-validation"], "train")
    with pytest.raises(ShardError, match="'test' is not one of train, validation"):
        open_split(tmp_path, "test")


def test_open_split_of_an_empty_split(tmp_path: Path) -> None:
    stage_folder(tmp_path, {"a-train": ("train", [[2]])})
    assert open_split(tmp_path, "validation") == []


def open_files() -> list[str]:
    """What the descriptors of this process stand for, and what it has mapped."""
    links = [os.readlink(entry.path) for entry in os.scandir("/proc/self/fd") if os.path.lexists(entry.path)]
    maps = {line.split(maxsplit=5)[5] for line in Path("/proc/self/maps").read_text().splitlines() if "/" in line}
    return [*links, *maps]


def test_open_shards_hold_no_file_and_few_maps(tmp_path: Path) -> None:
    count = MAPPED_SHARDS + 30
    stage_folder(tmp_path, {f"{number:03d}-train": ("train", [[2], [number + 3]]) for number in range(count)})

    def held() -> int:
        return sum(str(tmp_path) in name for name in open_files())

    shards = open_split(tmp_path, "train")
    assert len(shards) == count
    assert held() == 0
    assert shards[0].tokens(0, 1).tolist() == [2]
    assert held() == 2  # of one shard a map and its descriptor, and not the index
    for _ in range(2):  # a shard whose map had to go is mapped again
        assert [shard.sequence(1).tolist() for shard in shards] == [[number + 3, 1] for number in range(count)]
    assert held() <= 4 * MAPPED_SHARDS < 4 * count
    assert sum(name.endswith(".idx") for name in open_files()) <= 2 * MAPPED_SHARDS  # descriptors and maps


def test_open_split_refuses_a_foreign_shard_under_a_listed_name(tmp_path: Path) -> None:
    folder = stage_folder(tmp_path, {"a-train": ("train", [[2]]), "b-train": ("train", [[3]])})
    write(folder / "data" / "b-train", [[4]])
    with pytest.raises(ShardError, match=r"b-train\.meta\.json.*not the record that the manifest lists"):
        open_split(tmp_path, "train")


def test_open_split_refuses_shards_of_two_tokenizers(tmp_path: Path) -> None:
    prefixes = [write(tmp_path / "a", [[2]]), write(tmp_path / "b", [[2]], sha256="77" * 32)]
    with pytest.raises(ShardError, match="another tokenizer"):
        open_split(prefixes, "train")
    prefixes[1] = write(tmp_path / "b", [[2]], vocab_size=900)
    with pytest.raises(ShardError, match="another tokenizer"):
        open_split(prefixes, "train")


@pytest.mark.parametrize("suffix", [".bin", ".idx", ".meta.json"])
def test_a_pipe_is_refused_and_not_waited_for(tmp_path: Path, suffix: str) -> None:
    prefix = write(tmp_path / "a", [])
    prefix.with_name(f"a{suffix}").unlink()
    os.mkfifo(f"{prefix}{suffix}")
    with pytest.raises(ShardError, match=rf"a{suffix}: offset 0: (this is no file|0 bytes, but)"):
        open_split([prefix], "train")


@pytest.mark.parametrize("suffix", [".bin", ".idx"])
def test_a_file_that_is_truncated_before_it_is_mapped_is_refused(tmp_path: Path, suffix: str) -> None:
    [shard] = open_split([write(tmp_path / "a", [[2, 3]])], "train")
    os.truncate(f"{shard.prefix}{suffix}", 5)
    with pytest.raises(ShardError, match=rf"a{suffix}: was truncated after it was opened"):
        shard.sequence(0)


def test_a_manifest_of_the_version_before_opens(tmp_path: Path) -> None:
    folder = stage_folder(tmp_path, {"a-train": ("train", [[2]]), "b-train": ("train", [[3]])})
    files = {name: {"bytes": 1, "rows": 0, "sha256": sha256} for name, sha256 in listed_files(folder).items()}
    shutil.rmtree(folder / "manifest")
    durable.write_json(folder / "MANIFEST.json", {"format": 1, "stage": "tokens", "files": files})
    assert [shard.sequence(0).tolist() for shard in open_split(tmp_path, "train")] == [[2, 1], [3, 1]]


@pytest.mark.parametrize("name", ["../elsewhere-train.meta.json", "/tmp/x-train.meta.json", "a\0b-train.meta.json"])
def test_manifest_cannot_name_files_outside(tmp_path: Path, name: str) -> None:
    folder = stage_folder(tmp_path, {"a-train": ("train", [[2]])})
    commit_files(str(folder), {name: {"bytes": 1, "sha256": ""}}, "tokens")
    with pytest.raises(ShardError, match="outside its folder"):
        open_split(tmp_path, "train")


def test_folders_without_a_build_say_so(tmp_path: Path) -> None:
    with pytest.raises(ShardError, match="no finished build"):
        open_split(tmp_path, "train")
    durable.write_json(tmp_path / "run.json", {"format": 1, "stages": {}})
    with pytest.raises(ShardError, match="tokens stage is not complete"):
        open_split(tmp_path, "train")
    for broken in ([], {"stages": 3}, {"stages": {"tokens": 3}}, {"stages": {"tokens": {"folder": "../x"}}}):
        durable.write_json(tmp_path / "run.json", broken)
        with pytest.raises(ShardError, match=r"run\.json"):
            open_split(tmp_path, "train")
