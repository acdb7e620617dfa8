"""Which lines of a page are its article, why the others go, and the text that is left.

Patterns say what a line is by its words (the reader marks the lines that may match, by their first character or one of
a few inside); the line model (model.py) weighs that with the line's text, place, and the elements around it
(features.py). A rule names why a line goes, for the ledger: it does not decide.
"""

from __future__ import annotations

import re

import numpy as np

from corpus.engine.compiled import kernel
from corpus.extract.reader import (
    HAS_DAMAGE,
    IS_ENDED,
    IS_FOLDED,
    IS_HEADING,
    IS_ITEM,
    IS_PRE,
    IS_SUSPECT,
    LINE_END,
    LINE_FLAGS,
    LINE_LETTERS,
    LINE_LINKED,
    LINE_LINKS,
    LINE_MARKS,
    LINE_NODE,
    LINE_READ,
    LINE_START,
    MAX_START_CHARS,
    MAY_BE_FOOTER,
    NODE_HINTS,
    NODE_PARENT,
)
from corpus.extract.tables import APART_HINT, NUMBERS_HINT, Array

LINKED_RATIO = 0.7  # share of link letters from which a line counts as links
MAX_HEAD_CHARS = 20  # of the line above related links or comments
MIN_ARTICLE_LETTERS = 150  # where fewer would stay, sentences are lifted
LIFTED_SCORE = 0.8
MAX_LEVEL_WEIGHT = 50  # characters of a row or item by which it counts
MIN_WHOLE_SCORE = -1.5  # mean of a table's rows, or lines of code, of which one stays
LEVEL_SCORE = 0.01
MIN_STRAY_LETTERS = 8  # fewer at an end, alone in their element, are no part of the article
COMMENT_SCORE = 2.0  # what a line below an article and a head of comments needs
APART_SCORE = 2.0  # what a line in nav, footer, aside or dialog needs
MIN_ENTRIES = 2  # lines with labels, of the four around a line
MIN_SPEAKER_LINES = 2  # so many lines of one label are turns of speech or entries

# Why a line goes. Those from NAVIGATION on are named by an element around it.
RULES = (
    "kept damaged line_numbers labels notices heads tables links words other "
    "navigation comments related sidebar footer sharing advertising details header popup"
).split()
(KEPT, DAMAGED, LINE_NUMBERS, LABELS, NOTICES, HEADS, TABLES, LINKS, WORDS, OTHER, NAVIGATION) = range(11)
_HINT_BITS = (5, 2, 3, 4, 6, 7, 8, 9, 10, 12)  # places of the hints (tables.py) in the order of the rules

# Verdicts on a line.
PLAIN, FURNITURE, RELATED, COMMENTS, NOTICE = range(5)

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
_LABEL = re.compile(r"[^:：]{1,12}[:：]")
_FOOTER = re.compile(
    r"ICP\s*[備备证證]|公网安备|公安备案|版权所有|版權所有|著作權所有|All Rights Reserved|Copyright\s*(?:©|\(c\)|\d)|©\s*\d{4}|"
    r"(?:未经|未經).{0,12}(?:授权|授權|许可|許可|允许|书面).{0,12}(?:转载|轉載|使用|复制)|增值电信业务|网络文化经营许可|"
    r"违法和不良信息举报|备案号",
    re.IGNORECASE,
)
_NOTICE = re.compile(
    r"^[\s【\[（(*※]*(?:免责|免責|特别|特別|郑重|鄭重|平台|版权|版權|本站|风险|風險)?(?:声明|聲明|提示)\s*[:：】\])]|"
    r"(?:仅|僅|只)代表(?:作者|个人|個人|原作者)|不代表(?:本|该|該|我)?(?:站|网|網|平台|人|报|刊|文海)|版(?:权|權)归(?:原)?作者|"
    r"信息存储(?:空间)?服务|(?:如|若)有侵(?:权|權|犯)|(?:转载|轉載)(?:请|請|须|需)(?:注明|註明|联系)"
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


def judge(text: memoryview, lines: Array, verdicts: Array) -> None:
    """Write the verdicts on the suspect lines (columns of reader.py) into uint8[lines].

    A label that begins several lines is a speaker (记者：), one beside lines with labels that end as sentences an entry:
    neither is furniture.
    """
    labels: dict[str, list[int]] = {}
    is_text = (lines[:, LINE_LINKS] == 0) | (lines[:, LINE_LINKED] != lines[:, LINE_LETTERS])
    suspects = (((lines[:, LINE_FLAGS] & IS_SUSPECT) != 0) & is_text).nonzero()[0]
    for index, (start, end, chars, links, _, _, flags) in zip(
        suspects.tolist(), lines[suspects, : LINE_FLAGS + 1].tolist(), strict=True
    ):
        line = str(text[start:end], "utf-8")
        verdicts[index] = verdict(line, chars, links, bool(flags & MAY_BE_FOOTER), bool(flags & IS_ENDED))
        if verdicts[index] == FURNITURE and (label := _LABEL.match(line)):
            labels.setdefault(label[0], []).append(index)
    for found in labels.values():
        for index in found:
            around = [at for at in range(max(0, index - 2), min(len(lines), index + 3)) if at != index]
            if len(found) >= MIN_SPEAKER_LINES or sum(_is_entry(text, lines[at]) for at in around) >= MIN_ENTRIES:
                verdicts[index] = PLAIN


def _is_entry(text: memoryview, line: Array) -> bool:
    start, end = int(line[LINE_START]), int(line[LINE_END])
    is_ended = bool(line[LINE_FLAGS] & IS_ENDED)
    return is_ended and _LABEL.match(str(text[start : min(end, start + 60)], "utf-8", "ignore")) is not None


def verdict(line: str, chars: int, links: int, may_be_footer: bool, is_ended: bool = False) -> int:
    """What a line is by its words: PLAIN, FURNITURE, RELATED (head of related links) or COMMENTS (head of comments).

    >>> [verdict(line, len(line), 0, False) for line in ("来源：日报", "来源是个问题", "相关阅读", "网友评论（12）")]
    [1, 0, 2, 3]
    >>> verdict("登录：输入用户名和密码后点击确定。", 17, 0, False, True)
    0
    """
    if chars <= MAX_START_CHARS:
        if chars <= MAX_HEAD_CHARS:
            if _RELATED_HEAD.match(line):
                return RELATED
            if _COMMENTS_HEAD.match(line):
                return COMMENTS
        if not is_ended and (_FURNITURE_LINE.match(line) or (links and _is_crumbs(line))):
            return FURNITURE
    if may_be_footer and _NOTICE.search(line):
        return NOTICE
    return FURNITURE if may_be_footer and _FOOTER.search(line) else PLAIN


def _is_crumbs(line: str) -> bool:
    parts = _CRUMB_PARTS.split(line)
    return len(parts) >= 3 and max(map(len, parts)) <= 20 and line[-1] not in "。！？"


@kernel()
def _lift(lines: Array, verdicts: Array, title_line: int, scores: Array) -> None:
    """Where little would stay beside headings: sentences need less, so that a short article is not lost."""
    kept = 0
    for row in range(len(lines)):
        if scores[row] > 0 and (lines[row, LINE_FLAGS] & IS_HEADING) == 0 and row != title_line:
            kept += lines[row, LINE_LETTERS]
    if kept >= MIN_ARTICLE_LETTERS:
        return
    for row in range(len(lines)):
        if lines[row, LINE_MARKS] > 0 and verdicts[row] == PLAIN:
            scores[row] += LIFTED_SCORE


@kernel()
def _level(lines: Array, nodes: Array, scores: Array) -> None:
    """Items of a list stay together where most of their text does, rows of a table and lines of code where any does."""
    sums = np.zeros(len(nodes), np.float64)
    weights = np.zeros(len(nodes), np.float64)
    tops = np.full(len(nodes), -9.0)
    for row in range(len(lines)):
        group = _group(lines, nodes, row)
        if group > 0:
            weight = min(lines[row, LINE_READ], MAX_LEVEL_WEIGHT)
            sums[group] += weight * min(max(scores[row], -3.0), 3.0)
            weights[group] += weight
            tops[group] = max(tops[group], scores[row])
    for row in range(len(lines)):
        group = _group(lines, nodes, row)
        if group > 0 and weights[group] > 0:
            mean = sums[group] / weights[group]
            is_whole = (lines[row, LINE_FLAGS] & (IS_FOLDED | IS_PRE)) != 0
            if mean > 0 or (is_whole and tops[group] > 0 and mean > MIN_WHOLE_SCORE):
                scores[row] = max(scores[row], max(mean, LEVEL_SCORE))


@kernel()
def _group(lines: Array, nodes: Array, row: int) -> int:
    """The table, preformatted element or list that a line is part of, or 0."""
    node = lines[row, LINE_NODE]
    if (lines[row, LINE_FLAGS] & (IS_FOLDED | IS_PRE)) != 0:
        return int(node)
    return int(nodes[node, NODE_PARENT]) if (lines[row, LINE_FLAGS] & IS_ITEM) != 0 else 0


@kernel()
def choose(
    lines: Array, nodes: Array, verdicts: Array, covered: Array, title_line: int, scores: Array, rules: Array
) -> None:
    """Write for each line the rule that it goes by, an index of RULES, into uint8[lines]; 0 stays.

    Args:
        lines, nodes: of the reader.
        verdicts: uint8[lines].
        covered: int32[lines, kinds] of features.py.
        title_line: the line that says what the title says, or -1.
        scores: float32[lines], log-odds that a line is of the article.
    """
    _lift(lines, verdicts, title_line, scores)
    _level(lines, nodes, scores)
    is_apart = np.zeros(len(nodes), np.bool_)
    for node in range(1, len(nodes)):
        is_apart[node] = is_apart[nodes[node, NODE_PARENT]] or (nodes[node, NODE_HINTS] & APART_HINT) != 0
    above = np.int64(0)  # letters that stay
    beside = np.float32(0)  # what a line needs more than otherwise: below an article and the head of comments
    for row in range(len(lines)):
        if verdicts[row] == COMMENTS and above >= MIN_ARTICLE_LETTERS:
            beside = np.float32(COMMENT_SCORE)
        if (lines[row, LINE_FLAGS] & HAS_DAMAGE) != 0:
            rules[row] = DAMAGED
            continue
        node = lines[row, LINE_NODE]
        hints = nodes[node, NODE_HINTS] | nodes[nodes[node, NODE_PARENT], NODE_HINTS]
        if lines[row, LINE_READ] == 0:
            rules[row] = KEPT
        elif (hints & NUMBERS_HINT) != 0 and lines[row, LINE_LETTERS] == 0:
            rules[row] = LINE_NUMBERS
        elif verdicts[row] == NOTICE:
            rules[row] = NOTICES
        elif verdicts[row] == FURNITURE:
            rules[row] = LABELS
        elif scores[row] > beside + (APART_SCORE if is_apart[node] else 0.0):
            rules[row] = KEPT
            above += lines[row, LINE_LETTERS]
        elif verdicts[row] != PLAIN:
            rules[row] = HEADS
        elif lines[row, LINE_LINKS] > 0 and lines[row, LINE_LINKED] >= LINKED_RATIO * lines[row, LINE_LETTERS]:
            rules[row] = LINKS
        else:
            rules[row] = OTHER
            up = node
            while up > 0 and rules[row] == OTHER:
                for index in range(len(_HINT_BITS)):
                    if (nodes[up, NODE_HINTS] & 1 << _HINT_BITS[index]) != 0:
                        rules[row] = NAVIGATION + index
                        break
                up = nodes[up, NODE_PARENT]
            if rules[row] == OTHER and covered[row].sum() > 0:
                rules[row] = WORDS
    _trim(lines, nodes, rules)
    last = -1
    for row in range(len(lines)):  # a heading between lines that stay
        if rules[row] == KEPT and lines[row, LINE_READ] > 0:
            is_heading = (lines[row - 1, LINE_FLAGS] & IS_HEADING) != 0
            if last >= 0 and last == row - 2 and is_heading and rules[row - 1] >= LINKS:
                rules[row - 1] = KEPT
            last = row


@kernel()
def _trim(lines: Array, nodes: Array, rules: Array) -> None:
    """A few letters at the article's beginning or end, in an element of which nothing else stays, go with the rest."""
    kept = np.zeros(len(nodes), np.int64)
    for row in range(len(lines)):
        if rules[row] == KEPT and lines[row, LINE_READ] > 0:
            kept[nodes[lines[row, LINE_NODE], NODE_PARENT]] += 1
    for step in (1, -1):
        row = 0 if step == 1 else len(lines) - 1
        while 0 <= row < len(lines):
            if rules[row] == KEPT and lines[row, LINE_READ] > 0:
                is_plain = (lines[row, LINE_FLAGS] & (IS_HEADING | IS_PRE | IS_FOLDED)) == 0
                is_short = lines[row, LINE_LETTERS] < MIN_STRAY_LETTERS and lines[row, LINE_MARKS] == 0
                around = nodes[lines[row, LINE_NODE], NODE_PARENT]
                if not (is_plain and is_short and kept[around] == 1):
                    break
                rules[row] = OTHER
            row += step


@kernel()
def join(out: Array, lines: Array, rules: Array, result: Array) -> int:
    """Write the lines that stay into `result` (uint8[>= the bytes of out]), joined by line feeds; returns their bytes.

    Blank lines stay, one at a time, between preformatted lines only.
    """
    o = 0
    was_pre = blank = False
    for row in range(len(lines)):
        if rules[row] != KEPT:
            continue
        is_pre = (lines[row, LINE_FLAGS] & IS_PRE) != 0
        if lines[row, LINE_READ] == 0:
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
