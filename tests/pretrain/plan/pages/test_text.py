"""The tables of the planner: what a row says, that it fits a terminal, and where a difference between two layouts comes
from."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import cache

import pytest

from pretrain.config import load_config
from pretrain.plan.cost import predict
from pretrain.plan.machines.cluster import load_cluster
from pretrain.plan.naming import parse_layout
from pretrain.plan.pages import explain, text
from pretrain.plan.prediction import Prediction, Seconds

TOKENS = 10**10


@cache
def predicted(
    layout: str, config: str = "firefly-3.8b", devices: int = 128, cluster: str = "selene-a100-80"
) -> Prediction:
    return predict(parse_layout(layout, load_config(config), devices), devices, load_cluster(cluster))


def with_seconds(prediction: Prediction, **parts: float) -> Prediction:
    return replace(prediction, seconds=Seconds(**parts))


def narrow(lines: Iterable[str]) -> str:
    """The lines as one text, all of which fit."""
    told = list(lines)
    assert max(map(len, told)) <= text.WIDTH, max(told, key=len)
    assert not any(line != line.rstrip() for line in told)
    return "\n".join(told)


@pytest.mark.parametrize(
    ("config", "cluster", "devices", "layout"),
    [
        ("yuan-245b", "selene-a100-80", 2128, "tp=8,pp=38,dp=7,mbs=1"),
        ("frontier-1t", "frontier-mi250x", 2048, "tp=8,pp=64,mbs=1"),
        ("demo", "cpu", 2, "tp=2"),
        ("asc22-4.7b", "dgx-station-v100-32", 4, "zero=3,offload=on,mbs=8"),
    ],
)
def test_all_of_it_fits_a_terminal(config: str, cluster: str, devices: int, layout: str) -> None:
    if cluster == "dgx-station-v100-32":
        base = load_config(config, ["training.precision=fp16"])
        prediction = predict(parse_layout(layout, base, devices), devices, load_cluster(cluster))
    else:
        prediction = predicted(layout, config, devices, cluster)
    rows = [("*10", prediction)]
    said = narrow(text.header(prediction.config, prediction, 10**12, config))
    assert f"on {devices:,} x {prediction.cluster.device.name}" in said and "1.000 T tokens" in said
    narrow(text.table(rows, 10**12))
    narrow(text.split(rows))
    narrow(text.wrap(text.LEGEND))
    narrow(explain.explain(prediction, 10**12, "layout 1"))
    narrow(explain.compare(prediction, prediction))


def test_operations_are_limited_by_what_takes_longer() -> None:
    lines = narrow(explain.explain(predicted("tp=1,zero=3,mbs=2"), TOKENS, "layout 1")).splitlines()
    limits = {line.split()[0]: line.split()[-1] for line in lines if line.endswith((" arithmetic", " memory"))}
    assert limits["copies"] == "memory"
    products = {limit for name, limit in limits.items() if name in ("up", "down", "qkv", "up weights")}
    assert products == {"arithmetic"}


def test_explain_adds_up() -> None:
    prediction = predicted("tp=4,pp=2,schedule=1f1b,mbs=1,recompute=full")
    said = narrow(explain.explain(prediction, TOKENS, "layout 3"))
    lines = said.splitlines()
    assert lines[0] == "layout 3: tp=4,pp=2,dp=16,mbs=1,zero=1,recompute=full,schedule=1f1b"
    for part in ("products", "recompute", "tensor", "bubble"):
        [row] = [line for line in lines if line.startswith(part)]
        value = getattr(prediction.seconds, part)
        assert f"{text.number(value)} " in row and f"{value / prediction.step_seconds:.1%}" in row
        assert row.count("#") == round(explain.BAR * value / prediction.step_seconds)
    assert f"{prediction.memory_bytes / 2**30:.2f} 100.0%  73.6 of 80 GiB may be taken; pipeline rank" in said


def test_the_longest_operations_come_first_with_their_rates() -> None:
    prediction = predicted("tp=4,pp=1,mbs=4")
    lines = list(explain.explain(prediction, TOKENS, "layout"))
    at = next(index for index, line in enumerate(lines) if line.startswith("longest operations"))
    rows = lines[at + 1 : at + 1 + explain.MOST_OPERATIONS]
    shares = [float(row.partition("%")[0].split()[-1]) for row in rows]
    assert shares == sorted(shares, reverse=True) and sum(shares) < 100
    by_name: dict[str, list[float]] = {}
    for one in prediction.work:
        name = one.name if one.part == "layer" else f"{one.name} ({one.part})"
        total = by_name.setdefault(name, [0.0, 0.0])
        total[0] += one.seconds
        total[1] += one.flops
    first = max(by_name, key=lambda name: by_name[name][0])
    assert rows[0].startswith(f"  {first} ") and f"{by_name[first][1] / by_name[first][0] / 1e12:.1f}" in rows[0]


def test_what_does_not_fit_says_how_much_is_missing() -> None:
    large = predicted("tp=1,pp=1,mbs=1", "yuan-245b", 16, "selene-a100-80")
    said = narrow(explain.explain(large, TOKENS, "layout"))
    missing = large.memory_bytes / 2**30 - 0.92 * 80
    assert f"It does not fit: {text.number(missing)} GiB are missing on the fullest device." in said
    offloaded = predicted("tp=1,pp=1,mbs=1,offload=on,zero=3", "yuan-245b", 16, "selene-a100-80")
    if not offloaded.fits and offloaded.memory_bytes <= 0.92 * 80 * 2**30:
        assert "on a node's host memory" in explain.missing(offloaded)


def test_the_difference_is_told_by_its_largest_parts() -> None:
    one = with_seconds(predicted("tp=4,pp=1,mbs=4"), products=10.0, tensor=1.0, bubble=2.0, data=0.01)
    other = with_seconds(one, products=10.5, tensor=4.0, bubble=1.0, data=0.02)
    assert (
        explain.difference(one, other)
        == "B takes 2.51 s (19.3%) longer than A: tensor +3.00 s, products +0.50 s; against that bubble -1.00 s."
    )
    assert explain.difference(other, one, ("2", "1")) == (
        "1 takes 2.51 s (16.2%) less than 2: tensor -3.00 s, products -0.50 s; against that bubble +1.00 s."
    )
    near = with_seconds(one, products=10.01, tensor=1.0, bubble=2.0, data=0.01)
    assert explain.difference(one, near) == "B takes as long as A: 13.0 s."
    longer = with_seconds(one, products=11.0, tensor=1.0, bubble=2.0, data=0.01)
    assert explain.difference(one, longer) == "B takes 1.00 s (7.7%) longer than A: products +1.00 s."
