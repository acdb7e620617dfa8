"""Ask and tell: who looks for the best point of a space asks a searcher which to try next, and tells it what came of that.

| searcher | tries |
|---|---|
| `Ordered` | the best first by a score: the planner's own order |
| `Random` | any, each once |
| `Tpe` | where a tree-structured Parzen estimator (Bergstra et al. 2011; Optuna's) expects most; of the extra `tune` |

Values are rates, all above 0. A trial without one counts as 0, whatever the reason, as Frontier's study took it: a searcher learns to stay away.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import product
from typing import Any, Protocol

from corpus.engine.errors import UsageError


class Failure(Enum):
    """What came of a trial without a value."""

    OUT_OF_MEMORY = "out of memory"
    FAILED = "failed"


OUT_OF_MEMORY, FAILED = Failure.OUT_OF_MEMORY, Failure.FAILED
Point = tuple[Any, ...]  # a choice of each parameter, in the space's order
Result = float | Failure


@dataclass(frozen=True)
class Space:
    """Parameters and their choices, in order where they have one.

    >>> space = Space({"tp": (4, 8), "zero": (False, True)})
    >>> len(space), list(space)[1], space.named((4, True))
    (4, (4, True), {'tp': 4, 'zero': True})
    """

    choices: Mapping[str, Sequence[Any]]

    def __len__(self) -> int:
        size = 1
        for values in self.choices.values():
            size *= len(values)
        return size

    def __iter__(self) -> Iterator[Point]:
        return product(*self.choices.values())

    def named(self, point: Point) -> dict[str, Any]:
        """The choices of a point by the names of the parameters."""
        return dict(zip(self.choices, point, strict=True))


@dataclass(frozen=True)
class Trial:
    """One point to try, the `number`-th that was asked for."""

    number: int
    point: Point


class Searcher(Protocol):
    """Larger values are better."""

    def ask(self) -> Trial | None:
        """The next point, none a second time; None: there is no other one."""

    def tell(self, trial: Trial, result: Result) -> None:
        """What came of it."""


class Ordered:
    """The points by a score, highest first; those without one (None) are left out."""

    def __init__(self, space: Space, score: Callable[[Point], float | None]) -> None:
        scores = {point: score(point) for point in space}
        self._points = sorted(
            (point for point in space if scores[point] is not None), key=lambda point: -(scores[point] or 0)
        )
        self._asked = 0

    def ask(self) -> Trial | None:
        """The next best."""
        if self._asked == len(self._points):
            return None
        self._asked += 1
        return Trial(self._asked - 1, self._points[self._asked - 1])

    def tell(self, trial: Trial, result: Result) -> None:
        """Changes nothing."""


class Random(Ordered):
    """All points in an order drawn by the seed."""

    def __init__(self, space: Space, seed: int = 0) -> None:
        generator = random.Random(seed)
        super().__init__(space, lambda point: generator.random())


class Tpe:
    """Optuna's TPE. A point that it names a second time is replaced by the nearest other one."""

    def __init__(self, space: Space, seed: int = 0) -> None:
        try:
            import optuna
        except ImportError:
            raise UsageError("Optuna is not installed: pip install 'wenhai[tune]' brings it") from None

        self._optuna, self._space = optuna, space
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        sampler = optuna.samplers.TPESampler(seed=seed, multivariate=True)
        self._study = optuna.create_study(direction="maximize", sampler=sampler)
        self._distributions = {
            name: optuna.distributions.IntDistribution(0, len(values) - 1) for name, values in space.choices.items()
        }
        places = Space(dict(self._indices()))
        self._places = dict(zip(space, places, strict=True))  # of the points that were not named yet
        self._open: dict[int, Any] = {}  # Optuna's own trials by our number
        self._number = 0

    def ask(self) -> Trial | None:
        """Where most is expected."""
        if not self._places:
            return None
        named = self._study.ask(self._distributions)
        point = tuple(values[named.params[name]] for name, values in self._space.choices.items())
        if point not in self._places:
            self._study.tell(named, state=self._optuna.trial.TrialState.FAIL)  # teaches it nothing
            point = min(self._places, key=lambda other: self._distance(self._places[other], named.params))
            self._study.enqueue_trial(dict(zip(self._space.choices, self._places[point], strict=True)))
            named = self._study.ask(self._distributions)
        del self._places[point]
        self._number += 1
        self._open[self._number - 1] = named
        return Trial(self._number - 1, point)

    def tell(self, trial: Trial, result: Result) -> None:
        """Teach it."""
        self._study.tell(self._open.pop(trial.number), 0.0 if isinstance(result, Failure) else result)

    def _indices(self) -> Iterator[tuple[str, range]]:
        return ((name, range(len(values))) for name, values in self._space.choices.items())

    def _distance(self, place: Point, params: Mapping[str, int]) -> float:
        """Over all parameters, of choices as places of a row of length one."""
        pairs = zip(self._indices(), place, strict=True)
        return sum((abs(int(index) - params[name]) / max(1, len(choices) - 1) for (name, choices), index in pairs), 0.0)


@dataclass(frozen=True)
class Search:
    """What a searcher tried, in order."""

    trials: Sequence[tuple[Point, Result]]

    @property
    def values(self) -> list[float]:
        """Of each trial, 0 for one without."""
        return [0.0 if isinstance(result, Failure) else result for _, result in self.trials]

    def best_after(self, number: int) -> float:
        """The best of the first `number` trials."""
        return max(self.values[:number], default=0.0)

    def trials_to(self, value: float) -> int | None:
        """How many it took to find that much."""
        return next((number for number, one in enumerate(self.values, 1) if one >= value), None)

    def count(self, failure: Failure, among: int | None = None) -> int:
        """How many of the first `among` ended like that."""
        return sum(result is failure for _, result in self.trials[:among])


def search_by(searcher: Searcher, measure: Callable[[Point], Result], most: int) -> Search:
    """Ask and tell, at most so many times."""
    trials: list[tuple[Point, Result]] = []
    while len(trials) < most and (trial := searcher.ask()) is not None:
        result = measure(trial.point)
        searcher.tell(trial, result)
        trials.append((trial.point, result))
    return Search(trials)
