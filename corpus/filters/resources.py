"""What a recipe's statistics need beside the text: word lists, host lists, models; loaded once a process."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy.typing as npt
import pyarrow as pa
import xxhash

from corpus.engine.errors import UsageError
from corpus.engine.versions import data_digest, version_of
from corpus.filters import normalizing
from corpus.filters.blocklist import BUILT_IN, Blocklist, load_blocklist
from corpus.filters.quality.bigrams import Bigrams, load_bigrams
from corpus.filters.quality.language_model import LanguageModel, load_language_model
from corpus.filters.quality.model import MODEL_STATISTICS, Model, load_model, require_model
from corpus.filters.quality.variety import Varieties, load_varieties
from corpus.filters.statistic import Floats
from corpus.filters.statistics.words import COLUMNS, measure_words
from corpus.filters.url_rules import NO_URL_RULES, UrlRules, load_url_rules
from corpus.kernels import folding, tables

if TYPE_CHECKING:
    from corpus.filters.config import Sections
    from corpus.filters.rules.code import Function

PERPLEXITY = "quality.language_model_perplexity"


@dataclass(frozen=True)
class Resources:
    """Read-only; shared by all batches of a filter."""

    blocklist: Blocklist
    bigrams: Bigrams
    varieties: Varieties
    quality: Model | None = None
    language_model: LanguageModel | None = None
    url: UrlRules = NO_URL_RULES
    code: Mapping[str, Function] = field(default_factory=dict)  # of the recipe's own rules, by entry point
    count_words: Callable[[pa.LargeStringArray], Floats] | None = None

    def meaning(self) -> dict[str, Any]:
        """Digests of everything that can change a statistic, as JSON, for a stage's fingerprint."""
        return {
            "words": self.blocklist.digest,
            "bigrams": self.bigrams.digest,
            "varieties": self.varieties.digest,
            "quality": self.quality.digest if self.quality else None,
            "language_model": self.language_model.digest if self.language_model else None,
            "url": self.url.digest,
            **({"code": {name: one.digest for name, one in self.code.items()}} if self.code else {}),
            "segmenter": [version_of("jieba"), data_digest("jieba", ".txt", ".p")] if self.count_words else None,
            **({"kenlm": version_of("ufal-kenlm")} if self.language_model else {}),
            "tables": table_digests(),
        }


def table_digests() -> dict[str, str]:
    """Of the character tables as they were computed here, from Python's Unicode data and OpenCC's; and the version of
    that data, which composes characters and says what a letter is where no table does."""
    computed: dict[str, npt.NDArray[Any]] = {
        "classes": tables.class_table(),
        "folding": folding.matching_table(),
        "normalizing": normalizing.action_table(),
    }
    digests = {name: xxhash.xxh3_128_hexdigest(table.tobytes()) for name, table in computed.items()}
    return digests | {"unicode": unicodedata.unidata_version}


def load_resources(config: Sections) -> Resources:
    """The resources that a recipe names.

    Raises:
        UsageError: a file of the recipe cannot be read, is not what it should be, or a rule has no model.
    """
    model = load_model(config.quality.model) if config.quality.model is not None else None
    asked = config.asked
    require_model(model, {name: rule for name in MODEL_STATISTICS if (rule := asked.get(f"quality.{name}"))})
    path = config.quality.language_model
    language_model = load_language_model(path) if path is not None else None
    if language_model is None and PERPLEXITY in asked:
        raise UsageError(
            f'filter.{asked[PERPLEXITY]}: {PERPLEXITY} needs a model: [filter.quality] language_model = "path".'
        )
    counted = next((rule for name in COLUMNS if (rule := asked.get(f"words.{name}"))), None)
    if counted is not None and config.words.segmenter is None:
        raise UsageError(f'filter.{counted}: the rule needs words: [filter.words] segmenter = "jieba".')
    return Resources(
        blocklist=load_blocklist(config.blocklist.lists),
        bigrams=load_bigrams(),
        varieties=load_varieties(),
        quality=model,
        language_model=language_model,
        url=load_url_rules(config.url.hosts, config.url.paths, config.url.lists),
        code=config.load_code(),
        count_words=measure_words if config.words.segmenter else None,
    )


@lru_cache(maxsize=1)
def built_in() -> Resources:
    """What ships with the package, for `measure`."""
    return Resources(blocklist=load_blocklist(BUILT_IN), bigrams=load_bigrams(), varieties=load_varieties())
