"""Rules of one's own, [[filter.rules]]: a pattern, an expression over statistics, or an installed function.

Each measures a number of a document, which is stored as the statistic `rules.NAME`, and drops documents whose number is
outside its range: by default those of which it is above 0. So retune, report, explain and samples have it as any other.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import Field, model_validator

from corpus.filters.rules.code import Function, run
from corpus.filters.rules.conditions import OWN, Bounds, Measured, When
from corpus.filters.rules.expression import parse
from corpus.filters.statistic import Batch, Floats

MAX_PATTERN_CHARS = MAX_EXPRESSION_CHARS = 1_000
MAX_REPEATS = 100  # that a pattern counts: a{2,100}; time is linear in a text, and in these
COUNTED = re.compile(r"(\)?)\{(?:\d+,)?(\d+),?\}")
WAYS = ("pattern", "expression", "entry_point")


class OwnRule(Bounds):
    """What it measures (one of three), the range, and for people its name and its reason."""

    name: str = Field(pattern="^[a-z][a-z0-9_]{0,63}$")
    reason: str = Field(min_length=1, max_length=200)
    when: When = ()
    pattern: str | None = Field(default=None, min_length=1, max_length=MAX_PATTERN_CHARS)
    """RE2, in linear time: in how many lines it is found."""
    expression: str | None = Field(default=None, max_length=MAX_EXPRESSION_CHARS)
    """Of statistics: a number, or a comparison, which is 1 or 0."""
    entry_point: str | None = None
    """The name of an installed function of the group `wenhai.filters`: a number or a bool of each document."""

    @model_validator(mode="after")
    def _measures(self) -> Self:
        if sum(getattr(self, way) is not None for way in WAYS) != 1:
            raise ValueError(f"give one of {', '.join(WAYS)}: what it measures")
        if self.pattern is not None:
            try:
                pc.match_substring_regex(pa.array([""]), self.pattern)
            except pa.ArrowInvalid as error:
                raise ValueError(f"pattern: no regular expression of RE2 ({error})") from None
            counted = [(group, int(times)) for group, times in COUNTED.findall(self.pattern)]
            repeats = sum(times for group, times in counted if not group)
            if max(1, repeats) * math.prod(times for group, times in counted if group) > MAX_REPEATS:
                raise ValueError(f"pattern: counts more than {MAX_REPEATS} repetitions, those in groups multiplied")
            if self.ends[1] < 0:
                raise ValueError("max is below 0, and so many lines has every document: nothing could pass")
        if self.expression is not None and parse(self.expression).is_comparison != (not self.bounds()):
            raise ValueError("expression: a number needs min, max or both; a comparison drops where it holds, without")
        return self

    @property
    def key(self) -> str:
        """The statistic that it is."""
        return f"{OWN}.{self.name}"

    def values(self, batch: Batch, measured: Measured, code: Mapping[str, Function]) -> Floats:
        """float64[documents]: what it measures.

        Raises:
            WenhaiError: the function of its entry point fails.
        """
        if self.pattern is not None:
            lines = pc.split_pattern(batch.texts, "\n")
            found = pc.match_substring_regex(pc.list_flatten(lines), self.pattern).to_numpy(zero_copy_only=False)
            return np.bincount(pc.list_parent_indices(lines), found, len(batch.texts)).astype(np.float64)
        if self.expression is not None:
            with np.errstate(all="ignore"):  # beyond what a float holds
                found = np.asarray(parse(self.expression).evaluate(measured), np.float64)
            return np.where(np.isfinite(found), found, np.nan)
        assert self.entry_point is not None
        return run(
            code[self.entry_point].call, f"filter.rules.{self.name}: {self.entry_point}", batch.texts, batch.urls
        )


def own_fields(rules: Sequence[OwnRule]) -> list[pa.Field]:
    """The columns of what they measure."""
    return [pa.field(rule.key, pa.float64()) for rule in rules]
