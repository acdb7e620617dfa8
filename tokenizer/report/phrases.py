"""Long Han pieces that are no words: parts of one fixed text, or of very few documents.

Two statistics over the occurrences of a piece in a sample of the texts:

- *fixed context*: the share of the most frequent character before the piece and of that after it, the smaller of both
  (the other side of the accessor variety of Feng et al. 2004, "Accessor Variety Criteria for Chinese Word Extraction").
  A word meets many neighbours; a part of a slogan has the same two. The comma of enumerations is none.
- *document concentration*: occurrences per document that holds the piece. A word of the language is spread; what a few
  documents repeat is theirs.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from tokenizer.report.texts import evenly

MIN_CHARACTERS = 5  # of a piece that is judged: most words and idioms have at most four
MIN_COUNT = 20  # occurrences; fewer say nothing
MIN_FIXED_RATIO = 0.9
MIN_PER_DOCUMENT = 32.0
SAMPLE_CHARACTERS = 16_000_000
ENUMERATION = "、"  # many a word of a list stands between two
EDGE = "\0"  # stands before the first and after the last character of a document
CODE_POINTS = 0x110000
_HAN = re.compile("[\u3400-\u4dbf\u4e00-\u9fff]+")


@dataclass
class Contexts:
    """The occurrences of a piece: the characters before and after, and how many documents they lie in."""

    before: Counter[str] = field(default_factory=Counter)
    after: Counter[str] = field(default_factory=Counter)
    documents: set[int] = field(default_factory=set)

    @property
    def count(self) -> int:
        return self.before.total()

    @property
    def fixed_ratio(self) -> float:
        """Share of the most frequent neighbour, on the side where it is smaller."""
        sides = (self.before, self.after)
        return min(max((n for c, n in side.items() if c != ENUMERATION), default=0) for side in sides) / self.count

    def reason(self) -> str | None:
        """Why a piece with these contexts is no word of the language; None where nothing speaks against it."""
        if self.count < MIN_COUNT:
            return None
        if self.fixed_ratio >= MIN_FIXED_RATIO:
            return f"phrase: the same neighbours in {self.fixed_ratio:.0%} of {self.count} places"
        if self.count >= MIN_PER_DOCUMENT * len(self.documents):
            where = "one document" if len(self.documents) == 1 else f"{len(self.documents)} documents"
            return f"phrase: {self.count} times in {where}"
        return None


def fixed_phrases(pieces: Sequence[str], texts: Sequence[str]) -> dict[str, str]:
    """The long Han pieces that are parts of fixed texts, with the reason; blanks around a piece do not count."""
    cores = {piece: piece.strip() for piece in pieces if len(piece) >= MIN_CHARACTERS}
    wanted = {core for core in cores.values() if len(core) >= MIN_CHARACTERS and _HAN.fullmatch(core)}
    contexts = find_contexts(wanted, evenly(texts, SAMPLE_CHARACTERS))
    reasons = {core: reason for core, found in contexts.items() if (reason := found.reason())}
    return {piece: reasons[core] for piece, core in cores.items() if core in reasons}


def find_contexts(wanted: set[str], texts: Sequence[str]) -> dict[str, Contexts]:
    """Where each wanted string (of `MIN_CHARACTERS` or more) occurs in the texts, overlaps included."""
    joined = EDGE + EDGE.join(texts) + EDGE
    starts = np.cumsum([1, *(len(text) + 1 for text in texts)])
    contexts: dict[str, Contexts] = {}
    for place, piece in _occurrences(joined, wanted):
        found = contexts.setdefault(piece, Contexts())
        found.before[joined[place - 1]] += 1
        found.after[joined[place + len(piece)]] += 1
        found.documents.add(int(np.searchsorted(starts, place, side="right")))
    return contexts


def _occurrences(text: str, wanted: set[str]) -> Iterator[tuple[int, str]]:
    by_start: dict[str, list[str]] = {}
    for piece in sorted(wanted):
        by_start.setdefault(piece[:MIN_CHARACTERS], []).append(piece)
    for place in _candidates(text, by_start).tolist():
        for piece in by_start.get(text[place : place + MIN_CHARACTERS], ()):
            if text.startswith(piece, place):
                yield place, piece


def _candidates(text: str, starts: dict[str, list[str]]) -> NDArray[np.int64]:
    """Places whose k-th character is the k-th of some start, for each k: a few percent of a text, found without a
    loop."""
    codes = np.frombuffer(text.encode("utf-32-le"), dtype=np.uint32)
    possible = np.ones(max(len(codes) - MIN_CHARACTERS + 1, 0), dtype=np.bool_)
    for k in range(MIN_CHARACTERS):
        is_wanted = np.zeros(CODE_POINTS, dtype=np.bool_)
        is_wanted[[ord(start[k]) for start in starts]] = True
        possible &= is_wanted[codes[k : k + len(possible)]]
    places: NDArray[np.int64] = np.flatnonzero(possible)
    return places
