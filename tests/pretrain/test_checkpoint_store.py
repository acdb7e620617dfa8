"""Checkpoints on object storage: no disk in common, nothing half there, and the S3 protocol itself."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from corpus.engine import durable, storage, store_lock
from corpus.engine.errors import LockHeld, Stopped, UsageError, WenhaiError
from corpus.engine.store_lock import Holder
from pretrain import checkpoint
from pretrain.checkpoint import places
from pretrain.checkpoint.places import Store, newest_at, place_of
from pretrain.config import RunConfig
from pretrain.run import train
from tests.corpus.engine.test_s3 import Store as Server
from tests.corpus.engine.test_s3 import running_store
from tests.pretrain.checkpoints import assert_equal, contents, resume_from, saver_of
from tests.pretrain.ranks import reused_ranks
from tests.pretrain.test_checkpoint_killed import make_folders
from tests.pretrain.texts import small_corpus
from tests.pretrain.tiny import IDENTITY, tiny_config, tiny_run, train_steps


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunConfig:
    """Of a run whose store is a folder."""
    import fsspec

    monkeypatch.setitem(fsspec.config.conf, "local", {"auto_mkdir": True})
    return tiny_config(checkpoint={"url": f"local://{tmp_path}/store"})


def saved(config: RunConfig, nodes: Path, num_saves: int, together: bool = False) -> dict[str, Any]:
    """Resume if there is something, and save after each step; each rank on a node of its own, or all on one."""
    make_folders()
    with tiny_run(config) as run:
        rank = run.world.rank
        out = nodes / ("one" if together else str(rank))
        if together:
            os.environ |= {"LOCAL_RANK": str(rank), "LOCAL_WORLD_SIZE": str(run.world.size)}
        place = place_of(out, config.checkpoint)
        swept = place.sweep(rank == 0)
        files = -1
        with newest_at(place, run.world) as folder:
            if folder is not None:
                files = len(list(folder.iterdir()))
                resume_from(folder, run)
        loaded = contents(run)
        saver = saver_of(run, out)
        for _ in range(num_saves):
            train_steps(run, 1)
            saver.save(run.state)
        saver.wait()
        errors = [str(save.error or "") for save in saver.ended()]
        run.world.any_of(False)  # rank 0 removes older ones
        left = [str(path.relative_to(out)) for path in out.rglob("*") if path.name != "checkpoints"]
        return {"loaded": loaded, "last": contents(run), "swept": swept, "errors": errors, "left": left, "files": files}


def stored(tmp_path: Path) -> list[str]:
    return sorted(path.name for path in (tmp_path / "store").iterdir() if any(path.iterdir()))


def test_ranks_without_a_disk_in_common_save_and_resume(config: RunConfig, tmp_path: Path) -> None:
    first, second = reused_ranks(saved, 2, config, tmp_path / "nodes", 3)
    assert stored(tmp_path) == ["step-00000002", "step-00000003"]
    names = {path.name for path in (tmp_path / "store/step-00000003").iterdir()}
    shards = {f"shard-0000{number}-model-00001-of-00001.safetensors" for number in (1, 2)}
    assert names == shards | {"COMMIT.json", "config.json", "state.json", "tokenizer.model"}
    for together in (False, True):  # each fetches all, or both a part
        for again, before in zip(
            reused_ranks(saved, 2, config, tmp_path / "else", 0, together), (first, second), strict=True
        ):
            assert_equal(again["loaded"], before["last"])
            assert again["left"] == before["left"] == [] and again["files"] == 6


def test_what_was_not_uploaded_whole_is_swept(config: RunConfig, tmp_path: Path) -> None:
    reused_ranks(saved, 2, config, tmp_path / "nodes", 2)
    half = tmp_path / "store/step-00000003"
    half.mkdir()
    (half / "shard-00001-model-00001-of-00001.safetensors").write_bytes(b"half")
    (tmp_path / "store/notes.txt").write_text("not ours")
    for rank, name in enumerate(
        ("checkpoints/step-00000003", "checkpoints/fetched/step-00000001")
    ):  # of dead processes
        (tmp_path / f"nodes/{rank}/{name}").mkdir(parents=True)
    first, second = reused_ranks(saved, 2, config, tmp_path / "nodes", 1)
    assert (first["swept"], second["swept"]) == (["step-00000003"], [])
    assert first["left"] == second["left"] == []
    assert stored_steps(config) == {"step-00000002": True, "step-00000003": True}
    assert (tmp_path / "store/notes.txt").exists()


def stored_steps(config: RunConfig) -> dict[str, bool]:
    assert config.checkpoint.url is not None
    return Store(config.checkpoint.url, Path("unused")).steps()


def refused_uploads(config: RunConfig, nodes: Path) -> dict[str, Any]:
    """The store refuses step 2's files of rank 1; and whoever else writes there is seen at step 3."""
    upload = storage.upload

    def uploading(source: Path, url: str) -> None:
        if "step-00000002" in url and os.environ["RANK"] == "1":
            raise ConnectionError("the store is out of reach")
        upload(source, url)
        if "step-00000003" in url and os.environ["RANK"] == "1":
            storage.put(url.replace("shard", "other"), b"of another run")

    with mock.patch.object(storage, "upload", uploading):
        return saved(config, nodes, 4)


def test_a_store_that_refuses_costs_the_save_and_no_other(config: RunConfig, tmp_path: Path) -> None:
    results = reused_ranks(refused_uploads, 2, config, tmp_path / "nodes")
    shard = "shard-00002-model-00001-of-00001.safetensors"
    url = f"local://{tmp_path}/store/step-0000000"
    for rank, result in enumerate(results):
        first, second, third, fourth = result["errors"]
        assert first == fourth == "" and result["left"] == []
        assert second == f"{'' if rank else 'rank 1: '}{url}2/{shard}: cannot be written (the store is out of reach)."
        assert "other-00002-model-00001-of-00001.safetensors: is not as it was uploaded. Does another run" in third
    assert stored(tmp_path) == ["step-00000001", "step-00000004"]


def fetch_error(config: RunConfig, nodes: Path) -> str:
    make_folders()
    with tiny_run(config) as run:
        try:
            with newest_at(place_of(nodes / str(run.world.rank), config.checkpoint), run.world):
                return ""
        except WenhaiError as error:
            return str(error)


def test_an_altered_object_is_refused_by_its_name_on_every_rank(config: RunConfig, tmp_path: Path) -> None:
    reused_ranks(saved, 1, config, tmp_path / "nodes", 1)
    path = tmp_path / "store/step-00000001/state.json"
    path.write_bytes(path.read_bytes()[:-1] + b" ")
    for message in reused_ranks(fetch_error, 2, config, tmp_path / "nodes"):
        assert f"local://{path}: was altered: its size or sha256" in message
        assert "Restore it, or delete step-00000001 to go on" in message


def lay_lock(config: RunConfig) -> Holder:
    """The lock of another run, on another machine."""
    assert config.checkpoint.url is not None
    holder = replace(Holder.this_process(), machine="another", words="process 7 on elsewhere since yesterday")
    storage.put(f"{config.checkpoint.url}/lock.json", durable.canonical_json(asdict(holder)))
    return holder


def test_a_second_run_on_a_url_is_refused(
    config: RunConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """At the first sign of life of the first; a run that was killed elsewhere gives none."""
    monkeypatch.setattr(store_lock, "SETTLE_SECONDS", 0)
    lay_lock(config)
    monkeypatch.setattr("pretrain.checkpoint.places.time.sleep", lambda seconds: lay_lock(config))
    place = place_of(tmp_path / "out", config.checkpoint)
    with pytest.raises(LockHeld, match=r"store: in use by process 7 on elsewhere"), place.alone():
        pass
    assert "in use by process 7 on elsewhere since yesterday; waiting up to 150 s" in capsys.readouterr().err
    monkeypatch.setattr("pretrain.checkpoint.places.time.sleep", lambda seconds: None)
    monkeypatch.setattr(places, "SILENT_SECONDS", 0.01)
    with place.alone():
        assert f"process {os.getpid()} on" in str(store_lock.holder(str(config.checkpoint.url)))
        assert place.steps() == {}
    assert not (tmp_path / "store/lock.json").exists()


def taken_over(config: RunConfig, out: Path) -> tuple[str, dict[str, bool]]:
    """Another run takes the lock, and has half uploaded the step that this one saves next."""
    make_folders()
    with tiny_run(config) as run:
        place = place_of(out, config.checkpoint)
        with place.alone():
            saver = checkpoint.Saver(place, run.model, run.optimizer, run.config, IDENTITY, run.world)
            saver.save(run.state, must=True)
            lay_lock(config)
            storage.put(f"{config.checkpoint.url}/step-00000001/theirs", b"of another run")
            train_steps(run, 1)
            saver.save(run.state)
            saver.wait()
            *_, last = saver.ended()
            return str(last.error), place.steps()


def test_a_run_that_has_lost_its_url_touches_nothing_there(config: RunConfig, tmp_path: Path) -> None:
    ((error, steps),) = reused_ranks(taken_over, 1, config, tmp_path / "out")
    assert "store: process 7 on elsewhere since yesterday works here now" in error
    assert steps == {"step-00000000": True, "step-00000001": False}
    assert [path.name for path in (tmp_path / "store/step-00000001").iterdir()] == ["theirs"]


@pytest.mark.parametrize("url", ["ftp://me:hunter2@host/runs", "abfs://box/runs?sig=hunter2"])
def test_a_url_that_holds_a_secret_is_refused_without_saying_it(url: str) -> None:
    with pytest.raises(UsageError, match=r"checkpoint: url holds a password or a key, and it is printed") as error:
        tiny_config(checkpoint={"url": url})
    assert "hunter2" not in str(error.value)


@pytest.mark.parametrize("url", ["abfs://box@account.dfs.core.windows.net/runs", "hdfs://me@host:8020/runs"])
def test_a_name_or_a_port_is_no_secret(url: str) -> None:
    assert tiny_config(checkpoint={"url": url}).checkpoint.url == url


def test_a_run_with_checkpoints_on_its_disk_does_not_begin_anew_in_a_store(config: RunConfig, tmp_path: Path) -> None:
    here = tiny_config()
    reused_ranks(saved, 1, here, tmp_path / "nodes", 1)
    (message,) = reused_ranks(fetch_error, 1, config, tmp_path / "nodes")
    assert f"{config.checkpoint.url}: holds no checkpoint, and {tmp_path}/nodes/0/checkpoints does" in message


def test_a_checkpoint_is_named_by_its_folder_or_its_url(config: RunConfig, tmp_path: Path) -> None:
    reused_ranks(saved, 1, config, tmp_path / "nodes", 1)
    where = f"{config.checkpoint.url}/step-00000001"
    folder = checkpoint.local_folder(where + "/")
    assert folder != tmp_path / "store/step-00000001"
    checkpoint.load_model(folder)
    assert checkpoint.local_folder(str(folder)) == folder
    with pytest.raises(WenhaiError, match=r"step-00000002/COMMIT\.json: "):
        checkpoint.local_folder(f"{config.checkpoint.url}/step-00000002")


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """moto's, as the engine's own tests have it."""
    with running_store() as server:
        yield server


def train_on_nodes(config: RunConfig, data: Path, nodes: Path, names: dict[str, str], stop: bool) -> str:
    """A run of which each rank has a disk of its own; it may be stopped after its first step."""
    os.environ |= names | {"LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1"}
    stopping = mock.patch.object(train, "stop_on_signal", lambda: nullcontext(lambda: True)) if stop else nullcontext()
    try:
        with stopping:
            train.train(config, data / "tokens", nodes / os.environ["RANK"], data / "tokenizer.model")
    except Stopped as stopped:
        return str(stopped)
    return "done"


@pytest.mark.long
def test_a_run_saves_to_s3_stops_and_goes_on(server: Server, tmp_path: Path) -> None:
    """A real S3 protocol: what the server holds is asked with another client."""
    sections: dict[str, Any] = {
        "model": {"vocab_size": None, "padded_vocab_size": 512},
        "training": {"num_steps": 4},
        "evaluation": {"every_steps": 100, "sample_tokens": 1},
    }
    config = tiny_config(**sections, checkpoint={"every_steps": 1, "url": "s3://bucket/runs/a"})
    small_corpus(tmp_path)
    (stopped, _) = reused_ranks(train_on_nodes, 2, config, tmp_path, tmp_path / "nodes", server.names, True)
    assert stopped.startswith("stopped after step 1, saved.")
    assert reused_ranks(train_on_nodes, 2, config, tmp_path, tmp_path / "nodes", server.names, False) == ["done"] * 2
    names = server.listing("runs/a")
    assert {name.split("/")[0] for name in names} == {"step-00000003", "step-00000004"} and len(names) == 12
    lines = [json.loads(line) for line in (tmp_path / "nodes/0/metrics.jsonl").read_text().splitlines()]
    saves = [line for line in lines if line["kind"] == "save"]
    assert [line["step"] for line in saves] == [1, 2, 3, 4]
    assert saves[0]["folder"] == "s3://bucket/runs/a/step-00000001" and saves[0]["bytes"] > 100_000
    assert all(line["stall_seconds"] > 0 and line["seconds"] > 0 for line in saves)
    assert [path for path in (tmp_path / "nodes").rglob("*") if "step-" in path.name] == []
    model, _ = checkpoint.load_model(checkpoint.local_folder("s3://bucket/runs/a/step-00000004"))
    assert model.config.vocab_size == 500
