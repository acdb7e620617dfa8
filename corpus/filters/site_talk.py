"""Site talk: sentences in which a site speaks to its reader, of itself, the law, its offers, instead of the article.

Copies are recognised by it: a scraped page is the article and a tail of 关注我们, 如有侵权请联系删除, 注册即送大礼包. No form is
known of such sentences, so two things are weighed, in thousandths of a nat.

Words: lists/site_talk.txt has them in groups (who speaks, whom to, what to do, whose rights, what is sold, where to
call, what else to read), and a sentence has the sum of its heaviest word of each. 下载 alone is an article about
software; 下载, 客户端 and 您 are not.

Kinship: the last quarter of a text repeats pairs of characters of the first three, half of them in a long article, and
a tail that belongs to another page repeats a quarter as many, whatever it says. How many an article repeats is taken
from its own third quarter, so a short text, which repeats little, proves little.

At the foot, and by words alone at the head, the stretch with the largest sum goes as a whole, if it outweighs what
speaks against there being any. Elsewhere a sentence goes by its words alone. It is a measure for choosing among copies
(dedup/near/ranks.py), where what is wrong about the article is wrong alike in all; it drops nothing unless a recipe
says so.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from corpus.engine import durable
from corpus.engine.compiled import kernel
from corpus.filters.list_file import read_list
from corpus.filters.statistic import Batch, Floats, share, statistic
from corpus.kernels.automaton import Automaton
from corpus.kernels.code_points import decode
from corpus.kernels.folding import fold_for_matching, matching_table, skipped_characters

Array = npt.NDArray[Any]

WORDS = Path(__file__).parent / "lists" / "site_talk.txt"
MAX_LINE_CHARS = 8192
EVIDENCE = np.array([-4000, -1000, 1000, 3000, 6000], np.int64)  # for a sentence whose words have this sum, or more
ALONE = 5  # a sentence with this sum is site talk wherever it stands
CHARS_A_POINT = 40  # a long sentence holds more words by chance: one point less for each so many characters
TITLE_BELOW = 40  # code points: a line that ends without a mark may be a title, which has no words of its own
TITLE_EVIDENCE = -500
START = 4500  # what a foot or a head has to outweigh
HEAD_SLACK = 3000  # evidence against it with which a head may begin: a title, a byline
KIN = 4  # a foot that is no kin repeats one in so many of the pairs that the article would
KIN_BUCKETS = 16  # of the share of pairs that an article repeats
MIN_PAIRS = 30  # in the third quarter, for that share to mean something
MAX_KINSHIP = 6000  # of one sentence
MAX_GROUPS = 16
PAIR_BITS = 18  # of the table of pairs; a text of 100,000 characters fills a third of it
_SHARES = (np.arange(KIN_BUCKETS) + 0.5) / KIN_BUCKETS
NEW_PAIR = np.round(1000 * np.log((1 - _SHARES / KIN) / (1 - _SHARES))).astype(np.int64)
OLD_PAIR = round(1000 * np.log(KIN))


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
    constants = [EVIDENCE.tolist(), NEW_PAIR.tolist(), ALONE, CHARS_A_POINT, TITLE_BELOW, TITLE_EVIDENCE, START]
    constants += [HEAD_SLACK, KIN, MIN_PAIRS, MAX_KINSHIP, PAIR_BITS]
    automaton = Automaton(list(found), matching_table(), skipped_characters(), whole=True)
    return Words(automaton, groups, weights, durable.digest([sorted(found.items()), constants]))


@statistic(unit="share of code points")
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
    found = (edges, hits.starts, words.groups[hits.words], words.weights[hits.words])
    seen = np.zeros(1 << PAIR_BITS, np.uint32)
    _talk(batch.offsets, batch.data, batch.num_chars, *found, np.zeros(MAX_GROUPS, np.int64), seen, talk)
    return share(talk, batch.num_chars)


@kernel(leaf=True)
def _slot(first: Any, second: Any) -> Any:
    """The place of a pair of code points in the table."""
    key = (np.uint64(first) << np.uint64(21)) | np.uint64(second)
    return np.int64((key * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(64 - PAIR_BITS))


@kernel(leaf=True)
def _talk(
    offsets: Array,
    data: Array,
    num_chars: Array,
    edges: Array,
    starts: Array,
    groups: Array,
    weights: Array,
    best: Array,
    seen: Array,
    talk: Array,
) -> None:
    """Characters of site talk of each document; hits are sorted by document and place.

    Sums run from the front: the head is where the sum is largest, the foot begins where it is smallest. `best` is the
    weight by group, `seen` by pair the last text that has it, from 1.
    """
    for row in range(len(offsets) - 1):
        i, end, hit, last_hit = offsets[row], offsets[row + 1], edges[row], edges[row + 1]
        if hit == last_hit:
            continue
        half, core, place = num_chars[row] // 2, num_chars[row] * 3 // 4, 0
        total = chars = alone = length = score = 0
        highest = head_chars = head_alone = lowest = foot_chars = foot_alone = 0
        pairs = old = 0  # of the third quarter, then of the sentence
        new_pair = old_pair = np.int64(0)
        in_core, before = True, np.uint32(0)
        while i < end:
            c, i = decode(data, i)
            feed = c == 10
            ends = feed or c == 0x21 or c == 0x3F or c == 0x3002 or c == 0xFF01 or c == 0xFF1F or c == 0x2026  # 。！？…
            if in_core and place >= core:
                in_core = False
                if pairs >= MIN_PAIRS:
                    new_pair, old_pair = NEW_PAIR[min(old * KIN_BUCKETS // pairs, KIN_BUCKETS - 1)], np.int64(OLD_PAIR)
                pairs = old = 0
                lowest, foot_chars, foot_alone = total, chars, alone
            place += 1
            length += not feed
            han = 0x3400 <= c < 0xA000
            if han and before:
                slot = _slot(before, c)
                if place > half:
                    pairs += 1
                    old += seen[slot] == row + 1
                if place <= core:
                    seen[slot] = row + 1
            before = c if han else np.uint32(0)
            if not ends and i < end:
                continue
            best[:] = 0
            score = 0
            while hit < last_hit and starts[hit] < i:
                group = groups[hit]
                if weights[hit] > best[group]:
                    score += weights[hit] - best[group]
                    best[group] = weights[hit]
                hit += 1
            if length == 0:
                continue
            title = score == 0 and length < TITLE_BELOW and (feed or not ends)
            score = max(score - length // CHARS_A_POINT, 0)
            chars += length
            alone += length * (score >= ALONE)
            total += TITLE_EVIDENCE if title else EVIDENCE[min(score, len(EVIDENCE) - 1)]
            length = 0
            if in_core:
                if lowest > -HEAD_SLACK and total > highest:
                    highest, head_chars, head_alone = total, chars, alone
                lowest = min(lowest, total)
                continue
            kinship: Any = (pairs - old) * new_pair - old * old_pair
            total += int(min(max(kinship, -MAX_KINSHIP), MAX_KINSHIP))
            pairs = old = 0
            if total <= lowest:
                lowest, foot_chars, foot_alone = total, chars, alone
        if highest <= START:
            head_chars = head_alone = 0
        if in_core or total - lowest <= START:
            foot_chars, foot_alone = chars, alone
        talk[row] = chars - (foot_chars if foot_chars > head_chars else head_chars) + head_chars
        if foot_alone > head_alone:
            talk[row] += foot_alone - head_alone
