"""The recipe's [filter.*] sections: ranges by statistic, and what the editors do.

The models of the families are made from the registry of statistics, so that a new statistic is a new key of the recipe
and an unknown key is an error that names the nearest valid one. Rules keep the recipe's order: the first that fails
names the verdict.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Self

import pydantic

from corpus.engine.config import BesideRecipe, RecipePath, Strict
from corpus.filters.blocklist import BUILT_IN
from corpus.filters.decide import Rule
from corpus.filters.edits import ScriptPolicy
from corpus.filters.measure import FAMILIES, STATISTICS
from corpus.filters.resources import load_resources
from corpus.filters.site_talk import load_words
from corpus.filters.statistic import Statistic
from corpus.personal_data import KINDS, Kind

EMPTY_RULE = "length.num_chars"


class Range(Strict):
    """What is allowed: min <= value <= max."""

    min: float | None = None
    max: float | None = None

    @pydantic.model_validator(mode="after")
    def _check(self) -> Self:
        if self.min is None and self.max is None:
            raise ValueError("a range needs min, max or both, for example { min = 80, max = 200_000 }")
        if self.min is not None and self.max is not None and self.min > self.max:
            raise ValueError(f"min {self.min:g} is above max {self.max:g}; nothing could pass")
        return self


# "off" drops the rule of an extended recipe
Allowed = Annotated[Range | None, pydantic.BeforeValidator(lambda value: None if value == "off" else value)]


class EditConfig(Strict):
    """[filter.edit]: what is changed in kept documents. A change here needs a new run, other than a range."""

    boilerplate_lines: bool = True
    script: ScriptPolicy = "keep"
    personal_data: tuple[Kind, ...] = pydantic.Field(default=KINDS, strict=False)


class BlocklistOptions(Strict):
    """[filter.blocklist]: built-in lists by name, and files of one's own by path."""

    lists: tuple[Annotated[str, BesideRecipe(BUILT_IN)], ...] = pydantic.Field(default=BUILT_IN, strict=False)


class QualityOptions(Strict):
    """[filter.quality]: files of a trained model (quality/model.py) and of a KenLM model (quality/language_model.py).

    Without a file its statistics are not measured.
    """

    model: RecipePath | None = None
    language_model: RecipePath | None = None


class UrlOptions(Strict):
    """[filter.url]: lists of one's own by path, one host or one word of a path a line (url_rules.py)."""

    hosts: tuple[RecipePath, ...] = pydantic.Field(default=(), strict=False)
    paths: tuple[RecipePath, ...] = pydantic.Field(default=(), strict=False)


class Sections(Strict):
    """What recipes say beside ranges; `FilterConfig` adds the ranges of each family of statistics to its section."""

    edit: EditConfig = EditConfig()
    blocklist: BlocklistOptions = BlocklistOptions()
    quality: QualityOptions = QualityOptions()
    url: UrlOptions = UrlOptions()
    _order: tuple[str, ...] = pydantic.PrivateAttr(default=())

    @pydantic.model_validator(mode="wrap")
    @classmethod
    def _keep_order(cls, data: Any, handler: pydantic.ModelWrapValidatorHandler[Self]) -> Self:
        config = handler(data)
        if isinstance(data, Mapping):
            config._order = tuple(
                f"{family}.{name}"
                for family, section in data.items()
                if isinstance(section, Mapping)
                for name in section
            )
        return config

    @property
    def rules(self) -> tuple[Rule, ...]:
        """The rules in the recipe's order. An empty document never passes: without a rule it is `num_chars >= 1`."""
        rules = []
        for key in dict.fromkeys((*self._order, *STATISTICS)):
            family, _, name = key.partition(".")
            if key in STATISTICS and (allowed := getattr(getattr(self, family), name)):
                rules.append(Rule(key=key, min=allowed.min, max=allowed.max))
        if not any(rule.key == EMPTY_RULE and rule.min is not None and rule.min >= 1 for rule in rules):
            rules.insert(0, Rule(key=EMPTY_RULE, min=1, max=None))
        return tuple(rules)

    def meaning(self) -> dict[str, Any]:
        """All that changes the stage's bytes, as JSON: rules in order, editors, the words of the lists."""
        return {
            "rules": [[rule.key, rule.min, rule.max] for rule in self.rules],
            "statistics": list(STATISTICS),
            "edit": self.edit.model_dump(mode="json"),
            "site_talk": load_words().digest,
            **load_resources(self).meaning(),
        }


def _allowed(entry: Statistic) -> Any:
    def check(allowed: Range | None) -> Range | None:
        for name, limit in allowed or ():  # min and max
            if limit is not None:
                entry.check_limit(name, limit)
        return allowed

    return Annotated[Allowed, pydantic.AfterValidator(check)]


def _family_model(family: str) -> Any:
    names = [key.removeprefix(f"{family}.") for key in STATISTICS if key.startswith(f"{family}.")]
    ranges: dict[str, Any] = {name: (_allowed(STATISTICS[f"{family}.{name}"]), None) for name in names}
    options = Sections.model_fields.get(family)
    base: Any = options.annotation if options else Strict
    return pydantic.create_model(f"{family.capitalize()}Config", __base__=base, __module__=__name__, **ranges)


_MODELS: dict[str, type[Strict]] = {family: _family_model(family) for family in FAMILIES}
globals().update({model.__name__: model for model in _MODELS.values()})  # where pickle looks for them

if TYPE_CHECKING:
    FilterConfig = Sections
else:
    FilterConfig = pydantic.create_model(
        "FilterConfig",
        __base__=Sections,
        __module__=__name__,
        **{family: (model, model()) for family, model in _MODELS.items()},
    )
