"""How long a pipeline schedule takes and how much it holds: its own lists, run against a clock instead of a machine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from pretrain.schedules import Action

Lists = Sequence[Sequence[Action]]  # of each rank what it computes, in order


@dataclass(frozen=True)
class Timeline:
    """When each action of a step begins and ends, in the unit of the durations that were given."""

    lists: Lists
    ranks: Sequence[int]  # of each stage
    starts: list[list[float]]  # of each rank's actions, in the order of its list
    ends: list[list[float]]

    @property
    def total(self) -> float:
        """The end of the last action; the first begins at 0."""
        return max(own[-1] for own in self.ends)

    @property
    def ideal(self) -> float:
        """The work of the busiest rank: what the step takes if that one never waits."""
        return max(sum(ends) - sum(starts) for starts, ends in zip(self.starts, self.ends, strict=True))

    @property
    def bubble(self) -> float:
        """Time lost over the ideal time: (p - 1) / m for 1F1B with equal stages (Narayanan et al., 2021)."""
        return (self.total - self.ideal) / self.ideal


def most_held(actions: Sequence[Action], sizes: Sequence[float]) -> float:
    """The most that a rank which runs `actions` holds at once, if a micro-batch of each stage takes `sizes[stage]`.

    A stage holds a micro-batch from its F until its backward is done: until its B, or its W.
    """
    held = most = 0.0
    for kind, stage, _ in actions:
        if kind == "F":
            held += sizes[stage]
            most = max(most, held)
        elif kind != "I":
            held -= sizes[stage]
    return most


def simulate(
    lists: Lists,
    ranks: Sequence[int],
    duration: Callable[[Action], float],
    send_seconds: float = 0,
    after: Callable[[Action], float] = lambda action: 0,
) -> Timeline:
    """Run the lists of a pipeline whose stages lie on `ranks`, each in order, an action as soon as its input is there.

    What a stage passes on takes `send_seconds` to another rank and keeps neither of them from computing. `after`: how
    long an action keeps its rank once its result is on the way.

    Raises:
        ValueError: ranks wait for each other; it names one of them and what it waits for.
    """
    # A micro-batch goes forward through all stages, then backward through all of them: what it needs at one row of
    # that path is ready at the row before. `ready` has a time for each row and micro-batch, after a row of zeros.
    path = [*ranks, *reversed(ranks)]
    send = [0, 0, *(send_seconds if a != b else 0 for a, b in pairwise(path))]
    width = 1 + max(action.micro_batch for own in lists for action in own)
    ready: list[float | None] = [0] * width + [None] * (width * len(path))
    waiting: dict[int, int] = {}  # index into `ready`: the rank that waits for it
    starts: list[list[float]] = [[] for _ in lists]
    ends: list[list[float]] = [[] for _ in lists]
    runnable = list(range(len(lists)))
    while runnable:
        rank = runnable.pop()
        free = ends[rank][-1] if ends[rank] else 0
        for place in range(len(ends[rank]), len(lists[rank])):
            action = lists[rank][place]
            kind, stage, micro_batch = action
            row = 1 + stage if kind == "F" else len(path) - stage
            index = row * width + micro_batch
            needed = index if kind == "W" else index - width
            arrival = ready[needed]
            if arrival is None:
                waiting[needed] = rank
                break
            start = free if kind == "W" else max(free, arrival + send[row])
            done = start + duration(action)
            free = done + after(action)
            starts[rank].append(start)
            ends[rank].append(free)
            if kind != "W":
                ready[index] = done
                if index in waiting:
                    runnable.append(waiting.pop(index))
    for rank in waiting.values():
        place = len(ends[rank])
        raise ValueError(f"rank {rank}, place {place}: {lists[rank][place]} waits for what never comes")
    return Timeline(lists, ranks, starts, ends)
