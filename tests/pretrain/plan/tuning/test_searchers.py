"""Searchers through ask and tell: each point once, the best found, and failures stayed away from."""

from __future__ import annotations

import sys
from collections.abc import Callable

import pytest

from corpus.engine.errors import UsageError
from pretrain.plan.tuning.searchers import (
    FAILED,
    OUT_OF_MEMORY,
    Ordered,
    Point,
    Random,
    Result,
    Search,
    Searcher,
    Space,
    Tpe,
    search_by,
)

WIDE = Space({"stages": (1, 2, 4, 8, 16), "batch": tuple(range(8)), "shards": (False, True)})
SPACE = Space({"stages": (1, 2, 4, 8, 16), "batch": (5, 6), "shards": (False, True)})
MAKERS: dict[str, Callable[[], Searcher]] = {
    "ordered": lambda: Ordered(SPACE, lambda point: float(point[1])),
    "random": lambda: Random(SPACE, 3),
    "tpe": lambda: Tpe(SPACE, 3),
}


def machine(point: Point) -> Result:
    """Fastest at 4 stages, batch 5 and shards; larger batches are out of memory, 16 stages fail."""
    stages, batch, shards = point
    if stages == 16:
        return FAILED
    if batch > 5:
        return OUT_OF_MEMORY
    return 100.0 - 10 * abs((1, 2, 4, 8).index(stages) - 2) - 4 * (5 - batch) - 3 * (not shards)


@pytest.mark.parametrize("name", MAKERS)
def test_every_point_is_tried_once_and_then_there_is_none(name: str) -> None:
    searcher = MAKERS[name]()
    found = search_by(searcher, machine, 1000)
    points = [point for point, _ in found.trials]
    assert sorted(points) == sorted(SPACE) and len(points) == len(SPACE) == 20
    assert searcher.ask() is None
    assert all(machine(point) == result for point, result in found.trials)


def test_tpe_names_no_point_twice_while_answers_are_out() -> None:
    """Several may run at the same time."""
    searcher = Tpe(SPACE, 0)
    trials = [trial for _ in range(len(SPACE)) if (trial := searcher.ask()) is not None]
    assert sorted(trial.point for trial in trials) == sorted(SPACE)
    assert [trial.number for trial in trials] == list(range(len(SPACE)))
    for trial in reversed(trials):
        searcher.tell(trial, 1.0)


@pytest.mark.parametrize("name", MAKERS)
def test_no_more_trials_than_allowed(name: str) -> None:
    assert len(search_by(MAKERS[name](), machine, 7).trials) == 7


def test_the_best_come_first_by_a_score() -> None:
    def score(point: Point) -> float | None:
        result = machine(point)
        return result if isinstance(result, float) else None

    found = search_by(Ordered(SPACE, score), machine, 1000)
    assert found.values == sorted(found.values, reverse=True)
    assert found.trials[0] == ((4, 5, True), 100.0) and found.trials_to(100.0) == 1
    assert len(found.trials) == 4 * 2  # those without a score are left out


def test_a_seed_is_an_order() -> None:
    first, again, other = (search_by(Random(SPACE, seed), machine, 20).trials for seed in (1, 1, 2))
    assert first == again != other


def test_tpe_is_drawn_by_its_seed_and_learns() -> None:
    """After twenty trials of eighty points the next twenty are better than any twenty drawn."""
    found = [search_by(Tpe(WIDE, seed), machine, 40) for seed in (0, 0, 1, 2)]
    assert found[0].trials == found[1].trials
    learnt = sum(sum(search.values[20:]) for search in found[1:])
    drawn = sum(sum(search_by(Random(WIDE, seed), machine, 40).values[20:]) for seed in range(3))
    assert learnt > 1.1 * drawn
    assert all(search.best_after(40) >= 97 for search in found)


def test_tpe_hears_a_failure_as_the_worst_rate() -> None:
    """It keeps away from 15 of 16 choices that fail, though those that run are slow."""

    def slow(point: Point) -> Result:
        return FAILED if point[0] else 0.001 * (1 + point[1])

    space = Space({"broken": (False, True), "batch": tuple(range(40))})
    found = [search_by(Tpe(space, seed), slow, 40) for seed in range(3)]
    assert sum(search.count(FAILED) for search in found) < 0.35 * 120


def test_progress_is_counted() -> None:
    search = Search([((1,), OUT_OF_MEMORY), ((2,), 3.0), ((3,), FAILED), ((4,), 5.0)])
    assert [search.best_after(number) for number in range(5)] == [0.0, 0.0, 3.0, 3.0, 5.0]
    assert (search.trials_to(3.0), search.trials_to(4.0), search.trials_to(6.0)) == (2, 4, None)
    assert (search.count(OUT_OF_MEMORY), search.count(FAILED), search.count(FAILED, among=2)) == (1, 1, 0)


def test_without_optuna_it_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(UsageError, match=r"pip install 'wenhai\[tune\]'"):
        Tpe(SPACE)
