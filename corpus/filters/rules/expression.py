"""Expressions over statistics: numbers, names, + - * /, comparisons, and, or, not, parentheses, min, max and abs.

    digit_ratio > 0.3 and not (num_lines < 3 or abs(han_ratio - 0.5) < 0.1)

Read by this grammar and by nothing else: an expression can call nothing and name nothing but statistics. A value that
was not measured, and what is divided by zero, is NaN, and so is all that depends on it: a rule lets it pass.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from corpus.filters.measure import STATISTICS
from corpus.filters.rules.conditions import Measured, find_statistic

MAX_TOKENS, MAX_DEPTH = 200, 32
TOKEN = re.compile(r"(\d[\d_]*(?:\.\d+)?(?:[eE][-+]?\d+)?|[A-Za-z_][\w.]*|[<>=!]=|[-+*/()<>,])|\s+|(.)", re.DOTALL)
LEVELS = (("or",), ("and",), ("not",), ("<", "<=", ">", ">=", "==", "!="), ("+", "-"), ("*", "/"))  # loosest first
OPERANDS = {"": 1, "abs": 1, "min": 2, "max": 2}  # of what stands before a parenthesis


class Expression(NamedTuple):
    """What it gives, 1 or 0 for a comparison, and the statistics that it reads."""

    is_comparison: bool
    keys: frozenset[str]
    evaluate: Callable[[Measured], Any]  # to float64[documents], or one number


def _and(a: Any, b: Any) -> Any:
    return np.where((a == 0) | (b == 0), 0.0, a * b)  # not known and false is false


LOGIC: dict[str, Any] = {"or": lambda a, b: 1 - _and(1 - a, 1 - b), "and": _and, "not": lambda a: 1 - a}
COMPARISONS: dict[str, Any] = dict(
    zip(LEVELS[3], (np.less, np.less_equal, np.greater, np.greater_equal, np.equal, np.not_equal), strict=True)
)
ARITHMETIC: dict[str, Any] = {
    "+": np.add,
    "-": np.subtract,
    "*": np.multiply,
    "min": np.minimum,
    "max": np.maximum,
    "abs": np.abs,
    "/": lambda a, b: np.where(b == 0, np.nan, a) / np.where(b == 0, 1.0, b),
}


@lru_cache(maxsize=64)
def parse(text: str) -> Expression:
    """Read an expression.

    >>> parse("2 * digit_ratio > 0.5").evaluate({"characters.digit_ratio": np.array([0.2, 0.3, np.nan])})
    array([ 0.,  1., nan])

    Raises:
        ValueError: it is none, too long, divides by a zero that stands in it, or names no statistic.
    """
    parser = _Parser(text)
    expression = parser.level(0, 0)
    parser.expect("")
    if not expression.keys:
        raise ValueError("expression: names no statistic, so it is the same for all documents")
    return expression


class _Parser:
    def __init__(self, text: str) -> None:
        if wrong := next((match[2] for match in TOKEN.finditer(text) if match[2]), None):
            raise ValueError(f"expression: {wrong!r} is no part of one")
        self.tokens = [match[1] for match in TOKEN.finditer(text) if match[1]]
        if len(self.tokens) > MAX_TOKENS:
            raise ValueError(f"expression: {len(self.tokens)} numbers, names and signs, at most {MAX_TOKENS}")

    def take(self, *wanted: str) -> str:
        """The next token if it is one of these, else an empty string."""
        return self.tokens.pop(0) if self.tokens and self.tokens[0] in wanted else ""

    def expect(self, sign: str) -> None:
        """Take a sign, or the end."""
        if not self.take(sign) and (sign or self.tokens):
            raise ValueError(f"expression: expected {sign or 'its end'} before {(*self.tokens, 'its end')[0]}")

    def level(self, level: int, depth: int) -> Expression:
        """The operators of a level and of those that bind closer."""
        if depth > MAX_DEPTH:
            raise ValueError(f"expression: nested deeper than {MAX_DEPTH}")
        if level == len(LEVELS):
            return self.atom(depth)
        if self.tokens[:1] == ["not"] and LEVELS[level] == ("not",):
            return _apply(self.take("not"), self.level(level, depth + 1))
        left = self.level(level + 1, depth)
        while sign := self.take(*LEVELS[level]):
            left = _apply(sign, left, self.level(level + 1, depth))
        return left

    def atom(self, depth: int) -> Expression:
        """A number, a statistic, a function, or what stands in parentheses or behind a minus."""
        if self.take("-"):
            return _apply("-", _number(0), self.level(len(LEVELS), depth + 1))
        if (name := self.take(*OPERANDS)) or self.tokens[:1] == ["("]:
            given = []
            for place in range(OPERANDS[name]):
                self.expect("," if place else "(")
                given.append(self.level(0, depth + 1))
            self.expect(")")
            return _apply(name, *given) if name else given[0]
        token = self.tokens.pop(0) if self.tokens else "its end"
        if token[0].isdigit():
            return _number(token)
        if token in LOGIC or not re.fullmatch(r"[\w.]+", token):
            raise ValueError(f"expression: expected a number or a statistic before {token}")
        key = find_statistic(token)
        if STATISTICS[key].labels:
            raise ValueError(f"expression: {key} has labels and is no number; ask for it in a condition: when")
        return Expression(False, frozenset([key]), lambda measured: measured[key])


def _number(written: str | int) -> Expression:
    try:
        value = np.float64(written)
    except ValueError:
        value = np.float64(np.inf)
    if not np.isfinite(value):
        raise ValueError(f"expression: {written} is no number that a float holds")
    return Expression(False, frozenset(), lambda measured: value)


def _apply(sign: str, *operands: Expression) -> Expression:
    if any(one.is_comparison != (sign in LOGIC) for one in operands):
        raise ValueError(f"expression: {sign} takes {'comparisons' if sign in LOGIC else 'numbers'} on each side")
    if sign == "/" and not operands[1].keys and operands[1].evaluate({}) == 0:
        raise ValueError("expression: divides by zero")

    def evaluate(measured: Measured) -> Any:
        values = [one.evaluate(measured) for one in operands]
        if sign not in COMPARISONS:
            return {**LOGIC, **ARITHMETIC}[sign](*values)
        return np.where(np.isnan(values[0]) | np.isnan(values[1]), np.nan, COMPARISONS[sign](*values))

    keys = frozenset().union(*(one.keys for one in operands))
    return Expression(sign in LOGIC or sign in COMPARISONS, keys, evaluate)
