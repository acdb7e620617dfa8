"""FAULTS row 13: no pattern of the package explodes on hostile text, found by looking into every module.

A pattern may not nest one unbounded repeat in another nor refer back to a group: `(a+)+$` needs 17 s for 26 characters.
And on texts made to annoy it, four times the text costs at most a few times more: each pattern is fed what it itself
asks for (every character it names, what it matches first, halves of that), over and over, ended by what it does not.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
import re._constants as codes  # type: ignore[import-not-found]
import re._parser as parser  # type: ignore[import-not-found]
import time
from collections.abc import Iterator
from typing import Any

import pytest

import corpus
from corpus.extract.reader import MAX_START_CHARS
from corpus.filters import boilerplate

SMALL, LARGE = 750, 3000  # characters
BOUND = 24.0  # of t(LARGE) / t(SMALL): 4 for linear, 16 for one quadratic scan, 64 for cubic
NOISE_SECONDS = 0.02
ON_SHORT_LINES = {  # patterns that are matched only from the start of a line of at most so many characters
    "corpus.extract.lines._FURNITURE_LINE": MAX_START_CHARS,
    "corpus.filters.boilerplate.PATTERNS": boilerplate.MAX_LINE_CHARS,
}
MAX_SECONDS = 1.0
REPEATS = (codes.MAX_REPEAT, codes.MIN_REPEAT)


def patterns() -> dict[str, re.Pattern[Any]]:
    """Every compiled pattern that a module of the package holds, by where it is held."""
    found: dict[str, re.Pattern[Any]] = {}
    for module in [corpus, *map(_import, pkgutil.walk_packages(corpus.__path__, "corpus."))]:
        if module is None:
            continue
        for name, value in vars(module).items():
            returns = getattr(inspect.unwrap(value), "__annotations__", {}).get("return", "") if callable(value) else ""
            if str(returns).startswith("re.Pattern") and not inspect.signature(value).parameters:
                value = value()
            for place, pattern in _held(value, f"{module.__name__}.{name}", 4):
                if not any(pattern is other for other in found.values()):
                    found[place] = pattern
    return found


def _import(info: pkgutil.ModuleInfo) -> Any:
    if info.name.endswith(("__main__", ".adapters.datatrove")):  # the latter needs datatrove, and has no expression
        return None
    return importlib.import_module(info.name)


def _held(value: Any, place: str, depth: int) -> Iterator[tuple[str, re.Pattern[Any]]]:
    if isinstance(value, re.Pattern):
        yield place, value
    elif depth and isinstance(value, dict):
        for key, item in value.items():
            yield from _held(item, f"{place}[{key!r}]", depth - 1)
    elif depth and isinstance(value, list | tuple):
        for index, item in enumerate(value):
            yield from _held(item, f"{place}[{index}]", depth - 1)


PATTERNS = patterns()


def subpatterns(node: Any) -> Iterator[Any]:
    """What a parsed item holds."""
    values = node if isinstance(node, list | tuple) else ()
    for value in values:
        if isinstance(value, parser.SubPattern):
            yield value
        elif isinstance(value, list | tuple):
            yield from subpatterns(value)


def nested(pattern: Any, inside: bool = False) -> list[str]:
    """What a pattern must not have: unbounded repeats in unbounded ones, references back."""
    faults = []
    for code, argument in pattern:
        unbounded = code in REPEATS and argument[1] == codes.MAXREPEAT
        if unbounded and inside:
            faults.append("an unbounded repeat in an unbounded repeat")
        if code in (codes.GROUPREF, codes.GROUPREF_EXISTS):
            faults.append("a reference back")
        for part in subpatterns(argument if isinstance(argument, tuple | list) else (argument,)):
            faults += nested(part, inside or unbounded)
    return faults


def example(pattern: Any) -> str:
    """A text that a pattern matches, or nearly: the least of every repeat, the first of every choice."""
    text = ""
    for code, argument in pattern:
        if code in (codes.LITERAL, codes.NOT_LITERAL):
            text += chr(argument) if code == codes.LITERAL else ("b" if argument == ord("a") else "a")
        elif code == codes.IN:
            text += first_of(argument)
        elif code == codes.ANY:
            text += "字"
        elif code == codes.BRANCH:
            text += example(argument[1][0])
        elif code == codes.SUBPATTERN:
            text += example(argument[-1])
        elif code in (*REPEATS, codes.POSSESSIVE_REPEAT):
            text += example(argument[2]) * max(1, min(argument[0], 20))
        elif code == codes.ATOMIC_GROUP:
            text += example(argument)
    return text


def first_of(choices: Any) -> str:
    """A character of a class."""
    kinds = {codes.CATEGORY_DIGIT: "1", codes.CATEGORY_SPACE: " ", codes.CATEGORY_WORD: "a"}
    if choices[0][0] == codes.NEGATE:
        return "字"
    code, argument = choices[0]
    if code == codes.CATEGORY:
        return kinds.get(argument, "字")
    return chr(argument[0] if code == codes.RANGE else argument)


def named(pattern: Any) -> set[str]:
    """Characters that a pattern names anywhere."""
    characters = set()
    for code, argument in pattern:
        if code in (codes.LITERAL, codes.IN):
            characters.add(chr(argument) if code == codes.LITERAL else first_of(argument))
        for part in subpatterns(argument if isinstance(argument, tuple | list) else (argument,)):
            characters |= named(part)
    return characters


def seconds(pattern: re.Pattern[Any], text: str, rounds: int = 2) -> float:
    """The least CPU time of looking through a text."""
    subject: Any = text.encode("utf-8", "replace") if isinstance(pattern.pattern, bytes) else text
    times = []
    for _ in range(rounds):
        start = time.process_time()
        for _ in pattern.finditer(subject):
            pass
        times.append(time.process_time() - start)
    return min(times)


def matching_seconds(pattern: re.Pattern[Any], line: str) -> float:
    """The CPU time of one attempt at the start of a line."""
    start = time.process_time()
    pattern.match(line)
    return time.process_time() - start


def parsed(pattern: re.Pattern[Any]) -> Any:
    return parser.parse(pattern.pattern, pattern.flags & ~re.DEBUG)


@pytest.mark.parametrize("place", PATTERNS)
def test_no_pattern_explodes(place: str) -> None:
    pattern = PATTERNS[place]
    tree = parsed(pattern)
    assert nested(tree) == []
    whole = example(tree)
    units = [whole, whole[: max(1, len(whole) // 2)], *sorted(named(tree))[:12], " ", "1", "字"]
    short = next((limit for name, limit in ON_SHORT_LINES.items() if place.startswith(name)), None)
    for unit in dict.fromkeys(filter(None, units)):
        if short:
            line = (unit * short)[: short - 1] + "\x01"
            assert any(matching_seconds(pattern, line) < NOISE_SECONDS for _ in range(5)), (
                unit
            )  # the machine may be busy
            continue
        small, large = ((unit * size)[:size] + "\x01" for size in (SMALL, LARGE))
        if seconds(pattern, large, 1) > NOISE_SECONDS:
            pairs = ((seconds(pattern, small), seconds(pattern, large)) for _ in range(5))
            assert any(after < BOUND * before and after < MAX_SECONDS for before, after in pairs), unit


def test_the_test_sees_what_it_is_for() -> None:
    assert len(PATTERNS) > 60
    for bad in (r"(a+)+$", r"(?:[a-z]*x?)*y", r"(.)\1", r"(?:a|b*)+"):
        assert nested(parser.parse(bad))
    for good in (r"(?:a{1,3})+", r"a+b+", r"(?:[ab][cd])+"):
        assert not nested(parser.parse(good))
    cubic = re.compile(r"a+a+a+b")
    assert seconds(cubic, "a" * 160 + "\x01") > 20 * seconds(cubic, "a" * 40 + "\x01")
