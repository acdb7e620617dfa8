"""HTML to article: what stays, what goes, and hostile pages that must cost little."""

from __future__ import annotations

import re
import tracemalloc
from pathlib import Path

import pytest

from corpus.extract import ExtractConfig, Page, extract_html
from corpus.extract.article import read
from corpus.extract.reader import LINE_END
from corpus.shape import RefusedPage

PARAGRAPHS = [
    "清晨，木匠沿着河岸慢慢走，数着对岸亮起的灯。这件事后来被许多人提起，没有人觉得奇怪。",
    "他说，习惯了就好。大家听了都笑起来，谁也不知道下一次会是什么时候，桥头的钟正好敲了六下。",
    "院子里的猫打了个哈欠，事情就这样定了下来；那封信一直没有回音，路上的积水映着天空。",
]
NEWS = """<!DOCTYPE html><html><head><title>木匠和他的河_文海新闻网</title>
<meta property="article:published_time" content="2021-03-04T08:00:00+08:00"></head><body>
<div class="topbar"><a href="/">首页</a> <a href="/n">新闻</a> <a href="/s">体育</a> <a href="/e">财经</a></div>
<ul><li><a href="/1">国内</a></li><li><a href="/2">国际</a></li><li><a href="/3">社会</a></li></ul>
<p>当前位置：<a href="/">首页</a> &gt; <a href="/n">新闻</a> &gt; 正文</p>
<div class="wrap"><h1>木匠和他的河</h1>
<p>2021年03月04日 08:00　来源：<a href="/x">文海日报</a></p>
<p>　　{}</p><p>　　{}</p>
<ul><li>第一件事，是把旧地图摊在桌上。</li><li>第二件事，是给<a href="/friend">远方的朋友</a>写信。</li></ul>
<p>　　{}</p>
<p>（责任编辑：张三）</p>
<p>上一篇：<a href="/p">雨停以后</a></p><p>下一篇：<a href="/q">放学以后</a></p>
<h3>相关阅读</h3><ul><li><a href="/a">茶馆老板的收音机</a></li><li><a href="/b">修表的师傅</a></li></ul>
<p>京ICP备00000000号 版权所有 © 2021 文海新闻网</p></div>
<script>var 文字 = "不是正文";</script></body></html>""".format(*PARAGRAPHS)


def page(html: str) -> Page:
    return extract_html(html, ExtractConfig())


def test_a_news_page_becomes_its_article() -> None:
    assert page(NEWS) == Page(
        title="木匠和他的河",
        date="2021-03-04",
        text="\n".join(
            [
                "木匠和他的河",
                *PARAGRAPHS[:2],
                "• 第一件事，是把旧地图摊在桌上。",
                "• 第二件事，是给远方的朋友写信。",
                PARAGRAPHS[2],
            ]
        ),
    )


def test_single_characters_between_tags_stay() -> None:
    html = "<p>一段内容在<b>这里</b>和<a href=x>那里</a>。<i>再</i>见</p>"
    assert page(html).text == "一段内容在这里和那里。再见"


@pytest.mark.parametrize(
    "line",
    [
        "<p>您现在的位置：<a href=/>首页</a></p>",
        "<p><a href=/>首页</a> &gt; <a href=/n>新闻</a> &gt; <a href=/n/1>国内</a></p>",
        "<p>首页 » <a href=/n>新闻</a> » 正文</p>",
        "<p>来源：文海日报 作者：李四</p>",
        "<p>[责任编辑：李四]</p>",
        "<p>【打印】</p><p>【关闭窗口】</p>",
        "<p>上一页</p><p>下一页</p>",
        "<p>版权所有 文海新闻网 未经许可不得转载</p>",
        "<p>沪ICP备12345678号-1</p>",
        "<p><a href=1>甲乙丙</a> | <a href=2>丁戊己</a> | <a href=3>庚辛壬</a></p>",
        "<p>延伸阅读：</p><p><a href=1>茶馆老板的收音机</a></p>",
        "<nav>导航</nav><footer>页脚</footer><aside>边栏</aside><form>表单<button>提交</button></form>",
        "<div class='x breadcrumb'>首页</div><div style='display:none'>看不见</div>",
    ],
)
def test_page_furniture_goes(line: str) -> None:
    around = f"<div><p>{PARAGRAPHS[0]}</p>%s<p>{PARAGRAPHS[1]}</p></div>"
    assert page(around % line).text == "\n".join(PARAGRAPHS[:2])
    assert page(around % "" + line).text == "\n".join(PARAGRAPHS[:2])


@pytest.mark.parametrize(
    "line",
    [
        "来源是一个值得追问的问题，每个人都应当想一想它。",
        "他的编辑工作做得很好，大家都这样说。",
        "若 a > b 且 b > c，则 a > c。",
        "上一篇文章里说过，河水是从北往南流的。",
        "相关阅读材料放在桌子上，请大家自己去取。",
    ],
)
def test_prose_that_looks_like_furniture_stays(line: str) -> None:
    html = f"<p>{PARAGRAPHS[0]}</p><p>{line.replace('>', '&gt;')}</p><p>{PARAGRAPHS[1]}</p>"
    assert page(html).text.split("\n")[1] == line


def test_a_link_between_paragraphs_and_linked_headings_stay() -> None:
    html = f"<h1><a href=x>标题</a></h1><p>{PARAGRAPHS[0]}</p><h2><a href=y>小标题</a></h2><p>{PARAGRAPHS[1]}</p>"
    assert page(f"<title>标题</title>{html}").text.split("\n")[-3:] == [PARAGRAPHS[0], "小标题", PARAGRAPHS[1]]


def test_a_container_that_names_itself_replaces_the_body() -> None:
    html = f"<div>茶馆老板说过的话有许多版本</div><div id=artibody><p>{'</p><p>'.join(PARAGRAPHS)}</p></div>"
    assert page(html).text == "\n".join(PARAGRAPHS)
    small = f"<div class=content><p>短短一句。</p></div><div><p>{'</p><p>'.join(PARAGRAPHS)}</p></div>"
    assert page(small).text == "\n".join(["短短一句。", *PARAGRAPHS])


def test_preformatted_text_keeps_its_indents() -> None:
    html = f"<p>{PARAGRAPHS[0]}</p><pre>if x:\n    y = 1\n\n\n\nz = 2</pre><p>{PARAGRAPHS[1]}</p>"
    assert page(html).text == f"{PARAGRAPHS[0]}\nif x:\n    y = 1\n\nz = 2\n{PARAGRAPHS[1]}"


def test_spaces_and_tables() -> None:
    html = "<p>　　甲&nbsp;&nbsp;乙\n 丙　</p><table><tr><td>春</td><td>秋</td></tr><tr><td>一</td><td>二。</td></tr></table>"
    assert page(html).text == "甲 乙 丙\n春\t秋\n一\t二。"


@pytest.mark.parametrize(
    ("head", "body", "title", "date"),
    [
        ("<title>甲 - 某网</title>", "<h1>甲</h1>", "甲", None),
        ("<title>甲-乙</title>", "<h1>丙</h1>", "甲-乙", None),
        ("", "<h1>只有标题</h1>", "只有标题", None),
        ("<meta property='og:title' content='好标题'><title>坏</title>", "", "好标题", None),
        ("", "<p>发布时间：2020年1月2日 10:20</p>", None, "2020-01-02"),
        ("<meta name=pubdate content='2020-13-45'>", "<p>1954-07-20</p>", None, None),
        ("", "<time datetime='2022-05-06T00:00'>五月</time>", None, "2022-05-06"),
    ],
)
def test_title_and_date(head: str, body: str, title: str | None, date: str | None) -> None:
    found = page(f"<html><head>{head}</head><body>{body}<p>{PARAGRAPHS[0]}</p></body></html>")
    assert (found.title, found.date) == (title, date)


@pytest.mark.parametrize(
    "html", ["", " ", "<html></html>", "<p></p>", "<!-- 注 -->", "<ul><li><a href=x>首页</a></ul>"]
)
def test_nothing_gives_nothing(html: str) -> None:
    assert page(html).text == ""


@pytest.mark.parametrize("element", ["aside", "footer", "nav", "div class=header", "div style=display:none"])
def test_a_page_that_is_all_furniture_by_its_elements_is_read(element: str) -> None:
    assert page(f"<script>x()</script><{element}><p>{PARAGRAPHS[0]}{PARAGRAPHS[1]}").text == "".join(PARAGRAPHS[:2])


def test_a_damaged_line_costs_itself() -> None:
    html = f"<p>\ufdd0{PARAGRAPHS[0]}\ufdd1</p><p>{PARAGRAPHS[1]}\ud800</p><p>{PARAGRAPHS[2]}</p>"
    assert page(html).text.split("\n") == [PARAGRAPHS[0], PARAGRAPHS[2]]


@pytest.mark.parametrize(
    "unit", ["<!--", "<", ">", "&", "<ul><li>文", "<p>文", "</x>", "<script>", "文 > ", "<p class=content>文"]
)
def test_storms_are_read_with_little_memory(unit: str) -> None:
    assert len(page(unit * 20_000).text) <= len(unit) * 20_000


def test_deep_lists_do_not_fill_memory_with_indents() -> None:
    tracemalloc.start()
    reading = read(("<ul><li>" * 1_500 + "<p>文字" * 40_000).encode())
    text = bytes(reading.out[: reading.lines[-1, LINE_END]]).decode()
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert text.count("文字") == len(reading.lines) == 40_000
    assert peak_bytes < 100_000_000


def test_a_page_of_captions_is_what_is_not_link() -> None:
    html = "<h3>相关图片</h3><p>河岸上的灯亮起来的样子</p><p>桥头的老钟和站台</p>"
    assert page(html).text == "河岸上的灯亮起来的样子\n桥头的老钟和站台"


def test_a_footer_by_its_name_goes() -> None:
    html = f"<div class=content><p>{'</p><p>'.join(PARAGRAPHS)}</p></div><div id=footer>联系我们</div>"
    assert page(html).text == "\n".join(PARAGRAPHS)


def test_the_byte_cap_counts_bytes() -> None:
    config = ExtractConfig(max_page_bytes=1000)
    assert extract_html("<p>" + "文" * 300, config).text == "文" * 300
    with pytest.raises(RefusedPage) as refused:
        extract_html("<p>" + "文" * 400, config)
    assert refused.value.kind == "too_long"


def test_a_long_inline_image_is_no_storm() -> None:
    assert (
        page(f'<p>{PARAGRAPHS[0]}<img src="data:image/png;base64,{"iVBOR/w0K " * 30_000}"></p>').text == PARAGRAPHS[0]
    )


def test_real_documentation_pages(test_data: Path) -> None:
    """Little navigation, most of the article: measured on real pages with known furniture."""
    files = sorted((test_data / "html").rglob("*.html"))[::9]
    furniture = re.compile(
        r"^(?:上一页|下一页|起始页|索引.*|Download the ebook|.*debug info:|LibreOffice \d.\d 帮助)$", re.M
    )
    texts = [page(file.read_text("utf-8")).text for file in files]
    assert sum(bool(furniture.search(text)) for text in texts) <= len(texts) // 100
    assert sum(not text for text in texts) <= len(texts) // 20
    assert not any("\n\n\n" in text for text in texts)
