"""Which lines of a page are its article: Chinese line rules over what the reader found, in the container that is it.

Dropped are runs of links, links before the first and behind the last line of text (but not a headline that is a link),
breadcrumbs (首页 > 新闻), 来源/责任编辑 lines, 上一篇/下一篇, 相关阅读 with the links after it, comments behind 网友评论,
ICP备 and copyright footers. The reader marks the lines that may match (by their first character, or one of a few
characters inside); the patterns see only those.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import numpy.typing as npt

from corpus.engine.compiled import kernel
from corpus.extract.reader import (
    CONTAINER_FIRST,
    CONTAINER_LAST,
    CONTAINER_LETTERS,
    CONTAINER_NUMBER,
    IN_FORM,
    IS_ENDED,
    IS_PRE,
    IS_SUSPECT,
    LINE_CHARS,
    LINE_END,
    LINE_FLAGS,
    LINE_LETTERS,
    LINE_LINKED,
    LINE_LINKS,
    LINE_START,
    MAX_START_CHARS,
    MAY_BE_FOOTER,
    NUM_CONTAINERS,
    NUM_LINES,
    OWN_LETTERS,
)
from corpus.extract.tables import THREAD_NUMBERS

Array = npt.NDArray[Any]

MIN_CONTAINER_RATIO = 0.5  # share of the page's own letters that a container must hold to replace the body
LINKED_RATIO = 0.7  # share of link letters from which a line counts as links
MIN_LINK_RUN = 3  # so many link lines one after another are navigation
MAX_HEAD_CHARS = 20  # of the line above related links or comments
MIN_CAPTION_CHARS = 10  # of a line that stays when nothing else does
MIN_ARTICLE_LETTERS = 150  # so many make an article, which a line 网友评论 ends

# Verdicts on a line.
PLAIN, FURNITURE, RELATED, COMMENTS = range(4)

# All patterns are anchored, or bounded and free of nested quantifiers.
_CRUMB_PARTS = re.compile(r"\s*(?:>+|»|›|→|＞|/)\s*")
_FURNITURE_LINE = re.compile(
    # breadcrumbs
    r"(?:您|你|当前|現在|现在|目前|所在)?(?:的|所在|当前|現在|现在)*(?:位置|页面|頁面)\s*[:：]|"
    # who, when and from where
    r"[（(【\[]?\s*(?:文章|本文|新闻|新聞|稿件|信息|資料|资料)?(?:来源|來源|责任编辑|責任編輯|责编|責編|编辑|編輯|审核|校对|稿源|原标题|原題|"
    r"发布时间|發布時間|发布日期|發布日期|发表时间|更新时间|更新時間|更新日期|成文日期|发文机关|发文字号|索引号|浏览次数|瀏覽次數|点击次数|点击数|"
    r"阅读次数|阅读量|点击|浏览|字号|字体|字體|分享到|分享至|标签|標籤|关键词|關鍵字|上传者|录入|作者|记者|記者|撰文|摄影|撰稿)\s*[:：]|"
    # dates that are followed by the same, or stand alone
    r"\d{4}\s?[-/.年]\s?\d{1,2}\s?[-/.月]\s?\d{1,2}\s?日?\s*(?:\d{1,2}[:：]\d\d(?:[:：]\d\d)?)?\s*"
    r"(?:来源|來源|作者|编辑|編輯|稿源|浏览|瀏覽|阅读|閱讀|点击|字号|$)|"
    # controls
    r"[【\[（(]?\s*(?:上一[篇页章节条张頁]|下一[篇页章节条张頁]|前一[篇页頁]|后一[篇页]|起始[页頁]|首[页頁]|末页|尾页|上一级|返回.{0,6}|回到顶部|"
    r"回[顶頂]部|关闭窗口|關閉視窗|关闭|关闭本页|打印|打印本页|列印|收藏|加入收藏|设为首页|分享|转发|点赞|评论|发表评论|我要评论|举报|顶一下|踩一下|"
    r"登录|登錄|登入|注册|註冊|免费注册|搜索|搜尋|目录|目錄|跳转到.{0,8}|查看更多|更多|展开全文|阅读全文|点击.{0,4}查看.{0,6}|复制链接|"
    r"扫一扫.{0,12}|扫描二维码.{0,10}|微信扫.{0,10}|更多精彩.{0,12}|加入书签|投推荐票|章节错误.{0,12}|"
    r"繁體|繁体|简体|English|Prev|Next|Home|Up|Top|Skip to .{0,20})"
    r"\s*(?:[:：].{0,60})?\s*[】\]）)>»]*$",
    re.IGNORECASE,
)
_FOOTER = re.compile(
    r"ICP\s*[備备证證]|公网安备|公安备案|版权所有|版權所有|著作權所有|All Rights Reserved|Copyright\s*(?:©|\(c\)|\d)|©\s*\d{4}|"
    r"(?:未经|未經).{0,12}(?:授权|授權|许可|許可|允许|书面).{0,12}(?:转载|轉載|使用|复制)|增值电信业务|网络文化经营许可|"
    r"违法和不良信息举报|备案号",
    re.IGNORECASE,
)
_RELATED_HEAD = re.compile(
    r"[【\[■◆★]?\s*(?:相关|相關|推荐|推薦|热门|熱門|延伸|更多|最新|精彩|猜你|您可能|你可能|为您|编辑|大家都在|随机|本类|站内)"
    r"(?:阅读|閱讀|新闻|新聞|文章|链接|連結|推荐|推薦|内容|内容推荐|资讯|資訊|报道|報導|主题|主題|专题|帖子|搜索|精选|喜欢|感兴趣的?|看|"
    r"图片|视频|话题|评论|日志|博文|回答|问题|教程|产品|商品)+[^，。]{0,6}[】\]]?\s*[:：]?$"
)
_COMMENTS_HEAD = re.compile(
    r"[【\[■◆★]?\s*(?:网友|網友|读者|讀者|用户|全部|最新|精彩|热门|熱門|文章|相关)?(?:评论|評論|留言|回應|跟帖|跟贴)"
    r"(?:列表|区|區|专区)?\s*[（(]?\s*(?:共?\s*\d{0,6}\s*[条條则則]?(?:评论|評論)?)\s*[)）]?[】\]]?\s*[:：]?$|"
    r"\d{1,6}\s*[条條则則个]?\s*(?:评论|評論|留言|回應)$"
)

# Characters that those patterns begin with, behind an opening bracket; and one of each footer phrase.
START_CHARACTERS = (
    "您你当現现目所的位页頁文本新稿信資资来來责責编編审校原发發更成索浏瀏点阅閱字分标標关關上录作记記撰摄下前后起首末尾返回打列收加设转"
    "评我举顶踩登注註免搜跳查展复扫微繁简投章相推薦荐热熱延最精猜为大随类站网網读讀用全留跟"
    "0123456789eEpPnNhHuUtTsS"
)
INSIDE_CHARACTERS = "备備証证證版權©经經举"
BYLINE_CHARACTERS = "者撰"


def judge(text: memoryview, lines: Array, first: int, last: int, verdicts: Array) -> None:
    """Write the verdicts on the suspect lines between `first` and `last` (columns of reader.py) into uint8[lines]."""
    block = lines[first:last]
    for index in (block[:, LINE_FLAGS] & IS_SUSPECT).nonzero()[0].tolist():
        start, end, chars, links, _, _, flags = block[index].tolist()
        verdicts[first + index] = verdict(str(text[start:end], "utf-8"), chars, links, bool(flags & MAY_BE_FOOTER))


def verdict(line: str, chars: int, links: int, may_be_footer: bool) -> int:
    """What a line is by its words: PLAIN, FURNITURE, RELATED (head of related links) or COMMENTS (head of comments).

    >>> [verdict(line, len(line), 0, False) for line in ("来源：日报", "来源是个问题", "相关阅读", "网友评论（12）")]
    [1, 0, 2, 3]
    """
    if chars <= MAX_START_CHARS:
        if chars <= MAX_HEAD_CHARS:
            if _RELATED_HEAD.match(line):
                return RELATED
            if _COMMENTS_HEAD.match(line):
                return COMMENTS
        if _FURNITURE_LINE.match(line) or (links and _is_crumbs(line)):
            return FURNITURE
    return FURNITURE if may_be_footer and _FOOTER.search(line) else PLAIN


def _is_crumbs(line: str) -> bool:
    parts = _CRUMB_PARTS.split(line)
    return len(parts) >= 3 and max(map(len, parts)) <= 20 and line[-1] not in "。！？"


def article_ranges(containers: Array, info: Array) -> list[list[int]]:
    """The lines that replace the body, as [first, behind the last]: those of the smallest element with at least half of
    the page's own letters, or of all posts of a thread, or of all elements of one name together; else all lines.
    """
    needed = MIN_CONTAINER_RATIO * int(info[OWN_LETTERS])
    groups: dict[int, list[list[int]]] = {}
    for row in containers[: info[NUM_CONTAINERS]].tolist():
        if row[CONTAINER_LETTERS] > 0:
            groups.setdefault(row[CONTAINER_NUMBER], []).append(row)
    candidates = list(groups.values())
    candidates += [[row] for number, group in groups.items() if number not in THREAD_NUMBERS for row in group]
    sizes = [sum(row[CONTAINER_LETTERS] for row in group) for group in candidates]
    large = [index for index, size in enumerate(sizes) if size >= needed]
    if not large:
        return [[0, int(info[NUM_LINES])]]
    best = min(large, key=lambda index: (sizes[index], -candidates[index][0][CONTAINER_FIRST]))
    return [[row[CONTAINER_FIRST], row[CONTAINER_LAST]] for row in candidates[best]]


@kernel()
def join_article(
    out: Array, lines: Array, verdicts: Array, ranges: Array, title: Array, drop_forms: bool, result: Array
) -> int:
    """Write the lines that are the article into `result`, joined by line feeds; returns the number of bytes.

    Args:
        out, lines: of the reader.
        verdicts: uint8[lines].
        ranges: int64[ranges, 2], lines to choose from.
        title: uint8[bytes]; a line of links before the text stays if this is what it says.
        drop_forms: whether lines inside forms go.
        result: uint8[>= the bytes of out].
    """
    kept = np.empty(len(lines), np.int64)
    num_kept = 0
    kept_letters = 0
    in_related = in_comments = False
    for part in range(len(ranges)):
        row = ranges[part, 0]
        last = ranges[part, 1]
        while row < last and not in_comments:
            stop = row
            while stop < last and _is_linked(lines, stop):
                stop += 1
            if stop - row >= MIN_LINK_RUN or (in_related and stop > row):
                row = stop
                continue
            flags = lines[row, LINE_FLAGS]
            if verdicts[row] == RELATED:
                in_related = True
            elif verdicts[row] == COMMENTS:
                in_comments = kept_letters >= MIN_ARTICLE_LETTERS
            elif verdicts[row] == FURNITURE or (lines[row, LINE_LINKS] >= MIN_LINK_RUN and _is_linked(lines, row)):
                pass
            elif (drop_forms and (flags & IN_FORM) != 0) or _is_bullet(out, lines, row):
                pass
            elif in_related and lines[row, LINE_CHARS] < MAX_HEAD_CHARS and (flags & IS_ENDED) == 0:
                pass
            else:
                in_related = False
                kept[num_kept] = row
                num_kept += 1
                kept_letters += lines[row, LINE_LETTERS] - lines[row, LINE_LINKED]
            row += 1
    while num_kept > 0 and _is_linked(lines, kept[num_kept - 1]):
        num_kept -= 1
    first = 0
    while first < num_kept and _is_linked(lines, kept[first]) and not _equals(out, lines, kept[first], title):
        first += 1
    if first >= num_kept:  # a page of links and captions: what is not link, rather than nothing
        first = num_kept = 0
        for part in range(len(ranges)):
            for row in range(ranges[part, 0], ranges[part, 1]):
                is_long = lines[row, LINE_CHARS] >= MIN_CAPTION_CHARS
                if is_long and verdicts[row] != FURNITURE and not _is_linked(lines, row):
                    kept[num_kept] = row
                    num_kept += 1
    return _join(out, lines, kept[first:num_kept], result)


@kernel()
def _is_linked(lines: Array, row: int) -> bool:
    """Mostly link, counted in letters: bullets, numbers and separators between links are neither."""
    return bool(lines[row, LINE_LINKS] > 0 and lines[row, LINE_LINKED] >= LINKED_RATIO * lines[row, LINE_LETTERS])


@kernel()
def _is_bullet(out: Array, lines: Array, row: int) -> bool:
    start = lines[row, LINE_START]
    return bool(lines[row, LINE_CHARS] == 1 and lines[row, LINE_END] - start == 3 and out[start] == 0xE2)


@kernel()
def _equals(out: Array, lines: Array, row: int, text: Array) -> bool:
    start = lines[row, LINE_START]
    if lines[row, LINE_END] - start != len(text):
        return False
    for i in range(len(text)):  # noqa: SIM110 (numba has no generators here)
        if out[start + i] != text[i]:
            return False
    return True


@kernel()
def _join(out: Array, lines: Array, kept: Array, result: Array) -> int:
    """Paragraphs one a line; blank lines stay, one at a time, between preformatted lines only."""
    o = 0
    was_pre = blank = False
    for index in range(len(kept)):
        row = kept[index]
        is_pre = (lines[row, LINE_FLAGS] & IS_PRE) != 0
        if lines[row, LINE_START] == lines[row, LINE_END]:
            blank = True
            continue
        if o > 0:
            result[o] = 10
            o += 1
            if blank and was_pre and is_pre:
                result[o] = 10
                o += 1
        for i in range(lines[row, LINE_START], lines[row, LINE_END]):
            result[o] = out[i]
            o += 1
        was_pre = is_pre
        blank = False
    return o
