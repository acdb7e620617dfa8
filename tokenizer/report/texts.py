"""Texts by source as one list, and a part of a list that stands for all of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence


def all_texts(texts_by_source: Mapping[str, Sequence[str]]) -> list[str]:
    """The texts of all sources, one source after the other, in the order of their names."""
    return [text for source in sorted(texts_by_source) for text in texts_by_source[source]]


def evenly(texts: Sequence[str], num_characters: int) -> list[str]:
    """About `num_characters` of the texts: whole ones, evenly spaced; all where there are no more.

    >>> evenly(["甲", "乙", "丙", "丁", "戊"], 3)
    ['乙', '丁', '戊']
    """
    total = sum(map(len, texts))
    if total <= num_characters:
        return list(texts)
    return [
        text
        for index, text in enumerate(texts)
        if (index + 1) * num_characters // total > index * num_characters // total
    ]
