"""Title, date and author of a page: what its head, its JSON-LD and the lines around its headline say."""

from __future__ import annotations

import html
import re
from datetime import date
from typing import NamedTuple

MAX_TITLE_CHARS = 300
MAX_AUTHOR_CHARS = 60
MAX_HEAD_BYTES = 100_000  # metadata further down are not looked at
MAX_META_TAGS = 100
MAX_JSON_BYTES = 400  # behind a key

_META = re.compile(rb"<meta\s([^<>]{1,1500})>", re.IGNORECASE)
_META_NAME = re.compile(
    rb"""(?:property|name|itemprop)\s*=\s*["']?\s*(og:title|article:published_time|og:release_date|datepublished|"""
    rb"""pubdate|publishdate|date|dc\.date|article:author|og:article:author|author|dc\.creator)\s*(?:["'\s/]|$)""",
    re.IGNORECASE,
)
_CONTENT = re.compile(rb"""content\s*=\s*(?:"([^"]*)"|'([^']*)'|([^\s"'>]+))""", re.IGNORECASE)
_TIME = re.compile(rb"""<time\s[^<>]{0,500}?datetime\s*=\s*["']?([^"'<>]{4,40})""", re.IGNORECASE)
_JSON_AUTHOR = re.compile(rb"""\s*:\s*[\[{\s]*(?:[^{}\[\]]{0,200}?"name"\s*:\s*)?"([^"\\]{1,120})\"""")
_DATE_NAMES = (
    (b"article:published_time",),
    (b"datepublished", b"pubdate", b"publishdate"),
    (b"date", b"dc.date", b"og:release_date"),
)
_AUTHOR_NAMES = (b"author", b"article:author", b"og:article:author", b"dc.creator")
_SITE_SUFFIX = re.compile(r"\s*[_|｜\-–—－]+\s*")
_TITLE_PARTS = re.compile(r"\s*[_|｜]+\s*|\s+[-–—－]+\s+|——")
_DATE = re.compile(r"(?<!\d)((?:19|20)\d\d)\s*[-/.年]\s*(\d{1,2})\s*[-/.月]\s*(\d{1,2})(?!\d)")
_COMPACT_DATE = re.compile(r"^((?:19|20)\d\d)(\d\d)(\d\d)(?!\d)")
_DATED = re.compile(r"\d{1,2}[:：]\d\d|发布|發布|发表|發表|日期|时间|時間|来源|來源|更新|作者|记者|記者")
_NAME = r"([\u4e00-\u9fff·]{2,12}|[A-Za-z][A-Za-z .\-]{1,38}[A-Za-z])"
_BYLINE = re.compile(
    rf"(?:作者|撰文|撰稿人?)\s*[:：/／]\s*{_NAME}|(?:记者|記者)\s*[:：／/]?\s*([\u4e00-\u9fff]{{2,4}})(?=\s|$|[）)／/、，])"
)
_NO_AUTHOR = frozenset(
    "admin administrator root author null none undefined 管理员 未知 佚名 本站 网络 编辑 小编".split()
)


class Facts(NamedTuple):
    """What the head of a page says; every field may be missing."""

    title: str | None
    date: str | None
    author: str | None


def head_facts(page: bytes, head_bytes: int) -> Facts:
    """Facts from the meta elements among the first `head_bytes` bytes of a page."""
    found: dict[bytes, bytes] = {}
    end = min(head_bytes, MAX_HEAD_BYTES)
    for index, tag in enumerate(_META.finditer(page, 0, end)):
        name = _META_NAME.search(tag[1])
        if name is None or index >= MAX_META_TAGS:
            continue
        content = _CONTENT.search(tag[1])
        if content is not None:
            found.setdefault(name[1].lower(), content[1] or content[2] or content[3] or b"")
    title = plain(found.get(b"og:title", b""))
    published = next((day for names in _DATE_NAMES for name in names if (day := _day(found.get(name, b"")))), None)
    author = next((who for name in _AUTHOR_NAMES if (who := clean_author(plain(found.get(name, b""))))), None)
    return Facts(title or None, published, author)


def later_date(page: bytes) -> str | None:
    """The date of JSON-LD or of the first time element; for pages whose head has none."""
    for key in (b'"datePublished"', b'"pubDate"', b"var publish_time"):
        place = page.find(key)
        if place >= 0:
            found = iso_date(_text(page[place + len(key) : place + len(key) + 60]))
            if found:
                return found
    place = page.find(b"<time")
    element = _TIME.search(page, place, place + 20_000) if place >= 0 else None
    return iso_date(_text(element[1])) if element else None


def later_author(page: bytes) -> str | None:
    """The author of JSON-LD; for pages whose head has none."""
    place = page.find(b'"author"')
    if place < 0:
        return None
    found = _JSON_AUTHOR.match(page, place + 8, place + MAX_JSON_BYTES)
    return clean_author(plain(found[1])) if found else None


def title_of(tag: str, heading: str) -> str | None:
    """The title tag, else the first heading; what stands behind the headline there (channel, site) is cut.

    >>> title_of("木匠和他的河_文海新闻网", "木匠和他的河")
    '木匠和他的河'
    """
    title = tag or heading
    if heading and title != heading and title.startswith(heading) and _SITE_SUFFIX.match(title, len(heading)):
        title = heading
    return title[:MAX_TITLE_CHARS] or None


def headline_in(tag: str) -> str:
    """What of a title tag may be the headline: the part before the first _ | or spaced dash.

    >>> headline_in("木匠和他的河_国内_文海新闻网")
    '木匠和他的河'
    """
    return _TITLE_PARTS.split(tag, maxsplit=1)[0]


def is_dated(line: str) -> bool:
    """Whether a short line says when the page was published: it has a time of day, or a word like 发布 or 来源."""
    return _DATED.search(line) is not None


def iso_date(text: str) -> str | None:
    """The first date of a text as YYYY-MM-DD.

    >>> iso_date("发布于2021年3月4日"), iso_date("2020-13-45")
    ('2021-03-04', None)
    """
    found = _DATE.search(text[:200]) or _COMPACT_DATE.search(text[:200].strip())
    if not found:
        return None
    try:
        return date(int(found.group(1)), int(found.group(2)), int(found.group(3))).isoformat()
    except ValueError:
        return None


def byline(line: str) -> str | None:
    """The author that a line under the headline names.

    >>> byline("2021-03-04 来源：日报 作者：李四 编辑：张三"), byline("作者认为，此事不难")
    ('李四', None)
    """
    found = _BYLINE.search(line)
    return clean_author(found[1] or found[2]) if found else None


def clean_author(name: str) -> str | None:
    """A name, or nothing where it is an address, a role or too long to be one."""
    name = name.strip(" \t,，、;；:：/|")
    if not name or len(name) > MAX_AUTHOR_CHARS or "://" in name or "@" in name or name.lower() in _NO_AUTHOR:
        return None
    return name


def plain(text: bytes) -> str:
    """The text of an attribute or a title, without references and with single spaces.

    >>> plain("a &amp;\\n 乙".encode())
    'a & 乙'
    """
    decoded = _text(text)
    return " ".join((html.unescape(decoded) if "&" in decoded else decoded).split())


def _day(text: bytes) -> str | None:
    return iso_date(_text(text)) if text else None


def _text(data: bytes) -> str:
    return data.decode("utf-8", "ignore")
