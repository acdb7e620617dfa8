"""Why a layout is as fast and as large as it is, and what makes the difference between two, as text for a terminal."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence

from pretrain.columns import align_table
from pretrain.plan.naming import layout_name
from pretrain.plan.pages.neighbours import changes
from pretrain.plan.pages.text import GIB, SMALL, memory_unit, number, percent, time_unit, wrap
from pretrain.plan.prediction import RESERVED, OperationSeconds, Prediction

BAR, LABEL = 16, 28  # columns
SAME = 0.002  # of the step: two layouts are equally fast
CAUSE = 0.05  # of a difference: what is less is not named as its cause
MOST_OPERATIONS = 8
MOST_CHANGES = 8
TIME = {  # part of the step: its formula, and where that comes from
    "products": "FLOPs / (peak x efficiency) or bytes / bandwidth, the longer: a roofline (Williams et al. 2009)",
    "memory": "norms, activations, residuals, loss: bytes / bandwidth",
    "launches": "starting kernels, as far as it takes longer than they do",
    "recompute": "the forward again (Chen et al. 2016; selective: Korthikanti et al. 2022)",
    "tensor": "four all-reduces a layer (Shoeybi et al. 2019), of 2 (t - 1) / t of the bytes (rings: Thakur "
    "et al. 2005)",
    "messages": "between stages, where a rank waits for them: latency + bytes / bandwidth",
    "bubble": "waiting for other stages, simulated; 1f1b of equal stages: (p - 1) / m of own work (Narayanan "
    "et al. 2021)",
    "data": "gathering weights, reducing gradients (ZeRO: Rajbhandari et al. 2020), beyond what arithmetic hides; "
    "waiting for other stages to do so",
    "optimizer": "AdamW: bytes of weights, gradients and moments / bandwidth",
    "offload": "to the host and back, over its link (Ren et al. 2021)",
}
MEMORY = {
    "weights": "this rank's share of them",
    "gradients": "of that share",
    "optimizer": "AdamW's two moments",
    "unreduced": "gradients before they are reduced",
    "gathered": "weights that are whole for a while",
    "activations": "saved for the backward, of all micro-batches under way",
    "logits": "the softmax that the loss keeps",
    "working": "the largest of what passes",
    "batch": "tokens and positions",
}


def explain(prediction: Prediction, tokens: int, title: str) -> Iterator[str]:
    """Where the time and the memory of one layout go."""
    step, (time, unit) = prediction.step_seconds, time_unit(prediction.step_seconds)
    yield from wrap(f"{title}: {layout_name(prediction.config, prediction.devices)}", "", "  ")
    rates = f"{prediction.tokens_per_second:,.0f} tokens/s, {prediction.tflops_per_gpu:.1f} TFLOP/s a device"
    shares = f"MFU {percent(prediction.mfu)}, HFU {percent(prediction.hfu)}"
    yield f"{number(step / time)} {unit} a step, {rates}, {shares}, {number(prediction.days(tokens))} days"
    yield ""
    yield f"{'time of the busiest rank':<{LABEL}}{unit:>9}{'%':>7}"
    yield from _bars(prediction.seconds.named, step, TIME, lambda value: number(value / time))
    yield f"{'step':<{LABEL}}{number(step / time):>9}{'100.0%':>7}"
    sent = [
        f"{axis} {number(traffic.total / time)} {unit} ({number(traffic.hidden / time)} hidden)"
        for axis, traffic in prediction.communication.items()
        if traffic.total
    ]
    if sent:
        yield from wrap(f"communication of a step, and what computation hides of it: {', '.join(sent)}")
    yield ""
    yield from _operations(prediction.work, step)
    yield ""
    yield from _memory(prediction)
    if found := changes(prediction)[:MOST_CHANGES]:
        words = "; ".join(change.words for change in found)
        yield ""
        yield from wrap(f"tokens/s with one parameter changed: {words}", "", "  ")


def _operations(work: Sequence[OperationSeconds], step: float) -> Iterator[str]:
    """Those that take longest, all of one name together."""
    together: dict[str, list[OperationSeconds]] = defaultdict(list)
    for one in work:
        together[one.name if one.part == "layer" else f"{one.name} ({one.part})"].append(one)
    longest = sorted(together.items(), key=lambda item: -sum(one.seconds for one in item[1]))[:MOST_OPERATIONS]
    time, unit = time_unit(step)
    rows = []
    for name, ones in longest:
        seconds, flops, moved = (sum(getattr(one, what) for one in ones) for what in ("seconds", "flops", "bytes"))
        if seconds:
            is_bound = sum(one.seconds for one in ones if one.is_bound_by_memory) > seconds / 2
            rate = f"{flops / seconds / 1e12:.1f}" if flops else "-"
            limit = "memory" if is_bound else "arithmetic"
            cells = (number(seconds / time), f"{seconds / step:.1%}", rate, f"{moved / seconds / 1e9:.0f}", limit)
            rows.append((f"  {name}", *cells))
    heads = ("longest operations", unit, "%", "TFLOP/s", "GB/s", "limited by")
    yield from align_table([heads, *rows], left=(heads[0], heads[-1]))


def _memory(prediction: Prediction) -> Iterator[str]:
    worst, cluster, whole = prediction.worst, prediction.cluster, prediction.memory_bytes
    memory, unit = memory_unit(whole)
    yield f"{'memory of the fullest device':<{LABEL}}{unit:>9}{'%':>7}"
    yield from _bars(worst.device_parts, whole, MEMORY, lambda size: f"{size / memory:.2f}")
    limit = f"{cluster.device.memory_gib * RESERVED:.1f} of {cluster.device.memory_gib:g} GiB may be taken"
    place = f"; pipeline rank {worst.pp_rank}" if len(prediction.estimates) > 1 else ""
    yield f"{'device':<{LABEL}}{whole / memory:>9.2f}{'100.0%':>7}  {limit}{place}"
    host = f"{prediction.host_bytes_per_node / memory:,.2f}"
    yield f"{'host, a node':<{LABEL}}{host:>9}{'':>7}  of {cluster.host.memory_gib:,g} GiB"
    if not prediction.fits:
        yield f"It does not fit: {missing(prediction)}."


def missing(prediction: Prediction) -> str:
    """Why a layout does not fit."""
    on_device, num_bytes = prediction.missing
    where = "the fullest device" if on_device else "a node's host memory"
    return f"{number(num_bytes / GIB)} GiB are missing on {where}"


def _bars(
    parts: Mapping[str, float], whole: float, notes: Mapping[str, str], shown: Callable[[float], str]
) -> Iterator[str]:
    """A row for each part that is not small, and what its note needs beyond it."""
    for name, value in parts.items():
        if value >= SMALL * sum(parts.values()):
            start = f"{name:<12}{'#' * round(BAR * value / whole):<{BAR}}{shown(value):>9}{value / whole:>7.1%}  "
            note = notes.get(name, "")
            yield from wrap(note, start, " " * len(start)) if note else [start.rstrip()]


def compare(first: Prediction, second: Prediction, names: tuple[str, str] = ("A", "B")) -> Iterator[str]:
    """Two layouts beside each other, and what makes the difference."""
    both = (first, second)
    for name, prediction in zip(names, both, strict=True):
        yield from wrap(f"{name}: {layout_name(prediction.config, prediction.devices)}", "", "   ")
    longest = max(one.step_seconds for one in both)
    time, seconds = time_unit(longest)
    memory, gib = memory_unit(max(one.memory_bytes for one in both))
    heads = (*names, f"{names[1]} - {names[0]}")

    def row(name: str, one: float, other: float, shown: Callable[[float], str]) -> tuple[str, ...]:
        return name, shown(one), shown(other), format_signed(other - one, shown)

    rows = []
    for name, one, other in _both(first.seconds.named, second.seconds.named):
        bar = ("+" if other > one else "-") * round(2 * BAR * abs(other - one) / longest)
        rows.append((*row(f"  {name}", one / time, other / time, number), bar))
    rows.append((*row("step", first.step_seconds / time, second.step_seconds / time, number), ""))
    yield ""
    label = f"{seconds} of the busiest rank".ljust(LABEL)
    yield from align_table([(label, *heads, " "), *rows], left=(label, " "))
    sizes = [
        row(f"  {name}", one / memory, other / memory, _two_digits)
        for name, one, other in _both(first.worst.device_parts, second.worst.device_parts)
    ]
    for name, attribute in (("device", "memory_bytes"), ("host, a node", "host_bytes_per_node")):
        one, other = (getattr(each, attribute) / memory for each in both)
        sizes.append(row(name, one, other, _two_digits))
    yield ""
    label = f"{gib} of the fullest device".ljust(LABEL)
    yield from align_table([(label, *heads), *sizes], left=(label,))
    yield ""
    yield from wrap(difference(first, second, names))


def difference(first: Prediction, second: Prediction, names: tuple[str, str] = ("A", "B")) -> str:
    """In a sentence, why the second is slower or faster than the first."""
    one, other = names
    change, (time, unit) = second.step_seconds - first.step_seconds, time_unit(first.step_seconds)
    if abs(change) < SAME * first.step_seconds:
        return f"{other} takes as long as {one}: {number(second.step_seconds / time)} {unit}."
    parts = [(part, b - a) for part, a, b in _both(first.seconds.named, second.seconds.named)]
    large = sorted((part for part in parts if abs(part[1]) > CAUSE * abs(change)), key=lambda part: -abs(part[1]))
    for_it, against = (
        ", ".join(f"{part} {format_signed(more / time)} {unit}" for part, more in large if more * change * sign > 0)
        for sign in (1, -1)
    )
    much = f"{number(abs(change) / time)} {unit} ({abs(change) / first.step_seconds:.1%})"
    start = f"{other} takes {much} {'longer' if change > 0 else 'less'} than {one}: {for_it}"
    return f"{start}; against that {against}." if against else f"{start}."


def _both(one: Mapping[str, float], other: Mapping[str, float]) -> list[tuple[str, float, float]]:
    """Parts that are not small in either, in their own order."""
    whole, names = max(sum(one.values()), sum(other.values())), {**one, **other}
    pairs = [(name, one.get(name, 0.0), other.get(name, 0.0)) for name in names]
    return [(name, a, b) for name, a, b in pairs if max(a, b) >= SMALL * whole]


def _two_digits(value: float) -> str:
    return f"{value:,.2f}"


def format_signed(value: float, shown: Callable[[float], str] = number) -> str:
    """
    >>> format_signed(1.234), format_signed(-0.05), format_signed(0.0)
    ('+1.23', '-0.050', '0')
    """
    text = shown(value)
    if not float(text.replace(",", "")):
        return text.removeprefix("-")
    return f"+{text}" if value > 0 else text
