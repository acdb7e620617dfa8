"""How long one micro-batch takes in a stage of the pipeline: its layers, what they compute again, embedding and head.

What recompute repeats is what `parallel.base.recompute` repeats: full a block but for its last product and sum, whose
results nobody needs (a zero-bubble schedule saves that product's input as it ends, and so runs it again); selective
norms, rotary positions and activation functions. Published programs repeat what their papers say.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from pretrain.config import ModelConfig, ParallelConfig, Recompute, ScheduleKind
from pretrain.plan.prediction import Seconds, Traffic
from pretrain.plan.time.machine import Machine, Spent
from pretrain.plan.time.tensor_time import NOTHING, Exchanges, TensorTime
from pretrain.schedules import stage_ranks
from pretrain.workload import megatron_operations, operations
from pretrain.workload.operations import Operation, Shape, Work
from pretrain.workload.pipeline import num_recomputed, own_stages, stages_of

SELECTIVE = ("norm", "rotary", "mask", "swiglu", "gelu")
DISPATCHED = 4  # launches more for each kernel of a forward whose operations selective recompute looks at, both times
CHECKPOINT = 50  # launches that torch's checkpoint takes for each layer, beside those of what it repeats
PUBLISHED_SELECTIVE = ("scores", "softmax", "dropout", "context")


class Kind(NamedTuple):
    """All that the time of a stage depends on; `num_recomputed` of its layers compute their forward again."""

    num_layers: int
    num_recomputed: int
    is_first: bool
    is_last: bool


class Part(NamedTuple):
    """A layer, a head or an embedding: its work, and what of it the backward repeats."""

    name: str
    work: Work
    repeated: tuple[Operation, ...]
    exchanges: Exchanges
    bookkeeping: tuple[int, int] = (0, 0)  # launches of recompute's own, in the forward and in what is repeated


@dataclass(frozen=True)
class Micro:
    """One micro-batch in one stage: forward, backward of inputs, of weights; and what ranks exchange beside it."""

    forward: Seconds
    inputs: Seconds
    weights: Seconds
    tensor: Traffic
    # of one layer, as far as a gather or a reduction of weights can run beside it
    layer_forward: float
    layer_inputs: float
    layer_backward: float

    @property
    def backward(self) -> Seconds:
        """Both halves of it."""
        return self.inputs + self.weights


class StageTime:
    """Stages of one layout."""

    def __init__(self, shape: Shape, recompute: Recompute, is_split: bool, machine: Machine) -> None:
        self.shape, self.recompute, self.is_split = shape, recompute, is_split
        self.machine, self.software = machine, machine.software
        software, tensor = machine.software, TensorTime(shape, machine, is_split)
        if software.operations == "ours":
            layer, head, embedding = operations.layer(shape), operations.head(shape), operations.embedding(shape)
        else:
            layer, head = megatron_operations.layer(shape, software), megatron_operations.head(shape, software)
            embedding = megatron_operations.embedding(shape, software)
        self.plain = Part("layer", layer, (), tensor.layer(layer, "none"))
        exchanges = tensor.layer(layer, recompute)
        self.again = Part("layer", layer, self._repeated(layer), exchanges, self._bookkeeping(layer))
        self.head = Part("head", head, (), tensor.head(head))
        self.embedding = Part("embedding", embedding, (), tensor.embedding())
        self._found: dict[Kind, Micro] = {}

    def of(self, kind: Kind) -> Micro:
        """One micro-batch."""
        if kind not in self._found:
            self._found[kind] = self._of(kind)
        return self._found[kind]

    def parts(self, kind: Kind) -> Iterator[tuple[int, Part]]:
        """What a stage is made of, and how often."""
        if kind.num_layers > kind.num_recomputed:
            yield kind.num_layers - kind.num_recomputed, self.plain
        if kind.num_recomputed:
            yield kind.num_recomputed, self.again
        if kind.is_last:
            yield 1, self.head
        if kind.is_first:
            yield 1, self.embedding

    def _of(self, kind: Kind) -> Micro:
        spent = {name: Spent() for name in ("forward", "inputs", "weights", "repeated")}
        traffic = dict.fromkeys(spent, NOTHING)
        of_layers = dict.fromkeys(spent, 0.0)
        for number, part in self.parts(kind):
            named, extra = (*part.work, part.repeated), (part.bookkeeping[0], 0, 0, part.bookkeeping[1])
            for name, own, exchange, launches in zip(spent, named, part.exchanges, extra, strict=True):
                more = self.machine.spent(own).plus(Spent(launches=launches * self.machine.launch))
                spent[name] = spent[name].plus(more, number)
                traffic[name] += exchange.times(number)
                if part.name == "layer":
                    waiting = self.machine.waiting(more, exchange.exposed)
                    of_layers[name] += number * (more.busy + exchange.exposed + waiting)
        of_layer = {name: seconds / kind.num_layers for name, seconds in of_layers.items()}
        again = spent["repeated"].busy + traffic["repeated"].exposed
        if not self.machine.launches_ahead:
            again += spent["repeated"].launches
        else:
            spent["inputs"] = spent["inputs"]._replace(launches=spent["inputs"].launches + spent["repeated"].launches)
        inputs = self._seconds(spent["inputs"], traffic["inputs"], again)
        of_inputs = of_layer["inputs"] + of_layer["repeated"]
        return Micro(
            forward=self._seconds(spent["forward"], traffic["forward"]),
            inputs=inputs,
            weights=self._seconds(spent["weights"], traffic["weights"]),
            tensor=sum(traffic.values(), NOTHING),
            layer_forward=of_layer["forward"],
            layer_inputs=of_inputs,
            layer_backward=of_inputs + of_layer["weights"],
        )

    def _seconds(self, spent: Spent, traffic: Traffic, again: float = 0.0) -> Seconds:
        waiting = self.machine.waiting(spent, traffic.exposed + again)
        return Seconds(
            products=spent.products, memory=spent.memory, launches=waiting, recompute=again, tensor=traffic.exposed
        )

    def _repeated(self, work: Work) -> tuple[Operation, ...]:
        """What of a layer's forward its backward computes again."""
        if self.recompute == "none":
            return ()
        if self.software.operations != "ours":
            if self.recompute == "full":
                return work.forward
            return tuple(one for one in work.forward if one.name in PUBLISHED_SELECTIVE)
        if self.recompute == "selective":
            return tuple(one for one in work.forward if one.name in SELECTIVE)
        repeated = [one for one in work.forward if self.is_split or one.name != "down"]
        repeated.remove(next(one for one in repeated if one.name == "residual"))
        return tuple(repeated)

    def _bookkeeping(self, work: Work) -> tuple[int, int]:
        if self.software.operations != "ours" or self.recompute == "none" or self.shape.is_compiled:
            return 0, 0
        if self.recompute == "full":
            return 0, CHECKPOINT
        each = DISPATCHED * sum(one.kernels for one in work.forward)
        return each, each


@lru_cache(maxsize=1024)
def stage_time(shape: Shape, recompute: Recompute, is_split: bool, machine: Machine) -> StageTime:
    """Once for all layouts that differ in how many ranks they have of pipeline and data parallelism."""
    return StageTime(shape, recompute, is_split, machine)


class Places(NamedTuple):
    """The stages of a pipeline."""

    kinds: tuple[Kind, ...]  # by stage
    owners: tuple[int, ...]  # rank, by stage
    different: tuple[tuple[tuple[Kind, int], ...], ...]  # of ranks that differ: kinds of stages, and how many of each


def places_of(model: ModelConfig, parallel: ParallelConfig) -> Places:
    """Of a layout; the same for many, and kept."""
    return _places(
        model,
        parallel.schedule,
        parallel.pp,
        parallel.chunks,
        parallel.layers_per_stage,
        parallel.recompute,
        parallel.recompute_every,
    )


@lru_cache(maxsize=4096)
def _places(
    model: ModelConfig,
    schedule: ScheduleKind,
    pp: int,
    chunks: int,
    layers_per_stage: tuple[int, ...] | None,
    recompute: Recompute,
    every: int,
) -> Places:
    kinds = []
    for stage in stages_of(model, pp * chunks, layers_per_stage):
        num = len(stage.layers)
        again = {"none": 0, "selective": num, "full": num_recomputed(stage, every)}
        kinds.append(Kind(num, again[recompute], stage.is_first, stage.is_last))
    own = [Counter(kinds[stage] for stage in stages) for stages in own_stages(schedule, pp, chunks)]
    different = {tuple(sorted(counter.items())) for counter in own}
    return Places(tuple(kinds), tuple(stage_ranks(schedule, pp, chunks)), tuple(sorted(different)))
