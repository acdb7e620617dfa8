"""The recipe's `[dedup]` section.

Defaults: character 5-grams, 14 bands of 8 rows (FineWeb's), verified at an estimated Jaccard of 0.8. The chance that a
pair of Jaccard j meets in some band is 1 - (1 - j^8)^14: 0.56 at 0.7, 0.92 at 0.8, 0.99 at 0.85. Because every pair is
verified on its signatures, a false candidate costs 13 ns and never a document, so the bands may open well below the
threshold. datasketch's optimiser, which weighs both errors alike, answers 9 x 13 for 0.8 and misses 60 % of the pairs
at exactly 0.8.

Verification is on an estimate with standard error 0.04, so a pair at the threshold itself passes half the time. Found of
400 pairs each (promised by theory): 0.12 (0.10) at 0.75, 0.47 (0.49) at 0.8, 0.89 (0.92) at 0.85, 1.00 (1.00) at 0.9.
Lower `threshold` to 0.75 to find most pairs at 0.8.
"""

from __future__ import annotations

from typing import Self

from pydantic import Field, model_validator

from corpus.engine.config import Strict

MAX_BANDS = 255  # a band's number is one byte of its key, 255 stands for the exact key


class DedupConfig(Strict):
    """Parameters of exact and near-duplicate removal."""

    ngram: int = Field(default=5, ge=1, le=64, description="characters a shingle, after folding")
    num_permutations: int = Field(
        default=112, ge=1, le=1024, description="minima a signature; standard error <= 0.5/sqrt(it)"
    )
    bands: int = Field(
        default=14, ge=1, le=MAX_BANDS, description="two documents meet when one band of minima is equal"
    )
    rows: int = Field(default=8, ge=1, le=1024, description="minima a band")
    threshold: float = Field(
        default=0.8, gt=0, le=1, description="estimated Jaccard at which a pair is a near duplicate"
    )
    max_leaders: int = Field(
        default=256, ge=1, le=65536, description="documents of a band bucket that others are compared to"
    )

    @model_validator(mode="after")
    def _bands_fit(self) -> Self:
        if self.bands * self.rows > self.num_permutations:
            raise ValueError(
                f"bands x rows = {self.bands} x {self.rows} = {self.bands * self.rows} needs at least that many "
                f"num_permutations, which is {self.num_permutations}"
            )
        return self
