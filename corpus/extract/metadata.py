"""Title, date and author of a page: what a reader sees as headline and byline, else what head and JSON-LD say.

The title is the heading, or the text of another element, that agrees with the title tag or og:title, so that channel
and site behind it go; without one it is the tag up to its first separator. The day is that of a dated line, meta
elements or scripts. The author is whom a byline, JSON-LD or an element of that class names. An organisation that is
merely the source, and a name that the page does not show, are no author: rather nothing than something wrong.

All of it is linear in the page: a few searches for fixed strings, and patterns over windows of fixed size.
"""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from itertools import accumulate, count, islice, product, takewhile

MAX_TITLE_CHARS, MAX_AUTHOR_CHARS = 300, 30
MAX_HEAD_BYTES = 100_000  # metadata further down are not looked at
MIN_PART = 0.4  # of a title tag's letters that a text from its middle must have
MAX_HEADINGS, ENOUGH = 60, 3.1  # so much of agreement and worth: no other heading is looked at
MAX_KEY_CHARS, MAX_PLACES = 8, 30  # of the title's first characters in the page
WINDOW_BEFORE, WINDOW_AFTER = 400, 4_500  # bytes around the headline in which date and author may stand
MAX_HINTS, MAX_HINT_BYTES, MAX_HINT_TEXTS = 8, 2_000, 3  # elements named after an author; in each
MAX_LINE_CHARS, MAX_DATE_CHARS = 120, 28  # of a dated line or byline, and of a line that begins with a date
MIN_TEXT_CHARS = 40  # of a line of text: the second ends what is near the headline
LOCAL_HOURS = 8  # ahead of UTC is the reader of a Chinese page

_META = re.compile(rb"<meta\s([^<>]{1,1500})>", re.IGNORECASE)
_META_NAME = re.compile(
    rb"""(?i)=\s*["']?(?:\w{1,9}[:.]){0,2}"""
    rb"(title|author|pub[lished]{0,6}_?(?:date|time)|date(?:published)?)(?![\w:.-])"
)
_CONTENT = re.compile(rb"""content\s*=\s*(?:"([^"]*)|'([^']*)|([^\s"'>]+))""", re.IGNORECASE)
_TITLE = re.compile(rb"<title[^<>]{0,200}>([^<]{0,2400})", re.IGNORECASE)
_HEADING = re.compile(rb"<[hH]([123])(?:\s[^<>]*+)?>([^<]*+(?:<(?!/?[hH][1-6])[^<]*+){0,60}+)</[hH]")
_ELEMENT = re.compile(rb"<([^<>]{1,800})>([^<]{0,500})")
_TAG = re.compile(r"<[^<>]*>")
_LINK = re.compile(rb"(?i)<link[^<>]{0,200}canonical[^<>]{0,99}?[/_t](20\d\d|19\d\d)[-/_]?([01]\d)[-/_]?(\d\d)[/_.-]")
NEXT_PAGE = tuple(word.encode() for word in ("下一页", "下一頁", "下页"))
_NEXT = re.compile(rb"<a\s([^<>]{1,800})>\s*(?:<[^<>]{0,100}>\s*)?(?:" + b"|".join(NEXT_PAGE) + rb")")
_HREF = re.compile(rb"""(?i)href\s*=\s*["']?\s*([^"'<>\s]{1,500})""")
_JSON_AUTHOR = re.compile(rb"""\s*:\s*\[?\s*(?:\{[^{}\[\]]{0,200}?"name"\s*:\s*)?"((?:[^"\\\n]|\\u[\da-fA-F]{4})+)""")
_ESCAPE = re.compile(r"\\u(?!d[89a-f])([\da-f]{4})", re.IGNORECASE)
_SEPARATOR = re.compile(r"[_|｜\s·•»–—－-]+|(?=[（(【])")
_STRONG = re.compile(r"\s*[_|｜]+\s*|\s+[-–—－]+\s+|-{2,}")
_SITE = re.compile("(?:网|站|首页|主页|频道|门户|日报|新闻|社区|论坛|博客|百科|中心|大学|公司|办公室|[Bb]log|BBS)$")
_TITLED = re.compile(
    rb"""(?i)<\w{1,9}\s[^<>]{0,200}?(?:class|id)\s*=\s*["']?[\w-]{0,30}"""
    rb"""(?:title|headline|heading)(?:["'\s][^<>]{0,300})?>"""
    rb"""\s*([^<>]{12,300})<"""
)
_KEY_END = re.compile("[&<>\"'\\s_|-]")
_BLOCK = re.compile(
    r"</?(?:p|P|div|DIV|li|LI|[uod]l|[UOD]L|[td][rdht]|[TD][RDHT]|[hb][1-6r]|[HB][1-6R]|section|article|header|footer"
    r"|form|body)(?=[\s/>])[^<>]*>"
)
_CODE = re.compile(rb"<(?:script|style|!--)[^<]*", re.IGNORECASE)
_DATE = re.compile(r"(?<!\d)((?:19|20)\d\d)\s*[-/.年]\s*(\d{1,2})\s*[-/.月]\s*(\d{1,2})(?!\d)")
_MONTHS = "Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec"
_ENGLISH_DATE = re.compile(rf"\b(?:(\d\d?)\s+)?({_MONTHS})[a-z]{{0,6}}\.?\s+(?:(\d\d?),?\s+)?((?:19|20)\d\d)\b")
_YEAR = re.compile("199[5-9]|20[0-9][0-9]")
_EPOCH = re.compile(r"""^[\s=:"']{1,6}(1[0-9]{9})\b""")
_DATE_WORD = re.compile(r"[发發][布表]|(?:^|\W)日期|[时時][间間]|[来來]源|更新|作者|[记記]者|[编編][辑輯]|[Pp]osted")
_TIME_OF_DAY = re.compile(r"\d{1,2}[:：]\d\d")
_AUTHOR_WORD = re.compile(rb"uthor|writer|byline|nick[nN]ame|u(?:ser)?-?[nN]ame|rich_media_meta_text")
_NAMED = re.compile(rb"""<(?![hH])([a-zA-Z]{1,15})\s[^<>]*?(?:class|id|itemprop|rel)\s*=\s*["']?[^"'=<>]{0,80}$""")
_LABEL = re.compile(
    r"(?:^|\W)(?:(?:本文|文章|原.)?(?:作者|撰[文稿]人?|执笔|发布者|发帖人|楼主|博主)|文)\s*[:：/／|｜]\s*"
)
_SURNAMES = (  # of nine persons in ten
    "王李张刘陈杨黄赵吴周徐孙马朱胡郭何林罗高郑梁谢宋唐许韩冯邓曹彭曾肖田董袁潘于蒋蔡余杜叶程苏魏吕丁任沈姚卢姜崔钟谭陆汪范金石廖贾夏"
    "韦付方白邹孟熊秦邱江尹薛闫段雷侯龙史陶黎贺顾毛郝龚邵万钱严覃武戴莫孔向汤单裴葛常温康施文牛樊邢安齐易乔伍庞颜倪庄聂章鲁岳翟殷詹申"
    "伊臧佘柴苗路鲍骆丛解匡栾盛宫辛冷欧耿关兰焦俞左柳甘祝包宁尚符舒阮柯纪梅童凌毕裘裴奚岑費張劉陳楊黃趙吳孫馬羅鄭謝許韓馮鄧蕭葉蘇魏呂盧鍾譚陸賈韋鄒龍黎賀顧龔嚴萬錢莊聶"
)
_PERSONS = rf"([{_SURNAMES}][\u4e00-\u9fff·]{{1,5}}(?:\s?[\s、，,]\s?[\u4e00-\u9fff·]{{2,4}}){{0,3}})"
_REPORTERS = r"[\u4e00-\u9fff·\s□■]{0,18}(?:记者|記者|通讯员|特约撰稿人?)\s*[:：/／|｜]?\s*"
_BY_REPORTER = re.compile(  # a line, or the end of a paragraph
    rf"^[（(【\[]?{_REPORTERS}{_PERSONS}\s*(?:[)）\]】\s]|$|[/／])|[。！？”][（(]{_REPORTERS}{_PERSONS}\s*[)）]$"
)
_MAYBE_BYLINE = re.compile(r"者|撰|执笔|通讯员|楼主|博主|发帖人|文\s*[:：/／|｜]")
_WORD = r"[^\s:：,，。;；、|｜()（）\[\]【】<>《》/\\\"“”&＆!?！？]{2,20}"
_NAMES = re.compile(
    rf"{_WORD}(?:\s[A-Z][a-z.]{{0,15}}){{0,2}}(?:\s?[、,，&＆/]\s?{_WORD}"
    rf"|\s[\u4e00-\u9fff]{{2,4}}(?![\u4e00-\u9fff:：])){{0,3}}"
)
_BETWEEN_NAMES = re.compile(r"[、,，&＆/]+|(?<![a-zA-Z.])\s+|\s+(?![A-Z])")
_SPACED_NAME = re.compile(r"(?<![\u4e00-\u9fff])([\u4e00-\u9fff])\s([\u4e00-\u9fff])(?![\u4e00-\u9fff])")
_REPORTER = re.compile(r"^.{0,14}?(?:记者|記者|通讯员|作者)\s*[:：]?\s*(?=\S)")
_NOT_AUTHOR = re.compile("source|media|编辑".encode())  # before a name that the page shows
_NO_NAME = re.compile(
    r"^[\d\W]+$|^[\u4e00-\u9fff]{9}|^[Pp]osted|\.(?:com|cn|net|org)\b|[。！？!?，：:@\\]|//|[编編][辑輯]|[来來]源|责编|校对|审核|摄影|图源|发布"
    r"|[时時][间間]"
    r"|浏览|阅读|关注|粉丝|出处|转载|投稿|点击|^(?:新浪|网易|搜狐|腾讯|凤凰网|人民网|新华|中新|央视|光明|环球|百度|太平洋)"
    r"|(?:[报報版网網社台部委局厅院处所科会办组号]|社区|新闻|频道|客户端|中心|办公室|杂志|周刊|资讯|财经|科技|娱乐|体育|集团|公司|大学|银行|整理|原创|供稿)(?:\s|$)"
)
_NO_AUTHOR = frozenset(
    "admin administrator root author null none 管理员 未知 佚名 本站 网络 小编 作者 匿名 楼主 登录 互联网 专栏 热门 主页 文 由 by".split()
)

Near = tuple[bytes, list[str]]  # the bytes behind the headline, and the lines behind and before it


def head_metas(page: bytes) -> dict[bytes, bytes]:
    """The first content of each meta element of the head that names title, date or author, by the end of its name."""
    found: dict[bytes, bytes] = {}
    body = page.find(b"<body", 0, MAX_HEAD_BYTES)
    for tag in _META.findall(page, 0, body if body >= 0 else MAX_HEAD_BYTES):
        if (name := _META_NAME.search(tag)) and (content := _CONTENT.search(tag)):
            found.setdefault(name[1].lower(), content[1] or content[2] or content[3] or b"")
    return found


def headline(page: bytes, metas: dict[bytes, bytes]) -> tuple[str | None, int]:
    """The title as the page shows it, by title tag or og:title, and the byte behind the element that shows it, or -1.

    >>> headline("<title>木匠和他的河_国内_文海网</title><h1>文海网</h1><h2>木匠和他的河</h2>".encode(), {})[0]
    '木匠和他的河'
    """
    tag = _TITLE.search(page, 0, 2 * MAX_HEAD_BYTES)
    start = tag.end() if tag else 0
    titles = [plain(text)[:MAX_TITLE_CHARS] for text in (tag[1] if tag else b"", metas.get(b"title", b""))]
    titles = [title for title in dict.fromkeys(titles) if letters(title)]
    best: tuple[str | None, int] = None, -1
    best_score, tops = 0.0, []
    for place, worth, texts in _headings(page, start):
        if worth > 0.5 and len(texts[-1]) >= 4 and not _SITE.search(texts[-1]):
            tops.append((texts[-1][:MAX_TITLE_CHARS], place))
        for title, text in product(titles, texts):
            if (score := agreement(text, title)) and score + worth > best_score:
                best, best_score = (text[:MAX_TITLE_CHARS], place), score + worth
        if best_score > ENOUGH:
            return best
    if len(tops) == 1:
        return best if best[0] else tops[0]
    for title in titles:
        for place, worth, text in _places(page, title, start):
            if (score := agreement(text, title)) and score + worth > best_score:
                best, best_score = (text[:MAX_TITLE_CHARS], place), score + worth
    cut = best[0] or (without_site(titles[-1]) if titles else "")
    if letters(cut) and not _SITE.search(cut):
        return cut, best[1]
    found = _TITLED.search(page, start)
    return (plain(found[1])[:MAX_TITLE_CHARS], found.start(1)) if found else best


def agreement(shown: str, title: str) -> float:
    """How well a text of the page is what a title announces: 0 for not at all, 2 and more for the whole or its
    beginning.

    >>> [agreement(text, "剑来_第十四章_纵横网") > 0 for text in ("剑来", "第十四章", "纵横网", "第十")]
    [True, True, False, False]
    """
    a, (b, beginnings, strong) = letters(shown), _parts(title)
    if len(a) < 2 or not (a in b or a.startswith(b)):
        return 0.0
    if a == b:
        return 3.0
    if a in beginnings:
        first = len(strong[0])
        return (2.0 if len(a) > 3 else 1.5) + 0.5 * min(len(a), first) / len(b) - 0.6 * (len(a) > first)
    if len(b) >= 6 and a.startswith(b):  # the title was cut
        return 1.9
    if len(a) >= 4 and b.endswith(a) and b[: -len(a)] in beginnings:
        return 1.2
    return 1.5 if (len(a) >= 4 and a in strong[1:-1]) or len(a) >= max(8, MIN_PART * len(b)) else 0.0


@lru_cache(maxsize=2)
def _parts(title: str) -> tuple[str, frozenset[str], list[str]]:
    """The letters of a title, its beginnings up to each separator, and its parts between strong separators."""
    parts = (letters(part) for part in _SEPARATOR.split(title))
    return letters(title), frozenset(accumulate(parts)), [letters(part) for part in _STRONG.split(title)]


def without_site(title: str) -> str:
    """A title tag without what stands behind the headline: all after the first _ | or spaced dash, a site after a dash.

    >>> without_site("木匠和他的河_国内_文海新闻网"), without_site("河-新华网"), without_site("X-光"), without_site("_文海网")
    ('木匠和他的河', '河', 'X-光', '')
    """
    cut = _STRONG.split(title, maxsplit=1)[0].strip()
    head, dash, tail = cut.rpartition("-")
    return head.rstrip() if dash and _SITE.search(tail) else cut


def publication_day(page: bytes, metas: dict[bytes, bytes], near: Near, lines: Iterable[str]) -> str | None:
    """The day as YYYY-MM-DD: of a dated line by the headline, metas, lines of the article's head and foot, scripts,
    address."""
    told = (plain(metas[name]) for name in metas if name not in (b"title", b"author"))
    lines = filter(_DATE_WORD.search, filter(_YEAR.search, lines))
    day = _first(date_in_line, near[1]) or _first(iso_date, told) or _first(date_in_line, lines)
    for key in (b'"datePublished"', b"<time", b"var ct ")[: 2 + (b"rich_media" in near[0])]:  # the last is WeChat's
        if day is None and (place := page.find(key)) >= 0:
            day = iso_date(plain(page[place + len(key) : place + len(key) + 100]))
    link = None if day else _LINK.search(page, 0, MAX_HEAD_BYTES)
    return iso_date(plain(b"-".join(link.groups()))) if link else day


def author_of(page: bytes, metas: dict[bytes, bytes], near: Near, lines: Iterable[str]) -> str | None:
    """The person or account that a byline near the headline or at the foot, JSON-LD, or an element of that class
    names."""
    if name := _first(byline, near[1]):
        return name
    place = page.find(b"application/ld+json", 0, 2 * MAX_HEAD_BYTES)
    place = page.find(b'"author"', place, page.find(b"</script", place)) if place >= 0 else -1
    found = _JSON_AUTHOR.match(page, place + 8, place + 400) if place >= 0 else None
    given = clean_author(_ESCAPE.sub(lambda code: chr(int(code[1], 16)), plain(found[1]))) if found else None
    if name := given or _hinted(near[0]) or _first(byline, lines):
        return name
    name = clean_author(plain(metas.get(b"author", b"")))
    place = page.find(f">{name}<".encode(), max(0, page.find(b"<body"))) if name else -1
    return name if place >= 0 and not _NOT_AUTHOR.search(page, max(0, place - 150), place) else None


def next_page(page: bytes) -> str | None:
    """The link of one of NEXT_PAGE.

    >>> next_page("<a href=./a_3.html>第三页</a> <a class=n href='a_2.html'><b>下一页</b></a>".encode())
    'a_2.html'
    """
    found = _NEXT.search(page)
    link = _HREF.search(found[1]) if found else None
    return plain(link[1]) if link else None


def _hinted(page: bytes) -> str | None:
    """The name in the first element whose class, id, rel or itemprop speaks of an author."""
    for word in islice(_AUTHOR_WORD.finditer(page), MAX_HINTS):
        opened = _NAMED.match(page, max(0, page.rfind(b"<", 0, word.start())), word.start())
        if opened is None:
            continue
        depth, texts = 0, []
        for tag in _ELEMENT.finditer(page, opened.start(), opened.start() + MAX_HINT_BYTES):
            depth += tag[1].startswith(opened[1]) - tag[1].startswith(b"/" + opened[1])
            if depth <= 0:
                break
            texts.append(plain(tag[2]))
        if name := _first(clean_author, islice(filter(letters, texts), MAX_HINT_TEXTS)):
            return name
    return None


def byline(line: str) -> str | None:
    """The author that a short line names, or a long one at its end.

    >>> byline("2021-03-04 来源：日报 作者：李四 编辑：张三"), byline("作者认为，此事不难"), byline("本报记者 王 乐 文海")
    ('李四', None, '王乐、文海')
    """
    if len(line) > MAX_LINE_CHARS:
        line = "…" + line[-MAX_LINE_CHARS // 2 :]
    if not _MAYBE_BYLINE.search(line):
        return None
    line = _SPACED_NAME.sub(r"\1\2", line)
    label = _LABEL.search(line)
    found = _NAMES.match(line, label.end()) if label else None
    reporters = None if found else _BY_REPORTER.search(line)
    names = _BETWEEN_NAMES.split(reporters[1] or reporters[2] if reporters else found[0] if found else "")
    return "、".join(filter(None, map(clean_author, names))) if clean_author(names[0]) else None


def clean_author(name: str) -> str | None:
    """A name, or nothing where it is an address, a role, a number, an organisation or too long to be one.

    >>> clean_author("记者王敬照"), clean_author("新京报"), clean_author("104363")
    ('王敬照', None, None)
    """
    name = _REPORTER.sub("", name.strip(" \t，,、;；:：/|@[]【】()（）"))
    name = re.split(r"[/／|｜(（]", name, maxsplit=1)[0].strip()
    if name.lower() in _NO_AUTHOR or len(name) > MAX_AUTHOR_CHARS or _NO_NAME.search(name):
        return None
    return name if len(letters(name).encode()) >= 3 else None


def near_headline(page: bytes, place: int) -> Near:
    """What stands behind the headline at a byte, up to some text, then what stands before it; without scripts and
    styles."""
    if place < 0:
        return b"", []
    behind = page[place : place + WINDOW_AFTER].partition(b">")[2]
    before = page[max(0, place - WINDOW_BEFORE) : place].partition(b">")[2].rpartition(b"<")[0]
    texts = count()
    lines = takewhile(lambda line: len(line) < MIN_TEXT_CHARS or not next(texts), _lines(behind))
    return behind, [*lines, *_lines(before)]


def date_in_line(line: str) -> str | None:
    """The date of a line that says when the page was published: it has a word like 发布 or a time, or is hardly more.

    >>> date_in_line("2021-03-04 · 县报"), date_in_line("调查完成于2020-01-02这天，共有七户")
    ('2021-03-04', None)
    """
    if len(line) > MAX_LINE_CHARS or not _YEAR.search(line):
        return None
    is_bare = len(line) <= MAX_DATE_CHARS and (_DATE.match(line) or _ENGLISH_DATE.search(line))
    return iso_date(line) if is_bare or _DATE_WORD.search(line) or _TIME_OF_DAY.search(line) else None


def iso_date(text: str) -> str | None:
    """The first date of a text as YYYY-MM-DD; of seconds since 1970, the day in China.

    >>> iso_date("发布于2021年3月4日"), iso_date("2020-13-45"), iso_date("Thursday, July 28, 2011")
    ('2021-03-04', None, '2011-07-28')
    """
    with suppress(ValueError):
        if found := _EPOCH.match(text):
            return (datetime.fromtimestamp(int(found[1]), UTC) + timedelta(hours=LOCAL_HOURS)).date().isoformat()
        if found := _DATE.search(text):
            return date(int(found[1]), int(found[2]), int(found[3])).isoformat()
        if (found := _ENGLISH_DATE.search(text)) and (day := found[1] or found[3]):
            return date(int(found[4]), _MONTHS.split("|").index(found[2]) + 1, int(day)).isoformat()
    return None


def plain(text: bytes) -> str:
    """The text of an attribute or a title, without references and with single spaces."""
    return " ".join(html.unescape(str(text, "utf-8", "ignore")).split())


def letters(text: str) -> str:
    """Letters and digits alone, in lower case, as titles are compared."""
    return "".join(filter(str.isalnum, text)).lower()


def _headings(page: bytes, start: int) -> Iterator[tuple[int, float, list[str]]]:
    """Headings: the byte behind the name, their worth, their texts between tags and the whole."""
    for tag in islice(_HEADING.finditer(page, start), MAX_HEADINGS):
        pieces = [" ".join(piece.split()) for piece in _TAG.split(html.unescape(str(tag[2], "utf-8", "ignore")))]
        if pieces := [piece for piece in pieces if piece]:
            yield tag.end(1), 0.9 if tag[1] == b"1" else 0.5, list(dict.fromkeys([*pieces[:8], " ".join(pieces)]))


def _places(page: bytes, title: str, start: int) -> Iterator[tuple[int, float, str]]:
    """Elements of the body whose text begins as a title does: place, worth, text."""
    key, place = _KEY_END.split(title, maxsplit=1)[0][:MAX_KEY_CHARS].encode(), start
    for _ in range(MAX_PLACES if len(key) > 3 else 0):
        if (place := page.find(key, place)) < 0:
            break
        if (before := page[max(0, place - 300) : place].rstrip()).endswith(b">"):
            yield place, 0.4 * (b"tit" in before[-60:]), plain(page[place : place + 1_000].partition(b"<")[0])
        place += len(key)


def _lines(window: bytes) -> Iterator[str]:
    text = html.unescape(_TAG.sub(" ", _BLOCK.sub("\0", str(_CODE.sub(b"", window), "utf-8", "ignore"))))
    return filter(None, (" ".join(line.split()) for line in text.split("\0")))


def _first(function: Callable[[str], str | None], given: Iterable[str]) -> str | None:
    return next(filter(None, map(function, given)), None)
