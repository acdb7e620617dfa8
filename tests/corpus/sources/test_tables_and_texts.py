"""Parquet, plain text and HTML files, and the choice of a reader."""

from __future__ import annotations

import gzip
import tracemalloc
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from corpus.sources import BadRecord, SourcesConfig, kind_of, read
from tests.corpus.sources.files import members, read_all


def test_parquet_rows_become_records(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    table = pa.table(
        {
            "text": ["学而。", None, "", "时习。"],
            "url": ["https://example.org/1", None, None, None],
            "n": [1, 2, 3, None],
        }
    )
    pq.write_table(table, path)
    good, bad = read_all(path, path.read_bytes())
    assert [(record.text, record.url, record.offset, record.fields) for record in good] == [
        ("学而。", "https://example.org/1", 0, {"n": 1}),
        ("时习。", None, 3, {}),
    ]
    assert [(error.kind, error.offset) for error in bad] == [("field", 1), ("empty", 2)]
    assert not read_all(path, path.read_bytes(), max_line_bytes=8)[0]


def test_a_damaged_row_group_costs_itself_only(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    table = pa.table({"text": [f"第{index}篇：学而时习之。" for index in range(300)]})
    pq.write_table(table, path, row_group_size=100, compression="none", use_dictionary=False, write_page_checksum=True)
    data = bytearray(path.read_bytes())
    data[data.index("第150篇".encode()) + 1] ^= 0x01
    good, bad = read_all(path, bytes(data))
    assert [record.offset for record in good] == [*range(100), *range(200, 300)]
    assert [(error.kind, error.offset) for error in bad] == [("parquet", 100)]


def test_a_value_that_python_lacks_costs_nothing_and_bad_utf_8_its_row(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    bad = pa.array(["好".encode(), b"\xff", b"x"], pa.binary())
    strings = pa.Array.from_buffers(pa.string(), 3, bad.buffers())
    columns: dict[str, pa.Array] = {
        "nanoseconds": pa.array([1, 2000, 3000], pa.timestamp("ns")),
        "year": pa.array([2**50, 0, 0], pa.timestamp("ms")),
        "zone": pa.array([7, 7, 7], pa.timestamp("s", tz="Nowhere/At_all")),
        "string": strings,
    }
    pq.write_table(pa.table({"text": ["甲", "乙", "丙"], **columns}), path)
    good, errors = read_all(path, path.read_bytes())
    assert [record.text for record in good] == ["甲", "乙", "丙"] and not errors
    assert good[0].fields["nanoseconds"] == "1970-01-01 00:00:00.000000001"
    assert "1125899906842624" in good[0].fields["year"] and [record.fields["string"] for record in good] == [
        "好",
        "\ufffd",
        "x",
    ]
    pq.write_table(pa.table({"text": strings}), path)
    good, errors = read_all(path, path.read_bytes())
    assert [record.text for record in good] == ["好", "x"]
    assert [(error.kind, error.offset) for error in errors] == [("charset", 1)]


def test_a_table_without_rows_has_no_records(tmp_path: Path) -> None:
    pq.write_table(pa.table({"text": pa.array([], pa.string())}), tmp_path / "a.parquet")
    assert read_all(tmp_path / "a.parquet", (tmp_path / "a.parquet").read_bytes()) == ([], [])


@pytest.mark.parametrize("data", [b"PAR1", b"no parquet at all", b"PAR1" + bytes(100) + b"PAR1"])
def test_what_is_no_parquet_file_is_one_bad_record(tmp_path: Path, data: bytes) -> None:
    good, bad = read_all(tmp_path / "a.parquet", data)
    assert not good and [error.kind for error in bad] == ["parquet"]


POEM = "床前明月光，疑是地上霜。\n举头望明月，低头思故乡。\n\n\n春眠不觉晓，处处闻啼鸟。\r\n夜来风雨声，花落知多少。\n"


@pytest.mark.parametrize("codec", ["utf-8", "gb18030"])
@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_what_a_document_is_in_a_text_file(tmp_path: Path, codec: str, pack: type[bytes]) -> None:
    path = tmp_path / f"a.txt{'' if pack is bytes else '.gz'}"
    data = pack(POEM.encode(codec))
    (whole,), _ = read_all(path, data)
    assert (whole.raw, whole.text, whole.key) == (POEM.encode(codec), None, path.name)
    lines, _ = read_all(path, data, document="line")
    assert [record.text for record in lines] == POEM.split()
    blocks, _ = read_all(path, data, document="blank_line")
    assert [record.text for record in blocks] == [part.replace("\r", "").strip() for part in POEM.split("\n\n\n")]
    assert [record.offset for record in blocks] == [0, len(POEM.split("春")[0].encode(codec))]


def test_text_over_the_cap_and_in_another_encoding(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    data = POEM.encode() + "坏行".encode("gbk") + "\n好行。\n".encode()
    lines, bad = read_all(path, data, document="line", encoding="utf-8")
    assert [record.text for record in lines][-2:] == [
        "\ufffd\ufffd\ufffd\ufffd",
        "好行。",
    ] and not bad  # for the stage to drop
    assert [error.kind for error in read_all(path, data, max_line_bytes=50)[1]] == ["too_long"]
    blocks, bad = read_all(path, b"x\n" * 40 + b"\nyy\n", document="blank_line", max_line_bytes=50)
    assert [record.text for record in blocks] == ["yy"] and [(e.kind, e.offset, e.length) for e in bad] == [
        ("too_long", 0, 79)
    ]


def test_a_block_without_end_is_not_held(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(b"x\n" * 50_000)
    tracemalloc.start()
    (found,) = read(str(path), SourcesConfig(document="blank_line", max_line_bytes=50))
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert isinstance(found, BadRecord) and found.length == 99_999
    assert peak_bytes < 5_000_000


def test_half_a_document_is_no_document(tmp_path: Path) -> None:
    packed = gzip.compress(POEM.encode())
    good, bad = read_all(tmp_path / "a.txt.gz", packed[:-10])
    assert not good and [error.kind for error in bad] == ["truncated"]
    good, bad = read_all(tmp_path / "b.txt.gz", packed[:-10], document="line")
    assert len(good) >= 3 and [error.kind for error in bad] == ["truncated"]


@pytest.mark.parametrize(
    ("name", "data", "kind"),
    [
        ("a.warc.gz", b"", "warc"),
        ("CC.warc.wet.gz", b"", "warc"),
        ("a.JSONL.zst", b"", "jsonl"),
        ("a.txt", b"{", "text"),
        ("a.htm", b"", "html"),
        ("noname", members(1)[0], "warc"),
        ("noname", b"PAR1...", "parquet"),
        ("noname", gzip.compress(b'{"text": "x"}', mtime=0), "jsonl"),
        ("noname", b"\n<!DOCTYPE HTML><p>", "html"),
        ("noname", b"\x1f\x8b broken", "text"),
        ("noname", "学而".encode(), "text"),
    ],
)
def test_the_kind_of_a_file(tmp_path: Path, name: str, data: bytes, kind: str) -> None:
    path = tmp_path / name
    path.write_bytes(data)
    assert kind_of(path) == kind


def test_a_kind_in_the_configuration_wins(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(b'{"text": "x"}')
    (record,) = read(str(path), SourcesConfig(kind="jsonl"))
    assert record.text == "x"  # type: ignore[union-attr]


def test_an_html_file_is_one_page(tmp_path: Path) -> None:
    (record,), _ = read_all(tmp_path / "a.html", b"<p>x")
    assert (record.kind, record.raw) == ("html", b"<p>x")


@pytest.mark.parametrize("name", ["hz", "ISO-2022-CN", "euc_tw", "x-euc-tw"])
def test_encodings_that_are_not_read_are_refused_by_name(name: str) -> None:
    with pytest.raises(ValueError, match="convert the files to UTF-8"):
        SourcesConfig(encoding=name)
