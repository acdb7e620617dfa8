"""Texts of files: every format reads alike, and what is wrong with a file is told with its place in it."""

from __future__ import annotations

import gzip
import json
import random
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpus.engine.errors import UsageError, WenhaiError
from pretrain.evaluation.texts import Text, Texts, read_texts
from pretrain.inference import lines as module

zstandard = pytest.importorskip("zstandard")

LINES = b'{"text": "\xe6\x98\xa5"}\n\n{"text": "", "by": "a"}\n{"text": " \\n", "by": "a"}\n{"text": "b", "by": 7}'
FOUND = [Text("春", "x.jsonl"), Text(" \n", "a"), Text("b", "7")]
PACKED: dict[str, Callable[[bytes], bytes]] = {
    "": bytes,
    ".gz": gzip.compress,
    ".zst": zstandard.ZstdCompressor().compress,
}


def written(folder: Path, name: str, data: bytes) -> str:
    (folder / name).write_bytes(data)
    return str(folder / name)


@pytest.mark.parametrize("packed", PACKED)
def test_lines_and_whole_files_packed_or_not(tmp_path: Path, packed: str) -> None:
    lines = written(tmp_path, f"x.jsonl{packed}", PACKED[packed](LINES))
    whole = written(tmp_path, f"y.txt{packed}", PACKED[packed]("床前\n明月光\n".encode()))
    found = Texts([lines, whole], by="by")
    expected = [Text(text, source.replace("x.jsonl", f"x.jsonl{packed}")) for text, source in FOUND]
    assert list(found) == [*expected, Text("床前\n明月光\n", f"y.txt{packed}")]
    assert found.num_empty == 1, "of spaces is a text, too"
    assert len(list(found)) == 4 and found.num_empty == 1, "it can be read again"


@pytest.mark.parametrize("packed", [".gz", ".zst"])
def test_packed_parts_one_after_another_are_one_file(tmp_path: Path, packed: str) -> None:
    parts = [LINES[:20], LINES[20:41], b"", LINES[41:]]
    path = written(tmp_path, f"x.jsonl{packed}", b"".join(PACKED[packed](part) for part in parts))
    assert [text.text for text in read_texts(path)] == ["春", " \n", "b"]


@pytest.mark.parametrize("packed", [".gz", ".zst"])
@pytest.mark.parametrize("kept", [0.2, 0.9])
def test_a_packed_file_that_is_cut_short_is_an_error(tmp_path: Path, packed: str, kept: float) -> None:
    data = PACKED[packed](b"\n".join(b'{"text": "%d"}' % random.Random(n).getrandbits(64) for n in range(5000)))
    path = written(tmp_path, f"x.jsonl{packed}", data[: int(kept * len(data))])
    with pytest.raises(WenhaiError, match=r"x\.jsonl"):
        list(read_texts(path))


@pytest.mark.parametrize("packed", [".gz", ".zst"])
def test_a_file_that_is_not_packed_as_its_name_says_is_an_error(tmp_path: Path, packed: str) -> None:
    with pytest.raises(WenhaiError, match=r"x\.jsonl"):
        list(read_texts(written(tmp_path, f"x.jsonl{packed}", LINES)))


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b'{"text": "a"', "is no JSON"),
        (b"[" * 100_000, "is no JSON"),
        (b'["text"]', 'has no "text"'),
        (b'{"txt": "a"}', 'has no "text"'),
        (b'{"text": 1}', 'has no "text"'),
        (b'{"text": "\\ud83d"}', "half of a surrogate pair"),
        (b'{"text": "a", "by": ["a"]}', "'by' is no name"),
        (b'{"text": "\xe6\x98"}', "byte 11 is not UTF-8"),
    ],
)
def test_what_is_wrong_is_told_with_its_line(tmp_path: Path, line: bytes, reason: str) -> None:
    path = written(tmp_path, "x.jsonl", b'{"text": "a"}\r\n\n' + line + b'\n{"text": "b"}\n')
    found = iter(Texts([path], by="by"))
    assert next(found).text == "a"
    with pytest.raises(WenhaiError, match=rf"x\.jsonl, line 3: .*{reason}"):
        next(found)


def test_a_text_file_that_is_not_utf_8_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(WenhaiError, match=r"x\.txt: byte 2 is not UTF-8"):
        list(read_texts(written(tmp_path, "x.txt", "a中".encode("gb18030"))))


def test_no_text_is_larger_than_the_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_BYTES", 40)
    monkeypatch.setattr(module, "CHUNK_BYTES", 16)
    fits = json.dumps({"text": "x" * 28}).encode()
    assert len(fits) == 40
    path = written(tmp_path, "x.jsonl", fits + b"\n" + fits)
    assert len(list(read_texts(path))) == 2
    for name, data, where in (
        ("y.jsonl", fits + b"\n" + fits[:-2] + b' "}', r"y\.jsonl, line 2"),
        ("z.txt", b"x" * 41, r"z\.txt"),
        ("z.txt.zst", PACKED[".zst"](b"x" * 41), r"z\.txt\.zst"),
    ):
        with pytest.raises(WenhaiError, match=rf"{where}: is longer than 40 bytes"):
            list(read_texts(written(tmp_path, name, data)))


def test_a_small_file_of_many_zeros_is_refused_before_it_fills_the_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_BYTES", 1 << 20)
    path = written(tmp_path, "x.txt.zst", PACKED[".zst"](bytes(64 << 20)))
    assert Path(path).stat().st_size < 8192
    sizes = [len(chunk) for chunk in module._chunks(path)]
    assert sum(sizes) == 64 << 20 and max(sizes) <= 40 << 20
    with pytest.raises(WenhaiError, match="is longer than"):
        list(read_texts(path))


def test_files_of_the_same_name_are_two_sources(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    paths = [written(tmp_path, "x.txt", b"1"), written(tmp_path / "a", "x.txt", b"2"), written(tmp_path, "y.txt", b"3")]
    assert [text.source for text in Texts(paths)] == [paths[0], paths[1], "y.txt"]


def test_a_byte_order_mark_is_no_text(tmp_path: Path) -> None:
    mark = b"\xef\xbb\xbf"
    assert list(read_texts(written(tmp_path, "x.txt", mark + b"a"))) == [Text("a", "x.txt")]
    assert [text.text for text in read_texts(written(tmp_path, "x.jsonl", mark + LINES))] == ["春", " \n", "b"]


@pytest.mark.parametrize(("name", "reason"), [("x.csv", "name it"), ("x", "name it"), ("no.txt", "there is no such")])
def test_a_name_that_is_no_text_is_refused_at_once(tmp_path: Path, name: str, reason: str) -> None:
    written(tmp_path, "x.csv", b"a")
    with pytest.raises(UsageError, match=reason):
        Texts([str(tmp_path / name)])


@given(st.lists(st.text(), max_size=8), st.integers(1, 9))
def test_any_text_comes_back(tmp_path_factory: pytest.TempPathFactory, texts: list[str], chunk_bytes: int) -> None:
    data = "\n".join(json.dumps({"text": text}, ensure_ascii=False) for text in texts)
    path = written(tmp_path_factory.getbasetemp(), "any.jsonl", data.encode())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "CHUNK_BYTES", chunk_bytes)
        found = Texts([path])
        assert [text.text for text in found] == [text for text in texts if text]
        assert found.num_empty == texts.count("")
