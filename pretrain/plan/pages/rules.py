"""Yuan 1.0's rules for the shape of a model (Wu et al. 2021), each a sentence with the numbers of the model at hand.

Windows as long as memory allows, not too many layers, wide ones, many micro-batches, a large batch below the bound of
instability: `plan.pages.ratios` has the formulas that they follow from.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from pretrain.config import RunConfig
from pretrain.plan.machines.cluster import Cluster
from pretrain.plan.pages.ratios import Case, of_width
from pretrain.workload.software import OURS, Software

MOST_TOKENS = 10**7  # of a batch; Wu et al. 2021 see instability above, quoted from memory and not read again
ENOUGH = 10.0  # computation over communication: below, an exchange that nothing hides costs more than a tenth
FEW = 0.05  # of the computation, for the bubble


@dataclass(frozen=True)
class Rule:
    """One rule, for one model in one layout."""

    symbol: str  # of what it is about: S, L, h, B, m
    title: str
    sentence: str  # with numbers
    change: str  # what to change, with numbers


def rules(config: RunConfig, devices: int, cluster: Cluster, software: Software = OURS) -> list[Rule]:
    """Yuan's rules for this model in its layout.

    Raises:
        UsageError: it is no layout of that number of devices, or nobody knows the device's peak.
    """
    case = Case.of(config, devices, cluster, software)
    return [_window(case), _layers(case), _width(case), _batch(case), _micro_batches(case)]


def as_json(found: list[Rule]) -> list[dict[str, Any]]:
    """As JSON objects."""
    return [asdict(rule) for rule in found]


def lines(config: RunConfig, devices: int, cluster: Cluster, software: Software = OURS) -> Iterator[str]:
    """Markdown: the ratios as they are and with each rule followed, then the rules.

    Raises:
        UsageError: it is no layout of that number of devices, or nobody knows the device's peak.
    """
    case = Case.of(config, devices, cluster, software)
    yield f"{_where(case)}. Seconds of computation for each second of communication, if nothing hides it:"
    yield ""
    yield "| | tensor | pipeline | data | bubble |"
    yield "|---|---|---|---|---|"
    for name, other in _others(case):
        now = other.ratios
        yield f"| {name} | {_times(now.tensor)} | {_times(now.pipeline)} | {_times(now.data)} | {100 * now.bubble:.1f} % |"
    for rule in rules(config, devices, cluster, software):
        yield ""
        yield f"{rule.symbol}, {rule.title}. {rule.sentence} {rule.change}"


def _others(case: Case) -> Iterator[tuple[str, Case]]:
    """The case, and each rule followed alone."""
    longer, shallower, fewer = case.longer(), case.shallower(), case.fewer_stages()
    yield "as it is", case
    yield f"S {case.model.sequence_length:,} -> {longer.model.sequence_length:,}", longer
    yield (
        (
            f"L {case.model.num_layers} -> {shallower.model.num_layers}, "
            f"h {case.model.hidden_size:,} -> {shallower.model.hidden_size:,}"
        ),
        shallower,
    )
    if case.pipeline > 1:
        yield f"p {case.pipeline} -> {fewer.pipeline}, d {case.data} -> {fewer.data}", fewer
    yield f"B {case.batch:,} -> {2 * case.batch:,}", case.of_batch(2 * case.batch)


def _where(case: Case) -> str:
    degrees = f"tensor {case.tensor} x pipeline {case.pipeline} x data {case.data}"
    return (
        f"{degrees}, {case.micro_batches:,.4g} micro-batches of {case.micro_batch}; products at "
        f"{case.flops / 1e12:,.3g} TFLOP/s a device"
    )


def _window(case: Case) -> Rule:
    now, then = case.ratios, case.longer().ratios
    window = case.model.sequence_length
    grows = [
        f"{name} {_times(getattr(now, name))} -> {_times(getattr(then, name))}"
        for name in ("tensor", "pipeline", "data")
        if math.isfinite(getattr(now, name))
    ]
    what = f"Nothing is exchanged, so that windows of {window:,} tokens cost no communication."
    if grows:
        what = (
            f"Every ratio grows with it: windows of {2 * window:,} tokens and not {window:,} make {', '.join(grows)}."
        )
    change = "Take it as long as memory allows, and pay with recomputation: "
    if not case.has_scores:
        return Rule(
            "S",
            "window",
            what,
            f"{change}this attention keeps no scores, so that memory grows with S and not with S^2.",
        )
    scores = 5 * case.model.num_heads * window / case.model.hidden_size
    change += f"scores are {scores:.0f} of the {34 + scores:.0f} bytes that a layer keeps of each token and channel"
    return Rule("S", "window", what, f"{change}, and their share grows with S.")


def _layers(case: Case) -> Rule:
    now, layers = case.ratios, case.model.num_layers
    if case.pipeline == 1:
        return Rule("L", "layers", f"{layers} layers on one rank: no bubble.", "Nothing to change.")
    what = (
        f"{layers} layers on {case.pipeline} ranks, {layers / case.pipeline:.3g} on each: the bubble is {_fraction(case)} = "
        f"{100 * now.bubble:.1f} % of the computation, small if micro-batches are many more than ranks."
    )
    fewer, shallower = case.fewer_stages(), case.shallower()
    change = (
        f"Avoid too many: {shallower.model.num_layers} layers of {shallower.model.hidden_size:,} channels are as many parameters, "
        f"and compute {_times(shallower.ratios.tensor)} as long as they exchange, not {_times(now.tensor)}. "
        if case.tensor > 1
        else ""
    )
    change += (
        f"On the same devices fewer ranks alone change little: {fewer.pipeline} of them make {fewer.data} pipelines with "
        f"{fewer.micro_batches:,.4g} micro-batches each, {_fraction(fewer)} = {100 * fewer.ratios.bubble:.1f} %."
    )
    return Rule("L", "layers", what, change)


def _width(case: Case) -> Rule:
    channels = case.model.hidden_size
    ranks = max(2, case.tensor)
    ratio = case.tensor_of(case.model, ranks)
    what = f"{channels:,} channels over {ranks} devices compute {_times(ratio)} as long as they exchange."
    if case.tensor == 1:
        what = f"No tensor parallelism. {channels:,} channels over 2 devices would compute {_times(ratio)} as long as they exchange."
    beyond = 2 * max(ranks, case.links.cluster.devices_per_node)
    change = (
        f"{_needed_width(case, ranks)} Over {beyond} devices, on more than one node, it would be "
        f"{_times(case.tensor_of(case.model, beyond))}."
    )
    return Rule("h", "hidden size", what, change)


def _needed_width(case: Case, ranks: int) -> str:
    """The hidden size from which on tensor parallelism takes less than a tenth of the computation."""
    model, ratio = case.model, case.tensor_of(case.model, ranks)
    double = case.tensor_of(of_width(model, 2 * model.hidden_size, model.num_layers), ranks)
    per_channel = (double - ratio) / model.hidden_size  # the ratio is linear in h
    needed = max(1, math.ceil((model.hidden_size + (ENOUGH - ratio) / per_channel) / 128)) * 128
    words = "Wide enough" if needed <= model.hidden_size else "Wider is better"
    return f"{words}: from {needed:,} channels on it is {ENOUGH:.0f}x."


def _batch(case: Case) -> Rule:
    window = case.model.sequence_length
    what = f"{case.batch:,} windows are {_millions(case.batch * window)} tokens."
    if case.data > 1:
        what += f" {case.data} ranks compute {_times(case.ratios.data)} as long as they sum gradients"
        every = case.sums_each and case.micro_batches > 1
        what += f" once; this ZeRO sums them {case.micro_batches:,.4g} times a step." if every else "."
    most = MOST_TOKENS // window // case.data * case.data
    bound = f"{MOST_TOKENS // 10**6} M tokens, above which its authors saw instability (quoted from memory)"
    if case.batch * window > MOST_TOKENS:
        return Rule("B", "batch", what, f"More than {bound}: at most {most:,} windows.")
    change = f"Larger is better, up to {most:,} windows, {bound}"
    if case.pipeline > 1:
        change += f"; there the bubble is {100 * case.of_batch(most).ratios.bubble:.1f} %"
    return Rule("B", "batch", what, f"{change}.")


def _micro_batches(case: Case) -> Rule:
    if case.pipeline == 1:
        what = f"{case.micro_batches:,.4g} of {case.micro_batch}: without a pipeline any number will do."
        return Rule("m", "micro-batches", what, "Larger ones make larger products.")
    now = 100 * case.ratios.bubble
    what = f"{case.micro_batches:,.4g} in {case.pipeline} ranks: the bubble is {_fraction(case)} = {now:.1f} % of the computation."
    needed = math.ceil((case.pipeline - 1) / (case.chunks * FEW))
    if needed <= case.micro_batches:
        return Rule("m", "micro-batches", what, f"Enough: {needed:,} make {100 * FEW:.0f} %.")
    batch = needed * case.data * case.micro_batch
    tokens = batch * case.model.sequence_length
    change = f"{needed:,} would make {100 * FEW:.0f} %, with a batch of {batch:,}, {_millions(tokens)} tokens"
    change += ", more than the bound" if tokens > MOST_TOKENS else ""
    if case.micro_batch > 1:
        change += f"; micro-batches half as large make {now / 2:.1f} %"
    if case.chunks == 1 and case.model.num_layers >= 2 * case.pipeline:
        change += f"; two stages a rank, interleaved, make {now / 2:.1f} %"
    return Rule("m", "micro-batches", what, f"{change}.")


def _fraction(case: Case) -> str:
    below = f"{case.micro_batches:,.4g}"
    return f"{case.pipeline - 1}/{below if case.chunks == 1 else f'({case.chunks} x {below})'}"


def _millions(tokens: float) -> str:
    return f"{tokens / 1e6:.3g} M"


def _times(ratio: float) -> str:
    return f"{ratio:.3g}x" if math.isfinite(ratio) else "–"
