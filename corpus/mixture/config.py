"""The recipe's `[mixture]` section: weights of sources and of ranges of a statistic.

A document's weight is the product of its source's weight and of one weight for each table of buckets. Weight 2.5 means
taken twice, and every second time once more; 0 leaves a document out. Without the section every document is taken once.

    [mixture]
    sources = { "baike" = 3.0, "forum-*" = 0.5 }   # any other source: 1

    [[mixture.buckets]]
    statistic = "quality.score"
    bounds = [0.2, 0.6]
    weights = [0.0, 1.0, 2.0]                      # below 0.2, from 0.2 on, from 0.6 on
    when = { han_ratio = { min = 0.3 } }           # any other document: 1
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from fnmatch import fnmatchcase
from itertools import pairwise
from typing import Annotated, Any, Self

from pydantic import Field, field_validator, model_validator

from corpus.dedup.contamination.stage import RULE as CONTAMINATION
from corpus.engine.config import Strict
from corpus.filters.measure import STATISTICS
from corpus.filters.rules.conditions import When, find_statistic, text

MAX_COPIES = 100  # of one document; FineWeb-2's most is 10, and four epochs are about as good as new text
SHARES_TOLERANCE = 1e-6
SOURCE = "source"
NOT_MEASURED_NAME = "not measured"
CLUSTER_SIZE, SURVIVOR = "dedup.cluster_size", "dedup.survivor"
OF_DEDUP = (CONTAMINATION, CLUSTER_SIZE, SURVIVOR)

Weight = Annotated[float, Field(ge=0, le=MAX_COPIES)]
Share = Annotated[float, Field(ge=0, le=1)]
Pattern = Annotated[str, Field(min_length=1)]


class Buckets(Strict):
    """[[mixture.buckets]]: ranges or labels of a stored statistic, and the weight of each.

    `bounds` ascend; a value that equals a bound belongs to the bucket above it. Of a document for which the statistic
    was not measured nothing is known: it weighs 1 here, as do those for which the condition does not hold.
    """

    statistic: str
    bounds: tuple[float, ...] = Field(default=(), strict=False)
    weights: tuple[Weight, ...] = Field(strict=False, description="one more than bounds; by label those that are not 1")
    when: When = ()

    @model_validator(mode="before")
    @classmethod
    def _by_label(cls, values: Any) -> Any:
        """Weights by label in the order of the labels."""
        entry = STATISTICS.get(str(values.get("statistic"))) if isinstance(values, Mapping) else None
        if entry is None or not entry.labels or not isinstance(weights := values.get("weights"), Mapping):
            return values
        if unknown := weights.keys() - set(entry.labels):
            raise ValueError(f"weights: {sorted(unknown)[0]!r} is no label; it is one of {', '.join(entry.labels)}")
        return {**values, "weights": tuple(weights.get(label, 1.0) for label in entry.labels)}

    @field_validator("statistic")
    @classmethod
    def _is_stored(cls, statistic: str) -> str:
        return statistic if statistic in OF_DEDUP else find_statistic(statistic)

    @model_validator(mode="after")
    def _fit(self) -> Self:
        entry = STATISTICS.get(self.statistic)
        if entry and entry.labels:
            if self.bounds or len(self.weights) != len(entry.labels):
                raise ValueError(f"weights by label and no bounds: weights = {{ {entry.labels[0]} = 2.0 }}")
            return self
        if not self.bounds:
            raise ValueError("bounds: give one or more, between the buckets")
        if any(low >= high for low, high in pairwise(self.bounds)):
            raise ValueError(f"bounds = {list(self.bounds)}: give them in ascending order, each once")
        if entry:
            for bound in self.bounds:
                entry.check_limit(f"{self.statistic}: bound", bound)
        if len(self.weights) != len(self.bounds) + 1:
            raise ValueError(
                f"{len(self.bounds)} bounds make {len(self.bounds) + 1} buckets, and there are {len(self.weights)} "
                "weights: give one for below the first bound, and one from each bound on"
            )
        return self

    @property
    def labels(self) -> tuple[str, ...]:
        """The buckets in words, in order: `below 0.2`, `0.2 to 0.6`, `0.6 +`."""
        if not self.bounds:
            return STATISTICS[self.statistic].labels
        low, high = self.bounds[0], self.bounds[-1]
        return (f"below {low:g}", *(f"{a:g} to {b:g}" for a, b in pairwise(self.bounds)), f"{high:g} +")

    @property
    def name(self) -> str:
        """The statistic and the condition."""
        return f"{self.statistic} {text(self.when)}".rstrip()


class MixtureConfig(Strict):
    """Weights of sources, or their shares of the mixture, and of ranges of statistics.

    Keys of `sources` and `shares` are names of sources or globs (*, ?, [abc]). A source's own name counts before a
    glob, and a longer glob before a shorter one. With `by` keys of `shares` are labels of a statistic: "zh-Hant*".
    """

    by: str = Field(default=SOURCE, description="what has shares: a source, or a labelled statistic, as variety")
    sources: dict[Pattern, Weight] = Field(default={}, description="how often a document is taken on average")
    shares: dict[Pattern, Share] = Field(default={}, description="of the mixture's bytes, instead of weights; sum 1")
    total_bytes: int | None = Field(default=None, gt=0, description="of the shares; default: the text's own bytes")
    buckets: tuple[Buckets, ...] = Field(default=(), strict=False)
    seed: int = Field(default=0, ge=0, lt=2**63, description="of the choice who is taken once more")

    @field_validator("by")
    @classmethod
    def _is_labelled(cls, by: str) -> str:
        key = by if by == SOURCE else find_statistic(by)
        if key != SOURCE and not STATISTICS[key].labels:
            raise ValueError(f"{key} is a number: give {SOURCE}, or a statistic of labels, for example script.variety")
        return key

    @model_validator(mode="after")
    def _fit_together(self) -> Self:
        if self.by != SOURCE and (self.sources or not self.shares):
            raise ValueError(f"by is of shares: give them. Weights by label: [[mixture.buckets]] of {self.by}")
        labels = STATISTICS[self.by].labels if self.by != SOURCE else ()
        for pattern in self.shares if labels else ():
            if not any(fnmatchcase(label, pattern) for label in labels):
                raise ValueError(f"shares: {pattern!r} is no label of {self.by}: {', '.join(labels)}")
        if self.sources and self.shares:
            raise ValueError("sources and shares are two ways to say one thing: give one of them")
        if self.total_bytes is not None and not self.shares:
            raise ValueError("total_bytes is the whole that shares are of: give shares, or leave it out")
        if self.shares and abs(math.fsum(self.shares.values()) - 1) > SHARES_TOLERANCE:
            raise ValueError(
                f'shares add up to {math.fsum(self.shares.values()):g}, not to 1: change them; the share of "*" is '
                "that of all that no other key matches"
            )
        if not self.sources and not self.shares and not self.buckets:
            raise ValueError("is empty: give sources, shares or buckets, or leave the section out")
        names = [self.by, *(table.name for table in self.buckets)]
        if len(set(names)) < len(names):
            raise ValueError(
                "two tables of buckets, or one and by, are of one statistic and one condition: make them one"
            )
        most = max(self.sources.values(), default=1.0) * self.largest_bucket_weight
        if most > MAX_COPIES:
            raise ValueError(f"a document may be taken {most:g} times, more than {MAX_COPIES}: lower the weights")
        return self

    @property
    def largest_bucket_weight(self) -> float:
        """The product of the largest weight of each table of buckets."""
        return math.prod(max(table.weights) for table in self.buckets)

    @property
    def patterns(self) -> tuple[str, ...]:
        """Keys of `sources` or `shares`, sorted."""
        return tuple(sorted(self.sources or self.shares))

    @property
    def statistics(self) -> tuple[str, ...]:
        """What the buckets read and shares are by, sorted."""
        asked = {clause.key for table in self.buckets for clause in table.when} | ({self.by} - {SOURCE})
        return tuple(sorted(asked | {table.statistic for table in self.buckets}))

    def weighing(self) -> dict[str, Any]:
        """What decides a document's weight but for its source's own."""
        buckets = [table.model_dump(mode="json", exclude_defaults=True) for table in self.buckets]
        by = {} if self.by == SOURCE else {"by": self.by}
        return {"patterns": list(self.patterns), "buckets": buckets, **by}
