"""The layouts of a model on a cluster that fit its memory, best first; and of those that are not there, why.

`plan.search.legal` lists all layouts by shape (tensor parallel x pipeline x micro-batch size). The search finds the
best layout of each shape by branch and bound on closed forms, to within `GAIN`:

| cut off | because |
|---|---|
| shapes | arithmetic and bubble alone, no recompute or data parallelism, take `SLOWEST` times the best step |
| schedules, sequence parallelism, recompute | the same bound is above what is found; or what keeps least does not fit |
| micro-batches above one that does not fit | they need more |
| ZeRO, replicas | less data-parallel communication would not make them faster; or one that recomputes less fits |

`GAIN` and `LEFT` are choices, not proofs: a layout faster by 2 % may be missed, which is less than the model's own
error.

The best `keep` of the shapes are predicted again with their pipelines simulated, or as many of them as `ACTIONS` allow.
"""

from __future__ import annotations

import gc
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import product

from corpus.engine.errors import UsageError
from pretrain.config import RunConfig, Zero
from pretrain.plan.cost import predict, step_seconds
from pretrain.plan.machines.cluster import Cluster
from pretrain.plan.prediction import Prediction, Seconds, missing, most_bytes
from pretrain.plan.search import rejected
from pretrain.plan.search.legal import Constraints, Layout, Rejected, Space
from pretrain.plan.time import pipeline_time
from pretrain.schedules import SCHEDULES
from pretrain.workload.framework_profiles import OURS, FrameworkProfile

__all__ = ["Constraints", "Plans", "Rank", "Rejected", "search"]

FREE = Constraints()
Sharding = tuple[Zero, int]  # and replicas of the shards
GAIN = 1.02  # what could be faster by less is not looked at
LEFT = 0.5  # of the seconds of data parallelism and update in one layout of a shape, what others of it have too
ACTIONS = 300_000  # of all pipelines that are simulated: a second or two
SLOWEST = 1.5  # times the best step: slower shapes are not listed


@dataclass(frozen=True)
class Rank:
    """The place of a layout among the best of all shapes."""

    place: int  # 1 is the best
    of: int  # shapes that fit and are listed; a layout that is slower than all of them has the place after them
    prediction: Prediction
    best: Prediction

    @property
    def words(self) -> str:
        """The place as a sentence has it, after "is"."""
        if self.place > self.of:
            return f"slower than all {self.of:,} that are listed"
        return f"at place {self.place:,} of {self.of:,}"

    @property
    def slower(self) -> float:
        """How many times the best one's step it takes."""
        return self.prediction.step_seconds / self.best.step_seconds


@dataclass(frozen=True)
class Plans:
    """What a search found."""

    layouts: Sequence[
        Prediction
    ]  # of each shape the best that fits, best first; the pipelines of the first are simulated
    rejected: Sequence[Rejected]
    considered: int  # legal layouts
    seconds: float  # that the search took

    @property
    def best(self) -> Prediction:
        """The first."""
        return self.layouts[0]

    def rank_of(self, prediction: Prediction) -> Rank:
        """The place of a layout, one of those found or another one."""
        faster = sum(other.step_seconds < prediction.step_seconds for other in self.layouts)
        return Rank(faster + 1, len(self.layouts), prediction, self.best)


def search(
    config: RunConfig,
    devices: int,
    cluster: Cluster,
    software: FrameworkProfile = OURS,
    *,
    keep: int = 50,
    constraints: Constraints = FREE,
) -> Plans:
    """The layouts of `devices` devices that fit their memory, best first; the best `keep` are simulated exactly.

    Raises:
        UsageError: none fits, or there is none; it names the nearest and what is missing.
    """
    begin = time.monotonic()
    rejected.check_cluster(devices, cluster)
    with _no_cycles():
        return _search(Space(config, devices, cluster, software, constraints), keep, begin)


@contextmanager
def _no_cycles() -> Iterator[None]:
    """Millions of small objects, none of which is in a cycle: looking for cycles would be a sixth of the time."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _search(space: Space, keep: int, begin: float) -> Plans:
    found = Search(space)
    found.run()
    if not found.best and space.constraints.offload is None and space.software.shards:
        found = Search(space, offload=True)
        found.run()
    if not found.best:
        raise UsageError(rejected.nothing_fits(found))
    exact, rest = _predicted(found, keep)
    families = rejected.families(found, exact[0])
    return Plans(exact + rest, families, found.considered, time.monotonic() - begin)


def _predicted(found: Search, keep: int) -> tuple[list[Prediction], list[Prediction]]:
    """The shapes found, best first: those whose pipelines are simulated, and all others by closed forms."""
    space = found.space
    ranked = sorted(found.best.values(), key=lambda result: result.seconds)
    predictions: tuple[list[Prediction], list[Prediction]] = ([], [])
    num_actions = 0
    for place, result in enumerate(ranked):
        layout = result.layout
        num_actions += pipeline_time.num_actions(
            layout.schedule, layout.pp, layout.stages_per_rank, space.micro_batches(layout)
        )
        is_exact = place == 0 or (place < keep and num_actions <= ACTIONS)
        config = layout.configure(space.config)
        prediction = predict(config, space.devices, space.cluster, space.software, exact=is_exact)
        predictions[0 if is_exact else 1].append(prediction)
    for each in predictions:
        each.sort(key=lambda prediction: prediction.step_seconds)
    return predictions


@dataclass(frozen=True)
class Result:
    """The best layout of a shape."""

    layout: Layout
    seconds: float
    beside: float = 0.0  # of them, at least, what data parallelism and the update will take in others of the shape


@dataclass
class Search:
    """What one search knows: `run` fills it."""

    space: Space
    offload: bool = False
    slowest: float = SLOWEST
    best: dict[Layout, Result] = field(default_factory=dict)  # by shape
    too_slow: dict[Layout, float] = field(default_factory=dict)  # by shape, the seconds that it takes at least
    too_large: dict[Layout, Layout] = field(default_factory=dict)  # by shape, its layout that needs least
    considered: int = 0
    _fitting: dict[Layout, bool] = field(default_factory=dict)
    _of_micro_batches: dict[tuple[object, ...], float] = field(default_factory=dict)

    def run(self) -> None:
        """Find the best layout of all shapes."""
        offloads = self.space.constraints.offload
        if offloads is not None:
            self.offload = offloads == (True,)
        bounds = [(self._cuts(shape)[0][0], shape) for shape in self.space.shapes()]
        self.considered = sum(self.space.size(shape) for _, shape in bounds)
        fastest = float("inf")
        smallest: dict[tuple[int, int], int] = {}  # micro-batch by (tp, pp) that does not fit: larger ones need more
        for _, shape in sorted(bounds, key=lambda each: each[1].micro_batch_size):
            if (shape.tp, shape.pp) not in smallest and not self._shape_may_fit(shape):
                smallest[shape.tp, shape.pp] = shape.micro_batch_size
        for bound, shape in sorted(bounds, key=lambda each: each[0]):
            if shape.micro_batch_size >= smallest.get((shape.tp, shape.pp), shape.micro_batch_size + 1):
                self.too_large[shape] = self.leanest(shape)
                continue
            if bound > self.slowest * fastest:
                self.too_slow[shape] = bound
                continue
            result = self.best_of(shape, self.slowest * fastest)
            if result is not None:
                self.best[shape] = result
                fastest = min(fastest, result.seconds)
            elif shape not in self.too_slow:
                self.too_large[shape] = self.leanest(shape)
        for shape in [shape for shape, result in self.best.items() if result.seconds > self.slowest * fastest]:
            self.too_slow[shape] = self.best.pop(shape).seconds

    def best_of(self, shape: Layout, limit: float = float("inf")) -> Result | None:
        """The fastest layout of a shape that fits, by closed forms; of one that takes more than `limit`, that it
        does."""
        best: Result | None = None
        done: dict[Layout, set[Sharding]] = defaultdict(set)  # those that fit with less recompute
        for bound, plain in self._cuts(shape):
            if best and (bound + best.beside) * GAIN >= best.seconds:
                break
            if bound > limit:
                self.too_slow[shape] = bound
                break
            if self._may_fit(plain):
                best = self._sharded(plain, best, done[plain._replace(recompute="none", recompute_every=1)])
        return best

    def _sharded(self, plain: Layout, best: Result | None, done: set[Sharding]) -> Result | None:
        """The better of `best` and the fastest ZeRO and replicas that fit."""
        for zero, replicas in self.space.sharding(plain):
            if (zero, replicas) in done:
                continue
            layout = plain._replace(zero=zero, dp_replicate=replicas, dp_shard=plain.data_parallel // replicas)
            seconds = self.seconds(layout)
            beside = seconds.data + seconds.optimizer + seconds.offload
            if best and (seconds.total - beside + best.beside) * GAIN >= best.seconds:
                break
            if (best is None or seconds.total < best.seconds) and self.fits(layout):
                least = min(beside * LEFT, best.beside) if best else beside * LEFT
                best = Result(layout, seconds.total, least)
                if plain.recompute != "selective":  # which need not be faster than every second layer
                    done.add((zero, replicas))
        return best

    def _cuts(self, shape: Layout) -> list[tuple[float, Layout]]:
        """Schedules, sequence parallelism and recompute with a bound on their seconds, best first."""
        cuts = []
        space = self.space
        kinds = space.recomputes()
        for sequence, (schedule, chunks) in product(space.sequence_parallel(shape), space.schedules(shape)):
            cut = space.cut(shape, schedule, chunks)._replace(sequence_parallel=sequence, offload=self.offload)
            for recompute, every in kinds:
                plain = cut._replace(recompute=recompute, recompute_every=every)
                cuts.append((self.least_seconds(plain), plain))
        return sorted(cuts, key=lambda cut: cut[0])

    def _shape_may_fit(self, shape: Layout) -> bool:
        """Whether any layout of a shape fits; what needs least is asked first."""
        cuts = [plain for _, plain in self._cuts(shape)]
        return self.fits(self.leanest(shape)) or any(self._may_fit(plain) for plain in reversed(cuts))

    def _may_fit(self, plain: Layout) -> bool:
        """Whether it fits with some ZeRO and replicas."""
        lean = self._lean(plain)
        if self.fits(lean):
            return True
        if self.space.config.model.num_layers >= 2 * plain.pp * plain.stages_per_rank:
            return False
        # where a rank has one layer, what gathers the next one ahead needs more
        return any(self.fits(lean._replace(zero=zero)) for zero in {zero for zero, _ in self.space.sharding(plain)})

    def _lean(self, plain: Layout) -> Layout:
        """With the ZeRO and replicas that need least."""
        sharding = self.space.sharding(plain)
        replicas = min(replicas for _, replicas in sharding)
        return plain._replace(
            zero=max(zero for zero, _ in sharding), dp_replicate=replicas, dp_shard=plain.data_parallel // replicas
        )

    def leanest(self, shape: Layout) -> Layout:
        """The layout of a shape that needs least, of 1F1B where there is one."""
        schedule, chunks = self.space.schedules(shape)[0]
        sequence = max(self.space.sequence_parallel(shape))
        recompute, every = self.space.recomputes()[-1]
        cut = self.space.cut(shape, schedule, chunks)._replace(sequence_parallel=sequence, offload=self.offload)
        return self._lean(cut._replace(recompute=recompute, recompute_every=every))

    def fits(self, layout: Layout) -> bool:
        """In devices and machines, as `Prediction.fits` says."""
        if layout not in self._fitting:
            device, host = missing(self.space.cluster, self.space.devices, *self.bytes_of(layout))
            self._fitting[layout] = device <= 0 and host <= 0
        return self._fitting[layout]

    def bytes_of(self, layout: Layout) -> tuple[int, int]:
        """(device_bytes, host_bytes) of the fullest ranks."""
        space = self.space
        return most_bytes(layout.configure(space.config), space.devices, space.cluster, space.software)

    def seconds(self, layout: Layout) -> Seconds:
        """Of a step, by closed forms."""
        config = layout.configure(self.space.config)
        return step_seconds(config, self.space.devices, self.space.cluster, self.space.software, exact=False)

    def least_seconds(self, layout: Layout) -> float:
        """Of arithmetic, tensor-parallel exchanges, recompute and bubble, as no sharding would take less.

        With w seconds of a micro-batch in all p stages, the busiest rank works for m w / p at least; until it has work,
        and after it has none, the rest of a first and last micro-batch pass by, w (1 - 1 / p) / v of them. Under 1F1B
        half of that may fall together with its own work. Zero-bubble schedules may lose nothing.
        """
        whole, num = self._of_micro_batch(layout), self.space.micro_batches(layout)
        closed = SCHEDULES[layout.schedule].closed
        lost = closed.least / layout.stages_per_rank if closed else 0.0
        if closed and closed.waits_each_turn and num <= (layout.pp + 1) / 2:
            lost = 0.0
        return whole * (num / layout.pp + lost * (1 - 1 / layout.pp))

    def _of_micro_batch(self, layout: Layout) -> float:
        """Seconds of forward and backward on one tensor-parallel group."""
        size, again = layout.micro_batch_size, (layout.recompute, layout.recompute_every)
        key = (layout.tp, size, layout.sequence_parallel, *again)
        if key not in self._of_micro_batches:
            config = self.space.config
            training = config.training.model_copy(update={"global_batch_size": size, "rampup": None})
            alone = Layout(layout.tp, 1, 1, 1, size, sequence_parallel=layout.sequence_parallel)
            alone = alone._replace(recompute=layout.recompute, recompute_every=layout.recompute_every)
            config = alone.configure(config.model_copy(update={"training": training}))
            (stage,) = predict(config, layout.tp, self.space.cluster, self.space.software, exact=False).step.stages
            self._of_micro_batches[key] = stage.each
        return self._of_micro_batches[key]
