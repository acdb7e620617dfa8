"""Links, directives, language and text of pages, as written by careful, careless and hostile people."""

from __future__ import annotations

import html
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpus.crawl.pages.page import MAX_LINKS, MAX_OTHER_TAGS, Page, PageLink, read_page, refresh_target
from corpus.crawl.urls.url import normalize
from corpus.encoding import UndecodableError
from tests.faults.test_f15_hostile_html import HOSTILE
from tests.linear import assert_linear

URL = "http://a.cn/p/q"
HTML = "text/html; charset=utf-8"


def read(text: str, content_type: str | None = HTML) -> Page:
    return read_page(text.encode("utf-8", "surrogatepass"), content_type, URL)


def links(text: str) -> list[tuple[str, str]]:
    return [(link.kind, link.url) for link in read(text).links]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("<a href=x>", [("a", "x")]),
        ("<A HREF = 'x y' >", [("a", "x y")]),
        ('<a class="b" href="?a=1&amp;b=2&copy=3">', [("a", "?a=1&b=2©=3")]),
        ("<a href=x href=y>", [("a", "x")]),  # the first counts
        ("<a/href=x>", [("a", "x")]),
        ("<a href>", [("a", "")]),
        ("<a name=x>", []),
        ("<a data-href=x title='<a href=y>'>", []),
        ("<map><area href=x></map>", [("area", "x")]),
        ("<iframe src=x></iframe><frameset><frame src='y'></frameset>", [("frame", "x"), ("frame", "y")]),
        ("<iframe></iframe>", []),
        ("<link rel=canonical href=x><link rel='prev next' href=y>", [("canonical", "x"), ("prev", "y")]),
        ("<link rel=alternate hreflang=en href=x>", [("alternate", "x")]),
        ("<link rel=alternate type=application/rss+xml href=x><link rel='alternate stylesheet' href=y>", []),
        ("<link rel=stylesheet href=x><link rel=icon href=y><link href=z>", []),
        ("<meta http-equiv=Refresh content='0; URL=x'>", [("refresh", "x")]),
        ("<meta http-equiv=refresh content='30'><meta name=refresh content='0;x'>", []),
        ("<!-- <a href=x> --><script>'<a href=y>'</script><style><a href=z></style><a href=w>", [("a", "w")]),
        ("<textarea><a href=x></textarea><title><a href=y></title>", []),
        ("<noscript><a href=x></noscript><template><a href=y></template>", [("a", "x"), ("a", "y")]),
        ("<a href=x", []),
        ("<a href='x>y</a><p>z", [("a", "x")]),  # a quote that never closes
        ('<a href="x>y</a><a href=z title="', [("a", '"x')]),  # one that closes in another tag, which is cut off
        ("a < b <3 <a href=x>", [("a", "x")]),
    ],
)
def test_links(text: str, expected: list[tuple[str, str]]) -> None:
    assert links(text) == expected


def test_what_a_link_says() -> None:
    found = read(
        "<a href=a>甲 <b>乙</b>\n<img>丙</a>丁<a href=b rel='noopener NoFollow'>戊<a href=c rel=ugc hreflang=zh-TW>己</a>"
        "<a href=d rel=sponsored></a><a href=e rel=nofollower>" + "长" * 100
    )
    assert found.links[:4] == (
        PageLink("a", "甲 乙 丙", None, False, "a"),
        PageLink("b", "戊", None, True, "a"),
        PageLink("c", "己", "zh-TW", True, "a"),
        PageLink("d", "", None, True, "a"),
    )
    assert found.links[4] == PageLink("e", "长" * 80, None, False, "a")


def test_base_language_and_directives() -> None:
    found = read(
        "<!doctype html><html lang=' zh-CN '><head><title> 文&amp;海\n新闻 </title><title>x</title><base target=_top>"
        "<base href='../b/'><base href=/c/><meta name=ROBOTS content='noindex, nofollow'>"
        "<meta content=noai name=wenhaibot>"
        "<meta property=og:title content=x><meta name=empty><meta charset=utf-8>"
    )
    assert (found.base, found.language, found.title) == ("http://a.cn/b/", "zh-CN", "文&海 新闻")
    assert found.meta_robots == (("robots", "noindex, nofollow"), ("wenhaibot", "noai"))
    assert read("<html xml:lang=ja>").language == "ja"
    assert read("<meta http-equiv=Content-Language content=zh>").language == "zh"
    nothing = read("<base href='javascript:x'><html lang=''>")
    assert (nothing.base, nothing.language, nothing.title, nothing.meta_robots) == (None, None, None, ())


@pytest.mark.parametrize(
    ("content", "target"),
    [
        ("0;url=x", "x"),
        ('0.5 , URL = "x y" z', "x y"),
        ("5;'x'", "x"),
        ("5 x?url=y", "x?url=y"),
        (";url=x", None),
        ("url=x", None),
        ("0;url=", None),
        ("0;url=' '", None),
        ("5", None),
    ],
)
def test_refresh(content: str, target: str | None) -> None:
    assert (refresh_target(content) or "").strip() == (target or "")


@pytest.mark.parametrize("codec", ["gbk", "big5", "utf-8", "utf-16"])
def test_encodings(codec: str) -> None:
    label = "" if codec == "utf-16" else f"<meta charset={codec}>"
    body = f"{label}<title>功能</title><a href='?q=文好'>文章 和 好人</a> 清晨河岸，一人慢慢走，好一道光。".encode(
        codec
    )
    found = read_page(body, "text/html", URL)
    assert (found.title, found.links[0].text, found.links[0].url) == ("功能", "文章 和 好人", "?q=文好")
    expected = "文好".encode("utf-8" if codec == "utf-16" else codec)
    escaped = "".join(f"%{byte:02X}" for byte in expected)
    found_url = normalize(found.links[0].url, URL, found.encoding)
    assert found_url.partition("?q=")[2].replace("n", "%6E") == escaped


def test_a_binary_file_is_no_page() -> None:
    with pytest.raises(UndecodableError):
        read_page(bytes(range(256)) * 40, "text/html", URL)


def test_a_giant_character_reference_costs_itself() -> None:
    number = "&#" + "1" * 5_000 + ";"
    found = read(f"<title>文{number}</title><a href='x{number}'>甲</a><meta name=robots content='noindex,{number}'>")
    assert (found.title, found.links[0].url) == ("文\ufffd", "x\ufffd")
    assert found.meta_robots == (("robots", "noindex,\ufffd"),)


def test_an_end_tag_without_a_name_is_nothing() -> None:
    assert read("甲</>乙").text_bytes == 6
    assert read("甲</ x>乙").text_bytes == 6


def test_a_title_that_never_ends_is_text() -> None:
    found = read("<title>甲<p>乙")
    assert (found.title, found.text_bytes) == (None, 6)


def test_plain_text_has_no_links() -> None:
    found = read("<a href=x>文海&amp;</a>", "Text/Plain; charset=utf-8")
    assert (found.links, found.title, found.text_bytes, found.chinese_bytes) == ((), None, 24, 6)
    assert read("", "text/plain").text_bytes == read("").text_bytes == 0


@pytest.mark.parametrize("name", ["noscript", "template"])
def test_text_that_no_browser_shows_is_not_counted(name: str) -> None:
    seen, hidden = "<p>木匠走了", f"<{name}>本页面无法访问<b>，请启用脚本</b><a href=x>甲</a></{name}>"
    found = read(hidden + seen + hidden + "<a href=y>乙</a>")
    assert (found.text_bytes, found.chinese_bytes, found.soft_404) == (15, 15, False)
    assert found.content == read(seen + "乙").content
    assert [(link.url, link.text) for link in found.links] == [("x", ""), ("x", ""), ("y", "乙")]
    assert read(f"<{name}><{name}>" + seen).text_bytes == 12  # one that never ends hides nothing
    assert read(f"<{name}>a</{name}>b<{name}>" + seen).text_bytes == 13


WHITE = " \t\n\r\f\v\u3000\u00a0\u2003\u200b\ufeff"
ALPHABET = st.one_of(st.characters(codec="utf-8"), st.sampled_from("文海两三。，《》（！１0９9AＡあア한😀𠮷〇" + WHITE))


def is_chinese(character: str) -> bool:
    code = ord(character)
    han = "\u3400" <= character <= "\u4dbf" or "\u4e00" <= character <= "\u9fff" or "\uf900" <= character <= "\ufaff"
    full_width = 0xFF01 <= code <= 0xFF65 and not (0xFF10 <= code <= 0xFF19) and not character.isalpha()
    return han or 0x20000 <= code <= 0x3FFFF or 0x3001 <= code <= 0x303F or full_width


@given(st.text(ALPHABET, max_size=200))
def test_bytes_of_text(text: str) -> None:
    text = "".join(character for character in text if character >= " " and not "\x7f" <= character <= "\xa0")
    found = read(text, "text/plain")
    black = [character for character in text.removeprefix("\ufeff") if not is_white(character)]
    assert found.text_bytes == sum(len(character.encode()) for character in black)
    chinese = sum(len(character.encode()) for character in black if is_chinese(character))
    assert found.chinese_bytes in (0, chinese)
    if not any("\u3040" <= character <= "\u30ff" or "\uff66" <= character <= "\uff9f" for character in text):
        assert found.chinese_bytes == chinese
    assert read(html.escape(text)).text_bytes == found.text_bytes
    assert read(html.escape(text)).content == found.content


def is_white(character: str) -> bool:
    return character in WHITE or 0x2000 <= ord(character) <= 0x200F or character in "\u2028\u2029\ufffe\uffff"


def test_japanese_is_not_chinese() -> None:
    assert read("<p>木村は川の岸をゆっくり歩いて、対岸の灯を数えた。").chinese_bytes == 0
    quoting = read("<p>他说了一句「さようなら」，然后转身离开，沿着河岸慢慢走远，再也没有回头看一眼对岸的灯。")
    assert quoting.chinese_bytes > 0.8 * quoting.text_bytes


def test_pages_that_differ_in_numbers_and_layout_have_the_same_content() -> None:
    def month(year: int, name: str, days: int) -> bytes:
        cells = "".join(f"<td>{day}</td>" for day in range(1, days + 1))
        return read(f"<h1>{year}年{name}月</h1><table><tr>{cells}</table><a href=?m={days}>下月</a>").content

    assert month(2024, "1", 31) == month(2024, "十一", 30) == month(2199, "２", 28)
    assert read("<p>木匠　走 了").content == read("木匠走了12").content
    assert read("木匠走了").content != read("木匠来了").content
    assert len(month(2024, "1", 31)) == 16


def test_calendars_in_english_have_the_same_content() -> None:
    def month(title: str, before: str, after: str) -> bytes:
        return read(
            f"<table><caption>{title} 2024</caption><th>{'<th>'.join('SMTWTFS')}</table>« {before} {after} »"
        ).content

    assert month("January", "Dec", "Feb") == month("SEPTEMBER", "Aug", "Oct") == month("May", "Apr", "Jun")
    assert read("Mon, 3 June").content == read("Thursday, 4 July").content != read("Event: 3 June").content
    long = "木匠走了" * 2_000
    assert read(long + "May").content != read(long + "June").content


MISSING = [
    "<title>404 Not Found</title><h1>Not Found</h1>The requested URL was not found on this server.",
    "<title>页面不存在 - 文海新闻网</title>",
    "<title>文海论坛</title><p>抱歉，指定的主题不存在或已被删除或正在被审核",
    "<title>提示信息</title>对不起，您访问的页面不存在！<a href=/>返回首页</a>",
    "<h1>很抱歉，您要访问的页面已删除</h1>",
    "<p>找不到您要的网页",
    "<p>該頁面已被刪除",
    "<p>该内容已被发布者删除",
    "<p>没有找到您要访问的页面",
    "<title>错误 404</title>",
    "<title>Error: 404</title>",
    "<p>The page you requested could not be found.",
    "<p>Sorry, this page does not exist",
    "<h1>404</h1>",
]
PRESENT = [
    "",
    "<p>他找不到工作，页面也翻不动了。",
    "<title>木匠和他的河</title><p>清晨，木匠沿着河岸慢慢走。",
    "<title>怎样处理 404</title><p>服务器上的每个网址都要有答复。",
    "<p>404路公交车改线通知",
    "<title>404 Not Found</title><p>" + "木匠沿着河岸慢慢走，数着对岸亮起的灯。" * 40,  # an article about it
    "<p>文件已保存。没有错误。",
    "<p>不存在绝对的真理，内容决定形式。",
]


@pytest.mark.parametrize("text", MISSING)
def test_pages_that_say_there_is_none(text: str) -> None:
    assert read(text).soft_404


@pytest.mark.parametrize("text", PRESENT)
def test_pages_that_are_there(text: str) -> None:
    assert not read(text).soft_404


def test_no_real_page_says_that_there_is_none(test_data: Path) -> None:
    pages = sorted((test_data / "html").rglob("*.html"))[::10]
    assert len(pages) > 50
    for page in pages:
        found = read_page(page.read_bytes(), "text/html", URL)
        assert not found.soft_404 and found.title, page
        assert found.links, page


def test_links_and_tags_are_bounded() -> None:
    found = read("<meta name=robots content=a>" * 1_000 + "<a href=x>字" * 3_000 + "<html lang=zh>")
    assert len(found.links) == MAX_LINKS and found.links[-1].text == "字"
    assert len(found.meta_robots) == MAX_OTHER_TAGS
    assert found.text_bytes == 9_000


class Oracle(HTMLParser):
    """Links and text as the standard library reads them."""

    def __init__(self) -> None:
        super().__init__()
        self.hrefs: list[str] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.hrefs += [value or "" for name, value in attrs if tag == "a" and name == "href"][:1]

    def handle_data(self, data: str) -> None:
        self.text += data


VALUES = st.text("ab文=?&;/ <\n", max_size=8)
PIECES = st.one_of(
    st.text("ab文 &;lt\n", max_size=10).map(html.escape),
    st.tuples(VALUES, st.sampled_from("'\""), st.booleans()).map(
        lambda part: f"<a id=x href={part[1]}{html.escape(part[0]) if part[2] else part[0]}{part[1]} class=y>"
    ),
    st.sampled_from(
        ("<p>", "</p>", "<br/>", "</a>", "<!-- <a href=z> -->", "<script>'<a href=z>'</script>", "&amp;", "&#x6587;")
    ),
)


@given(st.lists(PIECES, max_size=12).map("".join))
def test_as_the_standard_library_reads_it(text: str) -> None:
    oracle = Oracle()
    oracle.feed("".join(text.split("<script>'<a href=z>'</script>")))
    oracle.close()
    found = read(text)
    assert [link.url for link in found.links] == oracle.hrefs
    assert found.text_bytes == len("".join(oracle.text.split()).encode())


@given(
    st.lists(
        st.one_of(
            st.sampled_from("< > / ! - = ' \" & ; # a href script title meta <!-- --> <a <base".split()),
            st.text(max_size=3),
        ),
        max_size=40,
    )
)
def test_no_page_breaks_the_reader(pieces: list[str]) -> None:
    try:
        found = read("".join(pieces), None)
    except UndecodableError:  # controls
        return
    assert 0 <= found.chinese_bytes <= found.text_bytes


STORMS: dict[str, Callable[[int], str]] = {
    **HOSTILE,
    "links with everything": lambda n: "<a href='x?a=1&amp;b=2' rel='a b nofollow' hreflang=zh>甲</a>" * n,
    "long links": lambda n: "<a href=" + "x&amp;" * n + ">",
    "many relations": lambda n: "<a href=x rel='" + "a " * n + "'>",
    "half a link": lambda n: "<a href='" * n,
    "bases": lambda n: "<base href=x>" * n,
    "directives": lambda n: "<meta name=robots content=x>" * n,
    "refreshes": lambda n: "<meta http-equiv=refresh content='" + "0 " * n + "'>",
    "titles": lambda n: "<title>" * n + "<title>404 页面 错误 " * n,
    "nearly missing": lambda n: "页面" * n,
    "frames": lambda n: "<iframe src=x>" * n,
    "hidden": lambda n: "<noscript>" * n + "<template>" * n,
    "hidden in hidden": lambda n: "<noscript>" * n + "</noscript>",
    "hidden and shown": lambda n: "<noscript><template></noscript>" * n,
}


@pytest.mark.parametrize("name", STORMS)
def test_time_grows_linearly(name: str) -> None:
    assert_linear(lambda body: read_page(body, HTML, URL), lambda n: STORMS[name](n).encode(), 8_000)
