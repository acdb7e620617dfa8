"""JSONL: each bad line costs itself only, with its offset and kind, in plain and compressed files alike."""

from __future__ import annotations

import gzip
import json
import random
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest
import zstandard

from corpus.sources import Record, SourcesConfig, compression, read
from corpus.sources.lines import split_lines
from tests.corpus.sources.files import read_all


def line(index: int, **fields: object) -> bytes:
    return json.dumps({"text": f"第{index}篇：学而时习之。", **fields}, ensure_ascii=False).encode()


PACKERS: dict[str, Callable[[bytes], bytes]] = {
    ".jsonl": bytes,
    ".jsonl.gz": gzip.compress,
    ".jsonl.zst": zstandard.ZstdCompressor().compress,
}


@pytest.mark.parametrize("suffix", PACKERS)
@pytest.mark.parametrize(
    ("bad", "kind"),
    [
        ('{"text": "一行国标码"}'.encode("gbk"), "charset"),
        (line(0)[:-4] + b'\xe5"}', "charset"),
        (b'{"text": "cut', "json"),
        (b'{"text": "x", "n": NaN}', "json"),
        (b'{"text": "x", "n": 1e999}', "json"),
        (b'{"text": "\\ud800", "n": 1e999}', "json"),
        (b'{"text": "\\ud800", "n": NaN}', "json"),
        (b'{"text": ' + b"[" * 100_000, "json"),
        (b'{"a": "\\ud800", "text": ' + b"[" * 100_000, "json"),
        (b'"only a string"', "field"),
        (b'{"title": "no text"}', "field"),
        (b'{"text": 5}', "field"),
        (b'{"text": null}', "field"),
        (b'{"text": ""}', "empty"),
        (b'{"text": " \\n"}', "empty"),
        (b'{"text": "' + b"x" * 20_000 + b'"}', "too_long"),
    ],
)
def test_a_bad_line_costs_itself_only(tmp_path: Path, suffix: str, bad: bytes, kind: str) -> None:
    data = line(1) + b"\n" + bad + b"\n" + line(2) + b"\n"
    cap = max(len(bad), 10_000) if kind != "too_long" else 10_000
    good, errors = read_all(tmp_path / f"a{suffix}", PACKERS[suffix](data), max_line_bytes=cap)
    assert [record.text for record in good] == ["第1篇：学而时习之。", "第2篇：学而时习之。"]
    assert [(error.kind, error.offset, error.length) for error in errors] == [(kind, len(line(1)) + 1, len(bad))]
    assert "国标码" not in errors[0].detail and "xxx" not in errors[0].detail


def test_fields_go_where_the_configuration_says(tmp_path: Path) -> None:
    data = json.dumps(
        {"content": "学而。", "link": "https://example.org/1", "id": 7, "title": "论语", "date": 3, "n": [1]}
    )
    good, errors = read_all(tmp_path / "a.jsonl", data.encode(), text_field="content", url_field="link")
    assert not errors
    assert good == [
        Record(
            key="7",
            offset=0,
            raw=data.encode(),
            kind="text",
            text="学而。",
            url="https://example.org/1",
            title="论语",
            fields={"id": 7, "date": 3, "n": [1]},
        )
    ]


def test_marks_blank_lines_and_missing_last_newline(tmp_path: Path) -> None:
    data = b"\xef\xbb\xbf" + line(1) + b"\r\n\r\n  \n" + line(2)
    good, errors = read_all(tmp_path / "a.jsonl", data)
    assert len(good) == 2 and not errors
    assert good[1].offset == data.index(line(2))


def test_an_escaped_lone_surrogate_becomes_a_replacement_character(tmp_path: Path) -> None:
    good, errors = read_all(tmp_path / "a.jsonl", b'{"text": "\\ud800\\u5b66 \\ud83d\\ude00"}')
    assert [record.text for record in good] == ["\ufffd学 😀"] and not errors


@pytest.mark.parametrize("suffix", PACKERS)
def test_an_empty_file_has_no_records(tmp_path: Path, suffix: str) -> None:
    assert read_all(tmp_path / f"a{suffix}", b"") == ([], [])
    assert read_all(tmp_path / f"b{suffix}", PACKERS[suffix](b"")) == ([], [])
    assert read_all(tmp_path / f"c{suffix}", PACKERS[suffix](b"\xef\xbb\xbf")) == ([], [])


@pytest.mark.parametrize("suffix", PACKERS)
def test_a_long_line_costs_itself_only_and_no_memory(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"a{suffix}"
    size = 8_000_000
    noise = random.Random(1).randbytes(size // 2).hex().encode()  # what compresses well would be a bomb
    path.write_bytes(PACKERS[suffix](line(1) + b'\n{"text": "' + noise + b'"}\n' + line(2) + b"\n"))
    tracemalloc.start()
    found = list(read(str(path), SourcesConfig(max_line_bytes=1_000_000)))
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert [type(record).__name__ for record in found] == ["Record", "BadRecord", "Record"]
    assert found[1].kind == "too_long" and found[1].offset == len(line(1)) + 1
    assert found[2].offset == len(line(1)) + 1 + size + 12 + 1
    assert peak_bytes < 5_000_000


@pytest.mark.parametrize("line_end", [b"\n", b"\r\n"])
@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
def test_ranges_give_the_same_records_wherever_they_are_cut(tmp_path: Path, line_end: bytes, mark: bytes) -> None:
    path = tmp_path / "a.jsonl"
    lines = [line(1), b"", line(2), b"{bad", b"  ", line(3) + b" " * 60, line(4)]
    for end in (b"", line_end):
        path.write_bytes(mark + line_end.join(lines) + end)
        size = path.stat().st_size
        config = SourcesConfig(max_line_bytes=80)
        whole = list(read(str(path), config))
        assert [type(record).__name__ for record in whole] == ["Record", "Record", "BadRecord", "BadRecord", "Record"]
        for step in range(1, size + 1):
            spans = [(start, start + step) for start in range(0, size, step)]
            assert [record for span in spans for record in read(str(path), config, span)] == whole, step


def test_split_lines_equals_split_whatever_the_pieces() -> None:
    data = b"a\n\nbb\n" + b"c" * 50 + b"\nd"
    for size in range(1, len(data) + 1):
        pieces = [data[start : start + size] for start in range(0, len(data), size)]
        lines = list(split_lines(pieces, 10))
        assert [found.data for found in lines] == [b"a", b"", b"bb", None, b"d"]
        assert [data[found.offset : found.offset + found.length] for found in lines] == data.split(b"\n")


def test_what_is_not_read_behind_too_many_damaged_places_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compression, "MAX_STRETCHES", 2)
    members = [gzip.compress(line(index) + b"\n", mtime=0) for index in range(6)]
    for index in (1, 3, 5):
        members[index] = members[index][:12] + b"\xff\xff\xff" + members[index][15:]
    good, bad = read_all(tmp_path / "a.jsonl.gz", b"".join(members))
    assert [record.text for record in good] == [json.loads(line(index))["text"] for index in (0, 2)]
    assert [error.kind for error in bad] == ["corrupt"] * 3
    assert "2 damaged places: what follows was not read" in bad[-1].detail
    assert bad[-1].offset == len(b"".join(members[:4]))
