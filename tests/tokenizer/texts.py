"""Short Chinese documents for tests: lines of the Analects and of Tang poems, shuffled by a seed, with Latin, digits,
blanks."""

from __future__ import annotations

import random

LINES = (
    "学而时习之，不亦说乎？有朋自远方来，不亦乐乎？人不知而不愠，不亦君子乎？",
    "吾日三省吾身：为人谋而不忠乎？与朋友交而不信乎？传不习乎？",
    "温故而知新，可以为师矣。学而不思则罔，思而不学则殆。",
    "知之为知之，不知为不知，是知也。见贤思齐焉，见不贤而内自省也。",
    "三人行，必有我师焉。择其善者而从之，其不善者而改之。",
    "君子坦荡荡，小人长戚戚。岁寒，然后知松柏之后凋也。",
    "床前明月光，疑是地上霜。举头望明月，低头思故乡。",
    "白日依山尽，黄河入海流。欲穷千里目，更上一层楼。",
    "春眠不觉晓，处处闻啼鸟。夜来风雨声，花落知多少。",
    "千山鳥飛絕，萬徑人蹤滅。孤舟簑笠翁，獨釣寒江雪。",
    "空山不见人，但闻人语响。返景入深林，复照青苔上。",
    "红豆生南国，春来发几枝。愿君多采撷，此物最相思。",
)
ASIDES = (
    "import numpy as np",
    "第 12 章",
    "　　",
    "2024-05-01",
    "print(x)",
    "ＡＢＣ！",
    "……——",
    "Linux 内核 6.1",
    "\tif a:\n\t\tb",
)


def document(seed: int) -> str:
    """One document of 3 to 12 lines; equal seeds give equal documents."""
    source = random.Random(seed)
    lines = [source.choice(LINES) for _ in range(source.randint(3, 12))]
    lines.insert(source.randrange(len(lines)), source.choice(ASIDES) + str(source.randrange(10_000)))
    return "\n".join(lines)


def documents(count: int, start: int = 0) -> list[str]:
    """`count` different documents."""
    return [document(seed) for seed in range(start, start + count)]
