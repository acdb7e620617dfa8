"""Books: encodings, headings and what only looks like one, hard-wrapped lines, titles, documents."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpus.sources.formats.book import book_of
from corpus.sources.formats.headings import find_headings, number_of
from corpus.sources.formats.wrapped import paragraphs, wrap_width
from tests.corpus.sources.files import read_all
from tests.corpus.sources.test_archives import zipped
from tests.corpus.sources.test_stage import extract, rows

POEM = "床前明月光，疑是地上霜。举头望明月，低头思故乡。"
BOOK = f"""《诗选》

作者：李　白

楔子

　　{POEM}

第一章　静夜

　　{POEM}
　　翻到
第三章的时候，他睡着了。
　　第二章他没有看。

第２章 春晓

　　春眠不觉晓，处处闻啼鸟。
第三章
　　夜来风雨声，花落知多少。

後記

　　{POEM}
"""
HEADINGS = ["楔子", "第一章 静夜", "第２章 春晓", "第三章", "後記"]


@pytest.mark.parametrize("codec", ["utf-8", "utf-8-sig", "gb18030", "utf-16", "utf-16-le"])
def test_chapters_in_any_encoding(tmp_path: Path, codec: str) -> None:
    good, bad = read_all(tmp_path / "诗.txt", BOOK.encode(codec), kind="book")
    assert not bad
    assert [record.title for record in good] == [f"诗选 {heading}" for heading in HEADINGS]
    assert good[1].text == f"第一章 静夜\n{POEM}\n翻到\n第三章的时候，他睡着了。\n第二章他没有看。"
    assert [record.offset for record in good] == [
        BOOK.index(line) for line in ("楔子", "第一章", "第２章", "第三章\n", "後記")
    ]
    assert {record.key for record in good} == {record.title for record in good}
    assert all(record.fields == {"book": "诗选", "author": "李白"} for record in good)


def test_a_traditional_book_in_big5(tmp_path: Path) -> None:
    body = "學而時習之，不亦說乎？有朋自遠方來，不亦樂乎？人不知而不慍，不亦君子乎？"
    text = "".join(f"第{n}回　{title}\r\n\r\n　　{body}\r\n\r\n" for n, title in (("一", "學而"), ("二", "為政")))
    good, bad = read_all(tmp_path / "《論語》作者：孔子.txt.gz", gzip.compress(text.encode("big5")), kind="book")
    assert [record.title for record in good] == ["論語 第一回 學而", "論語 第二回 為政"] and not bad
    assert good[0].fields == {"book": "論語", "author": "孔子"} and good[0].charset == "big5hkscs"


def test_the_whole_book_is_one_document(tmp_path: Path) -> None:
    (record,), _ = read_all(tmp_path / "a.txt", BOOK.encode(), kind="book", chapters=False)
    assert record.title == "诗选" and record.text is not None
    assert record.text.startswith("《诗选》\n作者：李　白\n楔子\n") and record.text.endswith(POEM)


def test_volumes_stand_in_titles_and_tables_of_contents_are_no_chapters(tmp_path: Path) -> None:
    contents = "目录\n第一卷 上\n第一章 甲\n第二章 乙\n第二卷 下\n第一章 丙\n\n"
    body = "".join(
        f"{line}\n　　{POEM}\n" if line.startswith("第") and "章" in line else f"{line}\n"
        for line in contents.split("\n")[1:-2]
    )
    good, _ = read_all(tmp_path / "书.txt", (contents + body).encode(), kind="book")
    titles = [record.title for record in good]
    assert titles == ["书 第一卷 上 第一章 甲", "书 第一卷 上 第二章 乙", "书 第二卷 下 第一章 丙"]


def test_front_matter_is_kept_and_a_book_without_headings_is_one_document(tmp_path: Path) -> None:
    good, _ = read_all(
        tmp_path / "a.txt", f"《书》\n作者：某人\n内容简介：{POEM}\n第一章\n{POEM}\n".encode(), kind="book"
    )
    assert [record.title for record in good] == ["书", "书 第一章"] and "内容简介" in str(good[0].text)
    good, _ = read_all(tmp_path / "杂文.txt", f"{POEM}\n{POEM}\n".encode(), kind="book")
    assert [(record.title, record.text) for record in good] == [("杂文", f"{POEM}\n{POEM}")]


@pytest.mark.parametrize("data", [b"", b"\n \n", "《书》\n".encode(), "书名：书\n作者：某人\n目 录\n".encode()])
def test_nothing_but_a_title_is_empty(tmp_path: Path, data: bytes) -> None:
    good, bad = read_all(tmp_path / "书.txt", data, kind="book")
    assert not good and [error.kind for error in bad] == ["empty"] * bool(data)


def test_what_is_wrong_with_a_file(tmp_path: Path) -> None:
    packed = gzip.compress(BOOK.encode())
    assert [error.kind for error in read_all(tmp_path / "a.txt.gz", packed[:-9], kind="book")[1]] == ["truncated"]
    assert [error.kind for error in read_all(tmp_path / "a.txt", BOOK.encode(), kind="book", max_line_bytes=99)[1]] == [
        "too_long"
    ]
    noise = bytes(range(1, 256)) * 30
    assert [error.kind for error in read_all(tmp_path / "b.txt", noise, kind="book")[1]] == ["charset"]


@pytest.mark.parametrize(
    "line",
    "第一章 第二回　風雪山神廟 第十二章：归来 第3节 第１０卷 卷三 卷上 上卷 序 自序 前言 引子 尾声 后记 後記 附录 番外 楔子　缘起 第一回甄士隐梦幻识通灵 第一百零八回 第一章、谁？ "
    "正文　第三章　归来 第八章　他走了 第十章　“你好” 第九章：谁的".split(" "),
)
def test_headings(line: str) -> None:
    assert [heading.line for heading in find_headings(["上一句。", line, "正文。"])] == [1]


@pytest.mark.parametrize(
    "line",
    [
        "第一章的内容很长。",
        "第一章讲的是他",
        "第一章完了",
        "正文如下",
        "第三章 他说，好，",
        "第二次握手",
        "第一章他看了，又看了",
        "序列号是多少",
        "第一章 " + "很长" * 30,
        "后记得来",
        "卷土重来",
        "第十十章 甲",
        "第章",
    ],
)
def test_what_only_looks_like_a_heading(line: str) -> None:
    found = find_headings(["上一句。", line, "正文。"])
    assert not found or line == "第十十章 甲"


def test_a_line_that_goes_on_and_a_number_out_of_order_are_prose() -> None:
    long = "他在灯下坐了很久，把那本旧书一页一页地翻过去，直到翻到了"
    assert not find_headings([long, "第一章", "才停下来。"])
    lines = [
        "第一章 甲",
        "正文。",
        "第二章 乙",
        "正文。",
        "第九十章 丙",
        "正文。",
        "第三章 丁",
        "正文。",
        "第二章 戊",
        "正文。",
        "第一章 己",
    ]
    assert [lines[heading.line][-1] for heading in find_headings(lines)] == ["甲", "乙", "丁", "己"]


def test_sections_count_only_without_chapters() -> None:
    assert [heading.level for heading in find_headings(["第一章", "文。", "第一节", "文。"])] == [2]
    assert [heading.level for heading in find_headings(["第一节", "文。", "第二节", "文。"])] == [3, 3]


@given(st.integers(1, 9_999))
def test_numbers_in_words(number: int) -> None:
    digits = "零一二三四五六七八九"
    words, text = [("千", 1000), ("百", 100), ("十", 10), ("", 1)], ""
    for unit, scale in words:
        digit = number // scale % 10
        text += digits[digit] + unit if digit else ("零" if text and not text.endswith("零") else "")
    assert number_of(text.rstrip("零")) == number
    assert number_of("".join(digits[int(digit)] for digit in str(number))) == number == number_of(str(number))


def wrap(text: str, width: int, indent: str) -> list[str]:
    text = indent + text
    return [text[start : start + width] for start in range(0, len(text), width)]


@pytest.mark.parametrize("indent", ["　　", ""])
@pytest.mark.parametrize("blank", [False, True])
def test_wrapped_lines_become_paragraphs(indent: str, blank: bool) -> None:
    texts = [(POEM * (1 + index % 4))[: 15 + 17 * (index % 5)] + "尾。" for index in range(20)]
    lines: list[str] = []
    for text in texts:
        lines += wrap(text, 30, indent) + [""] * blank
    width = wrap_width(lines)
    assert width == 60
    if indent or blank:
        assert paragraphs(lines, width) == texts


def test_lines_that_are_paragraphs_or_verse_are_left_alone() -> None:
    verse = ["床前明月光，疑是地上霜。"] * 40
    prose = [POEM * (1 + index % 7) for index in range(60)]
    for lines in (verse, prose):
        assert wrap_width(lines) is None and paragraphs(lines, None) == lines
    assert paragraphs(["abc def ghi jkl mno pqr stu vwx yz1 234 567", "next"], 40) == [
        "abc def ghi jkl mno pqr stu vwx yz1 234 567 next"
    ]


@pytest.mark.parametrize(
    ("name", "lines", "title", "author"),
    [
        ("红楼梦.txt", [], "红楼梦", None),
        ("《呐喊》（校对版）鲁迅.txt.gz", [], "呐喊", None),
        ("12.txt", ["", "《彷徨》", "作　者：鲁迅"], "彷徨", "鲁迅"),
        ("彷徨 作者：鲁迅.TXT", ["他说《史记》好。"], "彷徨", "鲁迅"),
        ("[科幻] 三体（全集）作者_刘慈欣.txt", [], "三体", "刘慈欣"),
        ("7.txt", ["书名：《呐喊》", "作者：鲁迅"], "呐喊", "鲁迅"),
        ("(1).txt", ["著者： Lu Xun"], "(1)", "Lu Xun"),
    ],
)
def test_title_and_author(name: str, lines: list[str], title: str, author: str | None) -> None:
    book = book_of(name, lines)
    assert (book.title, book.author) == (title, author)


def test_chapters_through_the_stage(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "诗.txt").write_bytes(BOOK.encode("gbk"))
    (tmp_path / "in" / "空.txt").write_bytes(b"\n")
    folder = extract(tmp_path / "in", tmp_path / "out", kind="book", meta=["*"])
    assert folder.counts.documents_in == 6 and folder.counts.errors == {"empty": 1}
    found = rows(folder)
    assert len({row["id"] for row in found}) == 5
    assert found[3]["title"] == "诗选 第三章" and found[3]["text"] == "第三章\n夜来风雨声，花落知多少。"
    assert found[0]["encoding"] == "gb18030" and found[0]["meta"] == '{"author":"李白","book":"诗选"}'


def test_a_book_in_an_archive_keeps_its_name(tmp_path: Path) -> None:
    (record,), _ = read_all(
        tmp_path / "a.zip", zipped({"论/儒林外史.txt": "第一回 楔子\n元朝末年。\n".encode()}), kind="book"
    )
    assert record.title == "儒林外史 第一回 楔子"
