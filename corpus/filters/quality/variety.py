"""Which Chinese it is: mainland, Taiwan, Hong Kong, Cantonese, classical; and Japanese, Korean, English beside it.

Scripts decide what they can, from the counts that other statistics share: kana and hangul tell Japanese and Korean,
characters that only one script uses tell Simplified from Traditional. A linear model (model.py) over Han unigrams and
bigrams tells Cantonese and classical prose from modern writing, and usage in Traditional text; one over letters tells
English from other languages. `python -m tools.train_varieties` makes both; docs/varieties.md has sources and confusion.

Labels are BCP 47 tags. `zh-Hant` is Traditional text whose usage cannot be told, `zh-Hans` Simplified text wherever it
was written, `und` too little text or another language. The models read WINDOWS pieces of a document, spread evenly, of
WINDOW_BYTES each, and all of a shorter one.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from corpus.engine import durable
from corpus.engine.compiled import kernel
from corpus.filters.quality.model import Model, load_model
from corpus.filters.statistic import Batch, Floats, Ints, statistic
from corpus.filters.statistics.length import HAN_CLASSES
from corpus.kernels import tables
from corpus.kernels.line_kernel import JAPANESE_HAN

Array = npt.NDArray[Any]

SHIPPED = {  # with their sha256, which the tool prints
    Path(__file__).with_name("han.model"): "ba9aea1bc7ac05a64404f9f4865c14086f1334c951ffa266d83bc34c4127588b",
    Path(__file__).with_name("letters.model"): "354f6a0c1ec57d0b7f6220d8c3b00c7f5712817b147eab99f4e55f8169562361",
}
WRITTEN = ("zh-Hans", "zh-Hant-TW", "zh-Hant-HK", "yue", "lzh")  # classes of the model over Han
SPELLED = ("und", "en")  # classes of the model over letters
LABELS = (*WRITTEN, "zh-Hant", "ja", "ko", "en", "und")
HANS, TAIWAN, HONG_KONG, CANTONESE, CLASSICAL, HANT, JAPANESE, KOREAN, ENGLISH, UNDETERMINED = range(len(LABELS))
WINDOWS, WINDOW_BYTES = 4, 384  # 512 Han in all
LETTERS_PER_HAN = 4  # an article with code has more letters than Han and is no English
MIN_HAN, MIN_LETTERS = 10, 25  # WuDaoCorpora takes no page of fewer Han
OTHER_SCRIPT, JAPANESE_TITLE = 0.20, 0.10  # of kana or hangul; of Japan's own Han in a title: see statistics/script.py
SURE, SURE_USAGE = 0.5, 0.7  # probability of Cantonese, classical or modern writing; of one usage of the two


@dataclass(frozen=True)
class Varieties:
    """The two models."""

    han: Model
    letters: Model

    def __reduce__(self) -> tuple[Any, ...]:
        """Read again by other processes."""
        return load_varieties, ()

    @property
    def digest(self) -> str:
        """That of both."""
        return f"{self.han.digest} {self.letters.digest}"

    def measure(self, batch: Batch) -> Floats:
        """float64[documents]: places in LABELS."""
        han, letters = batch.column(*HAN_CLASSES), batch.column(tables.LATIN, tables.OTHER)
        kana, hangul = batch.column(tables.KANA), batch.column(tables.HANGUL)
        whole = han + kana + hangul
        spelled = whole * LETTERS_PER_HAN < letters
        written, in_letters = (sample_windows(batch.offsets, batch.data, rows) for rows in (~spelled, spelled))
        english = (self.letters.measure(*in_letters)[:, 1] > SURE) & (letters >= MIN_LETTERS)
        return np.select(
            [
                spelled,
                hangul > OTHER_SCRIPT * whole,
                (kana > OTHER_SCRIPT * whole) | (batch.column(JAPANESE_HAN) > JAPANESE_TITLE * han),
                han >= MIN_HAN,
            ],
            [np.where(english, ENGLISH, UNDETERMINED), KOREAN, JAPANESE, _chinese(self.han.measure(*written), batch)],
            UNDETERMINED,
        ).astype(np.float64)


def _chinese(probabilities: Floats, batch: Batch) -> Ints:
    """int64[documents]: places in LABELS of Chinese text, from the probabilities of WRITTEN."""
    traditional, simplified = batch.column(tables.HAN_TRADITIONAL), batch.column(tables.HAN_SIMPLIFIED)
    hans, taiwan, hong_kong, cantonese, classical = probabilities.T
    usage = taiwan / np.maximum(taiwan + hong_kong, 1e-9)
    hant = np.select([usage >= SURE_USAGE, usage <= 1 - SURE_USAGE], [TAIWAN, HONG_KONG], HANT)
    is_hant = np.where(traditional + simplified, traditional > simplified, hans < taiwan + hong_kong)
    modern = np.where(is_hant, hant, HANS)
    sure = [cantonese > SURE, classical > SURE, hans + taiwan + hong_kong > SURE]
    return np.select(sure, [CANTONESE, CLASSICAL, modern], UNDETERMINED)


@lru_cache(maxsize=1)
def load_varieties() -> Varieties:
    """The shipped models, read once a process; raises `WenhaiError` where one is not as it was shipped."""
    for path, sha256 in SHIPPED.items():
        durable.read_shipped(path, sha256)
    return Varieties(*(load_model(str(path)) for path in SHIPPED))


@statistic(unit="label", labels=LABELS)
def variety(batch: Batch) -> Floats:
    """The language and, of Chinese, the variety, as a BCP 47 tag; docs/varieties.md.

    >>> from corpus.filters import measure
    >>> measure("script.variety", ["子曰：學而時習之，不亦說乎？有朋自遠方來", "佢哋話聽日唔使返工，我哋去飲茶啦"]).tolist()
    ['lzh', 'yue']
    """
    return batch.resources.varieties.measure(batch)


def sample_windows(
    offsets: Ints, data: npt.NDArray[np.uint8], wanted: npt.NDArray[np.bool_]
) -> tuple[Ints, npt.NDArray[np.uint8]]:
    """What a model reads of the wanted documents, as offsets and bytes: all of a short one, else windows and
    newlines; of others nothing."""
    places = np.zeros(len(offsets), np.int64)
    out = np.empty(int(np.minimum(np.diff(offsets), WINDOWS * (WINDOW_BYTES + 1)).sum()), np.uint8)
    copy_windows(offsets, data, wanted, WINDOWS, WINDOW_BYTES, places, out)
    return places, out[: places[-1]]


@kernel()
def copy_windows(
    offsets: Array, data: Array, wanted: Array, windows: int, window_bytes: int, places: Array, out: Array
) -> None:
    """Copy the windows of each wanted document to `out`, none beginning or ending inside a character."""
    length = 0
    for row in range(len(offsets) - 1):
        start, end = offsets[row], offsets[row + 1]
        whole = end - start <= windows * (window_bytes + 1)
        for window in range((1 if whole else windows) if wanted[row] else 0):
            first = start + (end - start) * window // windows
            last = end if whole else first + window_bytes
            while first < last and data[first] & 0xC0 == 0x80:
                first += 1
            while first < last < end and data[last] & 0xC0 == 0x80:
                last -= 1
            out[length : length + last - first] = data[first:last]
            length += last - first
            if not whole:
                out[length] = 10
                length += 1
        places[row + 1] = length
