"""Why a layout is as fast and as large as it is, and what makes the difference between two, as text for a terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from pretrain.plan.naming import layout_name
from pretrain.plan.pages.changes import changes
from pretrain.plan.pages.text import GIB, memory_unit, number, percent, seconds_of, time_unit, wrapped
from pretrain.plan.prediction import RESERVED, OperationSeconds, Prediction

BAR = 16
SMALL = 0.0005  # of the whole: such parts are left out
SAME = 0.002  # of the step: two layouts are equally fast
CAUSE = 0.05  # of a difference: what is less is not named as its cause
MOST_OPERATIONS = 8
MOST_CHANGES = 8
TIME = {  # part of the step: its formula, and where that comes from
    "products": "FLOPs / (peak x efficiency) or bytes / bandwidth, the longer: a roofline (Williams et al. 2009)",
    "memory": "norms, activations, residuals, loss: bytes / bandwidth",
    "launches": "starting kernels, as far as it takes longer than they do",
    "recompute": "the forward again (Chen et al. 2016; selective: Korthikanti et al. 2022)",
    "tensor": "four all-reduces a layer (Shoeybi et al. 2019), of 2 (t - 1) / t of the bytes (rings: Thakur et al. 2005)",
    "messages": "between stages, where a rank waits for them: latency + bytes / bandwidth",
    "bubble": "waiting for other stages to compute, simulated; 1f1b of equal stages: (p - 1) / m of own work (Narayanan et al. 2021)",
    "data": "gathering weights, reducing gradients (ZeRO: Rajbhandari et al. 2020), beyond what arithmetic hides; waiting for other stages to do so",
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
HOST = ("pinning", "snapshot", "process")  # parts that no device holds


def explain(prediction: Prediction, tokens: int, title: str) -> Iterator[str]:
    """Where the time and the memory of one layout go."""
    step, time = prediction.step_seconds, time_unit(prediction.step_seconds)
    yield from wrapped(f"{title}: {layout_name(prediction.config, prediction.devices)}", "", "  ")
    yield (
        f"{number(step / time.size)} {time.name} a step, {prediction.tokens_per_second:,.0f} tokens/s, {prediction.tflops_per_gpu:.1f} TFLOP/s a device, "
        f"MFU {percent(prediction.mfu)}, HFU {percent(prediction.hfu)}, {number(prediction.days(tokens))} days"
    )
    yield ""
    yield f"{'time of the busiest rank':<{12 + BAR}}{time.name:>9}{'%':>7}"
    for part, seconds in _parts(seconds_of(prediction)):
        yield from _bar(part, seconds, step, number(seconds / time.size), TIME.get(part, ""))
    yield f"{'step':<{12 + BAR}}{number(step / time.size):>9}{'100.0%':>7}"
    yield from _sent(prediction)
    yield ""
    yield from _operations(prediction.work, step)
    yield ""
    yield from _memory(prediction)
    if found := changes(prediction)[:MOST_CHANGES]:
        yield ""
        yield from wrapped(
            f"tokens/s with one parameter changed: {'; '.join(change.words for change in found)}", "", "  "
        )


def _sent(prediction: Prediction) -> Iterator[str]:
    time = time_unit(prediction.step_seconds)
    sent = [
        f"{axis} {number(traffic.total / time.size)} {time.name} ({number(traffic.hidden / time.size)} hidden)"
        for axis, traffic in prediction.communication.items()
        if traffic.total
    ]
    if sent:
        yield from wrapped(f"communication of a step, and what computation hides of it: {', '.join(sent)}")


def _operations(work: Sequence[OperationSeconds], step: float) -> Iterator[str]:
    """Those that take longest, all of one name together."""
    together: dict[str, tuple[float, float, float, float]] = {}
    for one in work:
        name = one.name if one.part == "layer" else f"{one.name} ({one.part})"
        seconds, flops, moved, bound = together.get(name, (0.0, 0.0, 0.0, 0.0))
        bound += one.seconds * one.is_bound_by_memory
        together[name] = (seconds + one.seconds, flops + one.flops, moved + one.bytes, bound)
    time = time_unit(step)
    longest = sorted(together.items(), key=lambda item: -item[1][0])[:MOST_OPERATIONS]
    yield f"{'longest operations':<26}{time.name:>10}{'%':>7}{'TFLOP/s':>10}{'GB/s':>8}  limited by"
    for name, (seconds, flops, moved, bound) in longest:
        if seconds:
            rate = f"{flops / seconds / 1e12:.1f}" if flops else "-"
            yield (
                f"  {name:<24}{number(seconds / time.size):>10}{seconds / step:>7.1%}{rate:>10}{moved / seconds / 1e9:>8.0f}  "
                f"{'memory' if bound > seconds / 2 else 'arithmetic'}"
            )


def _memory(prediction: Prediction) -> Iterator[str]:
    worst, cluster = prediction.worst, prediction.cluster
    whole = prediction.memory_bytes
    on_host = ("weights", "gradients", "optimizer") if worst.offload and worst.device == "cuda" else ()
    unit = memory_unit(whole)
    yield f"{'memory of the fullest device':<{12 + BAR}}{unit.name:>9}{'%':>7}"
    rows = {name: float(size) for name, size in worst.rows() if name not in (*HOST, *on_host)}
    for part, size in _parts(rows):
        yield from _bar(part, size, whole, f"{size / unit.size:.2f}", MEMORY.get(part, ""))
    limit = f"{cluster.device.memory_gib * RESERVED:.1f} of {cluster.device.memory_gib:g} GiB may be taken"
    place = f"; pipeline rank {worst.pp_rank}" if len(prediction.estimates) > 1 else ""
    yield f"{'device':<{12 + BAR}}{whole / unit.size:>9.2f}{'100.0%':>7}  {limit}{place}"
    yield (
        f"{'host, a node':<{12 + BAR}}{prediction.host_bytes_per_node / unit.size:>9,.2f}{'':>7}  of {cluster.host.memory_gib:,g} GiB"
    )
    if not prediction.fits:
        yield f"It does not fit: {missing(prediction)}."


def missing(prediction: Prediction) -> str:
    """Why a layout does not fit."""
    cluster = prediction.cluster
    taken = prediction.memory_bytes * cluster.efficiency.held
    on_device = cluster.cores is None and taken > cluster.device.memory_gib * GIB * RESERVED
    where = "the fullest device" if on_device else "a node's host memory"
    return f"{number(prediction.missing_bytes / GIB)} GiB are missing on {where}"


def _parts(parts: Mapping[str, float]) -> list[tuple[str, float]]:
    whole = sum(parts.values())
    return [(name, value) for name, value in parts.items() if value >= SMALL * whole]


def _bar(name: str, value: float, whole: float, shown: str, note: str) -> Iterator[str]:
    """A row, and what its note needs beyond it."""
    start = f"{name:<12}{'#' * round(BAR * value / whole):<{BAR}}{shown:>9}{value / whole:>7.1%}  "
    yield from wrapped(note, start, " " * len(start)) if note else [start.rstrip()]


def compare(first: Prediction, second: Prediction, names: tuple[str, str] = ("A", "B")) -> Iterator[str]:
    """Two layouts beside each other, and what makes the difference."""
    one, other = names
    for name, prediction in ((one, first), (other, second)):
        yield from wrapped(f"{name}: {layout_name(prediction.config, prediction.devices)}", "", "   ")
    yield ""
    heading = f"{one:>10}{other:>10}{f'{other} - {one}':>12}"
    longest = max(first.step_seconds, second.step_seconds)
    time = time_unit(longest)
    yield f"{f'{time.name} of the busiest rank':<28}{heading}"
    for part, a, b in _both(seconds_of(first), seconds_of(second)):
        bar = ("+" if b > a else "-") * round(2 * BAR * abs(b - a) / longest)
        yield f"{_row(f'  {part}', a / time.size, b / time.size, number)}  {bar}".rstrip()
    yield _row("step", first.step_seconds / time.size, second.step_seconds / time.size, number)
    yield ""
    unit = memory_unit(max(first.memory_bytes, second.memory_bytes))
    yield f"{f'{unit.name} of the fullest device':<28}{heading}"
    memory = [
        {name: size / unit.size for name, size in each.worst.rows() if name not in HOST} for each in (first, second)
    ]
    for part, a, b in _both(*memory):
        yield _row(f"  {part}", a, b, _two_digits)
    yield _row("device", first.memory_bytes / unit.size, second.memory_bytes / unit.size, _two_digits)
    on_hosts = [each.host_bytes_per_node / unit.size for each in (first, second)]
    yield _row("host, a node", on_hosts[0], on_hosts[1], _two_digits)
    yield ""
    yield from wrapped(difference(first, second, names))


def difference(first: Prediction, second: Prediction, names: tuple[str, str] = ("A", "B")) -> str:
    """In a sentence, why the second is slower or faster than the first."""
    one, other = names
    change, time = second.step_seconds - first.step_seconds, time_unit(first.step_seconds)

    def told(seconds: float, shown: Callable[[float], str] = signed) -> str:
        return f"{shown(seconds / time.size)} {time.name}"

    if abs(change) < SAME * first.step_seconds:
        return f"{other} takes as long as {one}: {told(second.step_seconds, number)}."
    word = "longer" if change > 0 else "less"
    parts = [(part, b - a) for part, a, b in _both(seconds_of(first), seconds_of(second))]
    large = sorted((part for part in parts if abs(part[1]) > CAUSE * abs(change)), key=lambda part: -abs(part[1]))
    for_it = ", ".join(f"{part} {told(more)}" for part, more in large if more * change > 0)
    against = ", ".join(f"{part} {told(more)}" for part, more in large if more * change < 0)
    start = f"{other} takes {told(abs(change), number)} ({abs(change) / first.step_seconds:.1%}) {word} than {one}: {for_it}"
    return f"{start}; against that {against}." if against else f"{start}."


def _both(one: Mapping[str, float], other: Mapping[str, float]) -> list[tuple[str, float, float]]:
    """Parts that are there in either, in their own order."""
    whole = max(sum(one.values()), sum(other.values()))
    return [(name, one[name], other[name]) for name in one if max(one[name], other[name]) >= SMALL * whole]


def _row(name: str, one: float, other: float, shown: Callable[[float], str]) -> str:
    return f"{name:<28}{shown(one):>10}{shown(other):>10}{signed(other - one, shown):>12}"


def _two_digits(value: float) -> str:
    return f"{value:,.2f}"


def signed(value: float, shown: Callable[[float], str] = number) -> str:
    """
    >>> signed(1.234), signed(-0.05), signed(0.0)
    ('+1.23', '-0.050', '0')
    """
    text = shown(value)
    if not float(text.replace(",", "")):
        return text.removeprefix("-")
    return f"+{text}" if value > 0 else text
