"""What the crawler wants to know of a page: where it points, what it asks of crawlers, and how Chinese it is."""

from __future__ import annotations

import html
import re
from contextlib import suppress
from typing import NamedTuple

import numpy as np
import xxhash

from corpus.crawl.pages import reader
from corpus.crawl.urls.url import BadUrl, normalize
from corpus.encoding import decode
from corpus.extract.tables import references

MAX_LINKS = 2_000  # links of a page that are kept, in the page's order
MAX_OTHER_TAGS = 200  # meta, base and html tags
MAX_TITLE_CHARS = 300
MAX_LINK_TEXT_BYTES = 240  # 80 Han characters: a headline
# Kana to Han above which a page is Japanese. Of 2,000 Chinese pages none has 0.1; Japanese prose has more kana than
# Han.
MAX_KANA_RATIO = 0.25

# A page that says there is none says it in its title, or at the top of a text that is short.
MAX_SOFT_404_BYTES = 1_500  # of text
SOFT_404_HEAD_CHARS = 120
_MISSING = re.compile(
    r"(?:页面|頁面|网页|網頁|文章|内容|內容|帖子|主题|主題|信息|文件|栏目|欄目|链接|連結|地址|新闻|新聞)[^，。！？,!?]{0,12}?"
    r"(?:不存在|找不到|未找到|没有找到|沒有找到|已失效|已过期|已過期|已下架|被移除|无法访问|無法訪問|走丢了"
    r"|已被?[^，。！？,!?]{0,6}?(?:删除|刪除))"
    r"|(?:找不到|未找到|没有找到|沒有找到|无法找到|無法找到)[^，。！？,!?]{0,12}?(?:页面|頁面|网页|網頁|文章|内容|內容|文件|帖子|地址)"
    r"|\b404\b[^。]{0,20}?(?:not found|error|错误|錯誤|页面|頁面|找不到|不存在)"
    r"|(?:错误|錯誤|error)\s{0,2}[:：]?\s{0,2}404\b|^\W{0,4}404\W{0,4}$|^\W{0,4}not found"
    r"|\b(?:page|file|document|article|url)\s(?:[a-z]+\s){0,6}?(?:not\s(?:be\s)?found|does\s?n[o']t\sexist)",
    re.IGNORECASE,
)
# What tells one page of a calendar from the next besides numbers. A calendar is short; longer texts are left alone. Of
# text in lower case: `re` skips to the first letters of literals, which takes a 25th of the time, but not IGNORECASE.
_CALENDAR = re.compile(
    rb"jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?|sep(?:t(?:ember)?)?|oct(?:ober)?"
    rb"|nov(?:ember)?|dec(?:ember)?|mon(?:day)?|tue(?:s(?:day)?)?|wed(?:nesday)?|thu(?:rs(?:day)?)?|fri(?:day)?"
    rb"|sat(?:urday)?|sun(?:day)?"
)
MAX_CALENDAR_BYTES = 16 << 10
_REFRESH = re.compile(
    r"""(?is)\s{0,20}[0-9.]{1,20}\s{0,20}[;,\s]\s{0,20}(?:url\s{0,20}=\s{0,20})?(?:'([^']*)|"([^"]*)|(.*))"""
)
_GIANT_NUMBER = re.compile(r"&#[0-9]{1000,}")  # no character; int() refuses numbers of 4,300 digits
_LINK_RELATIONS = ("canonical", "alternate", "next", "prev", "amphtml")
_NO_FOLLOW = frozenset(("nofollow", "ugc", "sponsored"))
_NO_PAGE_TYPES = ("rss", "atom", "json", "oembed", "opensearch", "xml", "css", "javascript", "image", "font")


class PageLink(NamedTuple):
    """A link as the page wrote it, character references decoded."""

    url: str
    text: str
    hreflang: str | None
    nofollow: bool  # nofollow, ugc or sponsored
    kind: str  # a, area, frame, canonical, alternate, next, prev, refresh


class Page(NamedTuple):
    """What a page says."""

    links: tuple[PageLink, ...]
    base: str | None  # of its base element, absolute; None: the page's own URL
    encoding: str  # Python's name of the codec
    title: str | None
    meta_robots: tuple[tuple[str, str], ...]  # (name, content) of every named meta element, in lower case names
    text_bytes: int  # UTF-8 bytes of the visible text without white space
    chinese_bytes: int  # of Han characters and full-width punctuation among them; 0 on a Japanese page
    content: bytes  # 16 bytes: hash of the visible text without numbers, white space, and names of months and days
    language: str | None  # declared
    soft_404: bool  # says that there is no page here


def read_page(body: bytes, content_type: str | None, url: str) -> Page:
    """Read a page; linear in its size, whatever it holds.

    Args:
        body: decompressed.
        content_type: the header's value; text/plain is text, anything else is read as HTML.
        url: where it was fetched, normalised.

    Raises:
        corpus.encoding.UndecodableError: no encoding makes text of it.
    """
    decoded = decode(body, content_type)
    page = decoded.text.encode()
    data, left = np.frombuffer(page, np.uint8), np.array([MAX_OTHER_TAGS, MAX_LINKS])
    out = np.empty(len(data), "<u4")
    rows = np.empty((left.sum(), 3), np.int32)
    ends = np.empty((len(rows), len(reader.ATTRIBUTES), 2), np.int32)
    is_html = not (content_type or "").lstrip().lower().startswith("text/plain")
    k, o, first, last = reader.read_tags(data, references(), reader.CHARACTERS, is_html, left, out, rows, ends)
    codes = out[:o]
    classes = reader.CHARACTERS[codes]
    sizes = 1 + (codes > 0x7F) + (codes > 0x7FF) + (codes > 0xFFFF)  # in UTF-8
    _white, number, numeral, other, han, mark, kana = np.bincount(classes, sizes, reader.KANA + 1).astype(int).tolist()
    han += numeral
    text_bytes = number + other + han + mark + kana
    text = codes.tobytes().decode("utf-32-le")
    bare = codes[classes > reader.NUMERAL].tobytes().decode("utf-32-le").encode()
    if len(bare) <= MAX_CALENDAR_BYTES:
        bare = _CALENDAR.sub(b"", bare.lower())
    title = " ".join(_plain(page[first : min(last, first + 4 * MAX_TITLE_CHARS)]).split())[:MAX_TITLE_CHARS] or None
    said: list[dict[str, str]] = [{} for _ in range(k)]
    noted = ends[:k, :, 0] >= 0
    for (row, number), (first, last) in zip(np.argwhere(noted).tolist(), ends[:k][noted].tolist(), strict=True):
        said[row][reader.ATTRIBUTES[number]] = _plain(page[first:last])
    links, metas, base, language = _tags(rows[:k].tolist(), said, text, url)
    return Page(
        links=links,
        base=base,
        encoding=decoded.encoding,
        title=title,
        meta_robots=metas,
        text_bytes=text_bytes,
        chinese_bytes=han + mark if kana <= MAX_KANA_RATIO * han else 0,
        content=xxhash.xxh3_128_digest(bare),
        language=language,
        soft_404=text_bytes <= MAX_SOFT_404_BYTES
        and any(_MISSING.search(part) for part in (title or "", text[:SOFT_404_HEAD_CHARS])),
    )


def warm_up() -> None:
    """Load the kernels, or compile them (half a minute, once a machine): inside a crawl, connections would time out."""
    read_page(b"<a href=x>x</a>", None, "http://a.test/")


def _plain(data: bytes) -> str:
    """A piece of the page, character references decoded; a character cut off at an end is left out."""
    text = data.decode("utf-8", "ignore")
    return html.unescape(_GIANT_NUMBER.sub("&#9999999", text)) if "&" in text else text


def _tags(
    rows: list[list[int]], said: list[dict[str, str]], text: str, url: str
) -> tuple[tuple[PageLink, ...], tuple[tuple[str, str], ...], str | None, str | None]:
    """Links, named meta elements, base and language."""
    links: list[PageLink] = []
    metas: list[tuple[str, str]] = []
    base = language = None
    for (tag, start, end), values in zip(rows, said, strict=True):
        name = reader.TAGS[tag]
        target, content, hreflang = values.get("href"), values.get("content"), values.get("hreflang")
        relations = values.get("rel", "").lower().split()
        if name in ("a", "area") and target is not None:
            words = text[start:end].encode()[:MAX_LINK_TEXT_BYTES].decode("utf-8", "ignore").strip()
            links.append(PageLink(target, words, hreflang, not _NO_FOLLOW.isdisjoint(relations), name))
        elif name in ("frame", "iframe") and values.get("src"):
            links.append(PageLink(values["src"], "", None, False, "frame"))
        elif name == "link" and target:
            kind = next((word for word in relations if word in _LINK_RELATIONS), None)
            media = values.get("type", "").lower()
            if kind and "stylesheet" not in relations and not any(one in media for one in _NO_PAGE_TYPES):
                links.append(PageLink(target, "", hreflang, False, kind))
        elif name == "meta" and content is not None:
            equivalent = values.get("http-equiv", "").strip().lower()
            if equivalent == "refresh" and (refreshed := refresh_target(content)):
                links.append(PageLink(refreshed, "", None, False, "refresh"))
            elif equivalent == "content-language":
                language = language or content
            if named := values.get("name", "").strip().lower():
                metas.append((named, content))
        elif name == "base" and base is None and target is not None:
            with suppress(BadUrl):
                base = normalize(target, url)
        elif name == "html":
            language = values.get("lang") or values.get("xml:lang") or language
    return tuple(links), tuple(metas), base, language.strip()[:35] if language else None


def refresh_target(content: str) -> str | None:
    """Where a meta refresh leads; None where it only loads the page again.

    >>> refresh_target("0; URL='/新/'"), refresh_target("30")
    ('/新/', None)
    """
    found = _REFRESH.match(content)
    return (found[1] or found[2] or found[3] or "").strip() or None if found else None
