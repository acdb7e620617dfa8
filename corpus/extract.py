"""HTML to the text of its article, with title and date: resiliparse's parser, our rules for what an article is.

resiliparse's own `main_content` mode is not used, because it damages Chinese: a text node of one Han character between
two tags disappears ("<b>这里</b>和<b>那里</b>。" becomes "这里那里") and lists near the body are dropped whole. Instead:

1. cheap linear scans refuse what would blow up a parser (depth, attribute storms, list indents), see shape.py;
2. elements that are never article text are skipped by CSS selectors, and a container that names itself the article and
   holds most of the page's text replaces the body;
3. links and preformatted text are marked in the source with noncharacters, so that the plain text still knows what was
   a link; a line is then judged by its share of link text and by Chinese line rules: breadcrumbs (首页 > 新闻),
   来源/责任编辑, 上一篇/下一篇, 相关阅读 with the links after it, ICP备 and copyright footers.

On 300 tag-dense documentation pages this makes 15 MB/s of HTML a core, where `main_content` makes 32 and trafilatura
2.4 on easier ones; the parser and the plain text take half of it, marks and line rules the rest.
`extract_html` holds no state and touches no global: a caller can run it in a child process it may kill.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import date
from typing import TYPE_CHECKING

from pydantic import Field
from resiliparse.extract.html2text import extract_plain_text
from resiliparse.parse.html import HTMLTree

from corpus.encoding import replace_surrogates
from corpus.engine.config import Strict
from corpus.shape import RefusedPage, check_shape, limit_lists

if TYPE_CHECKING:
    from resiliparse.parse.html import ElementNode

MAX_TITLE_CHARS = 300

SKIPPED_ELEMENTS = (
    "script, style, noscript, template, nav, footer, aside, form, button, select, textarea, iframe, object, "
    "body > header, [hidden], [aria-hidden=true], [style*='display:none'], [style*='display: none'], "
    "[role=navigation], [role=menu], [role=menubar], [role=banner], [role=contentinfo], [role=search], [role=dialog]"
).split(", ")
SKIPPED_NAMES = frozenset(  # as class or id
    "breadcrumb breadcrumbs crumb crumbs bread position location curpos nav navbar navigation navheader navfooter "
    "docnav subnav topnav mainnav menu submenu topbar toolbar pagination pager pagebar page-nav pages toc header "
    "site-header topleftheader footer site-footer copyright share sharing bdsharebuttonbox social qrcode login search "
    "comments comment-list related relate related-posts recommend hot-list rank ranking ad ads advert adsense tags "
    "tag-list friendlink friend-link links debug skip-link sr-only".split()
)
CONTAINER_ELEMENTS = "article, main, [role=main], [itemprop=articleBody]"
CONTAINER_NAMES = frozenset(
    "js_content artibody article content main zoom ucap-content trs_editor article-content article_content "
    "article-body articlebody content-article post-content entry-content post_text main-content detail-content endtext "
    "main_content articlecontent article_text newscontent news_content pages_content vsb_content contenttext "
    "cnblogs_post_body content_views article-detail article-holder t_f postmessage rich_media_content".split()
)
MAX_CONTAINERS = 20
MIN_CONTAINER_RATIO = 0.5  # share of the body's text that a container must hold to replace it

LINK_OPEN, LINK_CLOSE, PRE_OPEN, PRE_CLOSE = "\ufdd0", "\ufdd1", "\ufdd2", "\ufdd3"
LINKED_RATIO = 0.7  # share of link characters from which a line counts as links
MIN_LINK_RUN = 3  # so many link lines one after another are navigation
MAX_META_LINE_CHARS = 60  # longer lines are prose, whatever they begin with
END_MARKS = "。！？；…!?.;：:”」』）)"

_NONCHARACTERS = re.compile("[\ufdd0-\ufdef\ufffe\uffff]")
_TARGET = re.compile(rf"{LINK_OPEN}(<[aA] (?:name|id)=(?:(?!href)[^<>])*>)")
_MARKS = re.compile(f"([{LINK_OPEN}-{PRE_CLOSE}])")
_CLASSES = re.compile(r"""class=["']?([^"'<>]{1,200})""")
_IDS = re.compile(r"""id=["']?([^"'<>]{1,200})""")
_SPACES = re.compile("  +|[\u00a0\u2002-\u200a]+ *")
_CELLS = re.compile("[ \u00a0]*\t[\t \u00a0]*")
_NO_LETTERS = re.compile(r"[\W\d_]+")
_BULLET = re.compile(r"^[•●▪·◦]\s*$")


# Lines that belong to the page and not to the article. All are anchored and free of nested quantifiers.
_CRUMBS = re.compile(r"^(?:您|你|当前|現在|现在|目前|所在)?(?:的|所在|当前|現在|现在)*(?:位置|页面|頁面)\s*[:：]")
_CRUMB_PARTS = re.compile(r"\s*(?:>+|»|›|→|＞|/)\s*")
_CREDIT = re.compile(
    r"^[（(【\[]?\s*(?:文章|本文|新闻|稿件|信息|資料|资料)?(?:来源|來源|责任编辑|責任編輯|责编|責編|编辑|編輯|审核|校对|稿源|原标题|原題|发布时间|發布時間|"
    r"发布日期|发表时间|更新时间|更新時間|浏览次数|点击次数|点击数|阅读次数|阅读量|点击|浏览|字号|字体|字體|分享到|分享至|标签|標籤|关键词|上传者|录入)"
    r"\s*[:：]"
)
_DATELINE = re.compile(
    r"^\d{4}\s?[-/.年]\s?\d{1,2}\s?[-/.月]\s?\d{1,2}\s?日?\s*(?:\d{1,2}[:：]\d\d(?:[:：]\d\d)?)?\s*"
    r"(?:来源|來源|作者|编辑|編輯|稿源|浏览|阅读|点击|字号|$)"
)
_RELATED = re.compile(
    r"^[【\[■◆★]?\s*(?:相关|相關|推荐|推薦|热门|熱門|延伸|更多|最新|精彩|猜你|您可能|你可能|为您|编辑|大家都在|随机|本类|站内)"
    r"(?:阅读|閱讀|新闻|新聞|文章|链接|連結|推荐|推薦|内容|内容推荐|资讯|資訊|报道|報導|主题|主題|专题|帖子|搜索|精选|喜欢|感兴趣的?|看|"
    r"图片|视频|话题|评论|日志|博文|回答|问题|教程|产品)+[^，。]{0,6}[】\]]?\s*[:：]?$"
)
_FOOTER = re.compile(
    r"ICP\s*[备備证證]|公网安备|公安备案|版权所有|版權所有|著作權所有|All Rights Reserved|Copyright\s*(?:©|\(c\)|\d)|©\s*\d{4}|"
    r"未经.{0,12}(?:授权|许可|允许|书面).{0,12}(?:转载|使用|复制)|增值电信业务|网络文化经营许可|违法和不良信息举报|备案号",
    re.IGNORECASE,
)
_CONTROL_LINE = re.compile(
    r"^[【\[（(]?\s*(?:上一[篇页章节条张頁]|下一[篇页章节条张頁]|前一[篇页頁]|后一[篇页]|起始[页頁]|首[页頁]|末页|尾页|上一级|返回.{0,6}|回到顶部|回[顶頂]部|"
    r"关闭窗口|關閉視窗|关闭|关闭本页|打印|打印本页|列印|收藏|加入收藏|设为首页|分享|转发|点赞|评论|发表评论|我要评论|举报|顶一下|踩一下|"
    r"登录|登錄|登入|注册|註冊|免费注册|搜索|搜尋|目录|目錄|跳转到.{0,8}|查看更多|更多|展开全文|阅读全文|点击.{0,4}查看.{0,6}|"
    r"复制链接|扫一扫.{0,12}|扫描二维码.{0,10}|微信扫.{0,10}|更多精彩.{0,12}|繁體|繁体|简体|English|Prev|Next|Home|Up|Top|Skip to .{0,20})"
    r"\s*(?:[:：].{0,60})?\s*[】\]）)>»]*$",
    re.IGNORECASE,
)
_FURNITURE = re.compile(
    "|".join(pattern.pattern for pattern in (_CRUMBS, _CREDIT, _DATELINE, _CONTROL_LINE)), re.IGNORECASE
)
_SITE_SUFFIX = re.compile(r"\s*[_|｜\-–—－]+\s*")
_DATE = re.compile(r"(?<!\d)((?:19|20)\d\d)\s*[-/.年]\s*(\d{1,2})\s*[-/.月]\s*(\d{1,2})(?!\d)")
_DATED = re.compile(r"\d{1,2}[:：]\d\d|发布|發布|发表|發表|日期|时间|時間|来源|來源|更新")
_META_DATES = (
    "meta[property='article:published_time']",
    "meta[itemprop=datePublished], meta[name=PubDate], meta[name=pubdate], meta[name=publishdate]",
    "meta[name='date'], meta[name='DC.date'], meta[name='dc.date'], meta[property='og:release_date']",
    "time[datetime]",
)


class ExtractConfig(Strict):
    """Section [extract] of a recipe."""

    max_page_bytes: int = Field(default=2_000_000, gt=0)
    """Pages with more bytes of HTML are refused (`too_long`)."""
    min_text_chars: int = Field(default=1, ge=0)
    """Articles with fewer characters count as empty."""


@dataclass(frozen=True, slots=True)
class Page:
    """The article of a page: `text` has one paragraph a line, `date` is ISO 8601 (YYYY-MM-DD)."""

    title: str | None
    date: str | None
    text: str


def extract_html(html: str, config: ExtractConfig) -> Page:
    """The main text, title and date of a page.

    >>> html = "<title>论语</title><ul><li><a href=x>首页</a></ul><p>学而时习之，<b>不</b>亦说乎？"
    >>> extract_html(html, ExtractConfig())
    Page(title='论语', date=None, text='学而时习之，不亦说乎？')

    Raises:
        RefusedPage: the page is over a limit of bytes, nesting or attributes.
    """
    if len(html) * 4 > config.max_page_bytes and len(html.encode("utf-8", "replace")) > config.max_page_bytes:
        raise RefusedPage("too_long", f"more than {config.max_page_bytes:,} bytes")
    html = _NONCHARACTERS.sub("", replace_surrogates(html))
    check_shape(html)
    tree = HTMLTree.parse(_mark(limit_lists(html)))
    body = tree.body
    if body is None:
        return Page(None, None, "")
    title, published = _title(tree), _meta_date(tree)
    names = {name for value in _CLASSES.findall(html) + _IDS.findall(html) for name in value.split()}
    container = _container(body, names)
    if container is not None:
        body.replace_children(container)
    skipped = SKIPPED_ELEMENTS + _selectors(names, SKIPPED_NAMES)
    lines = _to_lines(extract_plain_text(tree, preserve_formatting=True, alt_texts=False, skip_elements=skipped))
    published = published or _date_in_lines(lines)
    kept = _article(lines, title)
    if not kept:  # a page of links and captions: keep what is not link, rather than nothing
        kept = [line for line in lines if not line.is_linked and not line.is_meta and len(line.text) >= 10]
    text = _join(kept)
    return Page(title, published, text if len(text) >= config.min_text_chars else "")


@dataclass(slots=True)
class _Line:
    text: str
    num_links: int = 0
    linked_letters: int = 0
    is_pre: bool = False

    @property
    def is_linked(self) -> bool:
        """Mostly link, counted in letters: bullets, numbers and separators between links are neither."""
        return self.num_links > 0 and self.linked_letters >= LINKED_RATIO * len(_NO_LETTERS.sub("", self.text))

    @property
    def is_meta(self) -> bool:
        text = self.text
        if self.is_pre:
            return False
        if len(text) <= MAX_META_LINE_CHARS and (_FURNITURE.match(text) or (self.num_links and self._is_crumbs())):
            return True
        return len(text) <= MAX_META_LINE_CHARS * 4 and bool(_FOOTER.search(text))

    def _is_crumbs(self) -> bool:
        parts = _CRUMB_PARTS.split(self.text)
        return len(parts) >= 3 and max(map(len, parts)) <= 20 and self.text[-1] not in "。！？"


def _mark(html: str) -> str:
    """Put noncharacters around links and preformatted text; they survive parsing and are removed from the lines.

    Plain replacements, 20 times as fast as a pattern; anchors that are only a target are unmarked again.
    """
    for name in ("a", "A") if "<A " in html else ("a",):
        html = html.replace(f"<{name} ", f"{LINK_OPEN}<{name} ").replace(f"</{name}>", f"</{name}>{LINK_CLOSE}")
    html = _TARGET.sub(r"\1", html)
    for name in ("pre", "PRE"):
        if f"<{name}" in html:
            html = html.replace(f"<{name}>", f"{PRE_OPEN}<{name}>").replace(f"<{name} ", f"{PRE_OPEN}<{name} ")
            html = html.replace(f"</{name}>", f"</{name}>{PRE_CLOSE}")
    return html


def _to_lines(marked: str) -> list[_Line]:
    lines: list[_Line] = []
    in_link = in_pre = False
    for raw in marked.split("\n"):
        if not (in_link or in_pre or LINK_OPEN in raw or PRE_OPEN in raw):
            text = _clean(_MARKS.sub("", raw) if LINK_CLOSE in raw or PRE_CLOSE in raw else raw, False)
            if text:
                lines.append(_Line(text))
            continue
        line = _Line("", is_pre=in_pre)
        parts: list[str] = []
        for part in _MARKS.split(raw):
            if part == LINK_OPEN:
                in_link = True
                line.num_links += 1
            elif part == LINK_CLOSE:
                in_link = False
            elif part == PRE_OPEN:
                in_pre = True
            elif part == PRE_CLOSE:
                in_pre = False
            elif part:
                parts.append(part)
                line.is_pre |= in_pre
                if in_link:
                    line.num_links = max(1, line.num_links)
                    line.linked_letters += len(_NO_LETTERS.sub("", part))
        line.text = _clean("".join(parts), line.is_pre)
        if line.text or in_pre:
            lines.append(line)
    return lines


def _clean(text: str, is_pre: bool) -> str:
    if is_pre:
        return text.replace("\u00a0", " ").rstrip()
    if "\t" in text:
        text = _CELLS.sub("\t", text.strip())
    if "  " in text or not text.isascii():
        text = _SPACES.sub(" ", text)
    text = text.strip(" \t\u3000\ufeff\u00a0")
    return "" if _BULLET.match(text) else text


def _article(lines: list[_Line], title: str | None) -> list[_Line]:
    """The lines that are the article.

    Dropped: runs of link lines, links before the first and after the last line of text (but not a headline that is a
    link), page furniture, and what a 相关阅读 head brings with it.
    """
    kept: list[_Line] = []
    in_related = False
    start = 0
    while start < len(lines):
        stop = start
        while stop < len(lines) and lines[stop].is_linked:
            stop += 1
        if stop - start >= MIN_LINK_RUN or (in_related and stop > start):
            start = stop
            continue
        line = lines[start]
        start += 1
        if len(line.text) <= 20 and not line.is_pre and _RELATED.match(line.text):
            in_related = True
        elif line.is_meta or (line.num_links >= MIN_LINK_RUN and line.is_linked):
            continue
        elif in_related and len(line.text) < 20 and line.text[-1] not in END_MARKS:
            continue
        else:
            in_related = False
            kept.append(line)
    while kept and kept[-1].is_linked:
        kept.pop()
    first = next((index for index, line in enumerate(kept) if not line.is_linked or line.text == title), 0)
    return kept[first:]


def _join(lines: list[_Line]) -> str:
    """Paragraphs one a line; blank lines stay, one at a time, between preformatted lines only."""
    out: list[str] = []
    was_pre = blank = False
    for line in lines:
        if not line.text:
            blank = True
            continue
        if blank and was_pre and line.is_pre:
            out.append("")
        out.append(line.text)
        was_pre, blank = line.is_pre, False
    return "\n".join(out)


def _selectors(names: set[str], wanted: frozenset[str]) -> list[str]:
    """Selectors for those wanted classes and ids that the page has; all of them would halve the speed."""
    present = sorted(name for name in names if name.lower() in wanted)
    return [prefix + name for name in present for prefix in ".#"]


def _container(body: ElementNode, names: set[str]) -> ElementNode | None:
    """The smallest element that names itself the article and holds at least half of the body's text."""
    selector = ", ".join([CONTAINER_ELEMENTS, *_selectors(names, CONTAINER_NAMES)])
    found = body.query_selector_all(selector).values()  # a list: walking the live collection is quadratic
    if not found:
        return None
    needed = MIN_CONTAINER_RATIO * _own_letters(body)
    best: tuple[int, ElementNode] | None = None
    for node in found[:MAX_CONTAINERS]:
        size = _own_letters(node)
        if size >= needed and (best is None or size <= best[0]):
            best = (size, node)
    return best[1] if best else None


def _own_letters(node: ElementNode) -> int:
    """Letters below a node that are neither link nor script."""
    foreign = node.query_selector_all("a, script, style, noscript, textarea, iframe").values()
    return _letters(node) - sum(map(_letters, foreign))


def _letters(node: ElementNode) -> int:
    return len(_NO_LETTERS.sub("", node.text or ""))


def _title(tree: HTMLTree) -> str | None:
    """og:title, else the title tag, else h1; a site's name behind the last _ | - is cut when a heading shows where."""
    head = tree.head
    meta = head.query_selector("meta[property='og:title']") if head is not None else None
    title = (meta.getattr("content") if meta is not None else None) or tree.title or ""
    heading = tree.body.query_selector("h1") if tree.body is not None else None
    first = _plain(heading.text or "") if heading is not None else ""
    title = _plain(title) or first
    if first and title != first and title.startswith(first) and _SITE_SUFFIX.match(title, len(first)):
        title = first
    return title[:MAX_TITLE_CHARS] or None


def _plain(text: str) -> str:
    return " ".join(_MARKS.sub("", text).split())


def _meta_date(tree: HTMLTree) -> str | None:
    for selector in _META_DATES:
        root = tree.document if selector.startswith("time") else tree.head
        node = root.query_selector(selector) if root is not None else None
        if node is not None:
            found = _iso_date(node.getattr("content") or node.getattr("datetime") or "")
            if found:
                return found
    return None


def _date_in_lines(lines: list[_Line]) -> str | None:
    """The date of a line under the headline that says so: it has a time of day, or a word like 发布 or 来源."""
    for line in lines[:10]:
        if len(line.text) <= MAX_META_LINE_CHARS and not line.is_pre and _DATED.search(line.text):
            found = _iso_date(line.text)
            if found:
                return found
    return None


def _iso_date(text: str) -> str | None:
    found = _DATE.search(text[:200])
    if not found:
        return None
    try:
        return date(int(found.group(1)), int(found.group(2)), int(found.group(3))).isoformat()
    except ValueError:
        return None
