"""How well personal data are found: strings made up as people write them on Chinese pages, and their look-alikes.

`python -m tools.evaluate.filters` prints precision and recall of each kind with 95 % intervals.

Every value comes from a generator (area codes, check digits and all) and belongs to nobody. A kind's value counts as
found where a span of that kind covers it and little more; a span that covers no value of its kind is a false one,
whether it stands in a look-alike or beside another kind. Not in the set, because they are not found: numbers spelled
with Han digits (一三八...), numbers in pictures, accounts that are announced by no word.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

import pyarrow as pa

from corpus.filters.statistic import buffers
from corpus.personal_data import find_personal_data
from tools.pii_canaries.look_alikes import look_alike
from tools.pii_canaries.values import MAKERS, Chance

SEED = 20240601
NUM_PER_KIND = 300
NUM_LOOK_ALIKES = 2400
MAX_EXCESS_CHARS = 12  # of a span beyond its value: a country code, an extension

BEFORE = (
    "今年的报名已经开始，想参加的同学请尽早联系我们",
    "这家店开了二十多年，老板姓李，人很和气",
    "昨天下午在人民路捡到一个黑色的包",
    "房子在三楼，南北通透，随时可以看",
    "本人承接各种装修工程，价格公道",
    "会议的地点还没有定下来，有问题可以先问小周",
    "通知如下",
    "据警方通报，嫌疑人使用他人信息办理业务",
)
AFTER = (
    "，谢谢大家",
    "。非诚勿扰",
    "，晚上七点以后也可以",
    "（周末休息）",
    "\n地址在学校东门对面",
    "！",
    "，欢迎光临",
    "，过期不候",
    " ",
)
NAMES = "王先生 李女士 张经理 小陈 刘老师 赵师傅 周主任 阿强 孙工 吴医生".split()


class Canary(NamedTuple):
    """A text, and the values in it by kind; a look-alike has none."""

    text: str
    values: tuple[tuple[str, str], ...]
    origin: str


def canaries(seed: int = SEED) -> Iterator[Canary]:
    """Values of every kind in context, then look-alikes."""
    chance = random.Random(seed)
    for kind, make in MAKERS.items():
        for _ in range(NUM_PER_KIND):
            context, value = make(chance)
            context = context.replace("{name}", chance.choice(NAMES))
            yield Canary(_surround(chance, context.replace("{}", value)), ((kind, value),), kind)
    for _ in range(NUM_LOOK_ALIKES):
        yield Canary(_surround(chance, look_alike(chance)), (), "look-alike")


def _surround(chance: Chance, core: str) -> str:
    before = chance.choice(BEFORE) + chance.choice(["，", "。", "：", "", " ", "\n"])
    return before + core + chance.choice(AFTER) + chance.choice(["", chance.choice(BEFORE)])


class Score(NamedTuple):
    """Counts by kind."""

    values: Counter[str]
    hits: Counter[str]
    found: Counter[str]


def score(items: list[Canary]) -> Score:
    """What the filter finds in the canaries."""
    texts = pa.array([item.text for item in items], pa.large_string())
    spans = find_personal_data(texts, *buffers(texts)).spans
    values, hits, found = Counter[str](), Counter[str](), Counter[str]()
    for row, item in enumerate(items):
        here = spans.get(row, [])
        found.update(span.kind for span in here)
        for kind, value in item.values:
            values[kind] += 1
            start = item.text.index(value)
            for span in here:
                covers = span.start <= start and span.end >= start + len(value)
                if span.kind == kind and covers and span.end - span.start <= len(value) + MAX_EXCESS_CHARS:
                    hits[kind] += 1
    return Score(values, hits, found)
