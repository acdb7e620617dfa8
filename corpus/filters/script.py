"""Script: is it Chinese, and in which script. Kana and hangul separate Japanese and Korean without a model."""

from __future__ import annotations

from corpus.filters import tables
from corpus.filters.length import HAN_CLASSES
from corpus.filters.statistic import Batch, Floats, share, statistic


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
