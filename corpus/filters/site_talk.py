"""Site talk: sentences in which a site speaks to its reader, of itself, the law, its offers, instead of the article.

A dead page is made of such talk alone: 抱歉，您访问的页面不存在, 请输入验证码, 登录后查看全文, 网站维护中. Its words are another list
(lists/dead_pages.txt) of the same form, found in the same pass: the sum of a sentence tells what it is, wherever it
stands. What is said of site talk below holds for the first list.

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
from corpus.kernels.automaton import Hits
from corpus.kernels.code_points import decode
from corpus.kernels.folding import fold_word

Array = npt.NDArray[Any]

LISTS = Path(__file__).parent / "lists"
WORDS = ("site_talk.txt", "dead_pages.txt")
MAX_LINE_CHARS = 8192
EVIDENCE = np.array([-4000, -1000, 1000, 3000, 6000], np.int64)  # for a sentence whose words have this sum, or more
ALONE = 5  # a sentence with this sum is site talk, or a dead page's, wherever it stands
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
CORE = {"wrong": 2, "gate": 3, "cookie": 3, "form": 5}  # a dead page's sentence has a word of these, of such a weight
CORE_FLAG = 16  # above the weights
LABEL_BELOW = 14  # code points: a shorter line without a mark is a label (返回首页), which tells nothing
PAIR_BITS = 18  # of the table of pairs; a text of 100,000 characters fills a third of it
_SHARES = (np.arange(KIN_BUCKETS) + 0.5) / KIN_BUCKETS
NEW_PAIR = np.round(1000 * np.log((1 - _SHARES / KIN) / (1 - _SHARES))).astype(np.int64)
OLD_PAIR = round(1000 * np.log(KIN))


class Words(NamedTuple):
    """The lists, folded."""

    words: list[str]
    groups: npt.NDArray[np.int64]  # [2, words]: by list
    weights: npt.NDArray[np.int64]  # [2, words]: 0 where the list has not the word
    digest: str


@lru_cache(maxsize=1)
def load_words() -> Words:
    """The words of both lists; one that stands twice in a list has its first place."""
    found: dict[str, list[tuple[str, int]]] = {}
    for index, file in enumerate(WORDS):
        for line in read_list(LISTS / file, "site talk", MAX_LINE_CHARS):
            group, weight, *words = line.split()
            for word in words:
                places = found.setdefault(fold_word(word), [("", 0), ("", 0)])
                if not places[index][1]:
                    places[index] = group, int(weight)
    names = [sorted({places[index][0] for places in found.values()}) for index in (0, 1)]
    groups = np.array([[names[k].index(places[k][0]) for places in found.values()] for k in (0, 1)], np.int64)
    weights = np.array([[places[k][1] for places in found.values()] for k in (0, 1)], np.int64)
    weights[1, [weight >= CORE.get(group, CORE_FLAG) for _, (group, weight) in found.values()]] += CORE_FLAG
    constants = [EVIDENCE.tolist(), NEW_PAIR.tolist(), ALONE, CHARS_A_POINT, TITLE_BELOW, TITLE_EVIDENCE, START]
    constants += [*CORE.values(), HEAD_SLACK, KIN, MIN_PAIRS, MAX_KINSHIP, PAIR_BITS, LABEL_BELOW]
    return Words(list(found), groups, weights, durable.digest([sorted(found.items()), constants]))


def find_talk(offsets: Array, data: Array, num_chars: Array, hits: Hits) -> npt.NDArray[np.int64]:
    """int64[documents, 3]: characters of site talk, of a dead page's sentences, and of all that is no label.

    `hits` are of `load_words().words`.
    """
    words = load_words()
    out = np.zeros((len(offsets) - 1, 3), np.int64)
    edges = np.searchsorted(hits.rows, np.arange(len(offsets)))
    groups, weights = (np.take(one, hits.words, axis=1) for one in (words.groups, words.weights))  # contiguous
    found = (edges, hits.starts, groups, weights)
    seen = np.zeros(1 << PAIR_BITS, np.uint8)
    _talk(offsets, data, num_chars, *found, np.zeros((2, MAX_GROUPS), np.int64), seen, out)
    return out


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
    out: Array,
) -> None:
    """Characters of each document as `find_talk` returns them; hits are sorted by document and place.

    Sums run from the front: the head is where the sum is largest, the foot begins where it is smallest. `best` is the
    weight by group, `seen` by pair the last text that has it, from 1 to 255: it fits into a core's cache.
    """
    text = 0
    for row in range(len(offsets) - 1):
        i, end, hit, last_hit = offsets[row], offsets[row + 1], edges[row], edges[row + 1]
        if hit == last_hit:
            continue
        text += 1
        if text > 255:
            seen[:] = 0
            text = 1
        half, core, place = num_chars[row] // 2, num_chars[row] * 3 // 4, 0
        total = chars = alone = length = score = 0
        highest = head_chars = head_alone = lowest = foot_chars = foot_alone = 0
        pairs = old = 0  # of the third quarter, then of the sentence
        new_pair = old_pair = np.int64(0)
        in_core, before = True, np.uint32(0)
        while i < end:
            if in_core and place >= core:
                in_core = False
                if pairs >= MIN_PAIRS:
                    new_pair, old_pair = NEW_PAIR[min(old * KIN_BUCKETS // pairs, KIN_BUCKETS - 1)], np.int64(OLD_PAIR)
                pairs = old = 0
                lowest, foot_chars, foot_alone = total, chars, alone
            place += 1
            if 0xE4 <= data[i] <= 0xE9:  # U+4000 to U+9FFF: two thirds of all, and no sentence ends with them
                c = (np.uint32(data[i] & 15) << 12) | (np.uint32(data[i + 1] & 63) << 6) | np.uint32(data[i + 2] & 63)
                i += 3
                feed = ends = False
                han = True
            else:
                c, i = decode(data, i)
                feed = c == 10
                ends = feed or c in (0x21, 0x3F, 0x3002, 0xFF01, 0xFF1F, 0x2026)  # ! ? 。！？…
                han = 0x3400 <= c < 0xA000
            length += not feed
            if han and before:
                slot = _slot(before, c)
                if place > half:
                    pairs += 1
                    old += seen[slot] == text
                if place <= core:
                    seen[slot] = text
            before = c if han else np.uint32(0)
            if not ends and i < end:
                continue
            score = dead = core_words = 0
            if hit < last_hit and starts[hit] < i:
                best[:] = 0
            while hit < last_hit and starts[hit] < i:
                group, other = groups[0, hit], groups[1, hit]
                if weights[0, hit] > best[0, group]:
                    score += weights[0, hit] - best[0, group]
                    best[0, group] = weights[0, hit]
                weight = weights[1, hit] % CORE_FLAG
                core_words += weights[1, hit] // CORE_FLAG
                if weight > best[1, other]:
                    dead += weight - best[1, other]
                    best[1, other] = weight
                hit += 1
            if length == 0:
                continue
            if core_words and dead - length // CHARS_A_POINT >= ALONE:
                out[row, 1] += length
            elif length < LABEL_BELOW and (feed or not ends):
                out[row, 2] -= length
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
        out[row, 0] = chars - (foot_chars if foot_chars > head_chars else head_chars) + head_chars
        if foot_alone > head_alone:
            out[row, 0] += foot_alone - head_alone
        out[row, 2] += chars
