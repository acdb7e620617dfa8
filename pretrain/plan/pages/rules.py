"""Yuan 1.0's rules for the shape of a model (Wu et al. 2021): each is followed once, and predicted beside the model as
it is.

What the rules are about is computation over communication: how much longer the busiest rank's products and attention
take than an axis communicates, hidden or not, and the bubble, the time it waits for other stages over its own work.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any

from corpus.engine.errors import UsageError
from pretrain.config import ModelConfig, RunConfig
from pretrain.plan.cost import predict
from pretrain.plan.machines.cluster import Cluster
from pretrain.plan.prediction import Prediction
from pretrain.plan.search.legal import Layout, divisors
from pretrain.workload.framework_profiles import OURS, FrameworkProfile

MOST_TOKENS = 10**7  # of a batch; Wu et al. 2021 see instability above, quoted from memory and not read again
GAINS = 1.01  # times computation over communication: less is no gain
COLUMNS = ("rule", "change", "tensor", "pipeline", "data", "bubble", "MFU", "GiB", "what it says")
WORDS = ("rule", "change", "what it says")  # columns of words
RULES = {  # by symbol, and by the case where the usual sentence would not be so
    "": "as it is: computation over communication by axis",
    "S": "windows as long as memory allows: every ratio grows with them; pay with recomputation",
    "L": "not too many layers: on fewer ranks of a pipeline they exchange less; the bubble stays about the same",
    "h": "wide layers: as many parameters in half of the layers compute longer for what tensor parallelism exchanges",
    "h alone": "wide layers help tensor parallelism, and there is none: as many gradients are exchanged for less work",
    "B": "a large batch, up to {most:,} windows ({bound})",
    "B each": "a large batch, up to {most:,} windows ({bound}); it gains nothing here: no sums are made once a step",
    "B above": "no larger batch: {most:,} windows are the most ({bound})",
    "m": "many micro-batches: the bubble of 1F1B is (p - 1) / m, here {stages} / {number:,}",
}


@dataclass(frozen=True)
class Rule:
    """One rule, followed in one layout."""

    symbol: str  # of what it is about: S, L, h, B, m; "" is the model as it is
    change: str  # with numbers
    tensor: float  # computation over communication of the axis; infinite: there is none
    pipeline: float
    data: float
    bubble: float
    mfu: float
    memory_bytes: int
    sentence: str
    problem: str = ""  # why there is no prediction

    @property
    def cells(self) -> tuple[str, ...]:
        """Under `COLUMNS`."""
        if self.problem:
            return (self.symbol, self.change, *[""] * 6, self.problem)
        ratios = [f"{each:.3g}x" if math.isfinite(each) else "–" for each in (self.tensor, self.pipeline, self.data)]
        shares = (f"{self.bubble:.1%}", f"{self.mfu:.1%}", f"{self.memory_bytes / 2**30:.1f}")
        return (self.symbol, self.change, *ratios, *shares, self.sentence)


def rules(config: RunConfig, devices: int, cluster: Cluster, software: FrameworkProfile = OURS) -> list[Rule]:
    """The model in its layout, then each of Yuan's rules followed alone; memory may not allow what they say.

    Raises:
        UsageError: it is no layout of that number of devices, or nobody knows the device's peak.
    """
    start = predict(config, devices, cluster, software)
    most = MOST_TOKENS // config.model.sequence_length // start.data_parallel * start.data_parallel
    words = {
        "most": most,
        "bound": f"{MOST_TOKENS // 10**6} M tokens; its authors saw instability above, from memory",
        "stages": config.parallel.pp - 1,
        "number": start.micro_batches,
    }
    found = [_rule("", "as it is", start, RULES[""])]
    for case, change, changed in _followed(config, devices, most):
        symbol = case.partition(" ")[0]
        try:
            rule = _rule(symbol, change, predict(changed, devices, cluster, software), RULES[case])
        except UsageError as error:
            rule = Rule(symbol, change, 0.0, 0.0, 0.0, 0.0, 0.0, 0, RULES[case], str(error))
        if case == "B" and not rule.problem and rule.data <= GAINS * found[0].data and rule.bubble >= found[0].bubble:
            rule = replace(rule, sentence=RULES["B each"])
        found.append(replace(rule, sentence=rule.sentence.format(**words)))
    return found


def as_json(found: list[Rule]) -> list[dict[str, Any]]:
    """As JSON objects; a ratio without communication is null."""
    return [{name: None if value == math.inf else value for name, value in asdict(rule).items()} for rule in found]


def _rule(symbol: str, change: str, one: Prediction, sentence: str) -> Rule:
    work = one.seconds.products + one.seconds.recompute
    tensor, pipeline, data = (
        work / one.communication[axis].total if one.communication[axis].total else math.inf
        for axis in ("tensor", "pipeline", "data")
    )
    return Rule(symbol, change, tensor, pipeline, data, one.bubble, one.mfu, one.memory_bytes, sentence)


def _followed(config: RunConfig, devices: int, most: int) -> Iterator[tuple[str, str, RunConfig]]:
    """The case of `RULES`, what changes, and the configuration that it makes; `most` windows are the largest batch."""
    model, training, layout = config.model, config.training, Layout.of(config, devices)
    longer = model.model_copy(update={"sequence_length": 2 * model.sequence_length})
    yield "S", f"S {model.sequence_length:,} -> {longer.sequence_length:,}", config.model_copy(update={"model": longer})
    if layout.pp > 1:
        ranks = layout.pp * layout.data_parallel
        pp = max(one for one in divisors(ranks) if 2 * one <= layout.pp)
        fewer = layout._replace(pp=pp, dp_replicate=1, dp_shard=ranks // pp, layers_per_stage=None)
        yield "L", f"p {layout.pp} -> {pp}, d {layout.data_parallel} -> {ranks // pp}", fewer.configure(config)
    if model.num_layers >= 2 * layout.pp * layout.stages_per_rank:
        layers = model.num_layers // 2
        wide = of_width(model, model.hidden_size * math.sqrt(model.num_layers / layers), layers, layout.tp)
        change = f"L {model.num_layers} -> {layers}, h {model.hidden_size:,} -> {wide.hidden_size:,}"
        cut = layout._replace(layers_per_stage=None).configure(config)
        yield "h" if layout.tp > 1 else "h alone", change, cut.model_copy(update={"model": wide})
    batch = training.global_batch_size
    if batch < most:
        larger = training.model_copy(update={"global_batch_size": min(2 * batch, most), "rampup": None})
        change = f"B {batch:,} -> {larger.global_batch_size:,}"
        yield "B", change, config.model_copy(update={"training": larger})
    else:
        yield "B above", f"B {batch:,}", config
    if layout.micro_batch_size % 2 == 0:
        size = layout.micro_batch_size // 2
        yield "m", f"micro-batch {2 * size} -> {size}", layout._replace(micro_batch_size=size).configure(config)
    elif 1 < layout.pp <= model.num_layers // 2:
        two = layout._replace(schedule="interleaved", stages_per_rank=2, layers_per_stage=None)
        yield "m", "two stages a rank, interleaved", two.configure(config)


def of_width(model: ModelConfig, width: float, num_layers: int, ranks: int) -> ModelConfig:
    """The model with another width: whole heads of the same size, as many groups of them for each tensor-parallel
    rank."""
    group = model.num_heads // model.kv_heads
    groups = max(1, round(width / model.head_size / group / ranks)) * ranks
    ffn = None if model.ffn_hidden_size is None else round(model.ffn_hidden_size * groups / model.kv_heads)
    grouped = None if model.num_kv_heads is None else groups
    change = {"num_layers": num_layers, "hidden_size": groups * group * model.head_size, "num_heads": groups * group}
    return model.model_copy(update={**change, "ffn_hidden_size": ffn, "num_kv_heads": grouped})
