"""What the crawler wants to know of a page: where it points, what it asks of crawlers, and how Chinese it is."""

from __future__ import annotations

import html
import re
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import xxhash

from corpus.crawl.pages import reader
from corpus.crawl.urls.url import BadUrl, normalize
from corpus.encoding import decode
from corpus.extract import lines, tables

MAX_LINKS = 2_000  # links of a page that are kept, in the page's order
MAX_OTHER_TAGS = 200  # meta, base and html tags
MAX_TITLE_CHARS = 300
MAX_LINK_TEXT_BYTES = 240  # 80 Han characters: a headline
# Kana to Han above which a page is Japanese. Of 2,000 Chinese pages none has 0.1; Japanese prose has more kana than Han.
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
    r"\s{0,20}[0-9.]{1,20}\s{0,20}[;,\s]\s{0,20}(?:url\s{0,20}=\s{0,20})?(.*)", re.IGNORECASE | re.DOTALL
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
    is_html = not (content_type or "").lstrip().lower().startswith("text/plain")
    rows, info, text, bare = _read(page, is_html)
    title = _title(page, info)
    links, metas, base, language = _tags(page, rows, text, url)
    han, kana = info[reader.NUM_COUNTS + reader.HAN], info[reader.NUM_COUNTS + reader.KANA]
    han += info[reader.NUM_COUNTS + reader.NUMERAL]
    chinese = han + info[reader.NUM_COUNTS + reader.PUNCTUATION] if kana <= MAX_KANA_RATIO * han else 0
    text_bytes = sum(info[reader.NUM_COUNTS :])
    if len(bare) <= MAX_CALENDAR_BYTES:
        bare = _CALENDAR.sub(b"", bare.lower())
    head = text[: 4 * SOFT_404_HEAD_CHARS].decode("utf-8", "ignore")[:SOFT_404_HEAD_CHARS]
    return Page(
        links=links,
        base=base,
        encoding=decoded.encoding,
        title=title,
        meta_robots=metas,
        text_bytes=text_bytes,
        chinese_bytes=chinese,
        content=xxhash.xxh3_128_digest(bare),
        language=language,
        soft_404=text_bytes <= MAX_SOFT_404_BYTES and any(_MISSING.search(part) for part in (title or "", head)),
    )


def warm_up() -> None:
    """Load the kernels, or compile them (half a minute, once a machine): inside a crawl, connections would time out."""
    read_page(b"<a href=x>x</a>", None, "http://a.test/")


@lru_cache(maxsize=1)
def _tables() -> tables.Tables:
    return tables.tables(lines.START_CHARACTERS, lines.INSIDE_CHARACTERS, lines.BYLINE_CHARACTERS)


def _read(page: bytes, is_html: bool) -> tuple[list[list[int]], list[int], bytes, bytes]:
    """Rows of the tags, `info` of the reader, the text, and the text without numbers and white space."""
    found = _tables()
    data = np.frombuffer(page, np.uint8)
    out = np.empty(2 * len(data) + 64, np.uint8)
    bare = np.empty(2 * len(data) + 64, np.uint8)
    rows = np.empty((MAX_LINKS + MAX_OTHER_TAGS, reader.ROW_COLUMNS), np.int32)
    info = np.zeros(reader.INFO_COLUMNS, np.int64)
    reader.read_tags(
        data,
        found.elements,
        found.references,
        is_html,
        MAX_LINKS,
        out,
        bare,
        rows,
        info,
    )
    facts = info.tolist()
    text, letters = out[: facts[reader.TEXT_BYTES]].tobytes(), bare[: facts[reader.BARE_BYTES]].tobytes()
    return rows[: facts[reader.NUM_ROWS]].tolist(), facts, text, letters


def _title(page: bytes, info: list[int]) -> str | None:
    start, end = info[reader.TITLE_START], info[reader.TITLE_END]
    if start < 0:
        return None
    return " ".join(_plain(page[start : min(end, start + 4 * MAX_TITLE_CHARS)]).split())[:MAX_TITLE_CHARS] or None


def _plain(data: bytes) -> str:
    """A piece of the page, character references decoded; a character cut off at an end is left out."""
    text = data.decode("utf-8", "ignore")
    return html.unescape(_GIANT_NUMBER.sub("&#9999999", text)) if "&" in text else text


def _value(page: bytes, row: list[int], attribute: int) -> str | None:
    start, end = row[reader.FIRST_VALUE + 2 * attribute], row[reader.FIRST_VALUE + 2 * attribute + 1]
    return _plain(page[start:end]) if start >= 0 else None


def _tags(
    page: bytes, rows: list[list[int]], text: bytes, url: str
) -> tuple[tuple[PageLink, ...], tuple[tuple[str, str], ...], str | None, str | None]:
    """Links, named meta elements, base and language."""
    links: list[PageLink] = []
    metas: list[tuple[str, str]] = []
    base = language = None
    for row in rows:
        tag = row[reader.TAG]
        if tag == reader.TAG_A or tag == reader.TAG_AREA:
            if (target := _value(page, row, reader.HREF)) is not None:
                links.append(_anchor(page, row, text, target))
        elif tag == reader.TAG_FRAME:
            if target := _value(page, row, reader.SRC):
                links.append(PageLink(target, "", None, False, "frame"))
        elif tag == reader.TAG_LINK:
            if link := _relation(page, row):
                links.append(link)
        elif tag == reader.TAG_META:
            content = _value(page, row, reader.CONTENT)
            equivalent = (_value(page, row, reader.HTTP_EQUIV) or "").strip().lower()
            name = (_value(page, row, reader.NAME) or "").strip().lower()
            if content is None:
                continue
            if equivalent == "refresh":
                if target := refresh_target(content):
                    links.append(PageLink(target, "", None, False, "refresh"))
            elif equivalent == "content-language":
                language = language or content
            if name:
                metas.append((name, content))
        elif tag == reader.TAG_BASE:
            if base is None and (target := _value(page, row, reader.HREF)) is not None:
                base = _absolute(target, url)
        elif tag == reader.TAG_HTML:
            language = _value(page, row, reader.LANG) or _value(page, row, reader.XML_LANG) or language
    return tuple(links), tuple(metas), base, language.strip()[:35] if language else None


def _anchor(page: bytes, row: list[int], text: bytes, target: str) -> PageLink:
    start, end = row[reader.TEXT_START], row[reader.TEXT_END]
    words = text[start : min(end, start + MAX_LINK_TEXT_BYTES)].decode("utf-8", "ignore").strip()
    relations = _value(page, row, reader.REL)
    nofollow = relations is not None and not _NO_FOLLOW.isdisjoint(relations.lower().split())
    kind = "a" if row[reader.TAG] == reader.TAG_A else "area"
    return PageLink(target, words, _value(page, row, reader.HREFLANG), nofollow, kind)


def _relation(page: bytes, row: list[int]) -> PageLink | None:
    """The page that a link element names, if it is one of ours to visit."""
    target = _value(page, row, reader.HREF)
    words = (_value(page, row, reader.REL) or "").lower().split()
    kind = next((word for word in words if word in _LINK_RELATIONS), None)
    media = (_value(page, row, reader.TYPE) or "").lower()
    if not target or kind is None or "stylesheet" in words or any(name in media for name in _NO_PAGE_TYPES if media):
        return None
    return PageLink(target, "", _value(page, row, reader.HREFLANG), False, kind)


def _absolute(target: str, url: str) -> str | None:
    try:
        return normalize(target, url)
    except BadUrl:
        return None


def refresh_target(content: str) -> str | None:
    """Where a meta refresh leads; None where it only loads the page again.

    >>> refresh_target("0; URL='/新/'"), refresh_target("30")
    ('/新/', None)
    """
    found = _REFRESH.match(content)
    target = found[1].strip() if found else ""
    if target[:1] in ("'", '"'):
        target = target[1:].partition(target[0])[0]
    return target or None
