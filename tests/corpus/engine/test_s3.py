"""A build on an object store: a real S3 protocol on loopback, where nothing can be renamed and nothing is half
there."""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from corpus.engine import scratch, storage, store_lock
from corpus.engine.errors import DiskError, LockHeld
from corpus.engine.inputs import list_inputs
from corpus.engine.run import run_stages
from corpus.report.verify import verify
from tests.corpus.engine.test_run import wait_for
from tests.corpus.engine.toy import OUTSIDE_THE_PROMISE, Joined, Lines, text_files, tree
from tests.corpus.texts import write_shards

pytestmark = pytest.mark.timeout(900)
PUT = """
import os, sys, threading, time
from pathlib import Path
from corpus.engine import storage
import s3fs
if __name__ == "__main__":
    real = s3fs.S3FileSystem._call_s3
    async def call(self, method, *arguments, **options):
        done = await real(self, method, *arguments, **options)
        if method == "upload_part":
            print("a part is up", flush=True)
            time.sleep(600)
        return done
    s3fs.S3FileSystem._call_s3 = call
    s3fs.core.calculate_chunksize = lambda *_, **__: 5 << 20  # two of them make an upload in parts; else of 50 MiB
    with storage.create(sys.argv[1]) as path:
        with open(path, "wb") as file:
            file.truncate(11 << 20)
"""


class Store:
    """A server, its environment for child processes, and a look at what it holds that is not our code's."""

    def __init__(self) -> None:
        script = str(Path(__file__).with_name("s3_server.py"))
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
        self._process = subprocess.Popen([sys.executable, script], text=True, **pipes)
        address = self._process.stdout.readline().strip()
        self.names = {
            "AWS_ENDPOINT_URL": address,
            "AWS_ACCESS_KEY_ID": "key",
            "AWS_SECRET_ACCESS_KEY": "secret",
            "AWS_DEFAULT_REGION": "us-east-1",
        }

    @property
    def environment(self) -> dict[str, str]:
        return os.environ | self.names | {"PYTHONPATH": str(Path.cwd())}

    def open(self) -> None:
        import boto3
        from s3fs import S3FileSystem

        S3FileSystem.clear_instance_cache()  # of a server that another module of tests has had
        self.client = boto3.client("s3")
        self.client.create_bucket(Bucket="bucket")

    def listing(self, prefix: str) -> list[str]:
        """Names below a prefix."""
        pages = self.client.get_paginator("list_objects_v2").paginate(Bucket="bucket", Prefix=prefix + "/")
        return [entry["Key"].removeprefix(prefix + "/") for page in pages for entry in page.get("Contents", ())]

    def objects(self, prefix: str) -> dict[str, str]:
        """The same with digests of what stands there; nobody may be at work."""
        names = self.listing(prefix)
        bodies = {
            name: self.client.get_object(Bucket="bucket", Key=f"{prefix}/{name}")["Body"].read() for name in names
        }
        return {name: hashlib.sha256(body).hexdigest() for name, body in bodies.items()}

    def end(self) -> None:
        self._process.communicate(timeout=300)


@contextmanager
def running_store() -> Iterator[Store]:
    """A server with an empty bucket, which this process and its children find by their environment."""
    pytest.importorskip("moto")
    pytest.importorskip("s3fs")
    store = Store()
    with pytest.MonkeyPatch.context() as patch:
        for name, value in store.names.items():
            patch.setenv(name, value)
        store.open()
        yield store
    store.end()


@pytest.fixture(scope="module")
def store() -> Iterator[Store]:
    with running_store() as store:
        yield store


@pytest.fixture(autouse=True)
def own_scratch(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    tmp_path_factory.getbasetemp()  # where TMPDIR still is what it was
    with tempfile.TemporaryDirectory(prefix="s3-") as folder:  # a short path: sockets lie in it, too
        monkeypatch.setenv("TMPDIR", folder)
        monkeypatch.setattr(tempfile, "tempdir", folder)
        storage.clear_scratch()
        yield Path(folder)
        storage.clear_scratch()


def promised(found: dict[str, str]) -> dict[str, str]:
    return {name: digest for name, digest in found.items() if name.rsplit("/", 1)[-1] not in OUTSIDE_THE_PROMISE}


def test_the_same_bytes_as_on_a_disk(store: Store, tmp_path: Path, own_scratch: Path) -> None:
    text_files(tmp_path / "in", ("\n".join(f"第{index}卷第{line}行" for line in range(20)) for index in range(4)))
    files = tuple(list_inputs([f"file://{tmp_path}/in"]))
    for out in (str(tmp_path / "local"), f"file://{tmp_path}/url", "s3://bucket/toy"):
        run_stages([Lines(files), Joined()], out, workers=0)
    assert promised(tree(tmp_path / "url")) == promised(tree(tmp_path / "local"))
    assert promised(store.objects("toy")) == promised(tree(tmp_path / "local"))
    assert not list(own_scratch.rglob("*.txt"))


def test_what_another_process_writes_is_seen_at_once(store: Store) -> None:
    folder = "s3://bucket/listing"
    storage.write_json(f"{folder}/a.json", 1)
    assert storage.names(folder, ".json") == ["a.json"] and list(storage.sizes(folder)) == ["a.json"]
    assert not storage.exists(f"{folder}/b.json")
    store.client.put_object(
        Bucket="bucket", Key="listing/b.json", Body=b"2\n"
    )  # not through this process's file system
    assert storage.exists(f"{folder}/b.json") and storage.read_json(f"{folder}/b.json") == 2
    assert storage.names(folder, ".json") == ["a.json", "b.json"] and len(storage.sizes(folder)) == 2
    store.client.delete_object(Bucket="bucket", Key="listing/b.json")
    assert not storage.exists(f"{folder}/b.json") and storage.names(folder, ".json") == ["a.json"]
    assert [file.url for file in list_inputs([folder])] == [f"{folder}/a.json"]
    storage.remove_tree(folder)
    assert storage.sizes(folder) == {}


def test_a_writer_killed_in_the_middle_of_an_upload_leaves_no_object(store: Store, tmp_path: Path) -> None:
    script = tmp_path / "put.py"
    script.write_text(PUT)
    command = [sys.executable, str(script), "s3://bucket/half/data.bin"]
    writer = subprocess.Popen(command, env=store.environment, stdout=subprocess.PIPE, text=True)
    assert writer.stdout is not None and writer.stdout.readline() == "a part is up\n"
    writer.send_signal(signal.SIGKILL)
    writer.communicate(timeout=300)
    assert store.client.list_multipart_uploads(Bucket="bucket")["Uploads"]  # parts are there,
    assert not storage.exists("s3://bucket/half/data.bin") and store.objects("half") == {}  # the object is not


def test_copies_are_bounded_and_those_of_dead_processes_go(
    store: Store, own_scratch: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for index in range(20):
        store.client.put_object(Bucket="bucket", Key=f"many/{index}", Body=bytes(1000))
    monkeypatch.setattr(scratch, "MAX_BYTES", 10_000)
    for index in range(20):
        assert storage.fetch(f"s3://bucket/many/{index}").stat().st_size == 1000
    assert sum(path.stat().st_size for path in own_scratch.rglob("*") if path.is_file()) == 10_000
    with monkeypatch.context() as patched, pytest.raises(DiskError, match="Set TMPDIR"):
        patched.setattr(scratch, "RESERVE_BYTES", 1 << 60)
        storage.fetch("s3://bucket/many/0")
    storage.clear_scratch()
    assert not list(own_scratch.iterdir())
    code = "import os; from corpus.engine import storage; storage.fetch('s3://bucket/many/1'); os._exit(9)"
    subprocess.run([sys.executable, "-c", code], env=store.environment, timeout=300, check=False)
    [left] = own_scratch.iterdir()
    mine = storage.fetch("s3://bucket/many/2")
    scratch.sweep()
    assert not left.exists() and mine.exists()  # a living process keeps its own
    storage.clear_scratch()


@pytest.mark.slow
def test_a_corpus_build_on_a_store_killed_and_resumed(store: Store, tmp_path: Path, own_scratch: Path) -> None:
    shards = [range(start, start + 30) for start in range(0, 80, 20)]
    for path in write_shards(tmp_path / "in", shards, num_texts=60).iterdir():
        store.client.put_object(Bucket="bucket", Key=f"in/{path.name}", Body=path.read_bytes())

    def command(inputs: str, out: str) -> list[str]:
        options = ["--workers", "2", "--quiet", "--set", "input.task_bytes=1000"]
        return [sys.executable, "-m", "corpus", "run", "--recipe", "web_zh", "--input", inputs, "--out", out, *options]

    def corpus(*words: str) -> str:
        verb = [sys.executable, "-m", *words]
        done = subprocess.run(verb, env=store.environment, capture_output=True, text=True, timeout=300, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    subprocess.run(command(str(tmp_path / "in"), str(tmp_path / "local")), env=store.environment, check=True)
    for wanted in ("extract-", "filter-", "clusters-"):
        run = subprocess.Popen(
            command("s3://bucket/in", "s3://bucket/out"), env=store.environment, start_new_session=True
        )
        wait_for(partial(lambda start: any(name.startswith(start) for name in store.listing("out")), wanted))
        time.sleep(0.2)
        os.killpg(run.pid, signal.SIGKILL)
        run.wait()
    subprocess.run(command("s3://bucket/in", "s3://bucket/out"), env=store.environment, check=True)
    found, local = promised(store.objects("out")), promised(tree(tmp_path / "local"))
    later = {name: digest for name, digest in local.items() if "/" in name and not name.startswith("extract-")}
    assert later.items() <= found.items() and len(later) > 40  # of inputs a store's checksum is known, a disk's sha256
    assert {digest for name, digest in found.items() if "/data/" in name} == {
        digest for name, digest in local.items() if "/data/" in name
    }
    assert "every file" in subprocess.run(
        [sys.executable, "-m", "corpus", "verify", "s3://bucket/out"],
        env=store.environment, capture_output=True, text=True, timeout=300, check=True,
    ).stderr  # fmt: skip
    assert "complete" in corpus("corpus", "status", "s3://bucket/out")
    corpus(
        "tokenizer", "run", "--out", "s3://bucket/out", "--set", "tokenizer.vocab_size=800", "--workers", "2", "--quiet"
    )
    assert [name for name in store.objects("out") if name.endswith("-train.bin")]
    assert not [path for path in own_scratch.rglob("*") if path.is_file() and path.name != ".lock"]


HELD = """
import sys
from corpus.engine.store_lock import StoreLock
with StoreLock(sys.argv[1]):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_one_run_at_a_time_and_a_killed_one_is_no_dead_end(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    out = "s3://bucket/locked"
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    first = subprocess.Popen([sys.executable, "-c", HELD, out], env=store.environment, text=True, **pipes)
    assert first.stdout is not None and first.stdout.readline() == "held\n"
    with pytest.raises(LockHeld, match=rf"in use by process {first.pid} on .*remove {out}/lock\.json"):
        run_stages([Joined()], out, workers=0)
    storage.put_new(f"{out}/lock.json", b"{}")  # the store itself refuses, whoever asks
    assert str(store_lock.holder(out)).startswith(f"process {first.pid} on ")
    first.kill()
    first.communicate()
    monkeypatch.setattr(store_lock, "SETTLE_SECONDS", 0)
    assert store_lock.holder(out) is None
    with store_lock.StoreLock(out) as lock:
        lock.beat()
        lock.check()
        assert list(store.objects("locked")) == ["lock.json"]
    assert store.objects("locked") == {}


def test_finished_tasks_are_taken_over_by_copies_in_the_store(store: Store, tmp_path: Path) -> None:
    files = text_files(tmp_path / "in", (f"第{index}卷之文\n" * 9 for index in range(3)))
    run_stages([Lines(files[:2])], "s3://bucket/taken", workers=0)
    run_stages([Lines(files, fault="00001:error")], "s3://bucket/taken", workers=0)  # would fail if it were run again
    folders = {name.split("/")[0] for name in store.objects("taken") if name.startswith("lines-")}
    assert len(folders) == 2
    assert verify("s3://bucket/taken") == []
