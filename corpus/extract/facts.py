"""Title, date and author of a page: what a reader sees as headline and byline, else what head and JSON-LD say.

The title is the heading, or the text of another element, that agrees with the title tag or og:title, so that channel and
site behind it go; without one it is the tag up to its first separator. The day is told by meta elements, JSON-LD, or a
dated line around the headline. The author is whom a byline, JSON-LD or an element of that class names. An organisation
that is merely the source, and a name that the page does not show, are no author: rather nothing than something wrong.

All of it is linear in the page: three searches for fixed strings, and patterns over windows of fixed size.
"""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterable, Iterator
from datetime import UTC, date, datetime, timedelta
from itertools import accumulate, product
from typing import NamedTuple

MAX_TITLE_CHARS = 300
MAX_AUTHOR_CHARS = 30
MAX_HEAD_BYTES = 100_000  # metadata further down are not looked at
MAX_META_TAGS = 100
MIN_OVERLAP = 0.25  # of pairs of letters of the only h1 with the title tag, for it to be the title
MIN_PART = 0.4  # of a title tag's letters that a text from its middle must have
MAX_SITE_CHARS = 8  # so short a title that ends as a site's name does, and is not on the page, is that name
MAX_HEADINGS = 60
ENOUGH = 3.1  # of agreement and worth: no other heading is looked at
MAX_KEY_CHARS, MAX_PLACES = 8, 30  # of the title's first characters in the page
WINDOW_BEFORE, WINDOW_AFTER = 800, 5_000  # bytes around the headline in which date and author may stand
MAX_HINTS = 8  # of each word of _AUTHOR_WORDS
MAX_LINE_CHARS = 120  # of a dated line or byline
MAX_DATE_CHARS = 28  # of a line that begins with a date
MIN_TEXT_CHARS, MAX_TEXTS = 40, 3  # of a line of text; so many of them end what is near the headline
MAX_HEAD_CHARS = 16  # of the head of comments
LOCAL_HOURS = 8  # ahead of UTC is the reader of a Chinese page

_META = re.compile(rb"<meta\s([^<>]{1,1500})>", re.IGNORECASE)
_META_NAME = re.compile(rb"""(?:property|name|itemprop)\s*=\s*["']?\s*([\w:.]{4,30})\s*(?:["'\s/]|$)""", re.IGNORECASE)
_CONTENT = re.compile(rb"""content\s*=\s*(?:"([^"]*)"|'([^']*)'|([^\s"'>]+))""", re.IGNORECASE)
_TITLE_TAG = re.compile(rb"<title[^<>]{0,200}>", re.IGNORECASE)
_TITLE_END = re.compile(rb"</title", re.IGNORECASE)
_HEADING = re.compile(rb"<[hH]([123])(?=[\s>])")
_ELEMENT = re.compile(rb"<([^<>]{1,800})>([^<]{0,500})")
_TAG = re.compile(r"<[^<>]{0,800}>")
_URL = re.compile(rb"""<link[^<>]{0,200}canonical[^<>]{0,200}href\s*=\s*["']?([^"'<>\s]{1,300})""", re.IGNORECASE)
_JSON_AUTHOR = re.compile(rb"""\s*:\s*(?:\[?\s*\{[^{}\[\]]{0,200}?"name"\s*:\s*|\[?\s*)("[^"\n]{1,200}")""")
_SEPARATOR = re.compile(r"\s*[_|｜]+\s*|\s+[-–—－·•»]+\s+|\s*(?:-{2,}|—{2,})\s*|\s*[-–—－]\s*|\s+|(?=[（(【])")
_STRONG = re.compile(r"\s*[_|｜]+\s*|\s+[-–—－]+\s+|-{2,}")
_SITE = re.compile(
    r"(?:网|网站|站|门户|频道|日报|晚报|新闻|社区|论坛|博客|百科|文库|官网|首页|中心|大学|学院|医院|公司|政府|[Bb]log|BBS)$"
)
_SITE_ONLY = re.compile(r"^欢迎|(?:网|网站|首页|主页|欢迎您|办公室|大学|学院|中心|[Bb]log|博客|论坛|BBS)$")
_TITLED = re.compile(
    rb"""<(?:div|td|p|span|strong|font)\s[^<>]{0,200}?(?:class|id)\s*=\s*["']?[\w-]{0,30}(?:title|headline|heading)"""
    rb"""(?:["'\s][^<>]{0,300})?>\s*([^<>]{12,300})<""",
    re.IGNORECASE,
)
_COUNTER = re.compile(r"^[（(]\d[^（）()]{0,30}[)）]\s*")  # unread messages
_BLOCK = re.compile(
    r"</?(?:p|div|li|[uod]l|t[rdh]|table|h[1-6]|section|article|header|footer|d[td]|form|br|hr|main|title|body)(?=[\s/>])[^<>]{0,800}>",
    re.IGNORECASE,
)
_CODE = re.compile(rb"<(?:script|style|!--)[^<]*", re.IGNORECASE)
_WORTH = (0.9, 0.6, 0.5)  # of h1, h2, h3
_DATE_METAS = (
    b"article:published_time datepublished pubdate publishdate og:release_date date dc.date publish_date publish_time "
    b"publishtime datecreated"
).split()
_DATE_KEYS = (b'"datePublished"', b'"pubDate"', b"var publish_time", b"var ct ", b"var createTime")
_DATE = re.compile(r"(?<!\d)((?:19|20)\d\d)\s*[-/.年]\s*(\d{1,2})\s*[-/.月]\s*(\d{1,2})(?!\d)")
_COMPACT_DATE = re.compile(r"^((?:19|20)\d\d)(\d\d)(\d\d)(?!\d)")
_ENGLISH_DATE = re.compile(
    r"(?:\b\w{3,9}day,?\s+)?\b(?:(\d{1,2})\s+)?(Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)[a-z]{0,6}\.?\s+(?:(\d{1,2}),?\s+)?((?:19|20)\d\d)\b"
)
_MONTHS = "Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec".split()
_YEAR = re.compile("199[5-9]|20[0-9][0-9]")
_EPOCH = re.compile(r"""^[\s=:"']{1,6}(1[0-9]{9})\b""")
_URL_DATE = re.compile(r"[/_t]((?:19|20)\d\d)[-/_]?([01]\d)[-/_]?([0-3]\d)(?=[/_.-])")
_DATE_WORD = re.compile(
    r"发布|發布|发表|發表|刊登|(?:^|\W)日期|时间|時間|来源|來源|更新|作者|记者|記者|編輯|编辑|阅读|浏览|posted",
    re.IGNORECASE,
)
_TIME_OF_DAY = re.compile(r"\d{1,2}[:：]\d\d")
_AUTHOR_WORDS = (
    b"author writer byline nickname username user-name user_name u-name userlink js_name rich_media_meta_text".split()
)
_NAME_OF_TAG = re.compile(rb"<([a-zA-Z]{1,15})")
_NAMING = re.compile(rb"""(?:class|id|itemprop|rel)\s*=\s*["']?[^"'=]{0,80}$""", re.IGNORECASE)
_LABEL = re.compile(
    r"(?:^|[\s\[【（(|｜·,，。；;>])(?:(?:本文|文章|原文|原创|原創)?(?:作者|撰文|撰稿人?|执笔|发布者|发帖人|楼主|博主)|文)\s*[:：/／|｜]\s*"
    r"|^(?:作者|撰文|撰稿|执笔)\s+"
)
_SURNAMES = (  # of nine persons in ten
    "王李张刘陈杨黄赵吴周徐孙马朱胡郭何林罗高郑梁谢宋唐许韩冯邓曹彭曾肖田董袁潘于蒋蔡余杜叶程苏魏吕丁任沈姚卢姜崔钟谭陆汪范金石廖贾夏"
    "韦付方白邹孟熊秦邱江尹薛闫段雷侯龙史陶黎贺顾毛郝龚邵万钱严覃武戴莫孔向汤单裴葛常温康施文牛樊邢安齐易乔伍庞颜倪庄聂章鲁岳翟殷詹申"
    "伊臧佘柴苗路鲍骆丛解匡栾盛宫辛冷欧耿关兰焦俞左柳甘祝包宁尚符舒阮柯纪梅童凌毕裘裴奚岑費張劉陳楊黃趙吳孫馬羅鄭謝許韓馮鄧蕭葉蘇魏呂盧鍾譚陸賈韋鄒龍黎賀顧龔嚴萬錢莊聶"
)
_NAME = rf"[{_SURNAMES}][\u4e00-\u9fff·]{{1,5}}"
_PERSONS = rf"({_NAME}(?:\s?[\s、，,]\s?[\u4e00-\u9fff·]{{2,4}}){{0,3}})"
_REPORTERS = r"[\u4e00-\u9fff·\s□■]{0,18}(?:记者|記者|通讯员|特约撰稿人?)\s*[:：/／|｜]?\s*"
_BY_REPORTER = re.compile(  # a line, the end of a paragraph, or its beginning as in Taiwan
    rf"^[（(【\[]?{_REPORTERS}{_PERSONS}\s*(?:[)）\]】]|$|[/／]|\s(?:来源|编辑|责编|责任编辑|摄影|报道|\d{{4}}))"
    rf"|[。！？”][（(]{_REPORTERS}{_PERSONS}\s*[)）]$"
    rf"|^【[\u4e00-\u9fff]{{2,8}}[/／]{_PERSONS}】"
)
_MAYBE_BYLINE = re.compile("[者文撰笔员（(【]")
_WORD = r"[^\s:：,，。;；、|｜()（）\[\]【】<>《》/／\"“”&＆!?！？]{2,20}"
_NAMES = re.compile(
    rf"([A-Z][a-z]{{1,15}}(?:\s[A-Z][a-z.]{{0,15}}){{1,2}}|{_WORD})((?:\s?[、,，&＆/]\s?{_WORD}|\s[\u4e00-\u9fff]{{2,4}}(?![\u4e00-\u9fff:：])){{0,3}})"
)
_BEFORE_NAME = frozenset("作者,文,本文作者,楼主,由,By,by,Posted by,posted by".split(","))
_OTHER_ROLE = re.compile(
    r"编辑|編輯|来源|來源|责编|校对|审核|摄影|图源|发布|時間|时间|浏览|阅读|关注|粉丝|出处|转载|投稿|点击|我有"
)
_KEY_END = re.compile("[&<>\"'\\s_|-]")
_COMMENTS = re.compile(r"[\u4e00-\u9fff]{0,4}(?:评论|評論|评价|留言|相关|推荐|猜你)")
_NO_LETTERS = re.compile(r"[\W_]+")
_SPACED_NAME = re.compile(r"(?<![\u4e00-\u9fff])([\u4e00-\u9fff])\s([\u4e00-\u9fff])(?![\u4e00-\u9fff])")
_LONG_NAME = re.compile(r"[\u4e00-\u9fff]{9}")
_REPORTER = re.compile(r"^.{0,14}?(?:记者|記者|通讯员|作者)\s*[:：]?\s*(?=\S)")
_AFFILIATION = re.compile(
    r"^[\u4e00-\u9fff]{2,20}(?:大学|学院|研究院|研究所|研究中心|报社|日报)([\u4e00-\u9fff]{2,4})$"
)
_ORGANISATION = re.compile(
    r"^(?:新浪|网易|搜狐|腾讯|凤凰网|人民网|新华|中新|央视|光明|环球|百度|太平洋)|(?:报|報|版|社区|网|網|网站|新闻|社|电视台|电台|频道|客户端|中心|部|委|局|厅|院|处|所|科|会|支部|办|办公室|组|杂志|周刊|资讯|财经|"
    r"科技|娱乐|体育|集团|公司|大学|医院|银行|平台|号|自媒体综合|整理|原创|转载|来源|供稿)$"
)
_NO_NAME = re.compile(r"^[\d\W]+$|\.(?:com|cn|net|org)\b|[。！？!?，：:@]|//")
_NO_AUTHOR = frozenset(
    "admin administrator root author null none undefined 管理员 未知 佚名 本站 网络 编辑 小编 作者 匿名 原创 楼主 关注 登录 "
    "网易 新浪 搜狐 腾讯 百度 凤凰 互联网 专栏 热门 我的 投诉 举报 分享 收藏 个人 主页".split()
)


class Headline(NamedTuple):
    """The title of a page, and the byte behind the element that shows it (-1: none does)."""

    title: str | None
    place: int


Heading = tuple[int, float, list[str]]  # byte behind the start tag, worth, texts: between its tags, and the whole


class Announced(NamedTuple):
    """What the head says of the title: the text, its letters, where it may end, its parts between strong separators."""

    text: str
    letters: str
    beginnings: frozenset[str]
    strong: list[str]

    @classmethod
    def of(cls, title: str) -> Announced:
        """The parts of a title."""
        parts = [letters(part) for part in _SEPARATOR.split(title)]
        strong = [letters(part) for part in _STRONG.split(title)]
        return cls(title, letters(title), frozenset(accumulate(parts)), strong)


class Near(NamedTuple):
    """The bytes behind the headline and before it, and the lines that they make."""

    html: bytes
    lines: list[str]


def head_metas(page: bytes) -> dict[bytes, bytes]:
    """The first content of each meta element of the head, by its name in lower case."""
    found: dict[bytes, bytes] = {}
    body = page.find(b"<body")
    end = min(body if body >= 0 else len(page), MAX_HEAD_BYTES)
    for _, tag in zip(range(MAX_META_TAGS), _META.finditer(page, 0, end), strict=False):
        name = _META_NAME.search(tag[1])
        content = _CONTENT.search(tag[1]) if name else None
        if name and content:
            key, value = name[1].lower(), content[1] or content[2] or content[3] or b""
            found.setdefault(key, value)
            found.setdefault(key.rpartition(b":")[2], value)
    return found


def headline(page: bytes, metas: dict[bytes, bytes]) -> Headline:
    """The title as the page shows it, by what agrees with the title tag or og:title.

    >>> headline("<title>木匠和他的河_国内_文海网</title><h1>文海网</h1><h2>木匠和他的河</h2>".encode(), {}).title
    '木匠和他的河'
    """
    tag = _TITLE_TAG.search(page, 0, 2 * MAX_HEAD_BYTES)
    start = tag.end() if tag else 0
    end = _TITLE_END.search(page, start, start + 8 * MAX_TITLE_CHARS) if tag else None
    titles = [" ".join(_TAG.sub(" ", plain(page[start : end.start()])).split())[:MAX_TITLE_CHARS]] if end else []
    start = end.end() if end else start
    titles += [plain(metas[key])[:MAX_TITLE_CHARS] for key in (b"og:title", b"articletitle") if metas.get(key)]
    titles += [short for title in titles if (short := _COUNTER.sub("", title)) != title]
    titles = [title for title in dict.fromkeys(titles) if letters(title)]
    announced = [Announced.of(title) for title in titles]
    best, best_score, whole = Headline(None, -1), 0.0, False
    headings = []
    for place, worth, texts in _headings(page, start):
        headings.append((place, worth, texts))
        for title, text in product(announced, texts):
            score = agreement(text, title)
            whole = whole or score == 3.0
            if score and score + worth > best_score:
                best, best_score = Headline(text[:MAX_TITLE_CHARS], place), score + worth
        if best_score > ENOUGH:
            break
    keys = {_KEY_END.split(title.text, maxsplit=1)[0][:MAX_KEY_CHARS]: None for title in announced if not whole}
    for place, worth, text in (found for key in keys for found in _places(page, key.encode(), start)):
        for title in announced:
            score = agreement(text, title)
            if score == 3.0 and _SITE.search(text) and (cut := without_site(text)) != text:
                text, score = cut, 2.0  # hidden, for sharing
            if score and score + worth > best_score:
                best, best_score = Headline(text[:MAX_TITLE_CHARS], place), score + worth
    tops = [(texts[-1], place) for place, worth, texts in headings if worth == _WORTH[0] and len(texts[-1]) >= 4]
    shown = any(place == best.place for place, _, _ in headings)
    if len(tops) == 1 and not shown:
        text, place = tops[0]
        if not titles or not without_site(titles[0]) or _overlap(text, " ".join(titles)) >= MIN_OVERLAP:
            return Headline(text[:MAX_TITLE_CHARS], place)
    site = {letters(plain(metas.get(key, b""))) for key in (b"og:site_name", b"application-name", b"sitename")}
    cut = best.title or (without_site(titles[-1] if len(titles) > 1 else titles[0]) if titles else "")
    is_site = not letters(cut) or letters(cut) in site or _SITE_ONLY.search(cut) is not None
    if not best.title and len(cut) <= MAX_SITE_CHARS:
        is_site = is_site or _SITE.search(cut) is not None
    others = [top for top in tops if top[1] != best.place]
    if is_site and len(tops) == 2 and len(others) == 1:
        return Headline(others[0][0][:MAX_TITLE_CHARS], others[0][1])
    if shown or not is_site:
        return best if best.title else Headline(cut, -1)
    found = _TITLED.search(page, start)
    return Headline(plain(found[1])[:MAX_TITLE_CHARS], found.start(1)) if found else best


def agreement(shown: str, title: Announced) -> float:
    """How well a text of the page is what a title announces: 0 for not at all, 2 and more for the whole or its beginning.

    >>> title = Announced.of("剑来_第十四章_纵横网")
    >>> [agreement(text, title) > 0 for text in ("剑来", "第十四章", "纵横网", "第十")]
    [True, True, False, False]
    """
    a, b = letters(shown), title.letters
    if len(a) < 2 or not (a in b or a.startswith(b)):
        return 0.0
    if a == b:
        return 3.0
    if a in title.beginnings:
        first = len(title.strong[0])
        return (2.0 if len(a) > 3 else 1.5) + 0.5 * min(len(a), first) / len(b) - 0.6 * (len(a) > first)
    if len(b) >= 6 and a.startswith(b):  # the title was cut
        return 1.9 if len(a) < 3 * len(b) else 0.0
    if len(a) >= 8 and b.startswith(a):  # the site added its own words
        return 2.0
    if len(a) >= 4 and b.endswith(a) and b[: -len(a)] in title.beginnings and not _SITE.search(shown):
        return 1.2
    is_part = (len(a) >= 4 and a in title.strong[1:-1]) or len(a) >= max(8, MIN_PART * len(b))
    return 1.5 if is_part else 0.0


def without_site(title: str) -> str:
    """A title tag without what stands behind the headline: all after the first _ | or spaced dash, a site after a dash.

    >>> without_site("木匠和他的河_国内_文海新闻网"), without_site("河-新华网"), without_site("X-光"), without_site("_文海网")
    ('木匠和他的河', '河', 'X-光', '')
    """
    cut = _STRONG.split(title, maxsplit=1)[0].strip()
    head, dash, tail = cut.rpartition("-")
    return head.rstrip() if dash and len(tail) <= 16 and _SITE.search(tail) else cut


def publication_day(page: bytes, metas: dict[bytes, bytes], near: Near, lines: Iterable[str]) -> str | None:
    """The day as YYYY-MM-DD: of meta elements, scripts, a dated line by the headline, the first time element, or the address.

    Args:
        page: UTF-8.
        metas: of `head_metas`.
        near: of `near_headline`.
        lines: short lines of text at the article's head and foot.
    """
    for name in _DATE_METAS:
        if (content := metas.get(name)) and (day := iso_date(plain(content))):
            return day
    for line in near.lines:
        if is_dated(line) and (day := iso_date(line)):
            return day
    for key in _DATE_KEYS:
        place = page.find(key)
        if place >= 0 and (day := iso_date(_text(page[place + len(key) : place + len(key) + 60]))):
            return day
    place = page.find(b"<time")
    if place >= 0 and (tag := _ELEMENT.match(page, place)):
        if day := iso_date(plain(tag[2])) or iso_date(_text(tag[1].partition(b"datetime=")[2][:40])):
            return day
    for line in lines:
        if _DATE_WORD.search(line) and is_dated(line) and (day := iso_date(line)):
            return day
    link = _URL.search(page, 0, MAX_HEAD_BYTES)
    found = _URL_DATE.search(_text(link[1] if link else metas.get(b"og:url", b"")))
    return _iso(found[1], found[2], found[3]) if found else None


def author_of(page: bytes, metas: dict[bytes, bytes], near: Near, lines: Iterable[str]) -> str | None:
    """The person or account that a byline near the headline or at the foot, JSON-LD, or an element of that class names."""
    for line in near.lines:
        if len(line) <= MAX_LINE_CHARS and (name := byline(line)):
            return name
    place = page.find(b"application/ld+json")
    place = page.find(b'"author"', place, page.find(b"</script", place)) if place >= 0 else -1
    found = _JSON_AUTHOR.match(page, place + 8, place + 400) if place >= 0 else None
    if found and (name := clean_author(_json_text(found[1]))):
        return name
    if name := hinted_author(near.html):
        return name
    for line in lines:
        if name := byline(line):
            return name
    for key in (b"author", b"article:author", b"og:article:author"):
        if (name := clean_author(plain(metas.get(key, b"")))) and is_shown(page, name):
            return name
    return None


def hinted_author(page: bytes) -> str | None:
    """The name in the first element whose class, id, rel or itemprop speaks of an author."""
    lower = page.lower()
    places = sorted(place for word in _AUTHOR_WORDS for place in _find_all(lower, word, 0, MAX_HINTS))
    for place in places[:MAX_HINTS]:
        start = page.rfind(b"<", 0, place)
        if start < 0 or page[start + 1 : start + 2] in b"hH/" or not _NAMING.search(page[start:place]):
            continue
        opened = _NAME_OF_TAG.match(page, start)
        name, depth, tries = opened[1] if opened else b"", 0, 2
        for tag in _ELEMENT.finditer(page, start, start + 2_000):
            depth += tag[1].startswith(name) - tag[1].startswith(b"/" + name)
            text = plain(tag[2]) if depth > 0 else ""
            if tag[1].startswith(b"meta ") and b"name" in tag[1] and (content := _CONTENT.search(tag[1])):
                text = plain(content[1] or content[2] or content[3] or b"")
            if letters(text) and text.strip(" :：") not in _BEFORE_NAME:
                if not _OTHER_ROLE.search(text) and (who := clean_author(text)):
                    return who
                tries -= 1
            if depth <= 0 or not tries:
                break
    return None


def byline(line: str) -> str | None:
    """The author that a short line names.

    >>> byline("2021-03-04 来源：日报 作者：李四 编辑：张三"), byline("作者认为，此事不难"), byline("本报记者 王 乐 文海")
    ('李四', None, '王乐、文海')
    """
    if len(line) > MAX_LINE_CHARS:
        line = "…" + line[-MAX_LINE_CHARS // 2 :]
    if not _MAYBE_BYLINE.search(line):
        return None
    line = _SPACED_NAME.sub(r"\1\2", line)
    label = None if line[0] == "…" else _LABEL.search(line)
    found = _NAMES.match(line, label.end()) if label else None
    reporters = None if found else _BY_REPORTER.search(line)
    whom = next(filter(None, reporters.groups())) if reporters else found[0] if found else ""
    names = re.split(r"[、,，&＆/]+|(?<![a-zA-Z.])\s+|\s+(?![A-Z])", whom)
    if not names[0] or _LONG_NAME.match(names[0]):
        return None
    cleaned = [who for name in names if not _OTHER_ROLE.search(name) and (who := clean_author(name))]
    return "、".join(cleaned) if cleaned and clean_author(names[0]) else None


def clean_author(name: str) -> str | None:
    """A name, or nothing where it is an address, a role, a number, an organisation or too long to be one.

    >>> clean_author("记者王敬照"), clean_author("武汉大学历史学院郭伦"), clean_author("新京报"), clean_author("104363")
    ('王敬照', '郭伦', None, None)
    """
    name = _REPORTER.sub("", _SPACED_NAME.sub(r"\1\2", name.strip(" \t,，、;；:：/|@[]【】()（）")))
    name = re.split(r"[/／|｜(（]", name, maxsplit=1)[0].strip()
    name = _AFFILIATION.sub(r"\1", name)
    if any(_ORGANISATION.search(part) for part in name.split()):
        return None
    if name.lower() in _NO_AUTHOR or _NO_NAME.search(name) or len(name) > MAX_AUTHOR_CHARS:
        return None
    return name if len(letters(name).encode()) >= 3 else None


def is_shown(page: bytes, name: str) -> bool:
    """Whether an element of the body says just this name, and is not that of source or editor."""
    place = page.find(f">{name}<".encode(), max(0, page.find(b"<body")))
    return place >= 0 and not re.search(
        "source|来源|來源|编辑|責編|责编|media|editor".encode(), page[max(0, place - 150) : place]
    )


def near_headline(page: bytes, place: int) -> Near:
    """What stands behind the headline at a byte, up to some text, then what stands before it; without scripts and styles."""
    if place < 0:
        return Near(b"", [])
    behind, before = page[place : place + WINDOW_AFTER], page[max(0, place - WINDOW_BEFORE) : place]
    behind, before = behind[behind.find(b">") + 1 :], before[before.find(b">") + 1 : before.rfind(b"<")]
    lines: list[str] = []
    num_texts = 0
    for line in _lines(behind):
        num_texts += len(line) >= MIN_TEXT_CHARS
        if num_texts > MAX_TEXTS or (num_texts and len(line) <= MAX_HEAD_CHARS and _COMMENTS.match(line)):
            break
        lines.append(line)
    return Near(behind + before, lines + list(_lines(before)))


def is_dated(line: str) -> bool:
    """Whether a line with a year says when the page was published: it has a word like 发布 or a time, or is hardly more."""
    if len(line) > MAX_LINE_CHARS or not _YEAR.search(line):
        return False
    if _DATE_WORD.search(line) or _TIME_OF_DAY.search(line):
        return True
    return len(line) <= MAX_DATE_CHARS and (_DATE.match(line) or _ENGLISH_DATE.match(line)) is not None


def iso_date(text: str) -> str | None:
    """The first date of a text as YYYY-MM-DD; of seconds since 1970, the day in China.

    >>> iso_date("发布于2021年3月4日"), iso_date("2020-13-45"), iso_date("Thursday, July 28, 2011")
    ('2021-03-04', None, '2011-07-28')
    """
    text = text[:200]
    if found := _EPOCH.match(text):
        return (datetime.fromtimestamp(int(found[1]), UTC) + timedelta(hours=LOCAL_HOURS)).date().isoformat()
    if found := _DATE.search(text) or _COMPACT_DATE.search(text.strip()):
        return _iso(found[1], found[2], found[3])
    if (found := _ENGLISH_DATE.search(text)) and (found[1] or found[3]):
        return _iso(found[4], str(_MONTHS.index(found[2]) + 1), found[1] or found[3])
    return None


def plain(text: bytes) -> str:
    """The text of an attribute or a title, without references and with single spaces.

    >>> plain("a &amp;\\n 乙".encode())
    'a & 乙'
    """
    decoded = _text(text)
    return " ".join((html.unescape(decoded) if "&" in decoded else decoded).split())


def letters(text: str) -> str:
    """Letters and digits alone, in lower case, as titles are compared."""
    return _NO_LETTERS.sub("", text).lower()


def _headings(page: bytes, start: int) -> Iterator[Heading]:
    for _, tag in zip(range(MAX_HEADINGS), _HEADING.finditer(page, start), strict=False):
        begin = page.find(b">", tag.end(), tag.end() + 1_000) + 1
        end = page.find(b"</", begin, begin + 2_000)
        while end >= 0 and page[end + 2 : end + 3] not in (b"h", b"H"):
            end = page.find(b"</", end + 2, begin + 2_000)
        if begin > 0 and end > begin:
            pieces = [" ".join(html.unescape(piece).split()) for piece in _TAG.split(_text(page[begin:end]))]
            pieces = [piece for piece in pieces if piece]
            texts = [*pieces[:8], " ".join(pieces)] if len(pieces) > 1 else pieces
            if texts:
                yield tag.end(), _WORTH[int(tag[1]) - 1], texts


def _lines(window: bytes) -> Iterator[str]:
    for block in _BLOCK.split(_text(_CODE.sub(b"", window))):
        line = " ".join(html.unescape(_TAG.sub(" ", block)).split())
        if line:
            yield line


def _find_all(page: bytes, word: bytes, start: int, most: int) -> Iterator[int]:
    place = page.find(word, start)
    while place >= 0 and most > 0:
        yield place
        place, most = page.find(word, place + len(word)), most - 1


def _places(page: bytes, key: bytes, start: int) -> list[tuple[int, float, str]]:
    """Elements of the body whose text begins as a title does: place, worth (not much inside a link), text."""
    found: list[tuple[int, float, str]] = []
    for place in _find_all(page, key, start, MAX_PLACES) if len(key) > 3 else ():
        before = page[max(0, place - 300) : place].rstrip()
        if before.endswith((b">", b"\xe3\x80\x80", b"&nbsp;")):
            tag = before[before.rfind(b"<") :]
            worth = 0.4 if b"tit" in tag else -1.0 if tag[:3].lower() in (b"<a ", b"<li", b"<op") else 0.0
            end = page.find(b"<", place, place + 1_000)
            found.append((place, worth, plain(page[place : end if end >= 0 else place])))
    return found


def _overlap(a: str, b: str) -> float:
    """Share of the pairs of letters of a text that another has."""
    pairs = [{text[i : i + 2] for i in range(len(text) - 1)} for text in (letters(a), letters(b))]
    return len(pairs[0] & pairs[1]) / max(1, len(pairs[0]))


def _iso(year: str, month: str, day: str) -> str | None:
    try:
        return date(int(year), int(month), int(day)).isoformat()
    except ValueError:
        return None


def _json_text(quoted: bytes) -> str:
    try:
        return " ".join(html.unescape(str(json.loads(quoted))).split())
    except ValueError:
        return ""


def _text(data: bytes) -> str:
    return data.decode("utf-8", "ignore")
