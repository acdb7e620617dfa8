"""Word lists: how much of a document stands inside words of gambling, pornography, spam, invoice and SEO lists.

Words and text are compared in a folded view (half-width, lower case, Simplified, one character for one), so ＶＸ and
開發票 are found. The share of characters decides, not a single hit: a report about gambling keeps its place, a page
that is made of such words does not. ChineseWebText drops above 0.5 words a line, C4-style scripts above 5 % of the
characters. The shipped lists are small and general (lists/*.txt); a recipe may add its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from corpus.engine import durable
from corpus.engine.errors import UsageError
from corpus.filters.automaton import Automaton
from corpus.filters.scan import covered_characters, fold_batch, fold_for_matching, matching_table
from corpus.filters.statistic import Batch, Floats, share, statistic

FOLDER = Path(__file__).parent / "lists"
BUILT_IN = ("advertising", "gambling", "invoice", "porn", "seo")
MAX_LIST_BYTES = 16 << 20
MAX_WORDS = 200_000
MAX_WORD_CHARS = 64


class Blocklist:
    """The words of several lists, ready to be found in batches."""

    def __init__(self, lists: Sequence[str] = BUILT_IN, engine: str | None = None) -> None:
        self.words = sorted({word for name in lists for word in read_words(name)})
        if len(self.words) > MAX_WORDS:
            raise UsageError(f"filter.blocklist.lists: {len(self.words):,} words together; at most {MAX_WORDS:,}.")
        self.digest = durable.digest(self.words)
        self._automaton = Automaton(self.words, engine)

    def measure(
        self, offsets: npt.NDArray[np.int64], data: npt.NDArray[np.uint8]
    ) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
        """Characters inside hits, and distinct words hit, of each document (int64 each)."""
        documents = len(offsets) - 1
        folded_offsets = np.empty(documents + 1, np.int64)
        folded = np.empty(int(offsets[-1] - offsets[0]), np.uint8)
        fold_batch(offsets, data, matching_table(), folded_offsets, folded)
        hits = self._automaton.find(folded[: folded_offsets[-1]])
        covered = np.zeros(documents, np.int64)
        covered_characters(folded_offsets, folded, hits.starts, hits.ends, covered)
        rows = np.searchsorted(folded_offsets, hits.starts, side="right") - 1
        inside = hits.ends <= folded_offsets[rows + 1]
        pairs = np.unique(rows[inside] * len(self.words) + hits.words[inside])
        distinct = np.bincount(pairs // max(1, len(self.words)), minlength=documents)
        return covered, distinct


@lru_cache(maxsize=8)
def load_blocklist(lists: tuple[str, ...] = BUILT_IN) -> Blocklist:
    """A blocklist, compiled once a process."""
    return Blocklist(lists)


def read_words(name: str) -> list[str]:
    """The folded words of a built-in list or of a file: UTF-8, one word a line, `#` opens a comment line.

    Raises:
        UsageError: no such list or file, not UTF-8, too large, or a word of more than 64 characters.
    """
    path = FOLDER / f"{name}.txt" if name in BUILT_IN else Path(name)
    try:
        with open(path, "rb") as file:
            data = file.read(MAX_LIST_BYTES + 1)
    except OSError as error:
        raise UsageError(
            f"filter.blocklist.lists: {name} is neither a built-in list ({', '.join(BUILT_IN)}) "
            f"nor a file that can be read ({error.strerror})."
        ) from error
    if len(data) > MAX_LIST_BYTES:
        raise UsageError(f"{path}: larger than {MAX_LIST_BYTES:,} bytes; split off what is not needed.")
    words = []
    for number, line in enumerate(data.splitlines(), 1):
        try:
            word = line.decode().strip().lstrip("\ufeff")
        except UnicodeDecodeError as error:
            raise UsageError(f"{path}, line {number}: not UTF-8. Convert it: iconv -f gb18030 -t utf-8") from error
        if word.startswith("#") or not word:
            continue
        if len(word) > MAX_WORD_CHARS:
            raise UsageError(
                f"{path}, line {number}: {len(word)} characters; one word a line, at most {MAX_WORD_CHARS}."
            )
        words.append(fold_for_matching(word))
    return words


@statistic(unit="share of code points")
def blocklist_ratio(batch: Batch) -> Floats:
    """Code points inside words of the block lists over all code points. Default: below the C4 script's 0.05.

    >>> from corpus.filters import measure
    >>> measure("blocklist.blocklist_ratio", ["需要代開發票加微信", "学而时习之"]).round(2)
    array([0.78, 0.  ])
    """
    return share(batch.blocklist[0], batch.num_chars)


@statistic(unit="words")
def blocklist_words(batch: Batch) -> Floats:
    """Different words of the block lists in the document. One word repeated is a topic, many are a list.

    >>> from corpus.filters import measure
    >>> measure("blocklist.blocklist_words", ["加微信，加微信", "学而时习之"])
    array([2., 0.])
    """
    return batch.blocklist[1].astype(np.float64)
