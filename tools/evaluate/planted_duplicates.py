"""Documents with known duplicates, made of real text: what `tools.evaluate.dedup` measures recall and false merges on.

Each kind of duplicate has base documents of its own, passages of 300 to 1,500 characters that share little with each
other, and beside each base document its twin. Templated pages are the counter-test: one page's frame around different
content. All drawn with a fixed seed.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from xxhash import xxh3_64_intdigest

from corpus.engine.errors import UsageError
from tools.evaluate.shared import read_rows

MIN_CHARS, MAX_CHARS = 300, 1500
MAX_SEEN_RATIO = (
    0.25  # of a passage's character 5-grams in passages taken before: twins are only those that are planted
)
NGRAM = 5
LEFT_OUT = ("chinese_poetry.jsonl",)  # poems are shorter than a passage
TEMPLATE_PAGES = 40  # of one frame
FULL_WIDTH = {code: code + 0xFEE0 for code in range(0x21, 0x7F)} | {0x20: 0x3000}

HEADER = "首页 新闻 国际 财经 体育 娱乐 科技 汽车 教育 论坛\n您现在的位置：首页 > 资料 > 正文\n"
FOOTER = "\n上一篇：没有了 下一篇：没有了\n责任编辑：小舟\n关于我们 | 联系方式 | 广告服务 | 版权声明\n版权所有 未经许可不得转载\n"
FRAMES = (
    (
        "企业信用信息公示\n企业名称：{0}\n登记状态：存续（在营、开业、在册）\n法定代表人：{1}\n",
        "\n以上信息由企业自行申报，申报企业对信息的真实性、合法性负责。如对公示信息有疑问，可向登记机关提出查询申请，登记机关应当在二十个工作日内书面答复。"
        "有限责任公司（自然人投资或控股）依法须经批准的项目，经相关部门批准后方可开展经营活动。本页面仅供参考，以登记机关核发的营业执照为准。\n",
    ),
    (
        "{0}天气预报 一周天气\n今天是{1}，气象台发布的预报每日更新三次。\n",
        "\n穿衣指数：建议着薄外套或牛仔裤等服装。紫外线指数：弱，辐射较弱，无需特别防护。洗车指数：较适宜，未来一天无雨，风力较小。"
        "运动指数：较适宜，天气较好，但因风力较大，户外运动请注意防风。感冒指数：较易发，昼夜温差较大，请注意适当增减衣服。空气污染扩散条件：良。\n",
    ),
    (
        "商品详情 {0}\n货号：{1}\n品牌直供，支持七天无理由退换货，下单后四十八小时内发出。\n",
        "\n关于色差：图片均为实物拍摄，因显示器不同可能存在轻微色差，以收到的实物为准。关于快递：默认发中通或圆通，偏远地区需补运费差价，不接受指定快递。"
        "关于售后：签收前请当面验货，如有破损请拒收并及时联系客服，签收后视为商品完好。好评返现活动已经结束，感谢新老顾客的支持与理解。\n",
    ),
)


@dataclass(frozen=True)
class Planted:
    """One document; documents of one `cluster` are duplicates of each other and of nothing else."""

    text: str
    kind: str
    cluster: int


def plant(folder: Path, pairs: int, seed: int = 0) -> list[Planted]:
    """`pairs` pairs of each kind, as many templated pages, and single documents, in a random order."""
    chance = random.Random(seed)
    taken = passages(folder, chance)
    documents: list[Planted] = []
    clusters = iter(range(1_000_000))
    for kind, change in KINDS.items():
        for _ in range(pairs):
            base, cluster = next(taken), next(clusters)
            if kind in TWINS:  # a page of the other script is another text only where the first is Simplified
                base = convert("t2s", base)
            documents += [Planted(text, kind, cluster) for text in (base, change(base, chance))]
    documents += [Planted(page, "templated", next(clusters)) for page in _templated(taken, pairs, chance)]
    documents += [Planted(next(taken), "single", next(clusters)) for _ in range(pairs)]
    chance.shuffle(documents)
    return documents


def passages(folder: Path, chance: random.Random) -> Iterator[str]:
    """Passages of whole lines, each with at most a quarter of its 5-grams in the ones before.

    Raises:
        UsageError: where they end.
    """
    found = [passage for path in sorted(folder.glob("*.jsonl")) if path.name not in LEFT_OUT for passage in _cut(path)]
    chance.shuffle(found)
    seen: set[int] = set()
    for passage in found:
        shingles = {xxh3_64_intdigest(passage[i : i + NGRAM].encode()) for i in range(len(passage) - NGRAM + 1)}
        if len(shingles & seen) <= MAX_SEEN_RATIO * len(shingles):
            yield passage
        seen |= shingles
    raise UsageError(
        f"{folder}: not enough text in *.jsonl for so many pairs ({len(found):,} passages). Ask for fewer (--pairs)."
    )


def edit_text(text: str, ratio: float, chance: random.Random) -> str:
    """A share of the characters changed: replaced (half of them), deleted, or one of the text inserted before."""
    characters = list(text)
    for place in sorted(chance.sample(range(len(text)), round(ratio * len(text))), reverse=True):
        what = chance.choice(("replace", "replace", "delete", "insert"))
        new = [] if what == "delete" else [chance.choice(text)]
        characters[place : place + (what != "insert")] = new
    return "".join(characters)


def full_width(text: str) -> str:
    """ASCII as full-width characters.

    >>> full_width("GB 18030, 2022")
    'ＧＢ　１８０３０，　２０２２'
    """
    return text.translate(FULL_WIDTH)


def _cut(path: Path) -> Iterator[str]:
    for row in read_rows(path):
        passage = ""
        for part in row["text"].splitlines(keepends=True):
            if len(part) > MAX_CHARS:
                part = part[:MAX_CHARS]
            if len(passage) + len(part) > MAX_CHARS:
                if len(passage) >= MIN_CHARS:
                    yield passage.strip()
                passage = ""
            passage += part
        if len(passage) >= MIN_CHARS:
            yield passage.strip()


def _templated(taken: Iterable[str], pages: int, chance: random.Random) -> list[str]:
    """Pages of several frames whose contents are different; the frame is half to nine tenths of the page."""
    filled = []
    for page, content in zip(range(pages), taken, strict=False):
        before, after = FRAMES[page // TEMPLATE_PAGES % len(FRAMES)]
        name, number = content[:6].strip(), f"{chance.randint(10**7, 10**8)}"
        filled.append(before.format(name, number) + content[20 : 20 + chance.randint(30, 200)] + after)
    return filled


def convert(configuration: str, text: str) -> str:
    """A text in another script, by one of OpenCC's configurations: "s2t", "t2s", "s2twp"."""
    return str(_converter(configuration).convert(text))


@cache
def _converter(configuration: str) -> Any:
    import opencc

    return opencc.OpenCC(configuration)


def _twin(configuration: str) -> Callable[[str, random.Random], str]:
    return lambda text, _: convert(configuration, text)


TWINS = {  # Simplified, and the same text phrase by phrase in Traditional as OpenCC, Hong Kong and Taiwan have it
    "Traditional": _twin("s2t"),
    "Hong Kong": _twin("s2hk"),
    "Taiwan": _twin("s2tw"),
    "Taiwan's words": _twin("s2twp"),  # and with the words of the region: 软件 as 軟體
}
KINDS: dict[str, Callable[[str, random.Random], str]] = {
    "exact": lambda text, _: text,
    "edits 1 %": lambda text, chance: edit_text(text, 0.01, chance),
    "edits 3 %": lambda text, chance: edit_text(text, 0.03, chance),
    "edits 5 %": lambda text, chance: edit_text(text, 0.05, chance),
    "edits 10 %": lambda text, chance: edit_text(text, 0.10, chance),
    "full width": lambda text, _: full_width(text),
    **TWINS,
    "header + footer": lambda text, _: HEADER + text + FOOTER,
    "truncated 10 %": lambda text, _: text[: round(0.9 * len(text))],
    "truncated 30 %": lambda text, _: text[: round(0.7 * len(text))],
}
