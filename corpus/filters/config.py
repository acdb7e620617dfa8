"""The recipe's [filter.*] sections: ranges by statistic, and what the editors do.

The models of the families are made from the registry of statistics, so that a new statistic is a new key of the recipe
and an unknown key is an error that names the nearest valid one. Rules keep the recipe's order: the first that fails
names the verdict.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

import pydantic

from corpus.engine.config import BesideRecipe, RecipePath, Strict
from corpus.engine.errors import UsageError, WenhaiError
from corpus.engine.versions import data_digest, version_of
from corpus.filters.blocklist import BUILT_IN
from corpus.filters.decide import Rule, limits
from corpus.filters.edits import ScriptPolicy
from corpus.filters.measure import FAMILIES, STATISTICS
from corpus.filters.quality.model import BUILT_IN as BUILT_IN_MODELS
from corpus.filters.resources import load_resources
from corpus.filters.rules.code import Function, load_function
from corpus.filters.rules.conditions import Bounds, When, implies
from corpus.filters.rules.expression import parse
from corpus.filters.rules.own import OwnRule
from corpus.filters.site_talk import load_words
from corpus.filters.statistic import Statistic
from corpus.personal_data import KINDS, Kind

EMPTY_RULE = "length.num_chars"
MAX_RULES = 100  # of one's own
MAX_RANGES = 32  # of a statistic: each is compared with all before it


class Range(Bounds):
    """What is allowed of documents for which the condition holds."""

    when: When = ()

    @pydantic.model_validator(mode="after")
    def _check(self) -> Self:
        if not self.bounds() and not self.when:
            raise ValueError("a range needs min, max or both, for example { min = 80, max = 200_000 }")
        return self


_RANGES = pydantic.TypeAdapter(Annotated[tuple[Range, ...], pydantic.Field(max_length=MAX_RANGES)])


def _read_allowed(value: Any, handler: pydantic.ValidatorFunctionWrapHandler) -> Any:
    """A range, several of which the first whose condition holds judges, or "off", which drops an extended recipe's."""
    if isinstance(value, list):
        return _RANGES.validate_python(tuple(value))
    return handler(None if value == "off" else value)


Allowed = Annotated[Range | None, pydantic.WrapValidator(_read_allowed)]


class EditConfig(Strict):
    """[filter.edit]: what is changed in kept documents. A change here needs a new run, other than a range."""

    boilerplate_lines: bool = True
    script: ScriptPolicy = "keep"
    personal_data: tuple[Kind, ...] = pydantic.Field(default=KINDS, strict=False)


class BlocklistOptions(Strict):
    """[filter.blocklist]: built-in lists by name, and files of one's own by path."""

    lists: tuple[Annotated[str, BesideRecipe(BUILT_IN)], ...] = pydantic.Field(default=BUILT_IN, strict=False)


class QualityOptions(Strict):
    """[filter.quality]: a trained model (quality/model.py), "kinds" or a file, and a KenLM model's file
    (quality/language_model.py).

    Without one its statistics are not measured; "off" takes an extended recipe's out.
    """

    model: Annotated[str, BesideRecipe((*BUILT_IN_MODELS, "off"))] | None = None

    @pydantic.field_validator("model")
    @classmethod
    def _off(cls, value: str | None) -> str | None:
        return None if value == "off" else value

    language_model: RecipePath | None = None


class WordsOptions(Strict):
    """[filter.words]: who cuts text into words. Without it they are not measured: with it all is 50 times slower."""

    segmenter: Literal["jieba"] | None = None


class UrlOptions(Strict):
    """[filter.url]: shipped lists by name; one's own by path, one host or one word of a path a line (url_rules.py)."""

    lists: tuple[Literal["gambling", "porn", "scam"], ...] = pydantic.Field(default=(), strict=False)
    hosts: tuple[RecipePath, ...] = pydantic.Field(default=(), strict=False)
    paths: tuple[RecipePath, ...] = pydantic.Field(default=(), strict=False)


def _named_apart(rules: tuple[OwnRule, ...]) -> tuple[OwnRule, ...]:
    names = [rule.name for rule in rules]
    if twice := sorted(name for name in names if names.count(name) > 1):
        raise ValueError(f"two are called {twice[0]}: give each a name of its own")
    return rules


class Sections(Strict):
    """What recipes say beside ranges; `FilterConfig` adds the ranges of each family of statistics to its section."""

    edit: EditConfig = EditConfig()
    blocklist: BlocklistOptions = BlocklistOptions()
    quality: QualityOptions = QualityOptions()
    url: UrlOptions = UrlOptions()
    own: Annotated[tuple[OwnRule, ...], pydantic.AfterValidator(_named_apart)] = pydantic.Field(
        (), alias="rules", max_length=MAX_RULES, strict=False
    )
    words: WordsOptions = WordsOptions()
    _order: tuple[str, ...] = pydantic.PrivateAttr(default=())
    _allow_code: bool = pydantic.PrivateAttr(default=False)  # nothing that a recipe could say

    @pydantic.model_validator(mode="wrap")
    @classmethod
    def _keep_order(cls, data: Any, handler: pydantic.ModelWrapValidatorHandler[Self]) -> Self:
        config = handler(data)
        if isinstance(data, Mapping):
            config._order = tuple(
                f"{family}.{name}"
                for family, section in data.items()
                for name in (section if isinstance(section, Mapping) else [rule.name for rule in config.own])
            )
        return config

    @property
    def rules(self) -> tuple[Rule, ...]:
        """The rules in the recipe's order. An empty document never passes: without a rule it is `num_chars >= 1`."""
        rules, own = [], {rule.key: rule for rule in self.own}
        for key in dict.fromkeys((*self._order, *STATISTICS, *own)):
            family, _, name = key.partition(".")
            if rule := own.get(key):
                most = rule.max if rule.bounds() else 0
                rules.append(Rule(key=key, min=rule.min, max=most, when=rule.when, reason=rule.reason))
            allowed = getattr(getattr(self, family), name) if key in STATISTICS else None
            listed = enumerate(allowed) if isinstance(allowed, tuple) else [(None, allowed)] if allowed else ()
            rules += [Rule(key=key, min=one.min, max=one.max, when=one.when, place=place) for place, one in listed]
        lengths = [rule for rule in rules if rule.key == EMPTY_RULE]
        if all(rule.when for rule in lengths) or any((rule.min or 0) < 1 for rule in lengths):
            rules.insert(0, Rule(key=EMPTY_RULE, min=1, max=None))
        return tuple(rules)

    @property
    def asked(self) -> dict[str, str]:
        """The statistics that decide, and the recipe's key of the first range that reads each."""
        read = {key: rule.key for rule in self.own if rule.expression for key in parse(rule.expression).keys}
        return read | {key: limit.rule for limit in reversed(limits(self.rules)) for key in limit.keys}

    def meaning(self) -> dict[str, Any]:
        """All that changes the stage's bytes, as JSON: rules in order, editors, digests of lists, models and tables."""
        converts = self.edit.script != "keep"
        return {
            "rules": [rule.as_json() for rule in self.rules],
            "statistics": list(STATISTICS),
            "edit": self.edit.model_dump(mode="json"),
            "site_talk": load_words().digest,
            **load_resources(self).meaning(),
            **({"opencc": [version_of("opencc"), data_digest("opencc", ".ocd2", ".json")]} if converts else {}),
            **({"own": [rule.model_dump(mode="json", exclude={"when"}) for rule in self.own]} if self.own else {}),
        }

    def allow_code(self) -> None:
        """Let the entry points of its rules run."""
        self._allow_code = True

    def load_code(self) -> dict[str, Function]:
        """The functions of the entry points that rules name; raises `UsageError` where nobody allowed them."""
        found = {}
        for rule in (rule for rule in self.own if rule.entry_point is not None):
            if not self._allow_code:
                raise UsageError(
                    f"filter.rules.{rule.name}: runs code that is installed here, {rule.entry_point}. Where you trust "
                    "it, give --allow-code."
                )
            try:
                found[str(rule.entry_point)] = load_function(str(rule.entry_point))
            except WenhaiError as error:
                raise UsageError(f"filter.rules.{rule.name}: {error}") from error
        return found


def _allowed(key: str, entry: Statistic) -> Any:
    def check(allowed: Range | tuple[Range, ...] | None) -> Range | tuple[Range, ...] | None:
        listed = isinstance(allowed, tuple)
        ranges = allowed if isinstance(allowed, tuple) else (allowed,) if allowed else ()
        if entry.labels and ranges:
            raise ValueError(f"has labels ({', '.join(entry.labels)}) and no range; name it in a condition: when")
        if (listed or ranges) and not any(one.bounds() for one in ranges):
            raise ValueError("judges nothing: give min, max or both, or take it out")
        if listed and len(ranges) == 1 and not ranges[0].when:
            raise ValueError("a list of one range without a condition: write the range alone")
        if listed and not ranges[-1].bounds():
            raise ValueError("the last range exempts from nothing: no range stands behind it")
        for place, one in enumerate(ranges):
            where = f"range {place}: " if listed else ""
            for name, bound in one.bounds().items():
                entry.check_limit(where + name, bound)
            _check_condition(key, one, where, ranges[:place])
        return allowed

    return Annotated[Allowed, pydantic.AfterValidator(check)]


def _check_condition(key: str, one: Range, where: str, before: Sequence[Range]) -> None:
    """Refuse a range that is never reached, or that drops nothing or all of its documents; raises `ValueError`."""
    for place, other in enumerate(before):
        if implies(one.when, other.when):
            raise ValueError(
                f"{where}never reached: range {place} judges all its documents. Exceptions stand first, the range "
                "without a condition last"
            )
    for clause in (clause for clause in one.when if clause.key == key):
        if one.bounds() and clause.lies_in(one):
            raise ValueError(f"{where}never drops anything: its condition, {clause}, lies within it")
        if clause.ends[1] < one.ends[0] or clause.ends[0] > one.ends[1]:
            raise ValueError(f"{where}drops every document of its condition, {clause}, which lies outside it")


def _family_model(family: str) -> Any:
    names = {key.removeprefix(f"{family}."): key for key in STATISTICS if key.startswith(f"{family}.")}
    ranges: dict[str, Any] = {name: (_allowed(key, STATISTICS[key]), None) for name, key in names.items()}
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
