"""Which of two copies is the better one: a 64-bit word a document, the larger the better.

    bit 63      a document of an earlier build, which outranks all new ones (set in `members`)
    bits 62-56  the source's place in `prefer_sources`, the first highest, 0 for one that is not listed
    bit 55      1 where the script is the one of `prefer_script`
    bits 54-44  worth, in steps of 1/64 to 1/128: what noise adds (a byline, a date) is mostly below a step
    bits 43-28  date, the earlier the better (a copy is later than its original); 0 for none before 1990 or after 2169
    bits 27-1   worth to the character
    bit 0       with `scripts = "keep"`: a Traditional document, whose passages are compared with those of its like only

Worth is quality and completeness in one number: folded characters, less two for every character of site talk or of a
block list, times (1 + score) / 2 where a model scored the document. So a tail of n characters makes a copy worth n less
than the clean one although it is longer, also where only half of it is recognised, and a copy that lost n characters is
worth n less than the whole one: neither needs a limit of its own, and what is misjudged of the article itself is so in
all copies.

It comes from the document and the recipe alone; docs/dedup.md has what it was measured by.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from fnmatch import fnmatchcase
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from corpus.dedup.config import DedupConfig
from corpus.filters.measure import STATISTICS as KNOWN
from corpus.filters.resources import built_in
from corpus.filters.statistic import Batch, Floats

Words = npt.NDArray[np.uint64]

LENGTH, TALK, BLOCKED, SCORE, SCRIPT = STATISTICS = (
    "length.num_chars",
    "blocklist.site_talk_ratio",
    "blocklist.blocklist_ratio",
    "quality.score",
    "script.traditional_ratio",
)
SOURCE_BIT, SCRIPT_BIT, WORTH_BIT, DATE_BIT, CHARS_BIT = 56, 55, 44, 28, 1
MAX_EXPONENT, STEPS_A_DOUBLING = 31, 64
MAX_CHARS = (1 << DATE_BIT - CHARS_BIT) - 1
JUNK_WEIGHT = 2  # one because it is no content, one for what of its like no list knows
FIRST_DAY = datetime(1990, 1, 1, tzinfo=UTC)
LAST_DAY = 0xFFFF
SECONDS_A_DAY = 86_400


class Facts(NamedTuple):
    """What is known of n documents beside their folded characters."""

    source: npt.NDArray[np.uint8]  # 0 where not listed
    traditional: npt.NDArray[np.bool_]
    share: Floats  # of its folded characters that a document is worth, 0 to 1
    date: npt.NDArray[np.int64]  # 1 for the last day there is, 0 for none


def read_facts(documents: pa.Table, measured: pa.Table | None, config: DedupConfig) -> Facts:
    """The facts of some documents: columns text, source, date, and `row` where something was measured before.

    Args:
        measured: `row`, rising, and `STATISTICS` of the filter; None: they are measured here, and there is no score.
            What later stages cut from a text is taken for site talk as far as there was some.
    """
    texts = documents["text"]
    length: Floats = pc.utf8_length(texts).to_numpy().astype(np.float64)
    if measured is None:
        found = measure(texts)
    else:
        at = np.searchsorted(measured["row"].to_numpy(), documents["row"].to_numpy())
        found = {name: measured[name].to_numpy().astype(np.float64)[at] for name in STATISTICS}
    junk = (found[TALK] + found[BLOCKED]) * found[LENGTH]
    junk = np.maximum(junk - np.maximum(found[LENGTH] - length, 0), 0) / np.maximum(length, 1)
    score = (1 + np.nan_to_num(found[SCORE], nan=1.0)) / 2
    sources = documents["source"].to_pylist()
    places = {name: _place(name, config.prefer_sources) for name in set(sources)}
    return Facts(
        np.array([places[name] for name in sources], np.uint8),
        found[SCRIPT] >= 0.5,
        np.clip(1 - JUNK_WEIGHT * junk, 0, 1) * score,
        _days(documents["date"]),
    )


def measure(texts: pa.ChunkedArray | pa.Array) -> dict[str, Floats]:
    """`STATISTICS` of texts as they are, but for the score, which takes a model."""
    column = texts.combine_chunks() if isinstance(texts, pa.ChunkedArray) else texts
    batch = Batch(column.cast(pa.large_string()), built_in())
    unknown = np.full(len(column), np.nan)
    return {name: unknown if name == SCORE else KNOWN[name].compute(batch) for name in STATISTICS}


def rank_words(num_folded: npt.NDArray[np.int64], facts: Facts, config: DedupConfig) -> Words:
    """uint64[n]: the word of each document, without the bit of earlier builds."""
    worth = (num_folded * facts.share).astype(np.int64)
    mantissa, exponent = np.frexp(worth.astype(np.float64))
    exponent = np.minimum(exponent, MAX_EXPONENT)
    step = exponent * STEPS_A_DOUBLING + ((2 * mantissa - 1) * STEPS_A_DOUBLING).astype(np.int64)
    preferred = facts.traditional == (config.prefer_script == "traditional")
    word = facts.source.astype(np.int64) << SOURCE_BIT
    word |= (preferred & (config.prefer_script != "any")).astype(np.int64) << SCRIPT_BIT
    word |= np.where(worth > 0, step, 0) << WORTH_BIT
    word |= facts.date << DATE_BIT | np.minimum(worth, MAX_CHARS) << CHARS_BIT
    return (word | (facts.traditional & (config.scripts == "keep"))).astype(np.uint64)


def deciding_part(kept: int, lost: int) -> str:
    """Which part of two words decided between them, with both values, for `corpus explain`.

    >>> deciding_part(3000 << 1, 2500 << 1)
    'worth 3,000 > 2,500 characters'
    """
    for name, bit, width in (("prefer_sources", SOURCE_BIT, 7), ("prefer_script", SCRIPT_BIT, 1)):
        if (kept ^ lost) >> bit & ((1 << width) - 1):
            return name
    chars, fewer = (word >> CHARS_BIT & MAX_CHARS for word in (kept, lost))
    same_step = kept >> WORTH_BIT == lost >> WORTH_BIT
    dates = [word >> DATE_BIT & LAST_DAY for word in (kept, lost)]
    if same_step and dates[0] != dates[1]:
        return "date " + " before ".join(_iso(date) for date in dates)
    return f"worth {chars:,} > {fewer:,} characters" if chars != fewer else "more bytes, or the smaller id"


def _place(source: str, patterns: Sequence[str]) -> int:
    return next((len(patterns) - i for i, one in enumerate(patterns) if fnmatchcase(source, one)), 0)


def _days(dates: pa.ChunkedArray) -> npt.NDArray[np.int64]:
    """ISO dates, with or without a time, as the days left until `LAST_DAY`."""
    days = pc.utf8_slice_codeunits(dates.cast(pa.string()), 0, 10)
    seconds = pc.strptime(days, format="%Y-%m-%d", unit="s", error_is_null=True).cast(pa.int64())
    since = pc.fill_null(seconds, -1).to_numpy() // SECONDS_A_DAY - int(FIRST_DAY.timestamp()) // SECONDS_A_DAY
    return np.where((since >= 0) & (since < LAST_DAY), LAST_DAY - since, 0)


def _iso(date: int) -> str:
    return (FIRST_DAY + timedelta(days=LAST_DAY - date)).date().isoformat() if date else "none"
