"""The layouts of a model on a cluster that fit its memory, best first; and of those that are not there, why.

`plan.search.legal` lists all layouts by shape (tensor parallel x pipeline x micro-batch size). The search finds the best layout of each
shape by branch and bound on closed forms, to within `GAIN`:

| cut off | because |
|---|---|
| shapes | their arithmetic and bubble alone, without recompute or data parallelism, take `SLOWEST` times the best step |
| schedules, sequence parallelism | the same bound is above what is found; or what keeps least does not fit |
| micro-batches above one that does not fit | they need more |
| recompute, ZeRO, replicas | less data-parallel communication would not make them faster; or one that recomputes less fits |

The best `keep` of the shapes are predicted again with their pipelines simulated.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from corpus.engine.errors import UsageError
from pretrain.config import Recompute, RunConfig, Zero
from pretrain.plan.cost import predict, step_seconds
from pretrain.plan.machines.cluster import Cluster
from pretrain.plan.prediction import RESERVED, Prediction, Seconds
from pretrain.plan.search import rejected
from pretrain.plan.search.legal import Constraints, Layout, Rejected, Space
from pretrain.plan.work import megatron_memory, memory
from pretrain.plan.work.software import OURS, Software

__all__ = ["Constraints", "Plans", "Rank", "Rejected", "search"]

GIB = 2**30
FREE = Constraints()
Sharding = tuple[Zero, int]  # and replicas of the shards
GAIN = 1.02  # what could be faster by less is not looked at
LEFT = 0.5  # of the seconds of data parallelism and update in one layout of a shape, what others of it have too
SLOWEST = 1.5  # times the best step: slower shapes are not listed


@dataclass(frozen=True)
class Rank:
    """The place of a layout among the best of all shapes."""

    place: int  # 1 is the best
    of: int  # shapes that fit and are listed; a layout that is slower than all of them has the place after them
    prediction: Prediction
    best: Prediction
    same_shape: Prediction | None  # the best layout with its tensor parallelism, pipeline and micro-batch

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

    def rank_of(self, of: Prediction | RunConfig) -> Rank:
        """The place of a layout, one of those found or another one.

        Raises:
            UsageError: it is no layout of these devices.
        """
        best = self.best
        prediction = predict(of, best.devices, best.cluster, best.software) if isinstance(of, RunConfig) else of
        shape = _shape(prediction)
        same = next((other for other in self.layouts if _shape(other) == shape), None)
        faster = sum(other.step_seconds < prediction.step_seconds for other in self.layouts)
        return Rank(faster + 1, len(self.layouts), prediction, best, same)


def search(
    config: RunConfig,
    devices: int,
    cluster: Cluster,
    software: Software = OURS,
    *,
    keep: int = 50,
    constraints: Constraints = FREE,
) -> Plans:
    """The layouts of `devices` devices that fit their memory, best first; the best `keep` are simulated exactly.

    Raises:
        UsageError: none fits, or there is none; it names the nearest and what is missing.
    """
    begin = time.monotonic()
    rejected.check_cluster(config, devices, cluster)
    space = Space(config, devices, cluster, software, constraints)
    found = Search(space)
    found.run()
    if not found.best and constraints.offload is None and software.shards:
        found = Search(space, offload=True)
        found.run()
    if not found.best:
        raise UsageError(rejected.nothing_fits(found))
    ranked = sorted(found.best.values(), key=lambda result: result.seconds)
    exact = [predict(each.layout.configure(config), devices, cluster, software) for each in ranked[:keep]]
    exact.sort(key=lambda prediction: prediction.step_seconds)
    rest = [predict(each.layout.configure(config), devices, cluster, software, exact=False) for each in ranked[keep:]]
    families = rejected.families(found, exact[0])
    return Plans(exact + rest, families, found.considered, time.monotonic() - begin)


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

    def run(self, shapes: Iterable[Layout] | None = None) -> None:
        """Find the best layout of all shapes, or of these."""
        offloads = self.space.constraints.offload
        if offloads is not None:
            self.offload = offloads == (True,)
        bounds = [(self.least_of_shape(shape), shape) for shape in (self.space.shapes() if shapes is None else shapes)]
        self.considered = sum(self.space.size(shape) for _, shape in bounds)
        fastest = float("inf")
        smallest: dict[tuple[int, int], int] = {}  # micro-batch by (tp, pp) that does not fit: larger ones need more
        for _, shape in sorted(bounds, key=lambda each: each[1].micro_batch_size):
            if (shape.tp, shape.pp) not in smallest and not self._may_fit(shape):
                smallest[shape.tp, shape.pp] = shape.micro_batch_size
        for bound, shape in sorted(bounds, key=lambda each: each[0]):
            if shape.micro_batch_size >= smallest.get((shape.tp, shape.pp), shape.micro_batch_size + 1):
                self.too_large[shape] = self.leanest(shape)
                continue
            if bound > self.slowest * fastest:
                self.too_slow[shape] = bound
                continue
            result = self.best_of(shape)
            if result is None:
                self.too_large[shape] = self.leanest(shape)
            else:
                self.best[shape] = result
                fastest = min(fastest, result.seconds)
        for shape in [shape for shape, result in self.best.items() if result.seconds > self.slowest * fastest]:
            self.too_slow[shape] = self.best.pop(shape).seconds

    def best_of(self, shape: Layout) -> Result | None:
        """The fastest layout of a shape that fits, by closed forms."""
        best: Result | None = None
        for bound, plain in self._cuts(shape):
            if best and (bound + best.beside) * GAIN >= best.seconds:
                break
            done: set[Sharding] = set()  # those that fit with less recompute
            for kind, every in self._recomputes(plain):
                again = plain.but(recompute=kind, recompute_every=every)
                slower, best = self._sharded(again, best, done)
                if slower and kind != "selective":  # which need not be faster than every second layer
                    break
        return best

    def _sharded(self, plain: Layout, best: Result | None, done: set[Sharding]) -> tuple[bool, Result | None]:
        """Whether all of these are slower than `best`; and the better of it and the fastest ZeRO and replicas that fit."""
        for zero, replicas in self.space.sharding(plain):
            if (zero, replicas) in done:
                continue
            layout = plain.but(zero=zero, dp_replicate=replicas, dp_shard=plain.data_parallel // replicas)
            seconds = self.seconds(layout)
            beside = seconds.data + seconds.optimizer + seconds.offload
            if best and (seconds.total - beside + best.beside) * GAIN >= best.seconds:
                return True, best
            if (best is None or seconds.total < best.seconds) and self.fits(layout):
                least = min(beside * LEFT, best.beside) if best else beside * LEFT
                best = Result(layout, seconds.total, least)
                if plain.recompute != "selective":
                    done.add((zero, replicas))
        return False, best

    def _cuts(self, shape: Layout) -> list[tuple[float, Layout]]:
        """Schedules and sequence parallelism with a bound on their seconds, best first."""
        cuts = []
        for sequence in self.space.sequence_parallel(shape):
            for schedule, chunks in self.space.schedules(shape):
                plain = self.space.cut(shape, schedule, chunks).but(sequence_parallel=sequence, offload=self.offload)
                cuts.append((self.least_seconds(plain), plain))
        return sorted(cuts, key=lambda cut: cut[0])

    def _recomputes(self, plain: Layout) -> list[tuple[Recompute, int]]:
        """Those that fit with some ZeRO, the fastest first."""
        leans = [self._lean(plain)]
        if self.space.config.model.num_layers < 2 * plain.pp * plain.stages_per_rank:
            # where a rank has one layer, what gathers the next one ahead needs more
            leans += [leans[0].but(zero=zero) for zero in {zero for zero, _ in self.space.sharding(plain)}]
        kinds = self.space.recomputes()
        if self.fits(leans[0].but(recompute=kinds[0][0], recompute_every=kinds[0][1])):
            return kinds
        return [
            (kind, every)
            for kind, every in kinds
            if any(self.fits(lean.but(recompute=kind, recompute_every=every)) for lean in leans)
        ]

    def _may_fit(self, shape: Layout) -> bool:
        """Whether any layout of a shape fits."""
        return any(self.fits(self._lean(plain)) or self._recomputes(plain) for _, plain in self._cuts(shape))

    def _lean(self, plain: Layout) -> Layout:
        recompute, every = self.space.recomputes()[-1]
        zero = max(zero for zero, _ in self.space.sharding(plain))
        replicas = min(replicas for _, replicas in self.space.sharding(plain))
        return plain.but(
            recompute=recompute,
            recompute_every=every,
            zero=zero,
            dp_replicate=replicas,
            dp_shard=plain.data_parallel // replicas,
        )

    def leanest(self, shape: Layout) -> Layout:
        """The layout of a shape that needs least, of 1F1B where there is one."""
        schedule, chunks = self.space.schedules(shape)[0]
        sequence = max(self.space.sequence_parallel(shape))
        return self._lean(self.space.cut(shape, schedule, chunks).but(sequence_parallel=sequence, offload=self.offload))

    @cached_property
    def room(self) -> float:
        """Bytes of a device that a layout may take."""
        return RESERVED * self.space.cluster.device.memory_gib * GIB

    @cached_property
    def host_room(self) -> float:
        """Bytes of a machine's memory."""
        return self.space.cluster.host.memory_gib * GIB

    @property
    def ranks_per_node(self) -> int:
        """Those that share it."""
        return min(self.space.devices, self.space.cluster.devices_per_node)

    def fits(self, layout: Layout) -> bool:
        """In devices and machines, as `Prediction.fits` says."""
        device, host = self.bytes_of(layout)
        return device <= self.room and self.ranks_per_node * host <= self.host_room

    def bytes_of(self, layout: Layout) -> tuple[int, int]:
        """(device_bytes, host_bytes) of the fullest ranks."""
        config, devices, software = layout.configure(self.space.config), self.space.devices, self.space.software
        if software.operations == "ours":
            return memory.most_bytes(config, devices)
        estimates = megatron_memory.estimate(config, devices, software)
        return max(each.device_bytes for each in estimates), max(each.host_bytes for each in estimates)

    def seconds(self, layout: Layout) -> Seconds:
        """Of a step, by closed forms."""
        config = layout.configure(self.space.config)
        return step_seconds(config, self.space.devices, self.space.cluster, self.space.software, exact=False)

    def least_seconds(self, layout: Layout) -> float:
        """Of arithmetic, tensor-parallel exchanges and bubble, as no recompute and no sharding would take less.

        With w seconds of a micro-batch in all p stages, the busiest rank works for m w / p at least; until it has work, and
        after it has none, the rest of a first and last micro-batch pass by, w (1 - 1 / p) / v of them. Under 1F1B half of
        that may fall together with its own work. Zero-bubble schedules may lose nothing.
        """
        whole = self._of_micro_batch(layout.tp, layout.micro_batch_size, layout.sequence_parallel)
        num = self.space.config.training.global_batch_size // layout.data_parallel // layout.micro_batch_size
        lost = {"1f1b": 0.5, "interleaved": 1 / layout.stages_per_rank, "gpipe": 1.0}.get(layout.schedule, 0.0)
        if layout.schedule == "1f1b" and num <= (layout.pp + 1) / 2:
            lost = 0.0
        return whole * (num / layout.pp + lost * (1 - 1 / layout.pp))

    def least_of_shape(self, shape: Layout) -> float:
        """Of its layouts."""
        return self._cuts(shape)[0][0]

    def _of_micro_batch(self, tp: int, size: int, sequence_parallel: bool) -> float:
        """Seconds of forward and backward on one tensor-parallel group."""
        key = (tp, size, sequence_parallel)
        if key not in self._found:
            config = self.space.config
            training = config.training.model_copy(update={"global_batch_size": size, "rampup": None})
            alone = Layout(tp, 1, 1, 1, size, sequence_parallel=sequence_parallel)
            config = alone.configure(config.model_copy(update={"training": training}))
            (stage,) = predict(config, tp, self.space.cluster, self.space.software, exact=False).stages
            self._found[key] = stage.forward + stage.backward
        return self._found[key]

    @cached_property
    def _found(self) -> dict[tuple[int, int, bool], float]:
        return {}


def _shape(prediction: Prediction) -> tuple[int, int, int]:
    layout = Layout.of(prediction.config, prediction.devices)
    return layout.tp, layout.pp, layout.micro_batch_size
