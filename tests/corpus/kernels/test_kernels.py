"""The kernels against plain Python, on any text: exact equality."""

from __future__ import annotations

import itertools
import math
import random
import re
from collections import Counter

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpus.filters.measure import measure
from corpus.filters.resources import built_in
from corpus.filters.statistic import Batch
from corpus.kernels import block_kernel, code_points, line_kernel, repetition_kernel, tables
from tests.examples import examples
from tests.linear import assert_linear

LETTERS = '図広锟斤拷烫锛ÖÐ天地玄黄宇宙洪荒學説abZ19，。、；：！？…·-•\n \t\u3000。。"”)𠮷é\ue000\ufffdあア한👍'
TEXTS = st.text(st.one_of(st.sampled_from(LETTERS), st.characters(codec="utf-8")), max_size=80)
REPETITIVE = st.text(st.sampled_from("天地人 \n"), max_size=120)


def batch(texts: list[str]) -> Batch:
    return Batch(pa.array(texts, pa.large_string()), built_in())


def repetition_oracle(text: str) -> list[int]:
    characters = "".join(c for c in text if not c.isspace())
    n = len(characters)
    result = [n]
    for size in (2, 3, 4):
        counts = Counter(characters[i : i + size] for i in range(n - size + 1))
        most = max(counts.values(), default=0)
        result.append(most if most > 1 else 0)
    for size in range(5, 11):
        seen: set[str] = set()
        covered = bytearray(n)
        for i in range(n - size + 1):
            gram = characters[i : i + size]
            if gram in seen:
                covered[i : i + size] = b"\1" * size
            seen.add(gram)
        result.append(sum(covered))
    return result


@given(st.lists(st.one_of(TEXTS, REPETITIVE), max_size=5))
@examples(150)
def test_repetition_equals_marking_every_n_gram(texts: list[str]) -> None:
    measured = batch(texts)
    assert measured.repetition.tolist() == [repetition_oracle(text) for text in texts]
    for text, entropy in zip(texts, measured.entropy.tolist(), strict=True):
        counts = Counter(c for c in text if not c.isspace())
        total = counts.total()
        expected = -sum(count / total * math.log(count / total) for count in counts.values()) if total else 0.0
        assert entropy == pytest.approx(expected, abs=1e-9)


def test_repetition_of_a_long_document() -> None:
    text = "".join(chr(0x4E00 + (i * i * 7919 + i) % 5000) for i in range(40_000)) + "学而时习之，不亦说乎？" * 300
    assert batch([text]).repetition.tolist() == [repetition_oracle(text)]


def test_repetition_of_many_documents_that_share_names() -> None:
    draw = random.Random(0)
    texts = ["".join(draw.choices("天地人和", k=draw.randint(10, 60))) for _ in range(300)]
    assert batch(texts).repetition.tolist() == [repetition_oracle(text) for text in texts]


def test_repetition_looks_at_a_bounded_part() -> None:
    assert (
        batch(["天地" * repetition_kernel.MAX_REPETITION_CHARS]).repetition[0, 0]
        == repetition_kernel.MAX_REPETITION_CHARS
    )


def flags_of(character: str) -> int:
    return int(code_points.code_point_class(tables.class_table(), np.uint32(ord(character))))


def class_of(character: str) -> int:
    return flags_of(character) & tables.CLASS_MASK


def is_han(character: str) -> bool:
    return tables.HAN <= class_of(character) <= tables.HAN_EXTENSION


def sentences(line: str) -> list[bool]:
    """For each sentence of a line, whether a mark ends it; marks with nothing but marks before them end nothing."""
    found: list[bool] = []
    is_open = False
    for c in line:
        if c in tables.SENTENCE_END_MARKS:
            found += [True] * is_open
            is_open = False
        elif not c.isspace() and c not in tables.CLOSING_MARKS:
            is_open = True
    return found + [False] * is_open


def is_terminal(line: str) -> bool:
    bare = line
    while bare and (bare[-1] in tables.CLOSING_MARKS or bare[-1].isspace()):
        bare = bare[:-1]
    return bool(bare) and bare[-1] in tables.TERMINAL_MARKS


def is_entry(line: str) -> bool:
    return (
        len(line) < line_kernel.ENTRY_BELOW and not is_terminal(line) and any(class_of(c) == tables.DIGIT for c in line)
    )


def shape(line: str) -> list[str] | None:
    signs = ["汉" if is_han(c) else {tables.LATIN: "a", tables.DIGIT: "0"}.get(class_of(c), c) for c in line]
    return (
        [s for i, s in enumerate(signs) if s not in "汉a0" or i == 0 or signs[i - 1] != s] if is_entry(line) else None
    )


def mojibake_chars(text: str) -> int:
    high = re.findall("[À-ÖØ-öø-ÿ]{4,}", text)
    signs = [1 if len(run) >= 4 else 2 for run in re.findall("([À-ÖØ-öø-ÿ]+)[¡-¿]", text)]
    suspects = [len(run) + 1 for run in re.findall("[锛銆鈥]+", text)]
    return sum(map(len, [*high, *re.findall("锟斤拷|烫{3,}|屯{3,}", text)])) + sum(signs) + sum(suspects)


def glosses(text: str) -> int:
    found = 0
    for i, c in enumerate(text):
        if c in "(（" and i >= 2 and is_han(text[i - 1]) and 0x3400 <= ord(text[i - 2]) < 0xA000:
            letters = "".join(itertools.takewhile(lambda d: class_of(d) == tables.LATIN, text[i + 1 :]))
            end = text[i + 1 + len(letters) : i + 2 + len(letters)]
            is_pinyin = len(letters) <= 6 and not letters.isascii() and max(letters) < "ɐ"
            found += is_pinyin and end in (")", "）")
    return found


ENTITY = r"&(?:nbsp|amp|lt|gt|quot|[lr]dquo|#[0-9A-Za-z]{1,7});"
ESCAPES = rf"{ENTITY}|\\u[4-9][0-9A-Fa-f]{{3}}"


def line_oracle(text: str) -> dict[str, int]:
    lines = [line.strip() for line in text.split("\n")]
    lines = [line for line in lines if line]
    seen: set[str] = set()
    duplicates = []
    for line in lines:
        if line in seen:
            duplicates.append(line)
        seen.add(line)

    def is_ellipsis(line: str) -> bool:
        dots = 0
        for c in line:
            if not c.isspace():
                dots = dots + 3 if c == "…" else dots + 1 if c in ".。" else dots if c in tables.CLOSING_MARKS else 0
        return dots >= 3

    terminal = [line for line in lines if is_terminal(line)]
    return {
        "num_lines": len(lines),
        "line_chars": sum(map(len, lines)),
        "duplicates": len(duplicates),
        "duplicate_chars": sum(map(len, duplicates)),
        "bullets": sum(line[0] in tables.BULLET_MARKS for line in lines),
        "stop": sum(line[-1] in "。！？!?｡." for line in lines),
        "terminal_chars": sum(map(len, terminal)),
        "ellipsis": sum(map(is_ellipsis, lines)),
        "escaped": sum(map(len, re.findall(ESCAPES, text))),
        "functions": sum(flags_of(c) & tables.FUNCTION != 0 for c in text),
        "half_marks": sum(is_han(a) and b in ",.!?:;" for a, b in itertools.pairwise(text))
        - sum(line[0] in tables.BULLET_MARKS and class_of(line[0]) == tables.WIDE_PUNCTUATION for line in lines),
        "stray": sum(
            c in tables.STOP_MARKS and any(b in tables.STOP_MARKS for b in line[:i].rstrip()[-1:])
            for line in lines
            for i, c in enumerate(line)
        ),
        "isolated": sum(
            is_han(text[i - 1]) and class_of(text[i]) == tables.LATIN and is_han(text[i + 1])
            for i in range(1, len(text) - 1)
        ),
        "longest_run": max((len(list(run)) for c, run in itertools.groupby(text) if not c.isspace()), default=0),
        "ends": sum(sum(ended for ended in sentences(line)) for line in lines),
        "like": sum(a is not None and a == b for a, b in itertools.pairwise(map(shape, lines))),
        "mojibake": mojibake_chars(text),
        "glosses": glosses(text),
        "japanese": sum(flags_of(c) & tables.JAPANESE != 0 for c in text),
    }


COLUMNS = {
    "num_lines": line_kernel.NUM_LINES,
    "line_chars": line_kernel.LINE_CHARS,
    "duplicates": line_kernel.DUPLICATE_LINES,
    "duplicate_chars": line_kernel.DUPLICATE_LINE_CHARS,
    "bullets": line_kernel.BULLET_LINES,
    "stop": line_kernel.STOP_LINES,
    "terminal_chars": line_kernel.TERMINAL_LINE_CHARS,
    "ellipsis": line_kernel.ELLIPSIS_LINES,
    "escaped": line_kernel.ESCAPED_CHARS,
    "functions": line_kernel.FUNCTION_HAN,
    "half_marks": line_kernel.HALF_MARKS,
    "stray": line_kernel.STRAY_MARKS,
    "isolated": line_kernel.ISOLATED_LATIN,
    "longest_run": line_kernel.LONGEST_RUN,
    "ends": line_kernel.SENTENCE_ENDS,
    "like": line_kernel.LIKE_LINES,
    "mojibake": line_kernel.MOJIBAKE_CHARS,
    "glosses": line_kernel.PINYIN_GLOSSES,
    "japanese": line_kernel.JAPANESE_HAN,
}


DENSE = st.text(st.sampled_from("天天地。！？”锟斤拷烫 \nÖ"), max_size=60)
GLOSSED = st.lists(
    st.sampled_from(("业(yè)", "専業（fā）", "é¸", "一双(shuāng)", "双(shuāngg)", "(", "ā", "业")), max_size=12
).map("".join)
ENTRIES = st.text(st.sampled_from("第1２3章 a,\n"), max_size=40)


@given(st.lists(st.one_of(TEXTS, DENSE, ENTRIES, GLOSSED), max_size=5))
@examples(300)
def test_lines_and_classes_equal_plain_python(texts: list[str]) -> None:
    measured = batch(texts).lines
    for row, text in enumerate(texts):
        assert {name: int(measured[row, column]) for name, column in COLUMNS.items()} == line_oracle(text)
        classes = Counter(map(class_of, text))
        assert measured[row, : tables.NUM_CLASSES].tolist() == [classes[k] for k in range(tables.NUM_CLASSES)]
        assert measured[row, line_kernel.NUM_CHARS] == len(text)


def test_column_names_do_not_collide_with_constants() -> None:
    assert len({*COLUMNS.values()}) == len(COLUMNS)
    assert line_kernel.LABEL_BELOW == 30
    assert max(COLUMNS.values()) + 1 == line_kernel.BLOCKS
    assert line_kernel.BLOCKS + block_kernel.NUM_BLOCK_COLUMNS == line_kernel.NUM_LINE_COLUMNS


@pytest.mark.parametrize(
    ("line", "label"),
    [
        ("天" * 29, 29),
        ("天" * 30, 0),
        ("首页。", 0),
        ("新闻，体育", 0),
        ("Excel 教程", 0),
        ("Word 教程大全", 9),
        ("- 首页", 0),
        ("3. 首页", 0),
    ],
)
def test_labels(line: str, label: int) -> None:
    columns = [line_kernel.LABEL_LINE_CHARS, line_kernel.LINE_CHARS]
    assert batch([f"{line}\n他说，好的。"]).lines[0, columns].tolist() == [label, len(line) + 6]


def test_entries_are_short() -> None:
    assert line_kernel.ENTRY_BELOW == 100
    for length, twins in ((99, 1), (100, 0)):
        text = "1" + "天" * (length - 1) + "\n2" + "天" * (length - 1)
        assert batch([text]).lines[0, line_kernel.LIKE_LINES] == twins


def test_no_share_of_mojibake_is_above_one() -> None:
    texts = ["锛" * 5, "烫" * 100, "ÀÀÀÀ¡", "é¸", "锟斤拷"]
    assert measure("characters.mojibake_ratio", texts).tolist() == [1] * 5


def test_full_width_and_endless_letters_are_no_pinyin() -> None:
    texts = ["中国（ＧＤＰ）的增长和美国（ＵＳＡ）" * 20, ("中文(" + "a" * 256 + ")") * 20, "中文(\nè)" * 20]
    assert not measure("characters.pinyin_gloss_ratio", texts).any()


def test_lines_that_differ_in_white_space_alone_take_linear_time() -> None:
    def lines(count: int) -> list[str]:
        made = ("".join("a " if number >> bit & 1 else "a" for bit in range(18)) + "b" for number in range(count))
        return ["\n".join(made)]

    assert_linear(lambda texts: batch(texts).lines, lines, 1 << 15)


def test_many_lines() -> None:
    text = "\n".join(str(i % 7000) for i in range(20_000))
    assert int(batch([text]).lines[0, line_kernel.DUPLICATE_LINES]) == 13_000


@pytest.mark.parametrize(
    ("character", "expected"),
    [
        ("的", tables.HAN),
        ("后", tables.HAN),
        ("说", tables.HAN_SIMPLIFIED),
        ("說", tables.HAN_TRADITIONAL),
        ("鐨", tables.HAN_RARE),
        ("㐂", tables.HAN_EXTENSION),
        ("𠮷", tables.HAN_EXTENSION),
        ("\ufa0e", tables.HAN_EXTENSION),
        ("あ", tables.KANA),
        ("한", tables.HANGUL),
        ("Ａ", tables.LATIN),
        ("é", tables.LATIN),
        ("７", tables.DIGIT),
        ("٣", tables.DIGIT),
        ("~", tables.ASCII_PUNCTUATION),
        ("，", tables.WIDE_PUNCTUATION),
        ("…", tables.WIDE_PUNCTUATION),
        ("·", tables.WIDE_PUNCTUATION),
        ("👍", tables.SYMBOL),
        ("\u3000", tables.WHITESPACE),
        ("\n", tables.NEWLINE),
        ("\u200b", tables.CONTROL),
        ("\ue000", tables.PRIVATE_USE),
        ("\U000f0000", tables.PRIVATE_USE),
        ("\ufffd", tables.REPLACEMENT),
        ("д", tables.OTHER),
    ],
)
def test_classes(character: str, expected: int) -> None:
    counts = batch([character]).lines[0, : tables.NUM_CLASSES]
    assert np.flatnonzero(counts).tolist() == [expected]


def test_long_good_documents_are_not_condemned_by_entropy() -> None:
    page = "天地玄黄宇宙洪荒日月盈昃辰宿列张寒来暑往秋收冬藏闰余成岁律吕调阳"
    short, long = measure("repetition.unigram_entropy", [page, page * 1000])
    assert long == pytest.approx(short)
