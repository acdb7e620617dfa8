"""Word lists: every occurrence is found, spelling is seen through, lists of one's own, and their errors."""

from __future__ import annotations

import random
import re
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from corpus.engine.errors import UsageError
from corpus.filters import load, measure
from corpus.filters.blocklist import BUILT_IN, read_words
from corpus.filters.statistic import buffers
from corpus.kernels.automaton import Automaton
from tests.corpus.texts import document
from tests.linear import assert_linear

WORDS = ["甲乙", "甲乙丙", "乙", "丙甲", "a甲", "𠮷乙"]


def naive(words: list[str], text: str) -> list[tuple[int, int, int]]:
    data = text.encode()
    found = []
    for index, word in enumerate(words):
        target = word.encode()
        at = data.find(target)
        while at >= 0:
            found.append((at, at + len(target), index))
            at = data.find(target, at + 1)
    return sorted(found, key=lambda hit: (hit[0], hit[2]))


def find(words: list[str], texts: list[str]) -> list[tuple[int, int, int, int]]:
    """(row, start, end, word) of all hits; offsets are the document's own."""
    offsets, data = buffers(pa.array(texts, pa.large_string()))
    return [
        (row, start - int(offsets[row]), end - int(offsets[row]), word)
        for row, start, end, word in zip(*(part.tolist() for part in Automaton(words).find(offsets, data)), strict=True)
    ]


@given(st.lists(st.text(st.sampled_from("甲乙丙a𠮷 \n"), max_size=40), max_size=4))
def test_every_occurrence_is_found(texts: list[str]) -> None:
    expected = [(row, *hit) for row, text in enumerate(texts) for hit in naive(WORDS, text)]
    assert sorted(find(WORDS, texts)) == sorted(expected)


def test_every_occurrence_of_many_words_is_found() -> None:
    chance = random.Random(5)
    words = sorted({"".join(chance.choices("天地玄黄宇宙洪荒日月", k=chance.randrange(1, 5))) for _ in range(3000)})
    text = "".join(chance.choices("天地玄黄宇宙洪荒日月，", k=3000))
    assert [hit[1:] for hit in sorted(find(words, [text]))] == sorted(naive(words, text))


@given(st.text(st.sampled_from("甲乙丙丁* \n，"), max_size=40))
@example("甲乙丙丁* \n，丙" * 300)  # more hits than a block
def test_covered_characters_and_distinct_words_equal_plain_python(text: str) -> None:
    """Skipped characters hold a word apart and count for nothing."""
    words = ["甲乙", "乙丙丁", "丙"]
    solid = re.sub("[* ]", "", re.sub("[* ]{4,}", "，", text))
    covered, distinct = set[int](), set[str]()
    for word in words:
        for at in range(len(solid)):
            if solid.startswith(word, at):
                covered.update(range(at, at + len(word)))
                distinct.add(word)
    hits, measured = Automaton([*words, "丁"], skipped=[ord("*"), ord(" ")]).find_and_measure(
        *buffers(pa.array(["甲", text], pa.large_string())), range(3, 4), range(3)
    )
    assert measured[1].tolist() == [len(covered), len(distinct)]
    assert len(hits.rows) == text.count("丁") and not hits.words.any()


@pytest.mark.parametrize("filling", ["加", "加微", "加 ", "*", "加vx", "乙甲"])
def test_time_is_linear(filling: str) -> None:
    automaton = Automaton(["加" * 40, "加微信", "加vx", "甲" * 30], skipped=[32, 42])
    assert_linear(
        lambda texts: automaton.find_and_measure(*buffers(texts), range(2), range(2, 4)),
        lambda copies: pa.array([filling * copies], pa.large_string()),
        80_000,
    )


@pytest.mark.parametrize(
    "text",
    [
        "代开发票",
        "代開發票",
        "加ＶＸ",
        "加vx",
        "PK10",
        "ｐｋ１０",
        "ＵＳＤＴ",
        "①②③代开",
        "加 微 信",
        "微*信号",
        "加薇❤：abc",
        "🅥🅧加🅥🅧",
    ],
)
def test_the_folded_view_sees_through_spelling(text: str) -> None:
    assert measure("blocklist.blocklist_words", [text])[0] >= 1


def test_the_ratio_counts_characters_once() -> None:
    assert measure("blocklist.blocklist_ratio", ["加微信号", "无", ""]).tolist() == [1.0, 0.0, 0.0]  # 加微信 and 微信号
    assert measure("blocklist.blocklist_words", ["加微信，加微信"]).tolist() == [2.0]  # 加微 and 加微信


@pytest.mark.parametrize("text", ["添加Vue组件", "加\n微信", "加，微信", "加****微", "pk100", "spk10", "添加VPN"])
def test_what_is_no_word_is_not_found(text: str) -> None:
    assert measure("blocklist.blocklist_words", [text])[0] == 0


def test_prose_has_no_hits() -> None:
    assert measure("blocklist.blocklist_ratio", [document(seed) for seed in range(40)]).max() == 0.0


def test_built_in_lists_are_clean() -> None:
    for name in BUILT_IN:
        words = read_words(name)
        assert 10 < len(words) == len(set(words)), name
        assert all(len(word) >= 2 and word == word.strip() for word in words), name


def test_a_list_of_ones_own(tmp_path: Path) -> None:
    words = tmp_path / "words.txt"
    words.write_text("\ufeff# 注释\n橘子\n\n  竹篾編  \r\n", encoding="utf-8")
    assert read_words(str(words)) == ["橘子", "竹篾编"]
    judge = load("web_zh", [f'filter.blocklist.lists=["gambling", "{words}"]', "filter.length.num_chars.min=1"])
    (verdict,) = judge.apply(["把新摘的橘子分给大家，自己只留下两个橘子。"])
    assert verdict.rule == "blocklist.blocklist_ratio"
    assert verdict.value == pytest.approx(4 / 21)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("加微信\n".encode("gbk"), "line 1: not UTF-8"),
        ("字".encode() * 65, "line 1: 65 characters"),
        (b"x\n" * 9_000_000, "larger than"),
    ],
)
def test_bad_lists(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "bad.txt"
    path.write_bytes(content)
    with pytest.raises(UsageError, match=message):
        load("web_zh", [f'filter.blocklist.lists=["{path}"]'])


def test_unknown_list() -> None:
    with pytest.raises(UsageError, match=r"nothing\.txt: No such file.*built-in lists advertising"):
        load("web_zh", ['filter.blocklist.lists=["nothing.txt"]'])
    assert load("web_zh", ["filter.blocklist.lists=[]"]).apply(["加微信" * 20])


def test_marks_inside_words_hide_none_also_where_a_list_has_them(tmp_path: Path) -> None:
    texts = [
        "需要代-开-发-票加-微-信",
        "需要代.开.发.票加.微.信",
        "需要代*开*发*票加*微*信",
        "澳－门－赌－场 六．合．彩",
    ]
    assert measure("blocklist.blocklist_ratio", texts).round(2).tolist() == [0.5, 0.5, 0.5, 0.54]
    (tmp_path / "mine.txt").write_text("某*某\n★\n", encoding="utf-8")
    judge = load("web_zh", [f'filter.blocklist.lists=["seo", "gambling", "{tmp_path}/mine.txt"]'])
    talk = "抱歉，您访问的页面/不存在，请关*注*我们的公*众*号"
    told = judge.apply(["某某人与澳*门*赌*场", talk]).table
    assert told["blocklist.blocklist_words"].to_pylist() == [2, 0]
    assert told["blocklist.site_talk_ratio"].to_pylist() == measure("blocklist.site_talk_ratio", ["", talk]).tolist()
