"""What a recipe's statistics need beside the text: word lists, host lists, models; loaded once a process."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from corpus.engine.errors import UsageError
from corpus.filters.blocklist import BUILT_IN, Blocklist, load_blocklist
from corpus.filters.quality.bigrams import Bigrams, load_bigrams
from corpus.filters.quality.language_model import LanguageModel, load_language_model
from corpus.filters.quality.model import MODEL_STATISTICS, Model, load_model, require_model
from corpus.filters.url_rules import NO_URL_RULES, UrlRules, load_url_rules

if TYPE_CHECKING:
    from corpus.filters.config import Sections


@dataclass(frozen=True)
class Resources:
    """Read-only; shared by all batches of a filter."""

    blocklist: Blocklist
    bigrams: Bigrams
    quality: Model | None = None
    language_model: LanguageModel | None = None
    url: UrlRules = NO_URL_RULES

    def meaning(self) -> dict[str, Any]:
        """Digests of everything that can change a statistic, as JSON, for a stage's fingerprint."""
        return {
            "words": self.blocklist.digest,
            "bigrams": self.bigrams.digest,
            "quality": self.quality.digest if self.quality else None,
            "language_model": self.language_model.digest if self.language_model else None,
            "url": self.url.digest,
        }


def load_resources(config: Sections) -> Resources:
    """The resources that a recipe names.

    Raises:
        UsageError: a file of the recipe cannot be read, is not what it should be, or a rule has no model.
    """
    model = load_model(config.quality.model) if config.quality.model is not None else None
    require_model(model, [name for name in MODEL_STATISTICS if getattr(config.quality, name, None) is not None])
    path = config.quality.language_model
    language_model = load_language_model(path) if path is not None else None
    if language_model is None and getattr(config.quality, "language_model_perplexity", None) is not None:
        raise UsageError(
            "filter.quality.language_model_perplexity: the rule needs a model: [filter.quality] language_model = "
            '"path".'
        )
    return Resources(
        blocklist=load_blocklist(config.blocklist.lists),
        bigrams=load_bigrams(),
        quality=model,
        language_model=language_model,
        url=load_url_rules(config.url.hosts, config.url.paths),
    )


@lru_cache(maxsize=1)
def built_in() -> Resources:
    """What ships with the package, for `measure`."""
    return Resources(blocklist=load_blocklist(BUILT_IN), bigrams=load_bigrams())
