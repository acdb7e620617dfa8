"""Word lists: folded matching, equal hits from both engines, lists of one's own, and their errors."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corpus.engine.errors import UsageError
from corpus.filters import load, measure
from corpus.filters.automaton import Automaton
from corpus.filters.blocklist import BUILT_IN, Blocklist, read_words
from corpus.filters.scan import fold_for_matching
from tests.corpus.texts import document

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


@given(st.text(st.sampled_from("甲乙丙a𠮷 \n"), max_size=60))
@settings(max_examples=80)
@pytest.mark.parametrize("engine", ["hyperscan", "ahocorasick"])
def test_every_occurrence_is_found(engine: str, text: str) -> None:
    if engine == "hyperscan":
        pytest.importorskip("hyperscan")
    hits = Automaton(WORDS, engine).find(np.frombuffer(text.encode(), np.uint8))
    assert list(zip(hits.starts.tolist(), hits.ends.tolist(), hits.words.tolist(), strict=True)) == naive(WORDS, text)


def test_both_engines_agree_on_the_built_in_lists() -> None:
    pytest.importorskip("hyperscan")
    text = "需要代開發票加ＶＸ，澳门威尼斯人娱乐城，" * 3 + document(1)
    data = np.frombuffer(fold_for_matching(text).encode(), np.uint8)
    fast, portable = (Automaton(Blocklist().words, engine).find(data) for engine in ("hyperscan", "ahocorasick"))
    assert len(fast.starts) > 10
    for left, right in zip(fast, portable, strict=True):
        assert left.tolist() == right.tolist()


def test_hyperscan_is_optional(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "hyperscan", None)
    hits = Automaton(["发票"]).find(np.frombuffer("代开发票".encode(), np.uint8))
    assert hits.starts.tolist() == [6]


@pytest.mark.parametrize("text", ["代开发票", "代開發票", "加ＶＸ", "加vx", "PK10", "ｐｋ１０", "ＵＳＤＴ", "①②③代开"])
def test_the_folded_view_sees_through_spelling(text: str) -> None:
    assert measure("blocklist.blocklist_words", [text])[0] >= 1


def test_the_ratio_counts_characters_once() -> None:
    assert measure("blocklist.blocklist_ratio", ["加微信号", "无", ""]).tolist() == [1.0, 0.0, 0.0]  # 加微信 and 微信号
    assert measure("blocklist.blocklist_words", ["加微信，加微信"]).tolist() == [2.0]  # 加微 and 加微信


def test_no_word_is_found_across_two_documents() -> None:
    assert measure("blocklist.blocklist_ratio", ["代开", "发票", "我要代开发", "票"])[1] == 0.0
    assert measure("blocklist.blocklist_words", ["六合", "彩"]).tolist() == [0.0, 0.0]
    assert measure("blocklist.blocklist_ratio", ["六合", "彩"]).tolist() == [0.0, 0.0]


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
    with pytest.raises(UsageError, match=r"nothing\.txt is neither a built-in list"):
        load("web_zh", ['filter.blocklist.lists=["nothing.txt"]'])
    assert load("web_zh", ["filter.blocklist.lists=[]"]).apply(["加微信" * 20])
