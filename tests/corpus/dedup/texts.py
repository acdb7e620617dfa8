"""Texts and planted pairs for the tests: random Han characters, so that n-gram sets overlap only where they should."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from corpus.dedup.near.ranks import Facts
from corpus.dedup.text.keys import DocumentKeys

POEM = (
    "床前明月光，疑是地上霜。举头望明月，低头思故乡。白日依山尽，黄河入海流。欲穷千里目，更上一层楼。"
    "春眠不觉晓，处处闻啼鸟。夜来风雨声，花落知多少。红豆生南国，春来发几枝。愿君多采撷，此物最相思。"
)
TRADITIONAL_POEM = (
    "床前明月光，疑是地上霜。舉頭望明月，低頭思故鄉。白日依山盡，黃河入海流。欲窮千里目，更上一層樓。"
    "春眠不覺曉，處處聞啼鳥。夜來風雨聲，花落知多少。紅豆生南國，春來發幾枝。願君多採擷，此物最相思。"
)
ANALECTS = (
    "子曰：学而时习之，不亦说乎？有朋自远方来，不亦乐乎？人不知而不愠，不亦君子乎？有子曰：其为人也孝弟，"
    "而好犯上者，鲜矣；不好犯上，而好作乱者，未之有也。君子务本，本立而道生。孝弟也者，其为仁之本与！"
)


def facts(count: int) -> Facts:
    """Documents of which nothing is known but their length."""
    zeros = np.zeros(count, np.int64)
    return Facts(zeros.astype(np.uint8), zeros.astype(bool), np.ones(count), zeros)


def random_text(generator: np.random.Generator, length: int) -> str:
    """Random Han characters of the unified block that fold to themselves or to one of themselves."""
    return "".join(map(chr, generator.integers(0x4E00, 0x9FA0, length)))


def edited(generator: np.random.Generator, text: str, share: float) -> str:
    """The text with a share of its characters replaced by random ones."""
    return "".join(random_text(generator, 1) if generator.random() < share else c for c in text)


def shingles(text: str, ngram: int = 5) -> set[str]:
    """The set of character n-grams of an already folded text."""
    return {text[i : i + ngram] for i in range(len(text) - ngram + 1)}


def jaccard(a: set[str], b: set[str]) -> float:
    """|a and b| / |a or b|."""
    return len(a & b) / len(a | b)


def rank(keys: DocumentKeys) -> npt.NDArray[np.int64]:
    """Return int64[n], 0 for the document that outranks all others; equal records keep their order."""
    columns = [
        keys["digest"][:, 1],
        keys["digest"][:, 0],
        keys["id"][:, 1],
        keys["id"][:, 0],
        ~keys["num_bytes"],
        ~keys["rank"],
    ]
    ranks = np.empty(len(keys), np.int64)
    ranks[np.lexsort(columns)] = np.arange(len(keys))
    return ranks
