"""Inputs are hashed once, and whoever reads one finds out that it is not what was listed."""

from __future__ import annotations

import builtins
import json
import os
import re
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fsspec
import pytest

from corpus.engine import input_digests, inputs, storage
from corpus.engine.errors import WenhaiError
from corpus.engine.input_digests import CHANGED, DIGESTS_NAME, ChangedInputError, Digests, check_file, open_checked
from corpus.engine.inputs import list_inputs
from corpus.engine.run import run_stages
from corpus.engine.stage import Folder
from corpus.engine.storage import File
from corpus.sources.config import InputConfig, SourcesConfig
from corpus.sources.packing import find_sources
from corpus.sources.stage import ExtractStage
from tests.corpus.texts import document

Write = Callable[[str, list[str]], Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def write(name: str, texts: list[str]) -> Path:
        path = tmp_path / "in" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(json.dumps({"text": text}, ensure_ascii=False) + "\n" for text in texts))
        return path

    return write


@pytest.fixture
def hashed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The paths of files that are hashed while the test goes on."""
    found: list[str] = []
    real = input_digests.hash_file

    def noted(path: str, hint: str) -> input_digests.Digest:
        found.append(path)
        return real(path, hint)

    monkeypatch.setattr("corpus.engine.inputs.hash_file", noted)
    return found


def listed(tmp_path: Path, *, saves: bool = True) -> list[File]:
    digests = Digests(str(tmp_path / "out"), saves=saves)
    files = list_inputs([str(tmp_path / "in")], digests=digests)
    digests.save()
    return files


def extract(tmp_path: Path, **limits: int) -> Folder:
    """What `corpus run` does, up to the first stage."""
    out = str(tmp_path / "out")
    digests = Digests(out, saves=True)
    sources = find_sources([SourcesConfig()], [str(tmp_path / "in")], digests=digests)
    digests.save()
    return run_stages([ExtractStage(sources, InputConfig(**limits))], out, workers=0)["extract"]


def lie(tmp_path: Path) -> None:
    """Make the hints of what is remembered those of the files as they are now: a clock or a copying tool did."""
    path = tmp_path / "out" / DIGESTS_NAME
    remembered = {}
    for line in path.read_text().splitlines():
        real, _, *rest = json.loads(line)
        status = os.stat(real)
        times = f"{status.st_mtime_ns} {status.st_ctime_ns} {status.st_ino} {status.st_dev}"
        remembered[real] = [real, f"{status.st_size} {times}", *rest]
    path.write_text("".join(json.dumps(one) + "\n" for one in remembered.values()))


def count(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Calls of the system, but those of `DirEntry`, which ask it for links alone."""
    calls: Counter[str] = Counter()

    def counted(module: Any, name: str) -> None:
        real = getattr(module, name)

        def call(*arguments: Any, **options: Any) -> Any:
            calls[name] += 1
            return real(*arguments, **options)

        monkeypatch.setattr(module, name, call)

    for name in ("stat", "lstat", "readlink", "scandir"):
        counted(os, name)
    counted(builtins, "open")
    return calls


def test_ten_thousand_files_cost_a_stat_each_and_are_opened_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for index in range(10_000):
        if index % 500 == 0:
            (tmp_path / "in" / f"{index // 500}").mkdir(parents=True)
        (tmp_path / "in" / f"{index // 500}" / f"{index}.txt").write_text(f"{index}")
    with monkeypatch.context() as patch:
        calls = count(patch)
        first = listed(tmp_path)
    assert len(first) == 10_000 == len({file.sha256 for file in first})
    assert calls["stat"] < 10_100 and calls["lstat"] + calls["readlink"] < 100 and calls["scandir"] < 50
    assert calls["open"] < 10_010
    with monkeypatch.context() as patch:
        calls = count(patch)
        assert listed(tmp_path) == first
    assert calls["stat"] < 10_100 and calls["lstat"] + calls["readlink"] < 100
    assert calls["open"] < 10


def test_a_plan_writes_nothing(write: Write, tmp_path: Path) -> None:
    write("a.jsonl", ["文"])
    listed(tmp_path, saves=False)
    assert not (tmp_path / "out").exists()


def test_what_was_hashed_before_ctrl_c_stays_hashed(
    write: Write, tmp_path: Path, hashed: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for index in range(4):
        write(f"{index}.jsonl", [document(index)])
    monkeypatch.setattr("corpus.engine.inputs.HASH_THREADS", 1)
    noted: Callable[[str, str], input_digests.Digest] = vars(inputs)["hash_file"]

    def stopped(path: str, hint: str) -> input_digests.Digest:
        if len(hashed) == 2:
            raise KeyboardInterrupt
        return noted(path, hint)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(inputs, "hash_file", stopped)
        listed(tmp_path)
    assert len(listed(tmp_path)) == 4 and len(hashed) == len(set(hashed)) == 4


def test_a_line_of_the_list_that_is_broken_is_a_file_hashed_again(write: Write, tmp_path: Path) -> None:
    write("a.jsonl", ["文"]), write("b.jsonl", ["海"])
    before = listed(tmp_path)
    path = tmp_path / "out" / DIGESTS_NAME
    lines = path.read_bytes().splitlines()
    path.write_bytes(b"\n".join([lines[0][:40], b"\xff\xfe", lines[1]]))
    assert len(Digests(str(tmp_path / "out"))._known) == 1
    assert listed(tmp_path) == before and len(path.read_bytes().splitlines()) == 2


def test_a_file_that_was_touched_is_hashed_again_and_nothing_is_rerun(
    write: Write, tmp_path: Path, hashed: list[str]
) -> None:
    path = write("a.jsonl", [document(1)])
    first = extract(tmp_path)
    records = {path: path.stat().st_mtime_ns for path in (tmp_path / "out").rglob("extract-*/*/*")}
    hashed.clear()
    extract(tmp_path)
    assert hashed == []
    os.utime(path, ns=(0, 0))  # the epoch: no decision is taken by what time it is
    assert extract(tmp_path).url == first.url and hashed == [str(path)]
    assert records == {path: path.stat().st_mtime_ns for path in (tmp_path / "out").rglob("extract-*/*/*")}
    write("a.jsonl", [document(2)])
    assert extract(tmp_path).url != first.url


def test_a_change_that_no_hint_shows_is_found_by_the_task_and_mended_by_the_next_run(
    write: Write, tmp_path: Path, hashed: list[str]
) -> None:
    write("a.jsonl", [document(1)])
    path = write("b.jsonl", [document(2) + "甲"])
    listed(tmp_path)  # and before the tasks begin:
    write("b.jsonl", [document(2) + "乙"])
    lie(tmp_path)
    with pytest.raises(WenhaiError, match=rf"1 of 1 tasks failed(?s:.*){re.escape(str(path))}: its bytes are not"):
        extract(tmp_path)
    assert [name.name for name in (tmp_path / "out" / CHANGED).iterdir()]
    hashed.clear()
    folder = extract(tmp_path)
    assert hashed == [str(path)]
    assert folder.counts.documents_out == 2 and not list((tmp_path / "out" / CHANGED).iterdir())


def test_a_file_that_grows_while_it_is_read_is_refused(write: Write, tmp_path: Path) -> None:
    path = write("a.jsonl", ["文"])
    [file] = listed(tmp_path)
    check_file(file)
    with path.open("a") as more:
        more.write("{}\n")
    with pytest.raises(ChangedInputError, match=re.escape(str(path))):
        check_file(file)
    path.write_bytes(b"")
    with pytest.raises(ChangedInputError):
        check_file(file)


def test_a_range_compares_the_blocks_that_it_reads(
    write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("corpus.sources.packing.MIN_SPAN_BYTES", 1)
    monkeypatch.setattr("corpus.sources.formats.jsonl.PIECE_BYTES", 4 << 10)
    monkeypatch.setattr(input_digests, "BLOCK_BYTES", 16 << 10)
    texts = [document(index) for index in range(300)]
    path = write("a.jsonl", texts)
    whole, step = path.read_bytes(), 64 << 10
    tasks = -(-len(whole) // step)
    listed(tmp_path)
    for at, failing in ((2 * step + 40_000, {2}), (2 * step + 100, {1, 2}), (0, set(range(tasks)))):
        path.write_bytes(whole[:at] + b"X" + whole[at + 1 :])
        lie(tmp_path)
        with pytest.raises(WenhaiError) as failed:
            extract(tmp_path, task_bytes=step)
        shown = re.findall(rf"-(\d+)  error: {re.escape(str(path))}: its bytes .* behind byte", str(failed.value))
        assert set(map(int, shown)) == failing and tasks > 4
        path.write_bytes(whole)
        for marker in (tmp_path / "out" / CHANGED).iterdir():
            marker.unlink()
        shutil.rmtree(next((tmp_path / "out").glob("extract-*")))
    lie(tmp_path)
    assert extract(tmp_path, task_bytes=step).counts.documents_out == len(texts)


def test_blocks_that_a_task_has_no_digest_of_are_compared_with_the_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(input_digests, "BLOCK_BYTES", 16)
    path = tmp_path / "a.bin"
    path.write_bytes(data := bytes(range(200)))
    [file] = list_inputs([str(path)])
    part = input_digests.range_of(file, 32, 48)
    assert sum(len(digests) for _, digests in part.blocks) == 16 * (1 + 4)  # the first; 1 to 4
    with open_checked(part) as stream:
        assert stream.read(10) == data[:10] and stream.seek(31) == 31 and stream.read(400) == data[31:]
        assert stream.seek(-3, os.SEEK_END) == 197 and stream.read() == data[197:] and stream.read() == b""
    for at in (3, 40, 130, 199):
        path.write_bytes(data[:at] + b"\xff" + data[at + 1 :])
        with open_checked(part) as stream, pytest.raises(ChangedInputError):
            stream.seek(at), stream.read(1)
    with open_checked(part) as stream:
        stream.seek(32)
        assert stream.read(16) == data[32:48]  # 199 is in none of the blocks of these


def test_a_file_in_a_store_is_another_when_its_tag_is(monkeypatch: pytest.MonkeyPatch) -> None:
    memory = fsspec.filesystem("memory")
    memory.pipe_file("/changing/0.jsonl", '{"text": "文"}\n'.encode())
    [file] = list_inputs(["memory://changing/*.jsonl"])
    check_file(file)
    memory.pipe_file("/changing/0.jsonl", '{"text": "海"}\n'.encode())
    with pytest.raises(ChangedInputError, match=r"memory://changing/0\.jsonl: its bytes .*tag"):
        check_file(file)
    with pytest.raises(ChangedInputError):
        open_checked(file)
    monkeypatch.setattr(storage, "open_filesystem", lambda url: (memory, url))
    tagged = {"size": 3, "ETag": '"abc-2"', "LastModified": "today"}
    assert input_digests.tag_of("s3://b/a", tagged) == input_digests.tag_of("s3://b/a", tagged | {"LastModified": 0})
    assert input_digests.tag_of("s3://b/a", tagged) != input_digests.tag_of("s3://b/a", tagged | {"ETag": "abc-3"})
