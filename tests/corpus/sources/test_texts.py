"""Plain text that is hard-wrapped or split at a pattern, Markdown, THUCNews."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest
from pydantic import ValidationError

from corpus.sources import SourcesConfig
from corpus.sources.formats.markdown import _heading as heading_of
from corpus.sources.formats.wrapped import running_lines, unwrap
from tests.corpus.sources.document_files import wrapped
from tests.corpus.sources.files import read_all
from tests.corpus.sources.test_archives import zipped
from tests.corpus.texts import document
from tests.linear import assert_linear

PARAGRAPHS = [document(number).replace("\n", "") for number in range(6)]


def printed(mark: str, per_page: int = 12) -> str:
    """A book of pages with a head and a number, `mark` before each."""
    lines = wrapped("\n".join(PARAGRAPHS), 31)
    pages = [lines[at : at + per_page] for at in range(0, len(lines), per_page)]
    return mark.join(
        "\n".join(["论语译注", "", *page, "", f"· {number} ·", ""]) for number, page in enumerate(pages, 3)
    )


@pytest.mark.parametrize("mark", ["\f", "\n"])
def test_hard_wrapped_text_with_pages(tmp_path: Path, mark: str) -> None:
    text = printed(mark)
    (record,), _ = read_all(tmp_path / "a.txt", text.encode("gb18030"), hard_wrapped=True)
    num_pages = text.count("论语译注")
    assert record.text is not None and record.text.replace(" ", "").split("\n") == PARAGRAPHS
    assert (
        record.removed["running_head"] == (num_pages, 4 * num_pages) and record.removed["page_number"][0] == num_pages
    )
    (as_it_is,), _ = read_all(tmp_path / "a.txt", text.encode("gb18030"))
    assert as_it_is.raw.decode("gb18030") == text and not as_it_is.removed


@pytest.mark.parametrize(
    "text",
    [
        "\n".join(PARAGRAPHS),
        "\n".join(["床前明月光，", "疑是地上霜。"] * 30),
        "\n".join(f"{number}\n道可道，非常道。" for number in range(1, 82)),
    ],
    ids=["a line a paragraph", "a poem", "numbered"],
)
def test_what_is_not_wrapped_stays(tmp_path: Path, text: str) -> None:
    (record,), _ = read_all(tmp_path / "a.txt", text.encode(), hard_wrapped=True)
    assert record.text == text and not record.removed


def test_heads_and_numbers_only_where_they_repeat() -> None:
    body = [[f"第{number}页的{word}" for word in ("天", "地", "玄", "黄")] for number in "一二三四"]
    assert running_lines(body) == {}  # no digits: four different lines
    table = [["甲", "1", "5", "乙"], ["丙", "9", "3", "丁"], ["戊", "4", "7", "己"]]
    assert running_lines(table) == {}
    assert running_lines([["文", "1999"], ["章", "7"], ["节", "42"], ["句", "3"]]) == {}
    counted = [["书名", *page, str(number)] for number, page in enumerate(body, 11)]
    assert running_lines(counted) == {
        (page, line): rule for page in range(4) for line, rule in ((0, "running_head"), (5, "page_number"))
    }


BOOK = "序\n此书。\n\n第一章 学而\n学而时习之。\n文中提到第二章也好。\n第二章 为政\n为政以德。\n"


def test_text_is_split_at_a_pattern(tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    for name, data in (("a.txt", BOOK.encode()), ("b/a.txt.gz", gzip.compress(BOOK.encode()))):
        good, bad = read_all(tmp_path / name, data, split="^第.{1,9}章")
        assert not bad and [record.text for record in good] == [
            "序\n此书。\n",
            "第一章 学而\n学而时习之。\n文中提到第二章也好。",
            "第二章 为政\n为政以德。",
        ]
        assert [record.offset for record in good] == [0, *(BOOK.encode().index(f"第{n}章 ".encode()) for n in "一二")]
    good, _ = read_all(tmp_path / "a.txt", BOOK.encode("gb18030"), split="^第.{1,9}章")
    assert len(good) == 3 and good[2].raw.decode("gb18030").startswith("第二章")
    damaged = gzip.compress(BOOK.encode())[:-9]
    good, (bad_one,) = read_all(tmp_path / "b/a.txt.gz", damaged, split="^第.{1,9}章")
    assert bad_one.kind == "truncated" and len(good) == 2  # the last one may go on


@pytest.mark.parametrize("pattern", ["(", "a*", r"(?=x)", r"(.)\1"])
def test_patterns_that_are_refused(pattern: str) -> None:
    with pytest.raises(ValidationError, match="split"):
        SourcesConfig(split=pattern)


MARKDOWN = """---
title: "论语: 学而"
date: 2020-05-06
tags:
  - 儒家
  - 经典
---
# 学而第一
学而时习之<!-- 注
释 -->，不亦说乎？
```html
<!-- 代码 -->
```
有朋<!-- 没有尾巴
"""


def test_markdown(tmp_path: Path) -> None:
    (record,), _ = read_all(tmp_path / "a.md", MARKDOWN.replace("\n", "\r\n").encode())
    assert record.text == "# 学而第一\n学而时习之，不亦说乎？\n```html\n<!-- 代码 -->\n```\n有朋<!-- 没有尾巴\n"
    assert (record.title, record.date, record.fields) == ("论语: 学而", "2020-05-06", {"tags": ["儒家", "经典"]})
    assert record.removed["comments"][1] == len("<!--注释-->") and record.removed["front_matter"][0] == 7
    assert record.num_read == len("".join(MARKDOWN.split()))
    (record,), _ = read_all(tmp_path / "b.markdown", "---\n没有字段\n\n# 题 #\n文".encode())
    assert record.title == "题" and record.text is not None and record.text.startswith("---")
    (record,), _ = read_all(tmp_path / "c.md", b"```\n" * 50_000 + b"<!--" * 200_000)  # read once
    assert record.text


def test_thucnews(tmp_path: Path) -> None:
    item = "火箭胜湖人\n\u3000\u3000昨日，火箭队主场取胜。\n".encode()
    (tmp_path / "体育").mkdir()
    (one,), _ = read_all(tmp_path / "体育/1.txt", item, kind="thucnews")
    (other,), _ = read_all(tmp_path / "a.zip", zipped({"THUCNews/体育/1.txt": item}), kind="thucnews")
    for record in (one, other):
        assert (record.title, record.fields, record.key) == ("火箭胜湖人", {"category": "体育"}, "1.txt")
        assert record.text == "\u3000\u3000昨日，火箭队主场取胜。\n"
    lines = "体育\t火箭胜。\n房产\t房价涨。\n没有类别\n".encode()
    good, (bad,) = read_all(tmp_path / "cnews.train.txt", lines, kind="thucnews")
    assert [(r.fields, r.text, r.offset) for r in good] == [
        ({"category": "体育"}, "火箭胜。", 0),
        ({"category": "房产"}, "房价涨。", lines.index("房产".encode())),
    ]
    assert bad.kind == "field"


@pytest.mark.parametrize("encoding", ["utf-16", "gb18030"])
def test_lines_in_any_encoding(tmp_path: Path, encoding: str) -> None:
    text = "学而时习之，不亦说乎？\n有朋自远方来，不亦乐乎？\n"
    good, bad = read_all(tmp_path / "a.txt", text.encode(encoding), document="line")
    assert [record.text for record in good] == text.split() and not bad


def test_markdown_where_rules_and_code_look_like_something_else(tmp_path: Path) -> None:
    text = "---\n本文讲安装。\n---\n## 安装\n```sh\n# 先更新\n```\n# 学习 C#\n正文\n"
    (record,), bad = read_all(tmp_path / "a.md", text.encode())
    assert (record.title, record.text, record.removed) == ("学习 C#", text, {}) and not bad
    (record,), _ = read_all(tmp_path / "a.md", "前言\n\n论语\n====\n# 学而\n".encode())
    assert record.title == "论语"


def test_time_grows_linearly() -> None:
    line = "学而时习之不亦说乎有朋自远方来不亦乐乎人不知而"
    assert_linear(unwrap, lambda n: f"{'-' * 15}1{'-' * 25}1{'-' * 30}x\n" * n, 400)
    assert_linear(unwrap, lambda n: "".join(f"{line}\n{at}\n" for at in range(n)), 40_000)
    assert_linear(heading_of, lambda n: "#  " * n + "x\n" + "# " * n, 20_000)
