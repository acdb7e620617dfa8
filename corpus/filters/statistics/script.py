"""Script: is it Chinese, and in which script. Kana, hangul and Japan's own characters tell the neighbours without a
model.

A policy for Simplified and Traditional is either a rule, `script.traditional_ratio = { max = 0.5 }` drops Traditional
documents, or the editor `[filter.edit] script = "simplified"`, which converts them (edits.py).
"""

from __future__ import annotations

from corpus.filters.statistic import Batch, Floats, share, statistic
from corpus.filters.statistics.length import HAN_CLASSES
from corpus.kernels import tables
from corpus.kernels.line_kernel import JAPANESE_HAN


@statistic(unit="share of Han and kana")
def kana_ratio(batch: Batch) -> Floats:
    """Hiragana and katakana over Han, kana and hangul. Japanese prose has 0.5 or more, Chinese below 0.01.

    >>> from corpus.filters import measure
    >>> measure("script.kana_ratio", ["子曰く、学びて", "子曰：学而"]).round(2)
    array([0.5, 0. ])
    """
    return share(batch.column(tables.KANA), batch.column(tables.KANA, tables.HANGUL, *HAN_CLASSES))


@statistic(unit="share of Han and hangul")
def hangul_ratio(batch: Batch) -> Floats:
    """Hangul over Han, kana and hangul. Korean prose has 0.9 or more.

    >>> from corpus.filters import measure
    >>> measure("script.hangul_ratio", ["孔子는 말했다", "孔子曰"]).round(2)
    array([0.67, 0.  ])
    """
    return share(batch.column(tables.HANGUL), batch.column(tables.KANA, tables.HANGUL, *HAN_CLASSES))


@statistic(unit="share of Han characters")
def japanese_han_ratio(batch: Batch) -> Floats:
    """Characters of Japan's standard that no Chinese one has (図 広 経 駅 込), over Han: titles without kana, too.

    Japanese headlines have 0.1 to 0.3; Chinese text 0.00, with old variants (隠, 畠) up to 0.06 in a short poem.

    >>> from corpus.filters import measure
    >>> measure("script.japanese_han_ratio", ["広島県立図書館", "广岛县立图书馆", "廣島縣立圖書館"]).round(2)
    array([0.43, 0.  , 0.  ])
    """
    return share(batch.column(JAPANESE_HAN), batch.column(*HAN_CLASSES))


@statistic(unit="share of script-specific Han")
def traditional_ratio(batch: Batch) -> Floats:
    """Characters only Traditional text uses over those only one script uses; 0 without any. A score, no judgement.

    By OpenCC's character tables, common characters only. Simplified pages have below 0.05, Traditional above 0.95.

    >>> from corpus.filters import measure
    >>> measure("script.traditional_ratio", ["學而時習之", "学而时习之", "人之初"])
    array([1., 0., 0.])
    """
    traditional = batch.column(tables.HAN_TRADITIONAL)
    return share(traditional, traditional + batch.column(tables.HAN_SIMPLIFIED))
