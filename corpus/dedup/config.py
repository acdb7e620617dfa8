"""The recipe's `[dedup]` section.

Defaults: character 4-grams, 16 bands of 7 rows, verified at an estimated Jaccard of 0.75; docs/dedup.md has the tables
they were chosen by (`python -m tools.evaluate.dedup`).

The chance that a pair of Jaccard j meets in some band is 1 - (1 - j^7)^16: 0.75 at 0.7, 0.98 at 0.8, 1.00 at 0.85.
Every pair that meets is verified on its signatures, so a false candidate costs one comparison and never a document, and
the bands may open well below the threshold. Verification is on an estimate with standard error 0.04, so a pair at the
threshold itself passes half the time. Found by both: 0.15 at 0.7, 0.55 at 0.75, 0.91 at 0.8, 1.00 at 0.85.

Why 4-grams: an edit of one character changes n of a text's n-grams. With 3 % of the characters changed a pair has a
mean Jaccard of 0.80 in 4-grams and 0.75 in 5-grams, while pages that share a frame only are hardly nearer to each
other.
"""

from __future__ import annotations

from typing import Any, Literal, Self

from pydantic import Field, field_validator, model_validator

from corpus.engine.config import RecipePath, Strict

EvaluationSet = Literal["agieval", "c3", "cmmlu", "gaokao_bench"]
SET_NGRAM = 10  # of the hashes that they ship as
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

    files: tuple[RecipePath, ...] = Field(default=(), strict=False, description="paths, globs or URLs; one item a line")
    sets: tuple[EvaluationSet, ...] = Field(default=(), strict=False, description="that ship as hashes")
    ngram: int = Field(default=SET_NGRAM, ge=4, le=64, description="folded characters")
    max_share: float = Field(default=0.5, ge=0, lt=1, description="of an item's n-grams that a document may hold")
    action: Literal["remove", "flag"] = "remove"

    @model_validator(mode="after")
    def _looks_for_something(self) -> Self:
        if not self.files and not self.sets:
            raise ValueError("files = [...] or sets = [...] says what is looked for")
        if self.sets and self.ngram != SET_NGRAM:
            raise ValueError(f"the hashes of sets are of {SET_NGRAM}-grams: leave ngram out, or sets")
        return self


class SubstringsConfig(Strict):
    """[dedup.substrings]: passages that a document has word for word from a better one are cut out (substrings.py).

    100 folded characters are some 65 tokens; Lee et al. (2022) cut 50 tokens of English. At 100, copies of 200
    characters are found (99 %; at 200, 15 %) and 4,000 poems and chapters of old novels and classics lose nothing, at
    50 neither; what modern articles lose, 3 % of one site, are the notes of its translators.
    """

    min_chars: int = Field(default=100, ge=20, le=100_000, description="folded characters of whole sentences in a row")
    min_left: int = Field(default=50, ge=1, description="characters; a document that is left with fewer is dropped")


class DedupConfig(Strict):
    """Parameters of exact and near-duplicate removal."""

    ngram: int = Field(default=4, ge=1, le=64, description="characters a shingle, after folding")
    num_permutations: int = Field(
        default=112, ge=1, le=1024, description="minima a signature; standard error <= 0.5/sqrt(it)"
    )
    bands: int = Field(
        default=16, ge=1, le=MAX_BANDS, description="two documents meet when one band of minima is equal"
    )
    rows: int = Field(default=7, ge=1, le=1024, description="minima a band")
    threshold: float = Field(
        default=0.75, gt=0, le=1, description="estimated Jaccard at which a pair is a near duplicate"
    )
    max_leaders: int = Field(
        default=256, ge=1, le=65536, description="documents of a band bucket that others are compared to"
    )
    keep: Literal["survivors", "all_with_size"] = Field(
        default="survivors",
        description="all_with_size: nothing is dropped, index/ of the stage `text` says what is whose duplicate",
    )
    prefer_sources: tuple[str, ...] = Field(
        default=(),
        strict=False,
        max_length=127,
        description="sources or globs, best first: whose copy stays; others come last, then worth decides (ranks.py)",
    )
    scripts: Literal["fold", "keep"] = Field(
        default="fold",
        description="keep: a Simplified and a Traditional edition are no duplicates, not even of passages",
    )
    prefer_script: Literal["simplified", "traditional", "any"] = Field(
        default="simplified",
        description="of two editions, which stays whatever else is better; to Simplified conversion makes fewer errors",
    )
    earlier: tuple[RecipePath, ...] = Field(
        default=(),
        strict=False,
        description="OUT folders of finished builds, in any order; what resembles a document kept there is dropped",
    )
    repeated_lines: RepeatedLinesConfig | None = Field(default=None, description="absent: no line is cut")
    contamination: ContaminationConfig | None = Field(default=None, description="absent: no evaluation file is known")
    substrings: SubstringsConfig | None = Field(default=None, description="absent: no passage is cut")
    scheme: Literal["classic", "datasketch"] = Field(
        default="classic", description="datasketch: its very signatures, for its indexes; 30 times slower to sign"
    )

    @field_validator("repeated_lines", "contamination", "substrings", mode="before")
    @classmethod
    def _off(cls, value: Any) -> Any:
        return None if value == "off" else value  # takes out what an extended recipe turns on

    @model_validator(mode="after")
    def _bands_fit(self) -> Self:
        if self.bands * self.rows > self.num_permutations:
            raise ValueError(
                f"bands x rows = {self.bands} x {self.rows} = {self.bands * self.rows} needs at least that many "
                f"num_permutations, which is {self.num_permutations}"
            )
        return self
