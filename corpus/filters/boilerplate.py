"""Boilerplate lines: page furniture that extraction kept, removed line by line so that the document can stay.

Only short lines go, and only where the whole line is of a known form: 责任编辑：张三 goes, a sentence about an editor
stays. An automaton finds the trigger words in a whole batch; only lines that hold one are looked at, and each
pattern is anchored and linear. What was removed is recorded by kind and line number.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from corpus.engine.compiled import kernel
from corpus.kernels.automaton import Automaton

MAX_LINE_CHARS = 120
MAX_LINE_BYTES = 4 * MAX_LINE_CHARS
MAX_REMOVED_LINES = 1000  # of a document

_SEP = r"\s*[:：|｜]\s*"
_TAIL = r"[\s>»›→↑↓…▼▽∨.。!！\])）】]*"
_OPEN = r"[\[【(（<«‹←↑\s]*"
_REST = "[^。！？]"  # boilerplate is no sentence


class Pattern(NamedTuple):
    """A kind of boilerplate: words one of which every such line holds, and the form of the whole line.

    In a form no two neighbouring repeats can match the same character, so that a line costs its length.
    """

    kind: str
    triggers: tuple[str, ...]
    form: re.Pattern[str]


def _pattern(kind: str, triggers: str, *forms: str) -> Pattern:
    return Pattern(kind, tuple(triggers.split()), re.compile("|".join(f"(?:{form})" for form in forms)))


_EDITOR = "(?:编辑|編輯|责编|責編|校对|校對|审核|審核|监制|監製)"
_SOURCE = "(?:来源|來源|稿源|转自|轉自)"
_NETWORKS = (
    "(?:新浪微博|腾讯微博|微博|微信好友|微信|朋友圈|QQ空间|QQ好友|QQ|豆瓣|人人网|贴吧|更多|Facebook|Twitter|LINE)"
)
_ACTION = r"(?:评论|評論|点赞|收藏|举报|打印|分享|转发|关闭|关闭窗口|字号)"

PATTERNS = (
    _pattern(
        "navigation",
        "上一篇 下一篇 上一页 下一页 上一頁 下一頁 上一章 下一章 上一条 下一条",
        rf"{_OPEN}[上下]一[篇页頁章条](?:{_SEP}.{{0,80}}|(?:[\s|｜·>»/\]】]+\w{{1,8}}){{0,6}}{_TAIL})",
    ),
    _pattern(
        "back",
        "返回 回到 回頁首 回页首",
        rf"{_OPEN}(?:返回|回到|回)(?:首页|首頁|顶部|頂部|页首|頁首|列表|上一页|上一頁|目录|目錄|本站首页){_TAIL}",
    ),
    _pattern(
        "location",
        "位置",
        rf"(?=[您你现現当當目所])[您你]?(?:现在|現在|当前|當前|目前)?(?:所在)?的?位置{_SEP}(?:首页|首頁|主页|[^>»›→]{{0,60}}[>»›→]).{{0,60}}",
    ),
    _pattern(
        "record_number",
        "ICP icp 公网安备 公網安備 许可证编号 许可证号",
        rf"{_REST}{{0,80}}(?:(?:ICP|icp)[备備证證]\s?(?:案号)?\s?[0-9]{{5,12}}号?|公网安备\s?[0-9]{{8,16}}号?)[^。！？]{{0,80}}",
        r"[^。！？，]{0,30}许可证编?号\s?[:：]\s?[\w()（）-]{5,24}",
    ),
    _pattern(
        "editor",
        "编辑 編輯 责编 責編 校对 校對 审核 審核 监制 監製",
        rf"{_OPEN}(?:责任|責任|本文|本期|本版|执行|實習|实习|值班|网络|網絡|文字|微信){_EDITOR}{_SEP}{_REST}{{1,30}}",
        rf"{_OPEN}(?:责编|責編|{_EDITOR}(?=\s*[|｜])){_SEP}{_REST}{{1,30}}",
        rf"{_OPEN}{_EDITOR}{_SEP}\w{{2,4}}{_TAIL}",
    ),
    _pattern(
        "source",
        "来源： 来源: 來源： 來源: 稿源 转自 轉自",
        rf"{_OPEN}(?:文章|信息|稿件|图片|圖片|新闻|新聞|本文|资料|資料)?{_SOURCE}{_SEP}{_REST}{{1,30}}",
    ),
    _pattern(
        "copyright",
        "版权所有 版權所有 Copyright copyright COPYRIGHT © ights 保留所有权利 转载 轉載",
        r"[^。！？，；]{0,40}(?:版权所有|版權所有|保留所有权利|(?:All|ALL) ?[Rr](?:ights|IGHTS) ?[Rr](?:eserved|ESERVED))"
        r"(?![者人权權])[^。！？；]{0,60}[。.]?",
        r"(?:Copyright|COPYRIGHT|copyright|©).{0,12}[12][0-9]{3}.{0,80}",
        rf"(?:未经|未經){_REST}{{0,30}}(?:不得|禁止|严禁|請勿|请勿){_REST}{{0,16}}(?:转载|轉載|复制|使用){_REST}{{0,20}}[。！]?",
        rf"(?:如需)?(?:转载|轉載)(?:请|請|时|需|须){_REST}{{0,10}}[注註]明{_REST}{{0,40}}[。！]?",
    ),
    _pattern(
        "share",
        "分享到 分享至 扫一扫 掃一掃 二维码 公众号 公眾號",
        rf"(?:一键|点击|我要)?分享[到至]\s?[:：]?(?:[\s|/、]*{_NETWORKS}){{0,12}}{_TAIL}",
        rf"(?:打开|用|使用)?(?:微信|手机)?(?:扫一扫|掃一掃)[，,]?[^。！？，]{{0,20}}{_TAIL}",
        rf"请?(?:长按|長按|扫描|识别|扫码)[^。！？，]{{0,12}}(?:二维码|图片)[，,]?[^。！？，]{{0,8}}(?:关注|下载|阅读|加入|进群|查看)[^。！？，]{{0,12}}{_TAIL}",
        rf"(?:点击|點擊|欢迎|搜索|请)?关注[^。！？，]{{0,24}}公[众眾][号號][^。！？，]{{0,24}}{_TAIL}",
    ),
    _pattern(
        "expand",
        "全文 全部 更多",
        rf"{_OPEN}(?:点击|點擊)?(?:展开|展開|阅读|閱讀|查看|加载|显示|收起)(?:全文|更多|全部|剩余部分){_TAIL}",
    ),
    _pattern(
        "related",
        "相关 相關 热门 熱門 猜你喜欢 推荐 推薦 延伸阅读 延伸閱讀 精彩 更多",
        rf"{_OPEN}(?:相关|相關|热门|熱門|精彩|编辑|为您|为你|更多)(?:阅读|閱讀|文章|推荐|推薦|新闻|新聞|链接|内容|资讯|专题|搜索|标签)[:：]?{_TAIL}",
        rf"{_OPEN}(?:猜你喜欢|推荐阅读|推薦閱讀|延伸阅读|延伸閱讀|更多精彩内容)[:：]?{_TAIL}",
    ),
    _pattern(
        "comment",
        "评论 評論 留言 点赞 收藏 举报 打印",
        rf"{_OPEN}(?:发表|發表|我要|查看|网友|最新|暂无|热门|登录后?)(?:评论|評論|留言){_TAIL}",
        rf"{_ACTION}\s?[(（]?\s?[0-9]{{1,7}}\s?[)）]?",
        rf"{_OPEN}{_ACTION}(?:\([0-9]{{0,7}}\))?(?:[\s|｜/]+{_ACTION}(?:\([0-9]{{0,7}}\))?){{1,6}}{_TAIL}",
    ),
    _pattern(
        "novel_site",
        "本站 本书 一秒记住 一秒記住 最新章节 最新章節 本章未完 手机用户",
        r"(?:请|請)?(?:大家)?(?:记住|記住|收藏)本[站书].{0,60}",
        r"(?:天才)?一秒[记記]住.{0,60}",
        r"[^。！？，]{0,20}最新章[节節][^。！？，]{0,30}(?:更新|首发|首發)[^。！？]{0,40}",
        r"[(（]?本章未完.{0,40}",
        r"手机用户请.{0,60}",
    ),
)


class Removed(NamedTuple):
    """A removed line: its kind, and its number in the document, from 1."""

    kind: str
    line: int


@lru_cache(maxsize=1)
def _automaton() -> tuple[Automaton, list[list[Pattern]]]:
    """The automaton of all triggers, and the patterns that each stands for: 更多 opens two kinds."""
    words = list(dict.fromkeys(trigger for pattern in PATTERNS for trigger in pattern.triggers))
    return Automaton(words), [[pattern for pattern in PATTERNS if word in pattern.triggers] for word in words]


def remove_lines(
    offsets: npt.NDArray[np.int64], data: npt.NDArray[np.uint8]
) -> Iterator[tuple[int, str, list[Removed]]]:
    """For each document that holds boilerplate lines: its row, its text without them, and what they were.

    At most the first 1,000 of a document go: one that has more is made of them, and the rules shall see it.
    """
    automaton, patterns = _automaton()
    hits = automaton.find(offsets, data)
    lines = np.empty((len(hits.rows), 2), np.int64)
    _lines_around(offsets, data, hits.rows, hits.starts, lines)
    short = np.flatnonzero(lines[:, 0] >= 0)
    edges = np.searchsorted(hits.rows[short], np.arange(len(offsets)))
    buffer: Any = memoryview(data)  # type: ignore[arg-type]
    for row in np.flatnonzero(np.diff(edges)).tolist():
        chosen = short[edges[row] : edges[row + 1]]
        found: dict[int, tuple[int, str]] = {}  # start of a line -> its end and kind
        for (start, end), word in zip(lines[chosen].tolist(), hits.words[chosen].tolist(), strict=True):
            line = "" if start in found else bytes(buffer[start:end]).decode().strip()
            forms = patterns[word] if line and len(line) <= MAX_LINE_CHARS else []
            kind = next((pattern.kind for pattern in forms if pattern.form.fullmatch(line)), None)
            if kind:
                found[start] = end, kind
                if len(found) == MAX_REMOVED_LINES:
                    break
        if found:
            yield row, *_cut(buffer, int(offsets[row]), int(offsets[row + 1]), found)


@kernel(leaf=True)
def _lines_around(offsets: Any, data: Any, rows: Any, places: Any, out: Any) -> None:
    """The bytes [start, end) of the line at each place into `out`, int64[places, 2]; -1 where it is too long to go."""
    for k in range(len(rows)):
        first, last = offsets[rows[k]], offsets[rows[k] + 1]
        start = end = places[k]
        while start > first and data[start - 1] != 10 and end - start <= MAX_LINE_BYTES:
            start -= 1
        size = 0  # characters that no strip() takes, at least
        while end < last and data[end] != 10 and end - start <= MAX_LINE_BYTES:
            end += 1
        for i in range(start, end):
            size += 0x20 < data[i] < 0x80 or data[i] >= 0xE4
        is_short = end - start <= MAX_LINE_BYTES and size <= MAX_LINE_CHARS
        out[k, 0] = start if is_short else -1
        out[k, 1] = end


def _cut(buffer: Any, first: int, last: int, lines: dict[int, tuple[int, str]]) -> tuple[str, list[Removed]]:
    pieces, removed = [], []
    position, number = first, 1
    for start, (end, kind) in sorted(lines.items()):
        piece = bytes(buffer[position:start])
        number += piece.count(b"\n")
        pieces.append(piece)
        removed.append(Removed(kind, number))
        position = min(last, end + 1)
        number += 1
    pieces.append(bytes(buffer[position:last]))
    text = re.sub(r"\n{3,}", "\n\n", b"".join(pieces).decode()).strip("\n")
    return text, removed
