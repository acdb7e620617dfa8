"""Chinese text for tests, made of our own sentences: plausible prose, every document different."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

SUBJECTS = "老师 船长 邻居 图书管理员 木匠 研究员 售票员 我的祖母 那位画家 村里的医生 年轻的记者 气象站的同事 茶馆老板 修表的师傅 邮递员 两个学生".split()
TIMES = "清晨 黄昏时分 去年冬天 雨停以后 每逢周末 开会之前 深夜里 节日那天 春耕的时候 第二天中午 放学以后 风最大的那几天".split()
ACTIONS = (
    "把旧地图摊在桌上，用铅笔标出每一条小路 沿着河岸慢慢走，数着对岸亮起的灯 在院子里晒书，一本一本地翻开 给远方的朋友写信，说起今年的收成 "
    "修好了那台停了三年的收音机 向孩子们解释潮水为什么会涨落 记录下温度、湿度和风向，一次也没有遗漏 把新摘的橘子分给大家，自己只留下两个 "
    "站在窗前看雪，想起许多往事 用竹篾编了一只很结实的篮子 读完了那部厚厚的小说，却说不出结局好不好 在站台上等了四十分钟，终于等来了末班车 "
    "教徒弟辨认木纹，说急不得 把种子按颜色分开，装进贴了标签的纸袋 在黑板上写下一道没有人会做的题 听广播里说山那边已经下雨了"
).split(" ")
ENDINGS = (
    "这件事后来被许多人提起。 没有人觉得奇怪。 他说，习惯了就好。 大家听了都笑起来。 谁也不知道下一次会是什么时候。 桥头的钟正好敲了六下。 "
    "我至今记得那种气味。 账本上是这样写的。 院子里的猫打了个哈欠。 事情就这样定了下来。 那封信一直没有回音。 路上的积水映着天空。"
).split(" ")


def document(seed: int, num_sentences: int = 14) -> str:
    """A text of a few paragraphs; equal seeds give equal texts."""
    chance = random.Random(seed)
    sentences = []
    for _ in range(num_sentences):
        number = chance.randrange(3, 97)
        time, subject = chance.choice(TIMES), chance.choice(SUBJECTS)
        action, ending = chance.choice(ACTIONS), chance.choice(ENDINGS)
        sentences.append(f"{time}，{subject}{action}，前后用了{number}天。{ending}")
    paragraphs = ["".join(sentences[start : start + 4]) for start in range(0, num_sentences, 4)]
    return "\n".join(paragraphs)


def write_records(path: Path, records: Iterable[Mapping[str, Any]]) -> Path:
    """Write JSON lines; returns the path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records), encoding="utf-8")
    return path


def write_shards(folder: Path, shards: Sequence[Sequence[int]], num_texts: int = 1_000_000) -> Path:
    """Write `N.jsonl` for each shard, a document with an address for each seed, of so many different texts."""
    for number, seeds in enumerate(shards):
        records = ({"text": document(seed % num_texts), "url": f"https://example.org/{seed}"} for seed in seeds)
        write_records(folder / f"{number}.jsonl", records)
    return folder
