"""JSON arrays and objects over several lines: cut at brackets, bounded, each bad record by itself."""

from __future__ import annotations

import json
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpus.sources import SourcesConfig, read
from corpus.sources.formats.json import split_values
from tests.corpus.sources.files import read_all

ROWS = [
    {"text": f"第{index}篇：“学而”\\ ]}}[ 时习。", "title": f"题{index}", "n": [1, {"a": []}]} for index in range(5)
]
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


@pytest.mark.parametrize("indent", [None, 2])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "gb18030"])
def test_arrays_and_objects_one_after_another(tmp_path: Path, indent: int | None, encoding: str) -> None:
    objects = [json.dumps(row, ensure_ascii=False, indent=indent) for row in ROWS]
    options = {"encoding": encoding} if encoding == "gb18030" else {}
    for text in ("[" + ",\n".join(objects) + "]", "\n".join(objects), json.dumps([row["text"] for row in ROWS])):
        good, bad = read_all(tmp_path / "a.json", text.encode(encoding), **options)
        assert [record.text for record in good] == [row["text"] for row in ROWS] and not bad


@given(st.lists(st.dictionaries(st.text(max_size=3), JSON, max_size=3)), st.integers(1, 9), st.sampled_from([None, 1]))
def test_values_are_cut_alike_however_the_bytes_come(values: list[Any], step: int, indent: int | None) -> None:
    data = json.dumps(values, indent=indent, ensure_ascii=False).encode("utf-8", "surrogatepass")
    pieces = (data[start : start + step] for start in range(0, len(data), step))
    found = list(split_values(pieces, 1 << 20))
    assert [json.loads(value.data or b"") for value in found] == values
    assert all(data[value.offset : value.offset + value.length] == value.data for value in found)


@pytest.mark.parametrize(
    ("bad", "kind"),
    [
        ('{"text": "国标"}'.encode("gbk"), "charset"),
        (b'{"text": nonsense}', "json"),
        (b'{"title": "x"}', "field"),
        (b"[1, 2]", "field"),
        (b"12, null", "field"),
        (b'{"text": "' + b"x" * 20_000 + b'"}', "too_long"),
        (b'{"text": "' + b'\\"' * 20_000 + b'"}', "too_long"),
        (b'{"a": ' + b"[" * 9_000 + b"]" * 9_000 + b"}", "json"),
    ],
)
def test_a_bad_record_costs_itself(tmp_path: Path, bad: bytes, kind: str) -> None:
    good, errors = read_all(
        tmp_path / "a.json", b'[{"text": "one"}, ' + bad + b', {"text": "two"}]', max_line_bytes=19_000
    )
    assert [record.text for record in good] == ["one", "two"]
    assert [(error.kind, error.offset) for error in errors] == [(kind, 18)]


def test_a_file_that_ends_inside_a_record(tmp_path: Path) -> None:
    data = json.dumps(ROWS, ensure_ascii=False).encode()
    good, (error,) = read_all(tmp_path / "a.json", data[:-30])
    assert len(good) == 4 and error.kind == "truncated" and data[error.offset :].startswith(b'{"text')


def test_memory_is_that_of_a_record(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_bytes(b"[" + b",".join(b'{"text": "%s"}' % (b"x" * 100_000) for _ in range(300)) + b"]")
    config = SourcesConfig()
    sum(1 for _ in read(str(path), config))  # imports
    tracemalloc.start()
    assert sum(1 for _ in read(str(path), config)) == 300
    assert tracemalloc.get_traced_memory()[1] < 6e6
    tracemalloc.stop()
