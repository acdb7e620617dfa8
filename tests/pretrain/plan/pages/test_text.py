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
