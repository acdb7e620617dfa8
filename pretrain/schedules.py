"""Pipeline schedules as data: each one an entry of `SCHEDULES`; for each rank the list of what it computes, in order.

A micro-batch goes through all stages forward (F), then through all of them backward (B). The zero-bubble schedules cut
a backward in two: the gradient of the inputs (I), for which the stage before waits, and that of the weights (W), which
can wait until there is nothing better to do. Who sends what to whom follows from the lists: F needs the F of the stage
before, B and I that of the stage after. Executor, simulator and planner read the same lists.

Of p ranks with v stages on each, for m >= p micro-batches (zbv: 2 p - 1), where F, I, W and B = I + W are a rank's
times for all of its stages, and W <= F <= I <= 2 W: attention, which has no weights, takes up to half as long as the
matrix products that have.

| schedule | time a step loses | times that a rank holds a stage's activations | |
|---|---|---|---|
| gpipe | (p - 1)(F + B) | m | Huang et al., 2019 |
| 1f1b | (p - 1)(F + B) | p - rank | Narayanan et al., 2019 |
| interleaved | (p - 1)(F + B) / v | (v - 1) p + 2 (p - rank) - 1 | Narayanan et al., 2021 |
| zero-bubble | (p - 1)(F + I - W) / v | v p | ZB-H1 of Qi et al., 2024 |
| zbv | (p - 1) I / 2 | 2 p | ZB-V of Qi et al., 2024 |

Interleaved and zero-bubble hold a few more where v > 1 and p does not divide m.

A new schedule is one entry with the function that orders a rank's work. The planner simulates its lists where the entry
has no closed forms.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Literal, NamedTuple

Kind = Literal["F", "B", "I", "W"]  # forward; backward; backward of the inputs alone; of the weights alone
Step = tuple[Kind, int]  # an action but for its micro-batch: kind and stage
DEFAULT = "1f1b"


class Action(NamedTuple):
    """One computation of one stage on one micro-batch."""

    kind: Kind
    stage: int
    micro_batch: int


class Place(NamedTuple):
    """A rank of a pipeline in a step."""

    rank: int
    num_ranks: int
    chunks: int  # stages on each rank
    num_micro_batches: int

    @property
    def num_after(self) -> int:
        """Ranks after this one."""
        return self.num_ranks - 1 - self.rank

    @property
    def before_last_chunk(self) -> int:
        """Forwards of the first group of micro-batches until it comes to the last chunk."""
        return (self.chunks - 1) * micro_batch_groups(self.num_ranks, self.num_micro_batches)[0]


@dataclass(frozen=True)
class ClosedForm:
    """What a full pipeline loses, without a simulation."""

    lost: Callable[[float, float, float], float]  # of a stage's F, I and W: what other ranks' stages cost the busiest
    messages: Callable[[int, int, int], float]  # of p, v and m: those on the way of the last micro-batch
    waits_each_turn: bool = False  # no forward is held in reserve: slow stages cost more by where they lie
    least: float = 0.0  # share of (p - 1) / (p v) of a micro-batch's work in all stages that is lost at least


@dataclass(frozen=True)
class ScheduleSpec:
    """What all others know of a schedule. Either `turns` or `order` says in which order a rank works."""

    turns: Callable[[Place], Mapping[Kind, int]] | None = None  # one of each kind in turn: turns before its first one
    order: Callable[[Place], Iterable[Step]] | None = None  # any other order
    fewest_chunks: int = 1  # stages on each rank, also where nobody says how many
    most_chunks: int | None = None  # None: any number
    splits_backward: bool = False  # I and W instead of B
    turns_back: bool = False  # stages lie on ranks 0, 1, 1, 0, and not in loops 0, 1, 0, 1
    searched_chunks: Sequence[
        int
    ] = ()  # that the planner's search tries; none: where the schedule is named, the fewest
    short: str = ""  # in a narrow column; "": its name
    closed: ClosedForm | None = None  # None: simulated
    held: Callable[[Place, Sequence[float]], float] | None = None  # of an `order`: the most held; None: by its list

    def runs(self, chunks: int) -> bool:
        """Whether a rank may have that many stages."""
        return self.fewest_chunks <= chunks <= (self.most_chunks or chunks)


def stage_ranks(schedule: str, num_ranks: int, chunks: int) -> list[int]:
    """The pipeline rank of each stage: in loops 0, 1, ..., 0, 1, ...; for zbv there and back 0, 1, 1, 0."""
    if SCHEDULES[schedule].turns_back:
        there_and_back = [*range(num_ranks), *reversed(range(num_ranks))]
        return there_and_back[: num_ranks * chunks]
    return list(range(num_ranks)) * chunks


def actions(schedule: str, num_ranks: int, chunks: int, num_micro_batches: int) -> list[list[Action]]:
    """For each rank of a pipeline what it computes in a step, in order; any number of micro-batches will do.

    >>> for own in actions("1f1b", num_ranks=3, chunks=1, num_micro_batches=4):
    ...     print(*(f"{action.kind}{action.micro_batch}" for action in own))
    F0 F1 F2 B0 F3 B1 B2 B3
    F0 F1 B0 F2 B1 F3 B2 B3
    F0 B0 F1 B1 F2 B2 F3 B3

    Raises:
        ValueError: the schedule does not run that many chunks (stages on each rank).
    """
    spec = SCHEDULES[DEFAULT if num_ranks * chunks == 1 else schedule]
    if spec.most_chunks is not None and not spec.runs(chunks):
        raise ValueError(f"schedule {schedule} does not run {chunks} stages on each rank")
    places = [Place(rank, num_ranks, chunks, num_micro_batches) for rank in range(num_ranks)]
    return [_numbered(spec.order(at) if spec.order else _in_turn(at, spec), num_micro_batches) for at in places]


def micro_batch_groups(num_ranks: int, num_micro_batches: int) -> list[int]:
    """Micro-batches go through all chunks in groups: of as many as ranks, or of a few more where they do not divide.

    A smaller group would leave ranks idle: its first micro-batch is back at the first rank after `num_ranks` forwards.
    The larger groups come first, as the first one decides how far the forwards run ahead.
    """
    num_groups = max(1, num_micro_batches // num_ranks)
    size, rest = divmod(num_micro_batches, num_groups)
    return [size + 1] * rest + [size] * (num_groups - rest)


def _in_turn(at: Place, spec: ScheduleSpec) -> Iterator[Step]:
    """One forward, then one of each other kind; each group of micro-batches goes chunk by chunk."""
    assert spec.turns is not None
    stages = range(at.rank, at.num_ranks * at.chunks, at.num_ranks)
    groups = micro_batch_groups(at.num_ranks, at.num_micro_batches)
    forwards = [stage for group in groups for stage in stages for _ in range(group)]
    backwards = [stage for group in groups for stage in reversed(stages) for _ in range(group)]
    delays = spec.turns(at)
    for turn in range(len(forwards) + max(delays.values())):
        if turn < len(forwards):
            yield "F", forwards[turn]
        for kind, delay in delays.items():
            if 0 <= turn - delay < len(backwards):
                yield kind, backwards[turn - delay]


def _numbered(order: Iterable[Step], num_micro_batches: int) -> list[Action]:
    """Actions of these kinds and stages: each one is of the next micro-batch of its kind and stage.

    An order that fits more micro-batches than there are loses those too many, which the others do not notice.
    """
    counts: dict[Step, Iterator[int]] = defaultdict(count)
    numbered = (Action(kind, stage, next(counts[kind, stage])) for kind, stage in order)
    return [action for action in numbered if action.micro_batch < num_micro_batches]


def _gpipe(at: Place) -> dict[Kind, int]:
    """All forwards, then all backwards: every micro-batch is held at once."""
    return {"B": at.num_micro_batches - 1}


def _one_forward_one_backward(at: Place) -> dict[Kind, int]:
    """A forward for each rank after this one, then forward and backward in turn: what arrives first is freed first."""
    return {"B": at.num_after}


def _interleaved(at: Place) -> dict[Kind, int]:
    """1F1B over several short stages on each rank, so that filling and draining the pipeline take less time.

    Before its first backward a rank runs its first group through all chunks but the last, and of the last one as many
    micro-batches as go from there to the last rank and back: two for each rank in between.
    """
    return {"B": at.before_last_chunk + 2 * at.num_after}


def _zero_bubble(at: Place) -> dict[Kind, int]:
    """1F1B in which only I is done in haste, and each rank does W as many micro-batches later as its number (ZB-H1).

    With no W on their way gradients come back earlier: one forward for each rank in between is enough. The W that are
    left over fill the time in which a rank would wait for its last gradients. Each rank holds as many micro-batches as
    the first one does under 1F1B.
    """
    warmup = at.before_last_chunk + at.num_after
    return {"I": warmup, "W": warmup + at.rank}


def _zero_bubble_v(at: Place) -> list[Step]:
    """Two stages on each rank, down the ranks and back up, so that the first rank also has the last stage (ZB-V).

    Written for at least as many micro-batches as fill the pipeline. The order is the best one where F, I and W take
    equal time.
    """
    rank, num_after = at.rank, at.num_after
    down, up = rank, 2 * at.num_ranks - 1 - rank
    num_written = max(at.num_micro_batches, 2 * at.num_ranks - 1)
    num_steady = num_written - (2 * num_after + 1 + rank)  # forwards of `down` that the warm-up leaves
    back_down: list[Step] = [("I", down), ("W", down)]
    back_up: list[Step] = [("I", up), ("W", up)]
    order: list[Step] = [("F", down)] * (2 * num_after + 1)  # until the first micro-batch is back from the last rank
    order += [("F", up), ("F", down)] * rank  # until its gradient is here
    order += [("F", up), *back_up] * (num_after + 1)  # until its gradient is back from the last rank
    order += [("F", down), *back_down, ("F", up), *back_up] * num_steady
    order += [*back_down, ("F", up), *back_up] * (num_written - at.num_ranks - num_steady)
    order += [("I", down), ("I", up)] * rank
    order += back_down * (num_after + 1)
    order += [("W", up)] * rank
    return order + [("W", down)] * rank


def _held_by_v(at: Place, sizes: Sequence[float]) -> float:
    """ZB-V: full when the first gradient is here, or one forward of the way down later (`_zero_bubble_v`)."""
    down, up = sizes
    most, after = at.num_micro_batches, at.num_after
    held_down, held_up = 2 * after + 1 + at.rank, at.rank + 1
    at_first = min(held_down, most) * down + min(held_up, most) * up
    if max(most, 2 * at.num_ranks - 1) == held_down:  # there is no later one
        return at_first
    later_up = min(at.rank + after + 1, most) - min(after + 1, most)
    return max(at_first, min(held_down + 1, most) * down + later_up * up)


def _all_of_it(forward: float, inputs: float, weights: float) -> float:
    return forward + inputs + weights


def _there_and_back(num_ranks: int, chunks: int, _: int) -> float:
    return 2 * (num_ranks * chunks - 1)


# A new schedule is one entry here. Numbers of messages are those that the simulation of equal stages finds.
SCHEDULES: dict[str, ScheduleSpec] = {
    "gpipe": ScheduleSpec(
        turns=_gpipe,
        most_chunks=1,
        closed=ClosedForm(_all_of_it, _there_and_back, least=1.0),
    ),
    "1f1b": ScheduleSpec(
        turns=_one_forward_one_backward,
        most_chunks=1,
        searched_chunks=(1,),
        closed=ClosedForm(
            _all_of_it, lambda p, v, m: 2 * (p - 1) * m / p + 2 * (p - 2), waits_each_turn=True, least=0.5
        ),
    ),
    "interleaved": ScheduleSpec(
        turns=_interleaved,
        fewest_chunks=2,
        searched_chunks=(2, 3, 4, 6, 8),  # more of them send more messages for ever smaller gains
        short="inter",
        closed=ClosedForm(_all_of_it, _there_and_back, least=1.0),
    ),
    "zero-bubble": ScheduleSpec(
        turns=_zero_bubble,
        splits_backward=True,
        searched_chunks=(1, 2),
        short="zb",
        closed=ClosedForm(
            lambda forward, inputs, weights: forward + inputs - weights,
            lambda p, v, m: 4 * (p - 1) if v == 1 else 2 * (p * v - 1) + p - 2,
        ),
    ),
    "zbv": ScheduleSpec(
        order=_zero_bubble_v,
        held=_held_by_v,
        fewest_chunks=2,
        most_chunks=2,
        splits_backward=True,
        turns_back=True,
        searched_chunks=(2,),
        closed=ClosedForm(lambda forward, inputs, weights: inputs, lambda p, v, m: 5 * (p - 1) - 2),
    ),
}
