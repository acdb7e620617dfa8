"""Rows of factor values in which every legal pair of values meets at least once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from itertools import combinations, product

Row = dict[str, str]  # factor: value
Pair = tuple[tuple[str, str], tuple[str, str]]


def covering_rows(
    factors: Mapping[str, Sequence[str]], constrained: Sequence[str], legal: Callable[[Row], bool]
) -> list[Row]:
    """A small set of legal rows in which every pair of values that some legal row has meets.

    Greedy and without random numbers: a row begins with the first pair that has not met and takes, factor by factor,
    the value that meets most new partners, of equals the one used least, then the first. Only the `constrained` factors
    can make a row illegal.
    """
    can_end = _Endings(factors, constrained, legal)
    uncovered = dict.fromkeys(pair for pair in all_pairs(factors) if can_end(dict(pair)))
    times_used: Counter[tuple[str, str]] = Counter()
    rows: list[Row] = []
    while uncovered:
        row = dict(next(iter(uncovered)))
        for name in [*constrained, *(name for name in factors if name not in constrained)]:
            if name not in row:
                possible = [value for value in factors[name] if can_end(row | {name: value})]
                row[name] = max(possible, key=lambda value: _merit((name, value), row, uncovered, times_used))
        times_used.update(item for item in row.items() if item[0] not in constrained)
        for pair in pairs_of(row):
            uncovered.pop(pair, None)
        rows.append({name: row[name] for name in factors})
    return rows


def _merit(
    item: tuple[str, str], row: Row, uncovered: Container[Pair], times_used: Mapping[tuple[str, str], int]
) -> tuple[int, int]:
    """How many new partners a value meets in `row`, and how rarely it was used."""
    return sum(_pair(item, partner) in uncovered for partner in row.items()), -times_used[item]


class _Endings:
    """Whether some legal row agrees with one that has begun."""

    def __init__(
        self, factors: Mapping[str, Sequence[str]], constrained: Sequence[str], legal: Callable[[Row], bool]
    ) -> None:
        every = product(*([(name, value) for value in factors[name]] for name in constrained))
        self._constrained = set(constrained)
        self._legal = [set(items) for items in every if legal(dict(items))]
        self._known: dict[frozenset[tuple[str, str]], bool] = {}

    def __call__(self, begun: Row) -> bool:
        items = frozenset(item for item in begun.items() if item[0] in self._constrained)
        if items not in self._known:
            self._known[items] = any(items <= row for row in self._legal)
        return self._known[items]


def all_pairs(factors: Mapping[str, Sequence[str]]) -> Iterator[Pair]:
    """Every pair of values of two factors."""
    for one, other in combinations(factors, 2):
        for value, partner in product(factors[one], factors[other]):
            yield _pair((one, value), (other, partner))


def pairs_of(row: Row) -> set[Pair]:
    """The pairs of values that meet in a row."""
    return {_pair(*both) for both in combinations(row.items(), 2)}


def _pair(one: tuple[str, str], other: tuple[str, str]) -> Pair:
    return (one, other) if one <= other else (other, one)
