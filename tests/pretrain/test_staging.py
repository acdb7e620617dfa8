"""Corpora in a store come to the machine's cache: whole, once, checked, bounded, by any number of processes and after
any kill.

`local://` stands for a store where a test needs no protocol: to us it is a URL like any other.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import tomlkit

from corpus.engine import durable, storage
from corpus.engine.errors import DiskError, UsageError, WenhaiError
from corpus.engine.manifest import commit_files
from pretrain import shard_cache, staging
from pretrain.chat.templates import load_template
from pretrain.config import DataConfig, ParallelConfig
from pretrain.corpora import corpora_digest, open_corpora
from pretrain.data.examples import open_packs
from pretrain.finetuning.sources import Files, survey
from pretrain.finetuning.store import Fit, Plan, write_examples
from pretrain.parallel.base import mesh
from pretrain.shard_cache import GIB
from pretrain.staging import stage_locally, stage_on_all_ranks
from tests.corpus.engine.test_s3 import Store, running_store
from tests.pretrain.finetuning.made import write_lines
from tests.pretrain.ranks import run_ranks
from tests.pretrain.texts import small_tokenizer, text_folder
from tests.tokenizer.texts import documents
from tokenizer.model import Tokenizer
from tokenizer.shards import open_split

SPLITS = ("train", "validation")


def build(folder: Path, first: int = 0) -> Path:
    """The output folder of a build: its tokens, its tokenizer, and a stage that training does not need."""
    (folder / "tokenizer-1/model").mkdir(parents=True)
    tokenizer = small_tokenizer(folder / "tokenizer-1/model/tokenizer.model")
    texts = documents(first + 60)[first:]
    shards = {"00000-00-train": texts[:30], "00001-00-train": texts[30:50], "00000-00-validation": texts[50:]}
    text_folder(folder / "tokens-1", tokenizer, shards)
    model = "model/tokenizer.model"
    path = folder / "tokenizer-1" / model
    entry = {"bytes": path.stat().st_size, "sha256": durable.sha256_file(path)}
    commit_files(str(folder / "tokenizer-1"), {model: entry, "report/x.html": entry}, "tokenizer")
    stages = {stage: {"folder": f"{stage}-1"} for stage in ("tokens", "tokenizer", "text")}
    durable.write_json(folder / "run.json", {"format": 1, "stages": stages})
    (folder / "text-1").mkdir()
    (folder / "text-1/large").write_bytes(bytes(1000))
    return folder


@pytest.fixture(scope="module")
def builds(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    top = tmp_path_factory.mktemp("builds")
    return {name: build(top / name, first) for name, first in (("a", 0), ("b", 60), ("c", 120))}


@pytest.fixture
def store(builds: dict[str, Path], tmp_path: Path) -> Path:
    """The builds in a store of this test's own, below its folder."""
    for name, folder in builds.items():
        shutil.copytree(folder, tmp_path / "store" / name)
    return tmp_path / "store"


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shard_cache, "RESERVE_BYTES", 0)
    monkeypatch.setattr(shard_cache, "TRY_AGAIN_SECONDS", 0)
    monkeypatch.setattr(staging, "BEAT_SECONDS", 0.05)
    for name in ("RANK", "LOCAL_RANK"):
        monkeypatch.delenv(name, raising=False)


def config(folder: Path, num_bytes: int = GIB) -> DataConfig:
    return DataConfig(cache=str(folder), cache_gib=num_bytes / GIB)


def url(store: Path, name: str = "a") -> str:
    return f"local://{store}/{name}"


def refused(kind: type[Exception], match: str, data: DataConfig, places: dict[str, str]) -> None:
    """What staging says."""
    with pytest.raises(kind, match=match), stage_locally(data, places):
        pass


def needed(store: Path, name: str = "a") -> int:
    return sum(file.bytes for file in staging.read_corpus(url(store, name), SPLITS).files)


@pytest.fixture
def fetched(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the files that this process reads from a store, as it does so."""
    names: list[str] = []
    read_into = storage.read_into

    def read(place: str, offset: int, target: memoryview) -> int:
        names.append(place.rsplit("/", 1)[-1])
        return read_into(place, offset, target)

    monkeypatch.setattr(storage, "read_into", read)
    return names


def present(folder: Path) -> set[str]:
    """The fetched files in a cache, below the folders of their corpora."""
    found = {path.relative_to(folder).parts[1:] for path in folder.rglob("*") if path.is_file()}
    return {"/".join(parts) for parts in found if len(parts) > 2 and parts[-1] != "MANIFEST.json"}


# -------------------------------------------------------------------------------------------------- what comes, and how


def test_a_staged_corpus_reads_like_the_build_it_came_from(store: Path, tmp_path: Path, fetched: list[str]) -> None:
    here = open_corpora(DataConfig(), {"a": store / "a"})
    with stage_locally(config(tmp_path / "cache"), {"a": url(store), "b": str(store / "b")}) as folders:
        assert folders["b"] == store / "b"  # on a disk already
        assert corpora_digest(open_corpora(DataConfig(), {"a": folders["a"]})) == corpora_digest(here)
        assert Tokenizer(folders["a"]) == Tokenizer(store / "a")
        for split in SPLITS:
            shards, originals = open_split(folders["a"], split), open_split(store / "a", split)
            assert [shard.meta for shard in shards] == [shard.meta for shard in originals] and shards
            for shard, original in zip(shards, originals, strict=True):
                shard.verify()
                tables = [each.prefix.with_name(each.prefix.name + ".docs.parquet") for each in (shard, original)]
                assert tables[0].read_bytes() == tables[1].read_bytes()
    assert len(fetched) == len(set(fetched)) == 3 * 4 + 1  # three shards of four files, and the model


def test_what_is_there_is_not_fetched_again(store: Path, tmp_path: Path, fetched: list[str]) -> None:
    with stage_locally(config(tmp_path / "cache"), {"a": url(store)}):
        pass
    shutil.rmtree(store / "a/tokens-1/data")
    fetched.clear()
    shutil.copytree(store / "a", store / "moved")  # named by its contents, wherever they lie
    with stage_locally(config(tmp_path / "cache"), {"a": url(store, "moved")}) as folders:
        assert len(open_split(folders["a"], "train")) == 2
    assert fetched == []


def test_the_folder_of_a_tokens_stage_will_do(store: Path, tmp_path: Path) -> None:
    with stage_locally(config(tmp_path / "cache"), {"a": f"{url(store)}/tokens-1"}) as folders:
        assert len(open_split(folders["a"], "validation")) == 1


def test_a_folder_of_examples_comes_with_what_makes_it_one(tmp_path: Path) -> None:
    tokenizer = small_tokenizer(tmp_path / "tokenizer.model")
    path = write_lines(tmp_path / "a.jsonl", [(f"第{number}问", f"第{number}答") for number in range(20)])
    source = Files([str(path)], skip_bad=True)
    plan = Plan(source, survey(source, 0.2), None, load_template("plain"), tokenizer, Fit(64, "error"))
    write_examples(tmp_path / "store/examples", plan)
    with stage_locally(config(tmp_path / "cache"), {"a": url(tmp_path / "store", "examples")}) as folders:
        (there, here) = (open_corpora(DataConfig(), {"a": at})[0] for at in (folders["a"], tmp_path / "store/examples"))
        assert there.folder != here.folder and there.examples == here.examples is not None
        assert corpora_digest([there]) == corpora_digest([here])
        assert Tokenizer(folders["a"]) == tokenizer
        packs = open_packs(there.shards, here.examples, 64, seed=0)
        assert packs.num_tokens == here.examples.splits["train"].tokens


def test_the_cache_may_be_named_by_the_machine(store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SCRATCH_OF_THIS_NODE", str(tmp_path))
    with stage_locally(DataConfig(cache="$SCRATCH_OF_THIS_NODE/cache"), {"a": url(store)}) as folders:
        assert folders["a"].is_relative_to(tmp_path / "cache")
    assert (tmp_path / "cache").stat().st_mode & 0o077 == 0


def test_without_a_cache_the_advice_names_the_option(store: Path) -> None:
    refused(UsageError, r"data\.cache names no folder.*--set data\.cache=", DataConfig(), {"a": url(store)})


def test_what_is_no_build_is_told_by_its_url(store: Path, tmp_path: Path) -> None:
    with pytest.raises(WenhaiError, match=r"local://.*/nothing/run\.json"):
        staging.read_corpus(url(store, "nothing"), SPLITS)
    durable.write_json(store / "a/run.json", {"stages": {}})
    with pytest.raises(WenhaiError, match=r"tokens stage is not complete"):
        staging.read_corpus(url(store), SPLITS)
    for name in ("../../x-train.bin", "/x-train.bin"):
        commit_files(str(store / "b/tokens-1"), {name: {"bytes": 1, "sha256": ""}}, "tokens")
        with pytest.raises(WenhaiError, match="lies outside its folder"):
            staging.read_corpus(url(store, "b"), SPLITS)
    durable.write_json(store / "c/tokens-1/MANIFEST.json", [])
    with pytest.raises(WenhaiError, match="not a manifest of format"):
        staging.read_corpus(url(store, "c"), SPLITS)


# ------------------------------------------------------------------------------------------------------------ the bound


def test_a_run_that_does_not_fit_is_refused_before_anything_is_fetched(
    store: Path, tmp_path: Path, fetched: list[str]
) -> None:
    size = needed(store)
    with pytest.raises(UsageError) as caught, stage_locally(config(tmp_path / "cache", size - 1), {"a": url(store)}):
        pass
    assert f"take {size / GIB:.3f} GiB" in str(caught.value) and "raise data.cache_gib" in str(caught.value)
    assert fetched == [] and not (tmp_path / "cache").exists()
    with stage_locally(config(tmp_path / "cache", size), {"a": url(store)}):
        pass


@pytest.mark.parametrize(("older", "newer"), ["ab", "ba"])
def test_what_was_used_longest_ago_makes_room(
    store: Path, tmp_path: Path, fetched: list[str], older: str, newer: str
) -> None:
    size = {name: needed(store, name) for name in "abc"}
    records = 20_000  # at most, beside the files
    bounded = config(tmp_path / "cache", sum(size.values()) - size[older] // 2)
    for name in (newer, older, newer, "c"):
        with stage_locally(bounded, {name: url(store, name)}):
            pass
    assert sum(storage.sizes(str(tmp_path / "cache")).values()) <= sum(size.values()) - size[older] // 2 + records
    for name in "abc":
        corpus = staging.read_corpus(url(store, name), SPLITS)
        there = [(tmp_path / "cache" / corpus.key / file.name).exists() for file in corpus.files]
        assert all(there) is (name != older)
    fetched.clear()
    with stage_locally(bounded, {older: url(store, older)}) as folders:  # what is left of it is used
        assert len(open_split(folders[older], "train")) == 2
    assert 0 < len(fetched) < 13


def test_what_a_living_run_holds_stays(store: Path, tmp_path: Path) -> None:
    size = {name: needed(store, name) for name in "ab"}
    bounded = config(tmp_path / "cache", max(size.values()) + 10_000)
    with stage_locally(bounded, {"a": url(store)}) as folders:
        refused(DiskError, r"other runs hold .* and this one needs", bounded, {"b": url(store, "b")})
        assert len(open_split(folders["a"], "train")) == 2 and open_split(folders["a"], "train")[0].verify() is None
    with stage_locally(bounded, {"b": url(store, "b")}) as folders:
        assert len(open_split(folders["b"], "train")) == 2


def test_a_disk_without_room_is_told_before_it_is_full(
    store: Path, tmp_path: Path, fetched: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    size = needed(store)
    with monkeypatch.context() as patched:
        patched.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=size - 1))
        refused(DiskError, r"the disk has .* free", config(tmp_path / "cache"), {"a": url(store)})
        assert fetched == []
    with stage_locally(config(tmp_path / "cache"), {"a": url(store)}):
        pass
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=0))
    monkeypatch.setattr(shard_cache, "RESERVE_BYTES", 1)
    with stage_locally(config(tmp_path / "cache"), {"a": url(store)}):  # nothing is missing
        pass


# ------------------------------------------------------------------------------------------------------ what goes wrong


def test_a_damaged_object_never_gets_its_name(store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shard_cache, "TRIES", 1)
    path = store / "a/tokens-1/data/00001-00-train.bin"
    whole = path.read_bytes()
    for damaged in (whole[:-1] + bytes([whole[-1] ^ 1]), whole[:-2]):
        path.write_bytes(damaged)
        refused(
            WenhaiError,
            r"local://.*00001-00-train\.bin: is not what its manifest says",
            config(tmp_path / "cache"),
            {"a": url(store)},
        )
        assert "tokens/data/00001-00-train.bin" not in present(tmp_path / "cache")
        assert "tokens/data/00000-00-train.bin" in present(tmp_path / "cache")
        assert not [name for name in present(tmp_path / "cache") if name.endswith(".part")]
    path.write_bytes(whole + b"more")  # than was recorded: what was recorded is there
    with stage_locally(config(tmp_path / "cache"), {"a": url(store)}) as folders:
        open_split(folders["a"], "train")[1].verify()


def test_a_store_that_fails_once_is_asked_again(store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read_into, failures = storage.read_into, [RuntimeError("the line is cut"), OSError("reset by peer")]

    def read(place: str, offset: int, target: memoryview) -> int:
        if failures:
            raise failures.pop()
        return read_into(place, offset, target)

    monkeypatch.setattr(storage, "read_into", read)
    with stage_locally(config(tmp_path / "cache"), {"a": url(store)}) as folders:
        assert len(open_split(folders["a"], "train")) == 2
    failures += [RuntimeError("the line is cut")] * 9
    refused(
        WenhaiError,
        r"cannot be fetched \(RuntimeError: the line is cut\)\. Run the same",
        config(tmp_path / "cache"),
        {"b": url(store, "b")},
    )


def test_a_disk_that_is_full_all_the_same_is_not_asked_again(
    store: Path, tmp_path: Path, fetched: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "pwrite", full)
        refused(
            DiskError, r"cannot be written \(No space left on device\)", config(tmp_path / "cache"), {"a": url(store)}
        )
    assert len(fetched) == 1


def test_what_a_killed_process_left_of_a_file_is_written_over(store: Path, tmp_path: Path) -> None:
    folder = tmp_path / "cache" / staging.read_corpus(url(store), SPLITS).key / "tokens/data"
    folder.mkdir(parents=True)
    (folder / ".00000-00-train.bin.part").write_bytes(bytes(100_000))
    with stage_locally(config(tmp_path / "cache"), {"a": url(store)}) as folders:
        open_split(folders["a"], "train")[0].verify()


def test_files_larger_than_a_request_come_in_several(
    store: Path, tmp_path: Path, fetched: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shard_cache, "BLOCK_BYTES", 1000)
    with stage_locally(config(tmp_path / "cache"), {"a": url(store)}) as folders:
        for shard in open_split(folders["a"], "train"):
            shard.verify()
    size = (store / "a/tokens-1/data/00000-00-train.bin").stat().st_size
    assert fetched.count("00000-00-train.bin") == -(-size // 1000) > 2


# ------------------------------------------------------------------------------------------------------ other processes

STAGE = """
import sys, time
from corpus.engine import storage
from pretrain import shard_cache
from pretrain.config import DataConfig
from pretrain.staging import stage_locally
from tokenizer.shards import open_split

read_into, number, stop_at = storage.read_into, 0, int(sys.argv[3])
def read(place, offset, target):
    global number
    number += 1
    if number == stop_at:
        print("waiting", flush=True)
        time.sleep(600)
    print(place.rsplit("/", 1)[-1], flush=True)
    return read_into(place, offset, target)
storage.read_into = read
with stage_locally(DataConfig(cache=sys.argv[1]), {"a": sys.argv[2]}) as folders:
    for split in ("train", "validation"):
        for shard in open_split(folders["a"], split):
            shard.verify()
    print("whole", flush=True)
    sys.stdin.read()
"""


def start(
    place: str, folder: Path, stop_at: int = 0, environment: dict[str, str] | None = None
) -> subprocess.Popen[str]:
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    command = [sys.executable, "-c", STAGE, str(folder), place, str(stop_at)]
    return subprocess.Popen(command, text=True, env=environment or dict(os.environ), **pipes)


def lines(process: subprocess.Popen[str], last: str) -> list[str]:
    assert process.stdout is not None
    found = []
    for line in process.stdout:
        found.append(line.strip())
        if found[-1] == last:
            return found
    raise AssertionError(f"ended after {found}")


def test_a_process_killed_in_mid_fetch_costs_one_file(store: Path, tmp_path: Path, fetched: list[str]) -> None:
    with start(url(store), tmp_path / "cache", stop_at=5) as process:
        before = lines(process, "waiting")[:-1]
        process.send_signal(signal.SIGKILL)
    assert len(before) == 4
    with stage_locally(config(tmp_path / "cache"), {"a": url(store)}) as folders:
        for shard in open_split(folders["a"], "train"):
            shard.verify()
    assert len(fetched) == 13 - 4 and not set(fetched) & set(before)
    assert not [name for name in present(tmp_path / "cache") if name.endswith(".part")]


def test_processes_share_the_work_and_what_they_hold(store: Path, tmp_path: Path, fetched: list[str]) -> None:
    """One of them is stuck in a file: the others fetch the rest meanwhile, and that file when it dies."""
    with start(url(store), tmp_path / "cache", stop_at=3) as stuck:
        first = lines(stuck, "waiting")[:-1]  # before the other begins, which might fetch all of them
        with start(url(store), tmp_path / "cache") as other:
            assert other.stdout is not None
            rest = [other.stdout.readline().strip() for _ in range(13 - 1 - len(first))]
            assert not set(rest) & set(first)
            stuck.kill()
            last = lines(other, "whole")
            assert len(last) == 2 and len({*first, *rest, last[0]}) == 13
            refused(
                DiskError, "other runs hold", config(tmp_path / "cache", needed(store) + 1000), {"b": url(store, "b")}
            )
            other.kill()
    with stage_locally(config(tmp_path / "cache", needed(store) + 20_000), {"b": url(store, "b")}):
        pass


@pytest.fixture(scope="module")
def s3(builds: dict[str, Path]) -> Iterator[Store]:
    with running_store() as store:
        for path in builds["a"].rglob("*"):
            if path.is_file():
                key = f"a/{path.relative_to(builds['a'])}"
                store.client.put_object(Bucket="bucket", Key=key, Body=path.read_bytes())
        yield store


# -------------------------------------------------------------------------------------------------------- a run's ranks


def fetch_as_rank(store: str, folder: Path, fails_on: int | None) -> list[str]:
    """What this rank of several has fetched, or the error it ended with."""
    names: list[str] = []
    read_into = storage.read_into

    def read(place: str, offset: int, target: memoryview) -> int:
        tried = Path(f"{folder}.tried")
        if int(os.environ["RANK"]) == fails_on:
            tried.touch()
            raise PermissionError("no key")
        for _ in range(0 if fails_on is None else 600):  # a quick rank would leave the other one nothing to fail on
            if not tried.exists():
                time.sleep(0.05)
        names.append(place.rsplit("/", 1)[-1])
        return read_into(place, offset, target)

    shard_cache.RESERVE_BYTES, staging.BEAT_SECONDS, storage.read_into = 0, 0.05, read
    shard_cache.TRIES = 1
    with mesh.start(ParallelConfig(), "cpu", 1.0) as world:
        try:
            with stage_on_all_ranks(world, DataConfig(cache=str(folder)), {"a": store}) as folders:
                assert len(open_split(folders["a"], "train")) == 2
        except WenhaiError as error:
            return [str(error)]
    return names


@pytest.mark.parametrize("fails_on", [None, 1])
def test_ranks_share_the_work_and_the_errors(store: Path, tmp_path: Path, fails_on: int | None) -> None:
    found = run_ranks(fetch_as_rank, 2, url(store), tmp_path / "cache", fails_on)
    if fails_on is None:
        assert sorted(name for names in found for name in names) == sorted({name for names in found for name in names})
        assert sum(map(len, found)) == 13
    else:
        assert "cannot be fetched (PermissionError: no key)" in found[1][0] and found[0] == [f"rank 1: {found[1][0]}"]


CONFIG: dict[str, Any] = {
    "model": {"num_layers": 1, "hidden_size": 8, "num_heads": 2, "sequence_length": 16, "padded_vocab_size": 512},
    "optimizer": {"learning_rate": 1e-2},
    "training": {"num_steps": 4, "global_batch_size": 4, "micro_batch_size": 2, "device": "cpu"},
    "checkpoint": {"every_steps": 4}, "metrics": {"every_steps": 1, "tensorboard": False},
    "evaluation": {"every_steps": 4, "sample_tokens": 2},
}  # fmt: skip


@pytest.mark.slow
def test_a_run_on_s3_is_the_run_on_a_disk(s3: Store, builds: dict[str, Path], tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text(tomlkit.dumps(CONFIG))

    def losses(data: str, out: Path, *settings: str) -> dict[int, float]:
        words = ["--config", tmp_path / "config.toml", "--data", data, "--out", out, "--nproc", "2", *settings]
        command = [sys.executable, "-m", "pretrain", "train", *map(str, words)]
        done = subprocess.run(command, env=s3.environment, capture_output=True, text=True, timeout=250, check=False)
        assert done.returncode == 0, done.stderr
        found = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
        return {line["step"]: line["loss"] for line in found if line["kind"] == "train"}

    setting = f"data.cache={tmp_path / 'cache'}"
    there = losses("s3://bucket/a", tmp_path / "there", "--set", setting)
    assert there == losses(str(builds["a"]), tmp_path / "here") and len(there) == 4
    command = [sys.executable, "-m", "pretrain", "trace", "--step", "2", "--json", "--checkpoint"]
    traced = [
        subprocess.run(
            [*command, str(tmp_path / out / "checkpoints/step-00000004"), "--data", data],
            env=s3.environment, capture_output=True, text=True, timeout=250, check=True,
        ).stdout
        for out, data in (("there", "s3://bucket/a"), ("here", str(builds["a"])))
    ]  # fmt: skip
    assert len(traced[0].splitlines()) > 2 and traced[0] == traced[1]
