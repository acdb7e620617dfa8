"""Storage in bad weather: the same bytes as in good weather, or an error that says what to do."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from corpus.__main__ import main
from corpus.engine import retries, storage, store_lock
from corpus.engine.errors import LockHeld, SetupError, TransientError, WenhaiError
from corpus.engine.inputs import list_inputs
from corpus.engine.run import run_stages
from corpus.engine.store_lock import StoreLock
from tests.corpus.engine.test_s3 import Store, promised, running_store
from tests.corpus.engine.toy import Joined, Lines, numbered_files, tree, undisturbed
from tests.corpus.engine.weather import Sky, open_sky
from tests.corpus.texts import write_shards
from tools.weather import faults, proxy
from tools.weather.faults import Weather

DATA = random.Random(1).randbytes(300_001)
REFUSALS = {"slow_down": 0.1, "internal_error": 0.1}
STORM = {**REFUSALS, "reset": 0.1, "cut": 0.1, "short": 0.1}


@pytest.fixture(autouse=True)
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    storage.clear_scratch()
    yield
    storage.clear_scratch()


@pytest.fixture
def sky(tmp_path: Path) -> Iterator[Sky]:
    with open_sky(tmp_path) as sky:
        yield sky


def test_each_operation_does_in_a_storm_what_it_does_in_calm(sky: Sky, tmp_path: Path) -> None:
    sky.becomes(**STORM, seed=3)
    urls = [f"weather://b/many/{number:03d}" for number in range(60)]
    for number, url in enumerate(urls):
        storage.put(url, b"%d" % number)
    assert storage.read_many(urls) == [b"%d" % number for number in range(60)]
    assert storage.sizes("weather://b/many") == {f"{number:03d}": len(str(number)) for number in range(60)}
    assert storage.names("weather://b/many", "9") == [f"{number:03d}" for number in range(9, 60, 10)]
    assert all(storage.exists(url) for url in [*urls, "weather://b/many"]) and not storage.exists("weather://b/none")
    for url in urls[:20]:
        storage.copy(url, url + "-copy")
        storage.remove(url)
        storage.remove(url)
    storage.remove_many([*urls[:40], "weather://b/none"])
    left = {f"{number:03d}-copy" for number in range(20)} | {f"{number:03d}" for number in range(40, 60)}
    assert set(os.listdir(sky.folder / "b/many")) == left
    assert len(list_inputs(["weather://b/many/*-copy"])) == 20 and len(list_inputs(["weather://b/many"])) == 40
    with storage.create("weather://b/created") as path:
        path.write_bytes(DATA)
    storage.upload(sky.folder / "b/created", "weather://b/uploaded")
    storage.download("weather://b/uploaded", tmp_path / "downloaded")
    assert (tmp_path / "downloaded").read_bytes() == DATA == storage.fetch("weather://b/created").read_bytes()
    made, counts = sky.made, storage.take_request_counts()
    assert {one.fault for one in made} == {"", *STORM}
    assert counts.requests == len(made) and sum(counts.repeated.values()) == sum(one.fault != "" for one in made)
    assert counts.repeated.keys() == {"503", "500", "connection", "cut"}
    assert storage.read_many(urls)[:2] == [None, None]
    with pytest.raises(WenhaiError, match="weather://b/many/000: does not exist"):
        storage.read_bytes(urls[0])
    storage.remove_tree("weather://b/many")
    storage.remove_tree("weather://b/many")
    assert storage.sizes("weather://b") == {"created": len(DATA), "uploaded": len(DATA)}


def test_no_request_more_than_it_takes(sky: Sky) -> None:
    storage.put("weather://b/a", b"1")
    for action, wanted in (
        (lambda: storage.remove("weather://b/a"), {"delete": 1}),
        (lambda: storage.names("weather://b", ""), {"list": 1}),
        (lambda: storage.put("weather://b/a", b"1"), {"put": 1}),
        (lambda: storage.read_json("weather://b/a"), {"get": 1}),
        (lambda: storage.exists("weather://b/a"), {"head": 1}),
        (lambda: storage.fetch("weather://b/a"), {"head": 1, "range": 1}),
        (lambda: storage.remove_many([f"weather://b/{number}" for number in range(1500)]), {"delete": 2}),
        (lambda: storage.remove_tree("weather://b"), {"list": 1, "delete": 1}),
    ):
        sky.becomes()
        action()
        assert sky.requests == wanted


def test_a_name_with_a_star_is_no_pattern() -> None:
    for name in ("a*c", "abc", "[d]", "e", "f"):
        storage.put(f"memory://stars/{name}", b"")
    storage.remove_many(["memory://stars/a*c", "memory://stars/[d]"])
    assert storage.names("memory://stars", "") == ["abc", "e", "f"]
    storage.remove_many(
        [f"memory://stars/{name}" for name in ("e", "none", "f")]
    )  # which stops at the one in the middle
    assert storage.names("memory://stars", "") == ["abc"]
    storage.remove_tree("memory://stars")


@pytest.mark.parametrize("faults", [REFUSALS, {"reset": 0.3}, {"cut": 0.3}, {"short": 0.3}, STORM])
def test_a_stream_goes_on_where_it_was_cut(sky: Sky, monkeypatch: pytest.MonkeyPatch, faults: dict[str, float]) -> None:
    monkeypatch.setattr(storage, "READ_BLOCK_BYTES", 10_000)
    monkeypatch.setattr(storage, "COPY_BLOCK_BYTES", 10_000)
    storage.put("weather://b/data", DATA)
    sky.becomes(**faults)
    with storage.open_stream("weather://b/data") as stream:
        assert stream.read(5) + stream.readline() + stream.read() == DATA
        assert stream.seek(-7, os.SEEK_END) == len(DATA) - 7 and stream.read(100) == DATA[-7:]
        assert stream.seek(9_990) == 9_990 and stream.read(20) == DATA[9_990:10_010]
    assert {one.fault for one in sky.made} - {""} == {*faults}
    assert storage.fetch("weather://b/data").read_bytes() == DATA
    end = bytearray(50)
    assert storage.read_into("weather://b/data", len(DATA) - 20, memoryview(end)) == 20 and end[:20] == DATA[-20:]


def test_no_bytes_are_no_end(sky: Sky) -> None:
    sky.becomes(short=0.5)
    for number in range(20):
        storage.put(f"weather://b/{number}", b"1")
        with storage.open_stream(f"weather://b/{number}") as stream:
            assert stream.read() == b"1"
    assert "short" in [one.fault for one in sky.made]


@pytest.mark.parametrize("cut", [0.0, 0.5])
def test_a_file_that_changes_under_a_stream_is_named(sky: Sky, monkeypatch: pytest.MonkeyPatch, cut: float) -> None:
    monkeypatch.setattr(storage, "READ_BLOCK_BYTES", 1000)
    storage.put("weather://b/data", DATA)
    with storage.open_stream("weather://b/data") as stream:
        stream.read(1000)
        sky.becomes(cut=cut)
        storage.put("weather://b/data", DATA[::-1])
        with pytest.raises(WenhaiError, match=r"^weather://b/data: has changed while it was read"):
            stream.read()


def test_what_does_not_pass_is_asked_once(sky: Sky) -> None:
    sky.becomes()
    with pytest.raises(WenhaiError, match="does not exist"):
        storage.read_json("weather://b/none")
    with pytest.raises(FileNotFoundError):
        storage.open_stream("weather://b/none")
    with pytest.raises(FileNotFoundError):
        storage.copy("weather://b/none", "weather://b/a")
    assert sky.requests == {"get": 1, "head": 1, "copy": 1}


def test_a_store_that_is_down_ends_the_request_and_says_so(sky: Sky, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retries, "REPEATS", 5)
    sky.becomes(slow_down=1.0)
    with pytest.raises(
        TransientError,
        match=r"^weather://b/a: cat_file failed 8 times, the last time with OSError.*reduce your request rate",
    ):
        storage.read_json("weather://b/a")
    assert sky.requests == {"get": 8}  # 5 and a fifth of all are repeats
    with pytest.raises(TransientError):  # neither an empty folder, nor a name that is free
        storage.names("weather://b", "")
    with pytest.raises(TransientError):
        storage.exists("weather://b/a")
    with pytest.raises(TransientError):
        storage.open_filesystem("weather://b/a")[0].isfile("b/a")


def test_an_object_whose_first_answer_was_lost_is_not_put_twice(sky: Sky) -> None:
    lost = 0
    for seed in range(8):
        sky.becomes(reset=0.5, seed=seed)
        storage.put_new(f"weather://b/{seed}", b"mine")
        lost += "reset" in [one.fault for one in sky.made if one.kind == "put"]
        storage.put_new(f"weather://b/{seed}", b"another's")
        assert storage.read_bytes(f"weather://b/{seed}") == b"mine"
    assert 0 < lost < 8


def test_one_run_holds_the_lock_in_any_weather(sky: Sky, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_lock, "SETTLE_SECONDS", 0.01)
    for seed in range(20):
        sky.becomes(**REFUSALS, reset=0.3, seed=seed)
        with StoreLock("weather://locked") as lock:
            lock.confirm()
            with pytest.raises(LockHeld, match="in use by process"):
                StoreLock("weather://locked").__enter__()
        sky.becomes()
        storage.remove("weather://locked/lock.json")


def test_a_lock_that_cannot_be_read_is_not_taken_for_none(sky: Sky, monkeypatch: pytest.MonkeyPatch) -> None:
    with StoreLock("weather://locked"):
        monkeypatch.setattr(retries, "REPEATS", 2)
        sky.becomes(internal_error=1.0)
        with pytest.raises(TransientError):
            store_lock.holder("weather://locked")
        sky.becomes(credentials_requests=0)
        with pytest.raises(SetupError):
            store_lock.holder("weather://locked")
        sky.becomes()


def test_late_lists_cost_work_and_no_bytes(sky: Sky, tmp_path: Path) -> None:
    files = numbered_files(tmp_path / "in", 4)
    wanted = undisturbed(files, tmp_path)
    sky.becomes(late_list=3600, list_latency=0.001)
    storage.put("weather://b/a.json", b"1")
    assert storage.read_json("weather://b/a.json") == 1 and storage.names("weather://b", ".json") == []
    for _ in range(2):
        run_stages([Lines(files), Joined()], "weather://out", workers=0)
    assert tree(sky.folder / "out") == wanted


def test_credentials_that_end_in_mid_run_end_it_and_the_same_command_goes_on(sky: Sky, tmp_path: Path) -> None:
    files = numbered_files(tmp_path / "in", 6)
    wanted = undisturbed(files, tmp_path)
    sky.becomes(credentials_requests=20)
    with pytest.raises(SetupError, match=r"weather://out: does not take these credentials.*same command again"):
        run_stages([Lines(files), Joined()], "weather://out", workers=0)
    done = len(list(sky.folder.glob("out/lines-*/done/*.json")))
    assert 0 < done < 6
    sky.becomes()
    storage.remove("weather://out/lock.json")  # it could not be given back, and its process lives
    run_stages([Lines(files), Joined()], "weather://out", workers=0)
    assert sum(one.kind == "put" and one.stage == "lines" and "/data/" in one.path for one in sky.made) == 6 - done
    assert tree(sky.folder / "out") == wanted


@pytest.mark.long
def test_a_pipeline_of_processes_in_bad_weather_makes_the_same_bytes(tmp_path: Path) -> None:
    inputs = write_shards(tmp_path / "in", [range(start, start + 30) for start in (0, 20, 40)], num_texts=60)
    words = ["run", "--recipe", "web_zh", "--input", str(inputs), "--quiet", "--set", "input.task_bytes=1000"]
    assert main([*words, "--out", str(tmp_path / "local"), "--workers", "0"]) == 0
    weather = Weather(
        root=str(tmp_path / "store"), log=str(tmp_path / "log"), slow_down=0.005, internal_error=0.005, reset=0.005,
        cut=0.005, jitter=0.001, seed=5,
    )  # fmt: skip
    environment = os.environ | faults.environment(weather, tmp_path)
    command = [sys.executable, "-m", "corpus", *words, "--out", "weather://out", "--workers", "2"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert promised(tree(tmp_path / "store/out")) == promised(tree(tmp_path / "local"))
    made = list(faults.made(weather.log))
    assert len({one.process for one in made}) == 3 and {"extract", "filter", "text"} <= {one.stage for one in made}
    assert len({one.fault for one in made if one.fault}) > 2


# ---------------------------------------------------------------------------------------------------- before a real S3


@pytest.fixture(scope="module")
def server() -> Iterator[Store]:
    with running_store() as store:
        yield store


@pytest.fixture
def s3(server: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Sky]:
    """The weather of a proxy before the server."""
    from s3fs import S3FileSystem

    class Proxied(Sky):
        def becomes(self, **settings: object) -> Weather:
            weather = super().becomes(**settings)
            if hasattr(self, "proxy"):
                self.proxy.weather = weather
            return weather

    monkeypatch.setattr(retries, "BASE_SECONDS", 0.001)
    monkeypatch.setattr(retries, "MAX_PAUSE_SECONDS", 0.001)
    monkeypatch.setattr(retries, "_has_answered", True)
    sky = Proxied(tmp_path, monkeypatch)
    with proxy.running(faults.weather(), server.names["AWS_ENDPOINT_URL"]) as running:
        monkeypatch.setenv("AWS_ENDPOINT_URL", running.address)
        S3FileSystem.clear_instance_cache()
        sky.proxy = running  # type: ignore[attr-defined]
        yield sky
    S3FileSystem.clear_instance_cache()


def test_s3_in_a_storm(s3: Sky, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(storage, "READ_BLOCK_BYTES", 30_000)
    monkeypatch.setattr(storage, "COPY_BLOCK_BYTES", 30_000)
    s3.becomes(**{**STORM, "short": 0.0}, seed=2)
    urls = [f"s3://bucket/storm/{number:02d}" for number in range(30)]
    for number, url in enumerate(urls):
        storage.put(url, b"%d" % number)
    assert storage.read_many(urls) == [b"%d" % number for number in range(30)]
    assert len(storage.sizes("s3://bucket/storm")) == len(storage.names("s3://bucket/storm", "")) == 30
    storage.put_new("s3://bucket/new", b"mine")
    storage.put_new("s3://bucket/new", b"another's")
    assert storage.read_bytes("s3://bucket/new") == b"mine"
    storage.put("s3://bucket/data", DATA)
    storage.copy("s3://bucket/data", "s3://bucket/copy")
    with storage.open_stream("s3://bucket/copy") as stream:
        assert stream.read() == DATA
    assert storage.fetch("s3://bucket/data").read_bytes() == DATA
    storage.remove_many(urls[:20])
    storage.remove_tree("s3://bucket/storm")
    assert not storage.exists(urls[29]) and storage.exists("s3://bucket/data")
    counts, made = storage.take_request_counts(), s3.made
    assert {one.fault for one in made} == {"", *REFUSALS, "reset", "cut"}
    hidden = sum(one.fault == "reset" for one in made) - counts.repeated["connection"]  # see below
    assert counts.requests + hidden == len(made)  # pages, parts and questions among them
    assert sum(counts.repeated.values()) + hidden == sum(one.fault != "" for one in made)


def test_s3_parts_of_an_upload_are_repeated_by_themselves(
    s3: Sky, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("s3fs.core.calculate_chunksize", lambda *_, **__: 5 << 20)
    data = random.Random(2).randbytes(11 << 20)
    (tmp_path / "large").write_bytes(data)
    for seed in range(8):  # some of them lose the answer to the end of an upload
        s3.becomes(slow_down=0.1, reset=0.3, seed=seed, only="^put")
        storage.upload(tmp_path / "large", "s3://bucket/large")
    storage.download("s3://bucket/large", tmp_path / "back")
    assert (tmp_path / "back").read_bytes() == data


def test_nothing_below_repeats_requests_too(s3: Sky, monkeypatch: pytest.MonkeyPatch) -> None:
    storage.exists("s3://bucket/a")
    monkeypatch.setattr(retries, "REPEATS", 5)
    for weather in ({"slow_down": 1.0}, {"internal_error": 1.0}, {"reset": 1.0}):
        for ask in (storage.read_bytes, storage.exists, storage.sizes, lambda url: storage.put(url, b"")):
            s3.becomes(**weather)
            with pytest.raises(TransientError, match=r"^s3://bucket/a/?: "):
                ask("s3://bucket/a")
            assert storage.take_request_counts().requests == 8
            assert 8 <= len(s3.made) <= (16 if "reset" in weather else 8)  # aiohttp asks a second time, at once
    with pytest.raises(
        TransientError, match=r"^s3://bucket/a: cat_file failed 8 times, the last time with ClientPayloadError"
    ):
        s3.becomes()
        storage.put("s3://bucket/a", DATA)
        s3.becomes(cut=1.0)
        storage.read_bytes("s3://bucket/a")
    assert s3.requests == {"get": 8}


def test_s3_credentials_that_end(s3: Sky) -> None:
    storage.put("s3://bucket/a", b"1")
    s3.becomes(credentials_requests=0)
    for ask in (storage.read_bytes, storage.exists, storage.sizes):
        with pytest.raises(SetupError, match=r"^s3://bucket: does not take these credentials.*same command again"):
            ask("s3://bucket/a")
    assert s3.requests == {"get": 1, "head": 2, "list": 1}  # botocore asks the bucket whether its region is another


def test_s3_ranges_and_streams_of_a_changed_object(s3: Sky, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storage, "READ_BLOCK_BYTES", 1000)
    storage.put("s3://bucket/data", DATA)
    with storage.open_stream("s3://bucket/data") as stream:
        assert stream.read(1000) == DATA[:1000]
        storage.put("s3://bucket/data", DATA[::-1])
        with pytest.raises(WenhaiError, match=r"^s3://bucket/data: has changed while it was read"):
            stream.read()
    storage.put("s3://bucket/empty", b"")
    with storage.open_stream("s3://bucket/empty") as stream:
        assert stream.read() == b""
    assert storage.fetch("s3://bucket/empty").read_bytes() == storage.read_bytes("s3://bucket/empty") == b""
