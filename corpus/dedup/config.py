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

from typing import Literal, Self

from pydantic import Field, model_validator

from corpus.engine.config import Strict

MAX_DATASKETCH_NGRAM = 13  # as MAX_NGRAM of datasketch_scheme.py, which loads numba
MAX_BANDS = 255  # a band's number is one byte of its key, 255 stands for the exact key


class RepeatedLinesConfig(Strict):
    """[dedup.repeated_lines]: lines that stand on many pages of a site are cut out of them (repeated_lines.py)."""

    min_documents: int = Field(default=10, ge=2, description="different documents of a site that have the line")
    max_share: float = Field(default=0.2, ge=0, lt=1, description="and their share of the site's, above which it goes")
    min_chars: int = Field(default=2, ge=1, description="folded characters of a line that may go")
    max_chars: int = Field(default=120, ge=1, description="a longer one is text; also bounds what is counted")
    max_removed_ratio: float = Field(
        default=0.8, gt=0, le=1, description="a page that would lose more bytes is left to deduplication as it is"
    )
    min_left: int = Field(default=50, ge=1, description="characters; an edited document with fewer is dropped")


class ContaminationConfig(Strict):
    """[dedup.contamination]: documents that contain items of these evaluation files (contamination.py)."""

    files: tuple[str, ...] = Field(strict=False, min_length=1, description="paths, globs or URLs; one item a line")
    ngram: int = Field(default=10, ge=4, le=64, description="folded characters")
    max_share: float = Field(default=0.5, ge=0, lt=1, description="of an item's n-grams that a document may hold")
    action: Literal["remove", "flag"] = "remove"


class DedupConfig(Strict):
    """Parameters of exact and near-duplicate removal."""

    scheme: Literal["classic", "datasketch"] = Field(
        default="classic",
        description="datasketch: its very signatures, for its indexes; SHA-1 makes it 25 times slower",
    )
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
    repeated_lines: RepeatedLinesConfig | None = Field(default=None, description="absent: no line is cut")
    contamination: ContaminationConfig | None = Field(default=None, description="absent: no evaluation file is known")

    @model_validator(mode="after")
    def _one_block(self) -> Self:
        if self.scheme == "datasketch" and self.ngram > MAX_DATASKETCH_NGRAM:
            raise ValueError(
                f'scheme = "datasketch" hashes at most {MAX_DATASKETCH_NGRAM} characters; ngram is {self.ngram}'
            )
        return self

    @model_validator(mode="after")
    def _bands_fit(self) -> Self:
        if self.bands * self.rows > self.num_permutations:
            raise ValueError(
                f"bands x rows = {self.bands} x {self.rows} = {self.bands * self.rows} needs at least that many "
                f"num_permutations, which is {self.num_permutations}"
            )
        return self
