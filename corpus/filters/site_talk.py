"""Site talk: sentences in which a site speaks to its reader, of itself, the law, its offers, instead of the article.

Copies are recognised by it: a scraped page is the article and a tail of 关注我们, 如有侵权请联系删除, 注册即送大礼包. No form is
known of such sentences, so lists/site_talk.txt has words in groups (who speaks, whom to, what to do, whose rights, what is
sold, where to call, what else to read) and a sentence has the sum of its heaviest word of each. 下载 alone is an article
about software; 下载, 客户端 and 您 are not. Half a sum is evidence at the foot and the head of a text only: there the
stretch with the largest sum of evidence goes as a whole, which takes what no list knows between what one knows.

It is a measure for choosing among copies (dedup/ranks.py), where what is wrong about the article is wrong alike in all, and
drops nothing unless a recipe says so.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from corpus.engine import durable
from corpus.engine.compiled import kernel
from corpus.filters.automaton import Automaton
from corpus.filters.folding import fold_for_matching, matching_table, skipped_characters
from corpus.filters.list_file import read_list
from corpus.filters.statistic import Batch, Floats, share, statistic

Array = npt.NDArray[Any]

WORDS = Path(__file__).parent / "lists" / "site_talk.txt"
MAX_LINE_CHARS = 8192
EVIDENCE = np.array([-4, -3, -1, 1, 4], np.int64)  # a character of a sentence with this sum, or more
ALONE = 5  # a sentence with this sum is site talk wherever it stands
CHARS_A_POINT = 40  # a long sentence holds more words by chance: one point less for each so many characters
TITLE_BELOW = 40  # code points: a line that ends without a mark is a title, and no evidence against site talk
TITLE_EVIDENCE = -1
HEAD_SLACK = 100  # evidence against it with which a head may begin: a title, a byline


class Words(NamedTuple):
    """The list, compiled."""

    automaton: Automaton
    groups: npt.NDArray[np.int64]  # of each word
    weights: npt.NDArray[np.int64]
    digest: str


@lru_cache(maxsize=1)
def load_words() -> Words:
    """The words of lists/site_talk.txt; one that stands there twice has its first place."""
    found: dict[str, tuple[str, int]] = {}
    for line in read_list(WORDS, "site talk", MAX_LINE_CHARS):
        group, weight, *words = line.split()
        for word in words:
            found.setdefault(fold_for_matching(word), (group, int(weight)))
    names = sorted({group for group, _ in found.values()})
    groups = np.array([names.index(group) for group, _ in found.values()], np.int64)
    weights = np.array([weight for _, weight in found.values()], np.int64)
    constants = [EVIDENCE.tolist(), ALONE, CHARS_A_POINT, TITLE_BELOW, TITLE_EVIDENCE]
    automaton = Automaton(list(found), matching_table(), skipped_characters(), whole=True)
    return Words(automaton, groups, weights, durable.digest([sorted(found.items()), constants]))


@statistic(unit="share of code points", family="blocklist")
def site_talk_ratio(batch: Batch) -> Floats:
    """Code points of sentences in which the site speaks to its reader, over all; a foot or head of them goes whole.

    >>> from corpus.filters import measure
    >>> measure("blocklist.site_talk_ratio", ["学而时习之，不亦说乎？\\n欢迎关注本站公众号！", "请关注病情的发展。"]).round(2)
    array([0.45, 0.  ])
    """
    words = load_words()
    hits = words.automaton.find(batch.offsets, batch.data)
    talk = np.zeros(len(batch.offsets) - 1, np.int64)
    edges = np.searchsorted(hits.rows, np.arange(len(batch.offsets)))
    _talk(batch.offsets, batch.data, edges, hits.starts, words.groups[hits.words], words.weights[hits.words], talk)
    return share(talk, batch.num_chars)


@kernel(leaf=True)
def _ends_sentence(data: Array, i: Any, end: Any) -> int:
    """Bytes of the mark at byte i that ends a sentence: 。！？… ! ? or a line feed; 0 where none stands."""
    byte = data[i]
    if byte == 10 or byte == 0x21 or byte == 0x3F:
        return 1
    if i + 2 < end:
        if byte == 0xE3:
            return 3 * (data[i + 1] == 0x80 and data[i + 2] == 0x82)
        if byte == 0xEF:
            return 3 * (data[i + 1] == 0xBC and (data[i + 2] == 0x81 or data[i + 2] == 0x9F))
        if byte == 0xE2:
            return 3 * (data[i + 1] == 0x80 and data[i + 2] == 0xA6)
    return 0


@kernel()
def _talk(
    offsets: Array, data: Array, edges: Array, starts: Array, groups: Array, weights: Array, talk: Array
) -> None:
    """Characters of site talk of each document; hits are sorted by document and place.

    Sums run from the front: the head is where the sum is largest, the foot begins where it is smallest.
    """
    best = np.zeros(64, np.int64)  # weight by group
    for row in range(len(offsets) - 1):
        hit, last_hit = edges[row], edges[row + 1]
        if hit == last_hit:
            continue
        i, end = offsets[row], offsets[row + 1]
        total = highest = lowest = chars = alone = 0
        head_chars = head_alone = foot_chars = foot_alone = 0
        length = 0
        while i < end:
            size = _ends_sentence(data, i, end)
            feed = data[i] == 10
            step = max(size, 1)
            length += (data[i] & 0xC0) != 0x80 and not feed
            i += step
            if size == 0 and i < end:
                continue
            score = 0
            best[:] = 0
            while hit < last_hit and starts[hit] < i:
                group = groups[hit]
                if weights[hit] > best[group]:
                    score += weights[hit] - best[group]
                    best[group] = weights[hit]
                hit += 1
            if length == 0:
                continue
            title = score == 0 and length < TITLE_BELOW and (feed or size == 0)
            score = max(score - length // CHARS_A_POINT, 0)
            chars += length
            alone += length * (score >= ALONE)
            total += length * (TITLE_EVIDENCE if title else EVIDENCE[min(score, len(EVIDENCE) - 1)])
            length = 0
            if lowest > -HEAD_SLACK and total > highest:
                highest, head_chars, head_alone = total, chars, alone
            if total <= lowest:
                lowest, foot_chars, foot_alone = total, chars, alone
        if foot_chars <= head_chars and highest > 0:
            talk[row] = chars
        else:
            talk[row] = head_chars + (foot_alone - head_alone) + (chars - foot_chars)
