"""What published thresholds count in words, jieba's: only where a recipe says [filter.words] segmenter = "jieba".

Gopher's rules and FineWeb-2's values for cmn_Hani are of words. No range of characters stands in for them: what decides
most is the share of words with a letter, and the best equivalents in characters miss one verdict in 25. Words cost
fifty times what everything else does, so no other recipe of ours asks for them.

Definitions are datatrove's 0.10.1. jieba's HMM is quadratic in a run of characters that are no words, so it sees at
most 1,000 of them at once.
"""

from __future__ import annotations

import logging
import re
from collections import Counter
from collections.abc import Sequence
from itertools import islice

import numpy as np
import pyarrow as pa

from corpus.engine.durable import private_cache
from corpus.filters.statistic import Compute, Floats, statistic

PIECES = re.compile(r"[^\n]{1,1000}")
STOP_WORDS = frozenset("的年在月是和日了於·為有被人中为他與後也而由")
TOP = (
    "Characters of the most frequent {n}-gram of words with all its copies, over all; Gopher's rule (arXiv:2112.11446)."
)
DUPLICATE = "Characters of {n}-grams of words seen before, none twice, over all; Gopher's rule (arXiv:2112.11446)."
COLUMNS = {  # by name: unit and what it is
    "num_words": ("words", "Words with a letter or digit. FineWeb-2 (arXiv:2506.20920) keeps 50 to 100,000."),
    "letter_ratio": (
        "share of words",
        "Words with a letter or Han, over words and marks. FineWeb-2 (arXiv:2506.20920).",
    ),
    "newline_ratio": ("line feeds a word", "Line feeds over words and marks. FineWeb-2 (arXiv:2506.20920)."),
    "stop_words": ("words", "How many of FineWeb-2's 22 stop words there are (arXiv:2506.20920). It keeps from 2."),
    **{f"top_{n}_gram_ratio": ("share of characters", TOP.format(n=n)) for n in (2, 3, 4)},
    **{f"duplicate_{n}_gram_ratio": ("share of characters", DUPLICATE.format(n=n)) for n in range(5, 11)},
}


def measure_words(texts: pa.LargeStringArray) -> Floats:
    """float64[documents, COLUMNS]."""
    import jieba

    jieba.setLogLevel(logging.WARNING)
    jieba.dt.tmp_dir = str(private_cache())  # its cache is a marshal file: never in a folder others can write
    rows = []
    for text in texts.to_pylist():
        words = [word for piece in PIECES.findall(text) for word in jieba.cut(piece) if not word.isspace()]
        size, whole = max(len(text), 1), max(len(words), 1)
        letters, solid = (sum(any(map(kind, word)) for word in words) for kind in (str.isalpha, str.isalnum))
        tops = (min(1.0, _top_characters(words, n) / size) for n in (2, 3, 4))
        duplicates = (_duplicate_characters(words, n) / size for n in range(5, 11))
        rows.append(
            (solid, letters / whole, text.count("\n") / whole, len(STOP_WORDS.intersection(words)), *tops, *duplicates)
        )
    return np.array(rows, np.float64).reshape(len(rows), len(COLUMNS))


def _top_characters(words: Sequence[str], n: int) -> int:
    counts = Counter(zip(*(islice(words, start, None) for start in range(n)), strict=False))
    return max((len(" ".join(gram)) * times for gram, times in counts.most_common(1)), default=0)


def _duplicate_characters(words: Sequence[str], n: int) -> int:
    seen: set[str] = set()
    characters = at = 0
    while at <= len(words) - n:
        gram = "".join(words[at : at + n])
        characters += len(gram) if gram in seen else 0
        at += n if gram in seen else 1
        seen.add(gram)
    return characters


def _column(place: int) -> Compute:
    return lambda batch: batch.words[:, place] if batch.resources.count_words else np.full(len(batch.texts), np.nan)


for _place, (_name, (_unit, _doc)) in enumerate(COLUMNS.items()):
    statistic(unit=_unit, name=_name, doc=_doc, optional=True)(_column(_place))
