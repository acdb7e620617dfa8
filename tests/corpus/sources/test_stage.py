"""The extract stage: conservation, places, identities, shards, and the same bytes whatever the workers."""

from __future__ import annotations

import gzip
import json
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from corpus.document import DOCUMENT_SCHEMA, FATE_SCHEMA, document_id
from corpus.engine.errors import UsageError
from corpus.engine.run import run_stages
from corpus.engine.stage import Folder
from corpus.engine.storage import File
from corpus.extract import ExtractConfig
from corpus.sources import SourcesConfig
from corpus.sources.config import InputConfig
from corpus.sources.packing import Source, find_sources, pack
from tests.corpus.sources.files import extract_stage, members, warc_record
from tests.corpus.texts import document

BODY = "<html><title>标题</title><body><h1>标题</h1><p>%s</p></body></html>"


def extract(folder: Path, out: Path, workers: int = 0, **sources: Any) -> Folder:
    limits = {name: sources.pop(name) for name in InputConfig.model_fields if name in sources}
    stage = extract_stage(str(folder / "*"), limits, **{"max_error_ratio": 1.0} | sources)
    return run_stages([stage], str(out), workers=workers)["extract"]


def rows(folder: Folder, kind: str = "data") -> list[dict[str, Any]]:
    schema = DOCUMENT_SCHEMA if kind == "data" else FATE_SCHEMA
    tables = [pq.read_table(file.url) for file in folder.files(kind)]
    assert all(table.schema.equals(schema) for table in tables)
    return list(pa.concat_tables(tables).to_pylist()) if tables else []


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Every bad input of the issue beside good ones."""
    folder = tmp_path_factory.mktemp("in")
    lines = [
        json.dumps({"text": document(index), "id": index, "extra": {"b": 1, "a": None}}).encode() for index in range(6)
    ]
    lines[2] = '{"text": "国标码"}'.encode("gbk")
    lines[4] = b'{"text": ""}'
    (folder / "a.jsonl").write_bytes(b"\n".join(lines))
    packed = gzip.compress(
        b"\n".join(json.dumps({"text": document(index)}).encode() for index in range(100, 103)), mtime=0
    )
    (folder / "b.jsonl.gz").write_bytes(packed[:-8])
    parts = members(5)
    parts[2] = parts[2][:50] + b"\xff\xff\xff" + parts[2][53:]
    parts.append(
        gzip.compress(warc_record(9, (BODY % document(9)).encode("gbk"), mime="text/html; charset=utf-8"), mtime=0)
    )
    (folder / "c.warc.gz").write_bytes(b"".join(parts))
    (folder / "d.jsonl").write_bytes(b"")
    (folder / "e.jsonl").write_bytes(b'{"text": "' + b"x" * 34_000_000 + b'"}\n' + lines[0])
    (folder / "f.html").write_bytes(b"<ul><li><a href=x>link</a></ul>")
    (folder / "g.txt").write_bytes(bytes(range(1, 256)) * 30)
    return folder


@pytest.fixture(scope="module")
def build(inputs: Path, tmp_path_factory: pytest.TempPathFactory) -> Folder:
    return extract(inputs, tmp_path_factory.mktemp("build"), source="test")


def test_every_record_is_a_document_or_a_fate(inputs: Path, build: Folder) -> None:
    folder, counts = build, build.counts
    fates = rows(folder, "fates")
    errors = {"charset": 2, "empty": 2, "truncated": 1, "corrupt": 1, "too_long": 1}
    assert counts.errors == errors == dict(Counter(fate["rule"].removeprefix("error:") for fate in fates))
    assert (
        counts.documents_out == len(rows(folder)) == 4 + 2 + 5 + 1
    )  # the last line before the cut has no end, and is lost with it
    assert counts.documents_in == counts.documents_out + len(fates)
    assert counts.bytes_out == sum(len(row["text"].encode()) for row in rows(folder))
    places = {fate["rule"]: fate["place"] for fate in fates}
    middle = sum(map(len, members(5)[:2]))
    assert places["error:corrupt"] == f"c.warc.gz:offset {middle}"
    assert places["error:too_long"] == "e.jsonl:offset 0"
    assert places["error:truncated"] == f"b.jsonl.gz:offset {(inputs / 'b.jsonl.gz').stat().st_size}"
    assert not any("国标码" in str(fate) for fate in fates)


def test_damaged_bytes_cost_their_lines(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    lines = [document(index).replace("\n", "").encode("gbk") for index in range(9)]
    lines[3], lines[5] = lines[3][:7] + b"...", lines[5] + b"\x80"  # cut in a character; the euro sign of CP936
    (tmp_path / "in" / "a.txt").write_bytes(b"\n".join(lines))
    folder = extract(tmp_path / "in", tmp_path / "out")
    (row,) = rows(folder)
    kept = [document(index).replace("\n", "") + "€" * (index == 5) for index in range(9) if index != 3]
    assert row["text"] == "\n".join(kept) and row["encoding"] == "gb18030"
    assert folder.counts.extra == {"damaged_lines": 1, "damaged_chars": 7, "records.local": 1, "files.local": 1}
    (by_line,) = (extract(tmp_path / "in", tmp_path / "lines", document="line"),)
    assert [row["text"] for row in rows(by_line)] == kept and by_line.counts.errors == {"charset": 1}


def test_columns_of_a_document(inputs: Path, build: Folder) -> None:
    found = {row["url"] or row["text"]: row for row in rows(build)}
    page = found["https://example.org/9"]
    assert (page["text"], page["title"], page["encoding"]) == (
        f"标题\n{document(9)}".replace("\n", " ").replace(" ", "\n", 1),
        "标题",
        "gb18030",
    )
    line = found[document(0)]
    assert (line["source"], line["meta"]) == ("test", None)
    assert build.counts.extra["meta_left_out"] == 5 + 5  # lines with `id` and `extra`, pages with `warc_date`
    raw = (inputs / "a.jsonl").read_bytes().split(b"\n")[0]
    assert line["id"] == document_id("test", "0", raw)


def test_identity_does_not_depend_on_files_or_order(tmp_path: Path) -> None:
    lines = [json.dumps({"text": document(index)}).encode() for index in range(6)]
    for name, parts in {"one": [lines], "two": [lines[3:][::-1], lines[:3]]}.items():
        (tmp_path / name).mkdir()
        for index, part in enumerate(parts):
            (tmp_path / name / f"{index}.jsonl").write_bytes(b"\n".join(part))
    one, two = (rows(extract(tmp_path / name, tmp_path / f"out-{name}")) for name in ("one", "two"))
    assert {row["id"] for row in one} == {row["id"] for row in two} and len(one) == 6


def test_same_bytes_for_any_number_of_workers(inputs: Path, tmp_path: Path) -> None:
    folders = [
        extract(inputs, tmp_path / f"out{workers}", workers, task_bytes=1, shard_bytes=3_000) for workers in (0, 2)
    ]
    assert folders[0].manifest == folders[1].manifest
    assert folders[0].manifest["tasks"] == 7 + 2  # e.jsonl in three ranges


def test_shards_roll_over_and_number_their_rows(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    lines = [json.dumps({"text": document(index)}).encode() for index in range(20)]
    (tmp_path / "in" / "a.jsonl").write_bytes(b"\n".join(lines))
    files = extract(tmp_path / "in", tmp_path / "out", shard_bytes=8_000).files()
    (task,) = {file.url.rsplit("/", 1)[-1].rsplit("-", 1)[0] for file in files}
    assert [file.url.rsplit("/", 1)[-1] for file in files] == [
        f"{task}-{part:05d}.parquet" for part in range(len(files))
    ]
    tables = [pq.read_table(file.url) for file in files]
    assert len(files) > 3 and sum(table.num_rows for table in tables) == 20
    for file, table in zip(files, tables, strict=True):
        assert table["row"].to_pylist() == list(range(table.num_rows)) and file.rows == table.num_rows
        assert sum(len(text.encode()) for text in table["text"].to_pylist()) <= 8_000


def test_empty_inputs_give_one_empty_shard(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.jsonl").write_bytes(b"")
    folder = extract(tmp_path / "in", tmp_path / "out")
    assert rows(folder) == rows(folder, "fates") == []
    assert [file.rows for file in folder.files()] == [0]


def test_an_input_listed_twice_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").touch()
    sources = [SourcesConfig(path=(str(tmp_path),)), SourcesConfig(path=(str(tmp_path / "*.jsonl"),))]
    with pytest.raises(UsageError, match=r"a\.jsonl: listed twice"):
        find_sources(sources)


def test_a_new_file_changes_its_own_pack_and_no_other() -> None:
    random.seed(7)
    files = [File(f"/in/{index:03d}.jsonl", random.randint(1, 30), f"{index:064d}") for index in range(300)]
    limits = InputConfig(task_bytes=400)

    def packs(some: list[File]) -> dict[str, tuple[str, ...]]:
        tasks = list(pack(Source("local", files=tuple(some)), limits))
        assert sorted(file.label for task in tasks for file in task.inputs) == sorted(file.label for file in some)
        assert all(sum(file.bytes for file in task.inputs) <= 400 for task in tasks)
        return {task.digest: tuple(file.label for file in task.inputs) for task in tasks}

    before = packs(files)
    assert 12 < len(before) < 40
    for index in range(0, 300, 7):
        new = File(f"/in/{index:03d}a.jsonl", 20, "f" * 64)
        after = packs([*files, new])
        fresh = [pack for digest, pack in after.items() if digest not in before]
        neighbours = {label for pack in fresh for label in pack} - {new.label}
        changed = [set(pack) for digest, pack in before.items() if digest not in after]
        assert neighbours == set().union(*changed)
        assert len(changed) <= 2  # its own, and one that it is joined to


def test_a_large_plain_file_is_cut_into_ranges_and_read_as_if_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("corpus.sources.packing.MIN_SPAN_BYTES", 1)
    (tmp_path / "in").mkdir()
    lines = [json.dumps({"text": document(index, 1 + index % 9)}).encode() for index in range(40)]
    lines[5] = b"not json"
    (tmp_path / "in" / "a.jsonl").write_bytes(b"\n".join(lines))
    whole = extract(tmp_path / "in", tmp_path / "whole")
    for size in (1_000, 4_096, 50_000):
        cut = extract(tmp_path / "in", tmp_path / f"out{size}", task_bytes=size)
        assert cut.manifest["tasks"] == -(-(tmp_path / "in" / "a.jsonl").stat().st_size // size)
        assert [row["id"] for row in rows(cut)] == [row["id"] for row in rows(whole)]
        assert [row["place"] for row in rows(cut, "fates")] == [row["place"] for row in rows(whole, "fates")]
        assert cut.counts == whole.counts
    array = json.dumps([{"text": document(index)} for index in range(9)]).encode()
    for name, data in (("array", array), ("packed", gzip.compress(b"\n".join(lines)))):  # whatever they are called
        (tmp_path / name).mkdir()
        (tmp_path / name / "a.jsonl").write_bytes(data)
        read = extract(tmp_path / name, tmp_path / f"{name}.out", task_bytes=1_000)
        assert read.manifest["tasks"] == 1 and read.counts.documents_out == (9 if name == "array" else 39)


def test_huge_and_odd_fields_are_bounded(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    fields = {"text": "学而时习之。", "url": "https://example.org/" + "x" * 9_000, "big": "y" * 100_000, "n": 10**30}
    (tmp_path / "in" / "a.jsonl").write_text(json.dumps(fields))
    (row,) = rows(extract(tmp_path / "in", tmp_path / "out", meta="*"))
    assert len(row["url"]) == 4096 and row["meta"] == '{"dropped_fields":["big","n"]}'


def test_meta_holds_what_is_asked_for(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    fields = {"text": document(1), "author": "王五", "data": {"tags": [{"name": "诗"}, {"name": "词"}], "phone": "1"}}
    (tmp_path / "in" / "a.jsonl").write_text(json.dumps(fields), encoding="utf-8")
    for names, meta in (([], None), (["data.tags.name"], {"data.tags.name": ["诗", "词"]}), (["none"], None)):
        build = extract(tmp_path / "in", tmp_path / str(len(names) + (meta is None)), meta=names)
        assert [json.loads(row["meta"] or "null") for row in rows(build)] == [meta]
        assert build.counts.extra["meta_left_out"] == 1


def test_addresses_of_documents_and_fates_hold_no_secrets(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    pages = [warc_record(1, (BODY % document(1)).encode()), warc_record(2, b"<ul><li><a href=x>link</a></ul>")]
    data = b"".join(pages).replace(b"https://example.org/", b"https://a:b@example.org/?token=geheim&n=")
    (tmp_path / "in" / "a.warc").write_bytes(data)
    build = extract(tmp_path / "in", tmp_path / "out")
    assert [row["url"] for row in rows(build)] == ["https://example.org/?token=<MASKED>&n=1"]
    assert [row["url"] for row in rows(build, "fates")] == ["https://example.org/?token=<MASKED>&n=2"]


def test_a_page_of_three_megabytes_is_read(tmp_path: Path) -> None:
    """As articles of WeChat are, most of it scripts; no reader of a format has a smaller limit than extraction."""
    script = f"<script>var a = '{random.Random(1).randbytes(1_500_000).hex()}'</script>"
    page = (BODY % document(1)).replace("<body>", f"<body>{script}").encode()
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.warc.gz").write_bytes(gzip.compress(warc_record(1, page)))
    (tmp_path / "in" / "b.html").write_bytes(page)
    build = extract(tmp_path / "in", tmp_path / "out")
    assert build.counts.errors == {} and len(rows(build)) == 2
    assert SourcesConfig().max_page_bytes == ExtractConfig().max_page_bytes
