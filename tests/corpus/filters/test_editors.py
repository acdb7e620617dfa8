"""Editors: boilerplate lines go and prose that resembles them stays; personal data are masked next to Han."""

from __future__ import annotations

import time

import pyarrow as pa
import pytest

from corpus.filters import load
from corpus.filters.boilerplate import MAX_LINE_CHARS, MAX_REMOVED_LINES, PATTERNS, Pattern, remove_lines
from corpus.filters.statistic import buffers
from tests.linear import assert_linear


def edited(text: str) -> tuple[str, list[tuple[str, int]]]:
    for _, result, removed in remove_lines(
        *buffers(pa.array(["前文上一篇", text, "版权所有"], pa.large_string()).slice(1, 1))
    ):
        return result, [(line.kind, line.line) for line in removed]
    return text, []


GONE = [
    ("navigation", "上一篇：论语的故事"),
    ("navigation", "下一篇： 没有了"),
    ("navigation", "上一页 下一页"),
    ("navigation", "« 上一章 目录 下一章 »"),
    ("back", "[返回首页]"),
    ("back", "回到顶部 ↑"),
    ("location", "当前位置：首页 > 新闻 > 正文"),
    ("location", "您现在的位置：首页>>文化"),
    ("record_number", "京ICP备12345678号-1"),
    ("record_number", "粤公网安备 44030502000001号"),
    ("record_number", "Copyright 网站 版本 沪ICP证030247号 增值电信业务"),
    ("editor", "责任编辑：王小明"),
    ("editor", "（責任編輯：李四）"),
    ("editor", "编辑 | 张三"),
    ("source", "来源：新华网"),
    ("source", "[文章来源: 某某日报]"),
    ("copyright", "版权所有 某某公司 未经许可不得转载"),
    ("copyright", "Copyright © 2009-2020 example.com All Rights Reserved"),
    ("copyright", "未经授权，禁止转载"),
    ("share", "分享到：微博 微信 QQ空间"),
    ("share", "扫一扫，手机看新闻"),
    ("share", "长按识别二维码关注我们"),
    ("expand", "展开全文"),
    ("expand", "点击查看更多>>"),
    ("expand", "【阅读全文】"),
    ("related", "相关阅读："),
    ("related", "猜你喜欢"),
    ("related", "更多新闻"),
    ("related", "更多推荐 >>"),
    ("comment", "发表评论"),
    ("comment", "评论(12) 收藏 举报"),
    ("comment", "打印 关闭"),
    ("novel_site", "请记住本站域名：www.example.com"),
    ("novel_site", "一秒记住【某某小说网】，为您提供精彩阅读。"),
]

STAYS = [
    "上一篇文章讲了论语的由来，这一篇讲它的流传。",
    "返回首页的按钮在右上角，点一下就可以。",
    "他在这个位置上坐了三十年，没有抱怨过一句。",
    "网站上线之前需要办理ICP备案，手续并不复杂。",
    "责任编辑打电话来，说稿子还差三百字。",
    "来源于民间的歌谣，后来进了宫廷。",
    "版权所有者可以转让自己的权利，也可以放弃它。",
    "他把照片分享到了家里的群里，没有人说话。",
    "展开全文来看，作者的用意其实很清楚。",
    "相关阅读材料可以在图书馆二楼借到。",
    "编辑器支持三种模式，默认是普通模式。",
    "评论家说这是他最好的一部小说。",
    "    share(分享到)",
    "打印",
    "展开",
    "编辑：修改所选单元格的内容",
    "位置：菜单“插入”",
    "所在位置：北京市海淀区",
    "未经允许的转载，是这场官司的起因，双方各执一词。",
    "扫一扫地，擦一擦窗，屋子就亮了。",
    "最新章节里，主人公终于回到了故乡，却没有人认得他。",
    "版权所有" + "字" * MAX_LINE_CHARS,
]


@pytest.mark.parametrize(("kind", "line"), GONE)
def test_gone(kind: str, line: str) -> None:
    text = f"第一段，说了一些话。\n{line}\n第二段，又说了一些话。"
    assert edited(text) == ("第一段，说了一些话。\n第二段，又说了一些话。", [(kind, 2)])
    assert edited(f"\u3000{line} ") == ("", [(kind, 1)])


@pytest.mark.parametrize("line", STAYS)
def test_stays(line: str) -> None:
    text = f"第一段，说了一些话。\n{line}\n第二段，又说了一些话。"
    assert edited(text) == (text, [])


def test_blank_lines_close_behind_a_removed_line() -> None:
    assert edited("前。\n\n分享到：微博\n\n后。\n责编：李四") == ("前。\n\n后。", [("share", 3), ("editor", 6)])


def test_a_document_made_of_boilerplate_is_not_emptied() -> None:
    text, removed = edited("下一页\n" * (MAX_REMOVED_LINES + 50))
    assert text.split("\n") == ["下一页"] * 50
    assert len(removed) == MAX_REMOVED_LINES


def test_editors_can_be_switched_off() -> None:
    text = "责任编辑：王小明\n电话13800138000，找王先生，他会告诉你下一步该怎么走。学而时习之，不亦说乎？有朋自远方来，不亦乐乎？"
    judge = load("web_zh", ["filter.edit.boilerplate_lines=false", "filter.edit.personal_data=[]"])
    (verdict,) = judge.apply([text])
    assert verdict.text == text


@pytest.mark.parametrize("pattern", PATTERNS, ids=[pattern.kind for pattern in PATTERNS])
@pytest.mark.parametrize("filling", [" ", "微信", "收藏 ", "a", "字", "1", ">", "| "])
def test_no_line_costs_more_than_its_length(pattern: Pattern, filling: str) -> None:
    start = time.process_time()
    for trigger in pattern.triggers:
        for before, after in ((0, 1), (1, 0), (1, 1)):
            line = filling * (40 * before) + trigger + filling * (60 * after)
            pattern.form.fullmatch(line[: MAX_LINE_CHARS - 1] + "？")
    assert time.process_time() - start < 0.5  # milliseconds; a year if two repeats competed


@pytest.mark.parametrize(
    "family", ["上一篇", "上一篇：", "版权所有 ", "©2020", "来源：\n", "长按", "关注公众号", "分享到 | "]
)
def test_time_is_linear(family: str) -> None:
    assert_linear(edited, lambda copies: family * copies, 40_000)
