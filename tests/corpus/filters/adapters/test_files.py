"""The filter on files: every column comes through, nothing is half written, and a second run repeats nothing."""

from __future__ import annotations

import bz2
import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard

from corpus.__main__ import main
from corpus.engine.durable import RunLock
from corpus.engine.errors import LockHeld, UsageError, WenhaiError
from corpus.filters import Filter, load
from corpus.filters.adapters import parquet as parquet_adapter
from corpus.filters.adapters.files import Options, filter_files
from corpus.filters.adapters.summary import Summary
from tests.corpus.texts import document, write_records

MOBILE = "电话13800138000"


@pytest.fixture(scope="module")
def judge() -> Filter:
    return load("web_zh")


def table(rows: int, column: str = "content", kind: Any = None) -> pa.Table:
    """Every third document is too short, every third holds a number to mask."""
    texts = [document(row) if row % 3 == 0 else "短" if row % 3 == 1 else document(row) + MOBILE for row in range(rows)]
    schema = pa.schema(
        [
            pa.field("id", pa.int64(), nullable=False, metadata={"unit": "row"}),
            pa.field(column, kind or pa.string(), metadata={"note": "正文"}),
            pa.field(
                "nested", pa.struct([("tags", pa.list_(pa.string())), ("more", pa.map_(pa.string(), pa.int32()))])
            ),
            pa.field("when", pa.timestamp("ms", "UTC")),
        ],
        metadata={"owner": "某馆"},
    )
    nested = [None if row % 5 == 0 else {"tags": ["甲"] * (row % 3), "more": [("k", row)]} for row in range(rows)]
    return pa.table([range(rows), texts, nested, [1_700_000_000_000 + row for row in range(rows)]], schema=schema)


def run(patterns: list[str], judge: Filter, out: Path, **options: Any) -> Any:
    return filter_files(patterns, Options(judge, out, **options))


@pytest.mark.parametrize("threads", [1, 3])
def test_a_parquet_folder(judge: Filter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, threads: int) -> None:
    monkeypatch.setattr(parquet_adapter, "MAX_BATCH_ROWS", 7)
    monkeypatch.setattr(parquet_adapter, "GROUP_ROWS", 16)
    whole = table(60)
    source = tmp_path / "in/a/part-0.parquet"
    source.parent.mkdir(parents=True)
    pq.write_table(whole, source, row_group_size=25)
    (tmp_path / "in/README.md").write_text("说明")
    out, dropped, statistics = (tmp_path / name for name in ("out", "dropped", "statistics"))
    summary = run(
        [str(tmp_path / "in")], judge, out, column="content", dropped=dropped, statistics=statistics, threads=threads
    )
    assert (summary.documents, summary.kept, summary.edited) == (60, 40, 20)
    kept = pq.read_table(out / "a/part-0.parquet", page_checksum_verification=True)
    assert kept.schema.equals(pq.read_schema(source), check_metadata=True)
    assert kept.schema.metadata == whole.schema.metadata
    rows = [row for row in whole.to_pylist() if row["id"] % 3 != 1]
    for row in rows:
        row["content"] = row["content"].replace("13800138000", "<MOBILE>")
    assert kept.to_pylist() == rows
    assert pq.ParquetFile(out / "a/part-0.parquet").num_row_groups > 1
    ended = pq.read_table(dropped / "a/part-0.parquet")
    assert ended["id"].to_pylist() == list(range(1, 60, 3))
    assert ended["filter_verdict"][0].as_py() == {
        "rule": "length.num_chars",
        "value": 1.0,
        "threshold": 50.0,
        "bound": "min",
        "detail": None,
    }
    measured = pq.read_table(statistics / "a/part-0.parquet")
    assert measured["row"].to_pylist() == list(range(60))
    assert measured["kept"].to_pylist() == [row % 3 != 1 for row in range(60)]
    assert measured["length.num_chars"][1].as_py() == 1.0
    assert "text" not in measured.column_names


@pytest.mark.parametrize("kind", [pa.large_string(), pa.string_view(), pa.dictionary(pa.int32(), pa.string())], ids=str)
def test_every_kind_of_string_column_stays_what_it_is(judge: Filter, tmp_path: Path, kind: Any) -> None:
    whole = table(9)
    texts = whole["content"].combine_chunks()
    texts = texts.dictionary_encode().cast(kind) if pa.types.is_dictionary(kind) else texts.cast(kind)
    whole = whole.set_column(1, pa.field("content", kind), texts)
    pq.write_table(whole, tmp_path / "in.parquet")
    stored = pq.read_schema(tmp_path / "in.parquet")
    run([str(tmp_path / "in.parquet")], judge, tmp_path / "out", column="content")
    kept = pq.read_table(tmp_path / "out/in.parquet")
    assert kept.schema.equals(stored)
    assert kept["id"].to_pylist() == [0, 2, 3, 5, 6, 8]
    assert kept["content"][1].as_py().endswith("电话<MOBILE>")


@pytest.mark.parametrize("suffix", ["", ".gz", ".zst", ".bz2", ".GZ"])
def test_json_lines(judge: Filter, tmp_path: Path, suffix: str) -> None:
    lines = [json.dumps({"n": row, "content": text}, ensure_ascii=False) for row, text in enumerate(texts())]
    data = ("\n".join([lines[0], "{", "", *lines[1:]]) + "\n").encode()
    pack: dict[str, Callable[[bytes], bytes]]
    pack = {"": bytes, ".gz": gzip.compress, ".GZ": gzip.compress, ".zst": zstandard.compress, ".bz2": bz2.compress}
    packed = pack[suffix](data)
    (tmp_path / f"in.jsonl{suffix}").write_bytes(packed)
    out, statistics = tmp_path / "out", tmp_path / "statistics"
    summary = run(
        [str(tmp_path / "*.jsonl*")], judge, out, column="content", statistics=statistics, dropped=tmp_path / "dropped"
    )
    written = (out / f"in.jsonl{suffix}").read_bytes()
    unzstd = zstandard.ZstdDecompressor().decompressobj().decompress
    unpack: dict[str, Callable[[bytes], bytes]]
    unpack = {"": bytes, ".gz": gzip.decompress, ".GZ": gzip.decompress, ".zst": unzstd, ".bz2": bz2.decompress}
    kept = unpack[suffix](written).splitlines()
    assert [json.loads(line)["n"] for line in kept] == [0, 2]
    assert kept[0] == lines[0].encode()
    assert dict(summary.bad) == {"json": 1}
    assert pq.read_table(statistics / f"in.jsonl{suffix}.parquet")["row"].to_pylist() == [1, 4, 5]


def texts() -> list[str]:
    return [document(1), "短", document(2) + MOBILE]


def write_lines(path: Path, seeds: range) -> None:
    write_records(path, ({"text": document(seed)} for seed in seeds))


def test_a_second_run_repeats_only_what_changed(
    judge: Filter, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("a", "b", "c"):
        write_lines(tmp_path / f"in/{name}.jsonl", range(3))
    first = run([str(tmp_path / "in")], judge, tmp_path / "out")
    stamps = {path.name: path.stat().st_mtime_ns for path in (tmp_path / "out").glob("*.jsonl")}
    write_lines(tmp_path / "in/b.jsonl", range(5))
    (tmp_path / "out/c.jsonl").unlink()
    capsys.readouterr()
    second = run([str(tmp_path / "in")], judge, tmp_path / "out")
    assert (first.documents, second.documents) == (9, 11)
    told = capsys.readouterr().err
    assert "a.jsonl: is here already" in told and "MB/s" in told
    run([str(tmp_path / "in")], judge, tmp_path / "out")
    assert "MB/s" not in capsys.readouterr().err  # nothing was filtered, so there is no speed
    again = {path.name: path.stat().st_mtime_ns for path in (tmp_path / "out").glob("*.jsonl")}
    assert [name for name in stamps if again[name] == stamps[name]] == ["a.jsonl"]
    assert len((tmp_path / "out/b.jsonl").read_text().splitlines()) == 5


def test_a_folder_of_another_recipe_or_of_somebody_else_is_refused(judge: Filter, tmp_path: Path) -> None:
    write_lines(tmp_path / "in/a.jsonl", range(3))
    write_lines(tmp_path / "theirs/a.jsonl", range(1))
    with pytest.raises(UsageError, match=r"theirs/a\.jsonl: exists and is not of this command"):
        run([str(tmp_path / "in")], judge, tmp_path / "theirs")
    run([str(tmp_path / "in")], judge, tmp_path / "out")
    other = load("web_zh", ["filter.length.num_chars.min=20"])
    with pytest.raises(UsageError, match="another recipe"):
        run([str(tmp_path / "in")], other, tmp_path / "out")
    with pytest.raises(UsageError, match="an input inside an output folder"):
        run([str(tmp_path / "*/a.jsonl")], judge, tmp_path / "out")


@pytest.mark.parametrize("pattern", ["in", "in/**/*.jsonl"])
def test_an_output_inside_the_input_is_refused_at_once(judge: Filter, tmp_path: Path, pattern: str) -> None:
    write_lines(tmp_path / "in/a.jsonl", range(3))
    with pytest.raises(UsageError, match="an output folder inside --input"):
        run([str(tmp_path / pattern)], judge, tmp_path / "in/kept")
    assert not (tmp_path / "in/kept").exists()


def test_two_inputs_of_one_name_are_refused(judge: Filter, tmp_path: Path) -> None:
    for folder in ("x", "y"):
        write_lines(tmp_path / folder / "a.jsonl", range(1))
    with pytest.raises(UsageError, match=r"another input is called a\.jsonl too"):
        run([str(tmp_path / "x"), str(tmp_path / "y")], judge, tmp_path / "out")
    run([str(tmp_path / "*/a.jsonl")], judge, tmp_path / "out")
    assert (tmp_path / "out/x/a.jsonl").exists() and (tmp_path / "out/y/a.jsonl").exists()


def test_one_run_at_a_time(judge: Filter, tmp_path: Path) -> None:
    write_lines(tmp_path / "in.jsonl", range(1))
    with RunLock(tmp_path / "out"), pytest.raises(LockHeld):
        run([str(tmp_path / "in.jsonl")], judge, tmp_path / "out")


def test_a_bad_file_costs_itself(judge: Filter, tmp_path: Path) -> None:
    write_lines(tmp_path / "in/good.jsonl", range(3))
    (tmp_path / "in/bad.parquet").write_bytes(b"PAR1 nonsense")
    pq.write_table(table(3, "body"), tmp_path / "in/other.parquet")
    with pytest.raises(WenhaiError, match=r"2 of 3 files cannot be filtered.*bad\.parquet: not a Parquet file"):
        run([str(tmp_path / "in")], judge, tmp_path / "out")
    assert [path.name for path in (tmp_path / "out").iterdir() if not path.name.startswith(".")] == ["good.jsonl"]


def test_a_damaged_row_group_and_a_cut_file_give_what_can_be_read(judge: Filter, tmp_path: Path) -> None:
    whole = table(40).replace_schema_metadata(None)
    path = tmp_path / "in/a.parquet"
    path.parent.mkdir()
    pq.write_table(whole, path, row_group_size=10, compression="none", write_page_checksum=True, use_dictionary=False)
    chunk = pq.ParquetFile(path).metadata.row_group(1).column(1)
    data = bytearray(path.read_bytes())
    data[chunk.data_page_offset + chunk.total_compressed_size // 2] ^= 1
    path.write_bytes(data)
    lines = "".join(json.dumps({"content": document(seed)}) + "\n" for seed in range(400)).encode()
    packed = gzip.compress(lines)
    (tmp_path / "in/b.jsonl.gz").write_bytes(packed[: len(packed) // 2])
    summary = run([str(tmp_path / "in")], judge, tmp_path / "out", column="content")
    assert dict(summary.bad) == {"parquet": 10, "truncated": 1}
    kept = pq.read_table(tmp_path / "out/a.parquet")["id"].to_pylist()
    assert kept == [row for row in range(40) if row % 3 != 1 and not 10 <= row < 20]
    assert 0 < len(gzip.decompress((tmp_path / "out/b.jsonl.gz").read_bytes()).splitlines()) < 400


def test_the_bytes_do_not_depend_on_threads_or_batches(
    judge: Filter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pq.write_table(table(50), tmp_path / "a.parquet", row_group_size=20)
    write_lines(tmp_path / "b.jsonl", range(20))
    written = set()
    for threads, rows in ((1, 8192), (3, 4)):
        monkeypatch.setattr(parquet_adapter, "MAX_BATCH_ROWS", rows)
        out = tmp_path / f"out-{threads}"
        for name, column in (("a.parquet", "content"), ("b.jsonl", "text")):
            run([str(tmp_path / name)], judge, out / column, column=column, threads=threads)
        written.add(tuple(path.read_bytes() for path in (out / "content/a.parquet", out / "text/b.jsonl")))
    assert len(written) == 1


def test_memory_does_not_follow_the_row_group(tmp_path: Path) -> None:
    texts = [bytes(range(65, 91)) * 90 + str(row).encode() for row in range(30_000)]
    path = tmp_path / "big.parquet"
    whole = pa.table({"text": pa.array(texts, pa.binary()).cast(pa.string())})
    pq.write_table(whole, path, row_group_size=50_000, use_dictionary=False, compression="none")
    size, rows, held = whole.nbytes, 0, 0
    del whole, texts
    before = pa.total_allocated_bytes()
    with parquet_adapter._open(path) as file:
        assert file.num_row_groups == 1
        for batch in parquet_adapter._batches(file, Summary(print)):
            rows += batch.num_rows
            held = max(held, pa.total_allocated_bytes() - before)
    assert rows == 30_000
    assert held < size / 3  # the file's one row group is 70 MB


def test_masking_alone_keeps_every_row_and_null(judge: Filter, tmp_path: Path) -> None:
    whole = table(6).slice(1)
    whole = whole.set_column(1, whole.schema.field(1), pa.array([MOBILE, None, *whole["content"].to_pylist()[2:]]))
    pq.write_table(whole, tmp_path / "in.parquet")
    run([str(tmp_path / "in.parquet")], judge.personal_only(), tmp_path / "out", column="content")
    kept = pq.read_table(tmp_path / "out/in.parquet")["content"].to_pylist()
    assert kept == [text and text.replace("13800138000", "<MOBILE>") for text in whole["content"].to_pylist()]
    assert kept[:2] == ["电话<MOBILE>", None]
    with pytest.raises(UsageError, match="another recipe"):
        run([str(tmp_path / "in.parquet")], judge, tmp_path / "out", column="content")


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pq.write_table(table(9), tmp_path / "in.parquet")
    words = f"--input {tmp_path}/in.parquet --out {tmp_path}/out --column content --dropped {tmp_path}/dropped".split()
    command = ["filter", "--recipe", "web_zh"]
    assert main([*command, *words]) == 0
    told = capsys.readouterr()
    assert not told.out and "length.num_chars" in told.err
    assert pq.read_metadata(tmp_path / "out/in.parquet").num_rows == 6
    assert pq.read_metadata(tmp_path / "dropped/in.parquet").num_rows == 3
    for wrong in (words[:2], ["--statistics", "x"], [*words, "--statistics", f"{tmp_path}/out"], ["--threads", "0"]):
        assert main([*command, *wrong]) == 2, wrong
