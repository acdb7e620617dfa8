"""Labelled pages: known text in Chinese page templates of our own writing, to measure extraction of main text by.

Each template is built as such sites are (names of classes and ids, order of parts, what stands around the text), filled
with made-up text: what the page's readers came for is known character by character. Captions, prices and site names are
invented. A page's truth is its paragraphs, without headline; `score` counts an extractor's headline neither for nor
against it.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

NGRAM = 4

_WHO = "陈教练 何工程师 小学的校长 渡口的摆渡人 两位编剧 值夜班的护士 修钟表的老人 合作社的会计 邻县的诗人 养蜂人 年轻的裁缝 地质队的队员".split()
_WHEN = "立秋那天 天还没亮 汛期过后 上个礼拜三 停电的夜里 赶集的日子 收工以后 第一场雪落下时 会议结束前 孩子们睡着以后".split()
_WHAT = (
    "把仓库里的旧机器重新装了一遍 在墙上画出一条水位线，旁边写着年份 和镇上的人商量怎样把路修得宽一些 读完了三十年前的一摞日记 "
    "给每一棵树都挂上了写着名字的木牌 试着用新的办法记录潮汐，结果比从前准确得多 把剩下的面粉分成了七份 解释说账目里少掉的那一笔其实是运费 "
    "用两个下午搭好了戏台，又用一个晚上拆掉 沿着铁路走了十几里，只为看一眼新桥 建议大家先把井修好，再谈别的事情 听见远处有人在吹口琴"
).split(" ")
_END = (
    "这个办法后来传到了别的村子。 谁都没有料到会是这样。 有人赞成，也有人摇头。 报上只登了短短一行。 至于原因，要到第二年春天才弄清楚。 "
    "他把这句话写在了本子的最后一页。 灯一直亮到后半夜。 这是许多年来的第一次。 桌上的茶已经凉了。 数字虽小，意义却不小。"
).split(" ")


@dataclass(frozen=True)
class Article:
    """What a page is about; `paragraphs` is its main text."""

    title: str
    date: str
    author: str
    paragraphs: tuple[str, ...]


@dataclass(frozen=True)
class LabelledPage:
    """A page and what is right for it; `date` and `author` are None where the page does not say."""

    template: str
    html: str
    title: str
    date: str | None
    author: str | None
    text: str


def make_article(seed: int, paragraphs: Sequence[str] = ()) -> Article:
    """An article of the given paragraphs, or of made-up ones; equal seeds give equal articles."""
    chance = random.Random(f"article {seed}")
    paragraphs = paragraphs or [
        "".join(sentence(chance) for _ in range(chance.randint(2, 5))) for _ in range(chance.randint(5, 14))
    ]
    title = f"{chance.choice(_WHO)}{chance.choice(_WHAT).split('，')[0]}"
    date = f"20{chance.randint(10, 24)}-{chance.randint(1, 12):02d}-{chance.randint(1, 28):02d}"
    author = chance.choice("赵钱孙李周吴郑王") + chance.choice(["文海", "小舟", "知远", "若水", "长青"])
    return Article(title, date, author, tuple(paragraphs))


def sentence(chance: random.Random) -> str:
    """A made-up sentence with its end mark, and sometimes a second one."""
    text = f"{chance.choice(_WHEN)}，{chance.choice(_WHO)}{chance.choice(_WHAT)}，花了{chance.randint(2, 90)}天。"
    return text + (chance.choice(_END) if chance.random() < 0.6 else "")


def headline(chance: random.Random) -> str:
    """A made-up headline, as links show it."""
    return f"{chance.choice(_WHO)}{chance.choice(_WHAT).split('，')[0]}"


def make_page(template: str, seed: int, paragraphs: Sequence[str] = ()) -> LabelledPage:
    """One labelled page of a template (a key of `templates.TEMPLATES`)."""
    from tools.pages.templates import TEMPLATES

    article = make_article(seed, paragraphs)
    html, blocks, says_date, says_author = TEMPLATES[template](article, random.Random(f"{template} {seed}"))
    text = "\n".join(blocks)
    return LabelledPage(
        template,
        html,
        article.title,
        article.date if says_date else None,
        article.author if says_author else None,
        text,
    )


@dataclass(frozen=True)
class Score:
    """Precision, recall and F1 of character 4-grams, counted with repetition and without white space."""

    precision: float
    recall: float
    f1: float


def score(page: LabelledPage, text: str) -> Score:
    """How well an extractor's text agrees with the truth, with or without the headline: the better of the two.

    >>> page = LabelledPage("x", "", "", None, None, "学而时习之不亦说乎")
    >>> score(page, "学而时习之不亦说乎")
    Score(precision=1.0, recall=1.0, f1=1.0)
    """
    found = _grams(text)
    return max((_score(_grams(truth), found) for truth in (page.text, page.title + page.text)), key=lambda s: s.f1)


def _score(truth: Counter[str], found: Counter[str]) -> Score:
    common = sum((truth & found).values())
    precision, recall = common / max(1, sum(found.values())), common / max(1, sum(truth.values()))
    return Score(precision, recall, 2 * precision * recall / max(1e-9, precision + recall) if common else 0.0)


def _grams(text: str) -> Counter[str]:
    text = "".join(text.split())
    return Counter(text[start : start + NGRAM] for start in range(len(text) - NGRAM + 1))
