"""FAULTS row 8: any codec, declared rightly, wrongly or not at all, cut anywhere: the text, or `UndecodableError`."""

from __future__ import annotations

import codecs
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpus.encoding import UndecodableError, decode
from corpus.mojibake import COMMON_HAN
from tests.corpus.sources.files import read_all
from tests.corpus.test_encoding import LIES
from tests.corpus.texts import document
from tests.examples import examples

SIMPLIFIED = "".join(char for char in sorted(COMMON_HAN) if char.encode("gb2312", "ignore")) + "，。？！"
TRADITIONAL = "".join(char for char in sorted(COMMON_HAN) if char.encode("big5", "ignore")) + "，。？！"
BOTH = "".join(sorted({*SIMPLIFIED, *TRADITIONAL}))
CODECS = {
    "utf-8": BOTH,
    "gb2312": SIMPLIFIED,
    "gbk": BOTH,
    "gb18030": BOTH + "𠮷镕",
    "big5": TRADITIONAL,
    "big5hkscs": TRADITIONAL + "嘅",
    "utf-16": BOTH,
    "utf-16-le": BOTH,
    "utf-32": BOTH,
    "utf-8-sig": BOTH,
}
codec_and_text = st.sampled_from(sorted(CODECS)).flatmap(
    lambda codec: st.tuples(
        st.just(codec), st.lists(st.sampled_from(CODECS[codec]), min_size=60, max_size=200, unique=True).map("".join)
    )
)


@examples(150)
@given(codec_and_text, st.integers(0, 10_000), st.sampled_from(LIES))
def test_random_text_in_each_codec_cut_anywhere(case: tuple[str, str], cut: int, declared: str | None) -> None:
    codec, text = case
    data = text.encode(codec)
    data = data[: len(data) // 2 + cut % (len(data) // 2 + 1)]
    assert decode(data, declared).text == codecs.getincrementaldecoder(codec)().decode(data)


@pytest.mark.parametrize("codec", ["utf-8", "gb18030", "big5"])
def test_bad_bytes_are_replaced_until_nothing_reads_well(codec: str) -> None:
    text = "學而時習之，不亦說乎？\n" * 400
    data = text.encode(codec)
    line = len(data) // 400
    for step in (400, 40, 4):
        damaged = bytearray(data)
        damaged[line - 3 :: line * step] = b"\xff" * (400 // step)  # in a line's last character
        lines = decode(bytes(damaged), codec).text.split("\n")
        assert [index for index, line in enumerate(lines) if "\ufffd" in line] == list(range(0, 400, step))
        assert all(line == "學而時習之，不亦說乎？" for line in lines if line and "\ufffd" not in line)
    with pytest.raises(UndecodableError):
        decode(b"".join(b"\xff\xff" + data[place + 2 : place + 5] for place in range(0, len(data), 5)), codec)


@pytest.mark.parametrize("codec", ["utf-16", "utf-16-le", "utf-16-be"])
def test_jsonl_in_utf_16(tmp_path: Path, codec: str) -> None:
    lines = [json.dumps({"text": document(index)}, ensure_ascii=False) for index in range(300)]
    good, bad = read_all(tmp_path / "a.jsonl", "\n".join(lines).encode(codec))
    assert [record.text for record in good] == [document(index) for index in range(300)] and not bad


def test_jsonl_in_an_encoding_that_the_recipe_names(tmp_path: Path) -> None:
    lines = [json.dumps({"text": document(index)}, ensure_ascii=False).encode("gbk") for index in range(9)]
    lines[4] = lines[4][:20] + b"\xff\xff" + lines[4][22:]
    good, bad = read_all(tmp_path / "a.jsonl", b"\n".join(lines), encoding="gb2312")
    assert [record.text for record in good] == [document(index) for index in range(9) if index != 4]
    assert [error.kind for error in bad] == ["charset"]
