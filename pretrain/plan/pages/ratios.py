"""How much longer a device computes than it communicates, in closed form: what Yuan 1.0's design rules follow from (Wu et al. 2021).

One layer multiplies f = 24 h^2 + 4 h S times for a token's forward
(twice, as a product adds too), c = 4 f with full recomputation, 3 f without; F is the rate of its products, W the bytes/s
that leave it on the network that the exchange crosses, e the bytes of an activation, b those of a gradient:

| exchange | bytes that leave a device | computation / communication | with full recomputation and e = 2 |
|---|---|---|---|
| tensor: a = 6 all-reduces a layer (4 without recomputation) | a 2 (t - 1) / t e h a token | c W / (2 a (t - 1) e h F) | (4 h + 2 S / 3) W / ((t - 1) F) |
| pipeline: a stage of l layers passes on and back | 2 e h a token | l c W / (2 e h t F) | l (24 h + 4 S) W / (t F) |
| data: an all-reduce of the gradients of a step of B windows | 2 (d - 1) / d b 12 h^2 L / (t p) | c B S W / (24 h^2 (d - 1) b F) | 4 B S (1 + S / 6 h) W / ((d - 1) b F) |
| bubble: p stages, m micro-batches, v stages a rank | | | (p - 1) / (v m) |

Layers of another build (grouped queries, swiglu) have their own f, and their own number of parameters for 12 h^2.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from corpus.engine.errors import UsageError
from pretrain.batch_size import local_batches
from pretrain.config import ModelConfig, RunConfig
from pretrain.parallel.base.mesh import layout
from pretrain.parallel.base.stages import layer_flops
from pretrain.plan.machines.cluster import Cluster
from pretrain.plan.machines.collectives import Collectives, Group
from pretrain.plan.search.legal import divisors
from pretrain.workload import parameters
from pretrain.workload.memory import ITEM_BYTES
from pretrain.workload.software import Software

LARGE = 1e15  # bytes; latencies are nothing beside it


@dataclass(frozen=True)
class Ratios:
    """Computation over communication of each exchange (infinite: there is none), and the bubble over the computation."""

    tensor: float
    pipeline: float
    data: float
    bubble: float


def tensor_ratio(
    model: ModelConfig, ranks: int, bandwidth: float, flops: float, is_full: bool = True, item: int = 2
) -> float:
    """Of tensor parallelism over `ranks` whose links carry `bandwidth` bytes/s, at `flops` FLOP/s; batch and layers fall out."""
    if ranks == 1:
        return math.inf
    reduced = (6 if is_full else 4) * 2 * (ranks - 1) * item * model.hidden_size
    return _passes(is_full) * layer_flops(model) / flops * bandwidth / reduced


def pipeline_ratio(
    model: ModelConfig,
    layers: float,
    ranks: int,
    bandwidth: float,
    flops: float,
    is_full: bool = True,
    item: int = 2,
    is_scattered: bool = False,
) -> float:
    """Of a stage of `layers` layers; scattered, each tensor-parallel rank sends its part of a message."""
    sent = 2 * item * model.hidden_size / (ranks if is_scattered else 1)
    return layers * _passes(is_full) * layer_flops(model) / (ranks * flops) * bandwidth / sent


def data_ratio(
    model: ModelConfig,
    batch: int,
    ranks: int,
    bandwidth: float,
    flops: float,
    is_full: bool = True,
    gradient_bytes: int = 4,
) -> float:
    """Of `ranks` data-parallel ranks that sum their gradients once a step of `batch` windows."""
    if ranks == 1:
        return math.inf
    per_number = _passes(is_full) * layer_flops(model) / parameters.by_room(model)["layer"]
    tokens = batch * model.sequence_length
    return per_number * tokens / flops * bandwidth / (2 * (ranks - 1) * gradient_bytes)


def bubble(stages: int, micro_batches: float, chunks: int = 1) -> float:
    """Over the computation: of 1F1B, and interleaved with `chunks` stages a rank."""
    return (stages - 1) / (chunks * micro_batches)


def _passes(is_full: bool) -> int:
    """Forwards that a step is worth: its own, a backward of two, and the one repeated."""
    return 4 if is_full else 3


@dataclass(frozen=True)
class Case:
    """A model in a layout, on a cluster."""

    model: ModelConfig
    batch: int
    micro_batch: int
    tensor: int
    pipeline: int
    chunks: int
    data: int
    is_full: bool
    item: int
    gradient_bytes: int
    is_scattered: bool
    has_scores: bool  # attention keeps its scores
    sums_each: bool  # gradients are reduced with every micro-batch
    flops: float
    links: Collectives

    @classmethod
    def of(cls, config: RunConfig, devices: int, cluster: Cluster, software: Software) -> Case:
        """What the rules need of a configuration.

        Raises:
            UsageError: it is no layout of that number of devices, or nobody knows the device's peak.
        """
        parallel, training = config.parallel, config.training
        pp, replicas, shards, tp = layout(parallel, devices)
        peak = cluster.device.peak_flops(training.precision)
        if peak is None:
            raise UsageError(
                f"cluster {cluster.name}: nobody has said what a {cluster.device.name} does in {training.precision}. "
                f"Give [device.peak] {training.precision} in its file"
            )
        _, micro_batch = local_batches(training, training.global_batch_size, replicas * shards)
        return cls(
            model=config.model,
            batch=training.global_batch_size,
            micro_batch=micro_batch,
            tensor=tp,
            pipeline=pp,
            chunks=parallel.chunks if parallel.schedule == "interleaved" else 1,
            data=replicas * shards,
            is_full=parallel.recompute == "full",
            item=ITEM_BYTES[training.precision],
            gradient_bytes=software.gradient_bytes,
            is_scattered=software.scatters_messages or parallel.sequence_parallel,
            has_scores=software.operations != "ours",
            sums_each=software.operations == "ours" and parallel.zero > 1,
            flops=peak * cluster.efficiency.products,
            links=Collectives(cluster),
        )

    @property
    def micro_batches(self) -> float:
        """Of a step, in each pipeline."""
        return self.batch / (self.data * self.micro_batch)

    def link(self, size: int, stride: int) -> float:
        """Bytes/s that leave a device in an all-reduce of such a group."""
        if size == 1:
            return math.inf
        return 2 * (size - 1) / size * LARGE / self.links.all_reduce(Group(size, stride), LARGE)

    def sending(self) -> float:
        """Bytes/s that leave a device towards the next stage."""
        return LARGE / self.links.send(self.tensor * self.data, LARGE) if self.pipeline > 1 else math.inf

    def tensor_of(self, model: ModelConfig, ranks: int) -> float:
        """The ratio for another model or degree."""
        return tensor_ratio(model, ranks, self.link(ranks, 1), self.flops, self.is_full, self.item)

    @property
    def ratios(self) -> Ratios:
        """As the case is."""
        passing = math.inf
        if self.pipeline > 1:
            layers = self.model.num_layers / (self.pipeline * self.chunks)
            passing = pipeline_ratio(
                self.model, layers, self.tensor, self.sending(), self.flops, self.is_full, self.item, self.is_scattered
            )
        link = self.link(self.data, self.tensor)
        return Ratios(
            self.tensor_of(self.model, self.tensor),
            passing,
            data_ratio(self.model, self.batch, self.data, link, self.flops, self.is_full, self.gradient_bytes),
            bubble(self.pipeline, self.micro_batches, self.chunks),
        )

    def longer(self) -> Case:
        """With windows of twice the length."""
        return replace(self, model=self.model.model_copy(update={"sequence_length": 2 * self.model.sequence_length}))

    def shallower(self) -> Case:
        """With half of the layers, and as many parameters."""
        layers = max(1, self.model.num_layers // 2)
        return replace(
            self,
            model=of_width(self.model, self.model.hidden_size * math.sqrt(self.model.num_layers / layers), layers),
        )

    def fewer_stages(self) -> Case:
        """With half as many ranks in a pipeline, or the next fewer that the devices allow, and the more pipelines."""
        ranks = self.pipeline * self.data
        pipeline = max([one for one in divisors(ranks) if 2 * one <= self.pipeline], default=1)
        return replace(self, pipeline=pipeline, data=ranks // pipeline)

    def of_batch(self, batch: int) -> Case:
        """With another batch."""
        return replace(self, batch=batch)


def of_width(model: ModelConfig, width: float, num_layers: int) -> ModelConfig:
    """The model with another width, rounded to whole heads of the same size, the rest in proportion."""
    heads = max(1, round(width / model.head_size))
    ffn = None if model.ffn_hidden_size is None else round(model.ffn_hidden_size * heads / model.num_heads)
    grouped = None if model.num_kv_heads is None else max(1, round(model.num_kv_heads * heads / model.num_heads))
    change = {"num_layers": num_layers, "hidden_size": heads * model.head_size, "num_heads": heads}
    return model.model_copy(update={**change, "ffn_hidden_size": ffn, "num_kv_heads": grouped})
