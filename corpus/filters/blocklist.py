"""Word lists: how much of a document stands inside words of gambling, pornography, spam, invoice and SEO lists.

Words and text are compared in a folded view (half-width, lower case, Simplified, one character for one), so ＶＸ and
開發票 are found. The share of characters decides, not a single hit: a report about gambling keeps its place, a page
that is made of such words does not. ChineseWebText drops above 0.5 words a line, C4-style scripts above 5 % of the
characters. The shipped lists are small and general (lists/*.txt); a recipe may add its own.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path

import numpy as np
import numpy.typing as npt

from corpus.engine import durable
from corpus.engine.errors import UsageError
from corpus.filters.list_file import read_list
from corpus.filters.site_talk import load_words
from corpus.filters.statistic import Batch, Floats, share, statistic
from corpus.kernels.automaton import COVERED_CHARS, DISTINCT_WORDS, MAX_WORD_CHARS, Automaton, Hits
from corpus.kernels.folding import fold_word, matching_table, skipped_characters

FOLDER = Path(__file__).parent / "lists"
BUILT_IN = ("advertising", "crypto", "gambling", "invoice", "lottery", "porn", "seo")
MAX_WORDS = 200_000


class Blocklist:
    """Folded words, ready to be found in batches; those of site talk are found in the same pass."""

    def __init__(self, words: Iterable[str]) -> None:
        self.words = sorted(set(words))
        if len(self.words) > MAX_WORDS:
            raise UsageError(f"filter.blocklist.lists: {len(self.words):,} words together; at most {MAX_WORDS:,}.")
        self.digest = durable.digest(self.words)
        talk = {word: place for place, word in enumerate(load_words().words)}
        in_both = [word for word in self.words if word in talk]
        of_talk = in_both + sorted(talk.keys() - set(in_both))
        every = [word for word in self.words if word not in talk] + of_talk
        self._measured, self._found = range(len(self.words)), range(len(every) - len(of_talk), len(every))
        self._talk = np.array([talk[word] for word in of_talk], np.int64)
        self._automaton = Automaton(every, matching_table(), skipped_characters(), whole=True)

    def __reduce__(self) -> tuple[type[Blocklist], tuple[list[str]]]:
        """Sent to other processes as words: the tables of a few take megabytes."""
        return Blocklist, (self.words,)

    def measure(
        self, offsets: npt.NDArray[np.int64], data: npt.NDArray[np.uint8]
    ) -> tuple[npt.NDArray[np.int64], Hits]:
        """int64[documents, NUM_WORD_COLUMNS]: characters inside words, different words; and the words of site talk."""
        hits, out = self._automaton.find_and_measure(offsets, data, self._found, self._measured)
        return out, hits._replace(words=self._talk[hits.words])


@lru_cache(maxsize=8)
def load_blocklist(lists: tuple[str, ...] = BUILT_IN) -> Blocklist:
    """A blocklist, compiled once a process."""
    return Blocklist(word for name in lists for word in read_words(name))


def read_words(name: str) -> list[str]:
    """The folded words of a built-in list or of a file: UTF-8, one word a line, `#` opens a comment line.

    Raises:
        UsageError: no such list or file, not UTF-8, too large, or a word of more than 64 characters.
    """
    path = FOLDER / f"{name}.txt" if name in BUILT_IN else Path(name)
    hint = f"or one of the built-in lists {', '.join(BUILT_IN)}"
    return list(filter(None, map(fold_word, read_list(path, "filter.blocklist.lists", MAX_WORD_CHARS, hint))))


@statistic(unit="share of code points")
def blocklist_ratio(batch: Batch) -> Floats:
    """Code points inside words of the block lists over all code points. Default: below the C4 script's 0.05.

    >>> from corpus.filters import measure
    >>> measure("blocklist.blocklist_ratio", ["需要代開發票加微信", "学而时习之"]).round(2)
    array([0.78, 0.  ])
    """
    return share(batch.blocklist[:, COVERED_CHARS], batch.num_chars)


@statistic(unit="words")
def blocklist_words(batch: Batch) -> Floats:
    """Different words of the block lists in the document. One word repeated is a topic, many are a list.

    >>> from corpus.filters import measure
    >>> measure("blocklist.blocklist_words", ["加微信，加微信", "学而时习之"])
    array([2., 0.])
    """
    return batch.blocklist[:, DISTINCT_WORDS].astype(np.float64)


@statistic(unit="share of code points")
def site_talk_ratio(batch: Batch) -> Floats:
    """Code points of sentences in which the site speaks to its reader, over all; a foot or head of them goes whole.

    >>> from corpus.filters import measure
    >>> measure("blocklist.site_talk_ratio", ["学而时习之，不亦说乎？\\n欢迎关注本站公众号！", "请关注病情的发展。"]).round(2)
    array([0.45, 0.  ])
    """
    return share(batch.talk[:, 0], batch.num_chars)


@statistic(unit="share of code points")
def dead_page_ratio(batch: Batch) -> Floats:
    """Code points of sentences in which a site says that there is nothing to read, over all but those of labels.

    Not found, forbidden, log in first, paid content, captcha, maintenance, sold out, nothing found, old browser,
    cookies. A sentence is known by what it names, what is wrong and how it speaks, so an article about 404s has some.

    >>> from corpus.filters import measure
    >>> measure("blocklist.dead_page_ratio", ["404\\n抱歉，您訪問的頁面不存在\\n返回首頁", "学而时习之，不亦说乎？"])
    array([1., 0.])
    """
    return share(batch.talk[:, 1], batch.talk[:, 2])
