"""Title, date and author of pages: what is shown, and nothing rather than something wrong."""

from __future__ import annotations

import pytest

from corpus.extract import ExtractConfig, Page, extract_html
from corpus.extract.metadata import byline, clean_author, date_in_line, iso_date
from tests.linear import assert_linear

TEXT = "<p>" + "渡口的摆渡人把剩下的面粉分成了七份，这个办法后来传到了别的村子。" * 4 + "</p>"


def page(head: str, body: str, foot: str = "") -> Page:
    return extract_html(f"<html><head>{head}</head><body>{body}{TEXT * 4}{foot}</body></html>", ExtractConfig())


@pytest.mark.parametrize(
    ("head", "body", "title"),
    [
        ("<title>山路修宽了_国内_文海网</title>", "<h1>文海网</h1><h2>山路修宽了</h2>", "山路修宽了"),
        (
            "<title>山路修宽了-新闻-文海网</title>",
            "<h1 class=logo>文海网</h1><div class=tit>山路修宽了</div>",
            "山路修宽了",
        ),
        ("<title>新闻-山路修宽了｜镇上 - 文海网</title>", "<h1>新闻-山路修宽了｜镇上</h1>", "新闻-山路修宽了｜镇上"),
        ("<title>河与船_第三章 山路_玄幻 - 文海</title>", "<h2>河与船</h2><h1>第三章 山路</h1>", "第三章 山路"),
        ("<title>(99+ 条消息) 山路为什么修宽？ - 文海</title>", "<h1>山路为什么修宽？</h1>", "山路为什么修宽？"),
        (
            '<title>文海</title><meta property="og:title" content="山路说"宽了"好">',
            '<h1>山路说"宽了"好</h1>',
            '山路说"宽了"好',
        ),
        (
            "<title>山路修宽了，镇上的人说这样好</title>",
            "<h1><a href=#>山路修宽了，镇上的人说这样好</a><a>¶</a></h1>",
            None,
        ),
        ("<title>-文海网</title>", "<h1>山路修宽了</h1>", "山路修宽了"),
        ("<title>山路修宽了_文海新闻网</title>", "<h1>文海新闻网</h1><b>山路修宽了</b>", "山路修宽了"),
        ("<title>文海网首页</title>", "", ""),
        ("", '<td class="newstitle">山路修宽了的那一天</td>', "山路修宽了的那一天"),
    ],
)
def test_title(head: str, body: str, title: str | None) -> None:
    if title is None:
        title = head[len("<title>") : -len("</title>")]
    assert (page(head, body).title or "") == title


@pytest.mark.parametrize(
    ("head", "body", "day"),
    [
        ('<meta name="PubDate" content="2021-03-04 08:00">', "<h1>山</h1>", "2021-03-04"),
        ('<meta property="my:publish_date" content="2021-03-04T08:00:00+08:00">', "", "2021-03-04"),
        ('<meta property="article:modified_time" content="2021-03-04T20:00:00Z">', "", None),
        ("<title>山路修宽了</title>", "<h1>山路修宽了</h1><i>2021-03-04 08:00 县报</i>", "2021-03-04"),
        ("<title>山路修宽了</title>", "<i>2021年3月4日 星期四</i><h1>山路修宽了</h1>", "2021-03-04"),
        ("<title>山路修宽了</title>", "<h1>山路修宽了</h1><p>2020年的路宽3米，2021-03-04起宽5米，大家都说好</p>", None),
        ("<title>山路修宽了</title>", "<h1>山路修宽了</h1><p>调查完成于2020-01-02这天，共有七户</p>", None),
        (
            "<title>山路修宽了</title>",
            '<h1>山路修宽了</h1><em class=rich_media_meta></em><script>var ct = "1614844800";</script>',
            "2021-03-04",
        ),
        ("<title>山路修宽了</title>", '<h1>山路修宽了</h1><script>var ct = "1614844800";</script>', None),
        ("", '<script type="application/ld+json">{"datePublished":"2021-03-04"}</script>', "2021-03-04"),
        ("", '<time datetime="2021-03-04">三月四日</time>', "2021-03-04"),
        ('<link rel="canonical" href="https://a.example/2021-03/04/c_1.htm">', "", "2021-03-04"),
    ],
)
def test_date(head: str, body: str, day: str | None) -> None:
    assert page(head, body).date == day


@pytest.mark.parametrize(
    ("head", "body", "foot", "author"),
    [
        ("", "<h1>山路</h1><p>来源：县报 作者：李四 编辑：张三</p>", "", "李四"),
        ("", "", "<p>（记者 李四 张小山）</p>", "李四、张小山"),
        ("", "", "<p>□ 本报记者 李四</p>", "李四"),
        ("", "", "<p>作者：李四</p><p>责任编辑：张三</p>", "李四"),
        ("", "", "<p>责任编辑：张三</p><p>来源：县报</p>", None),
        ("", "<p>记者首先来到山路，看见人们正在修</p>", "", None),
        ('<meta name="author" content="张三">', "", "<p>责任编辑：<i>张三</i></p>", None),
        ('<meta name="author" content="小舟">', "", "<p><b>小舟</b></p>", "小舟"),
        ('<meta name="author" content="网络科">', "", "<p><b>网络科</b></p>", None),
        ("<title>山路修宽了</title>", '<h1>山路修宽了</h1><a class="user-name">有点慢</a>', "", "有点慢"),
        ("<title>山路修宽了</title>", '<h1>山路修宽了</h1><a class="author"></a><p>关于山路</p>', "", None),
        (
            "<title>山路修宽了</title>",
            '<h1>山路修宽了</h1><div class="author"><b>县报</b> <i>李四</i></div>',
            "",
            "李四",
        ),
        (
            "",
            '<script type="application/ld+json">{"author":{"@type":"Person","name":"\\u674e\\u56db"}}</script>',
            "",
            "李四",
        ),
        ("", '<script type="application/ld+json">{"author":"\\ud83d李四"}</script>', "", None),
    ],
)
def test_author(head: str, body: str, foot: str, author: str | None) -> None:
    assert page(head or "<title>山路</title>", body, foot).author == author


def test_bylines_and_names() -> None:
    assert byline("文/李四") == "李四" and byline("作者：Alan Oken") == "Alan Oken" and byline("文海的人都来了") is None
    assert byline("中青报·中青网记者 李四 来源：县报") == "李四" and byline("记者李四／台北報導") == "李四"
    assert [clean_author(name) for name in ("网络整理", "a@b.cn", "县人民政府办公室", "2909", "未知")] == [None] * 5
    assert iso_date("1614844800") is None and iso_date("2021/2/30") is None
    assert date_in_line("2021-03-04 · 县报") and date_in_line("县报的时间") is None


@pytest.mark.parametrize(
    "part",
    "<title>|<meta name=author |<h1>山路|<h1 |>山路<|<time |<h2><i>|<link canonical=|作者：|<p class=author|2021-03-04 ".split(
        "|"
    ),
)
def test_hostile_heads_cost_linear_time(part: str) -> None:
    assert_linear(
        lambda page: extract_html(page, ExtractConfig()), lambda n: "<title>山路修宽了</title>" + part * n, 40_000
    )
