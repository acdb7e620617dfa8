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
from pretrain.plan.search.legal import Rejected

TOKENS = 10**10


@cache
def predicted(
    layout: str, config: str = "firefly-3.8b", devices: int = 128, cluster: str = "selene-a100-80"
) -> Prediction:
    return predict(parse_layout(layout, load_config(config), devices), devices, load_cluster(cluster))


def with_seconds(prediction: Prediction, **parts: float) -> Prediction:
    return replace(prediction, seconds=Seconds(**parts))


def row_of(prediction: Prediction) -> dict[str, str]:
    """The table's row by column; no cell of it may be empty."""
    heading, row = text.table([("7", prediction)], TOKENS)
    names = heading.replace("step s", "step").split()
    return dict(zip(["place", *names], row.replace(" k", "k").replace(" M", "M").split(), strict=True))


def narrow(lines: Iterable[str]) -> str:
    """The lines as one text, all of which fit."""
    told = list(lines)
    assert max(map(len, told)) <= text.WIDTH, max(told, key=len)
    assert not any(line != line.rstrip() for line in told)
    return "\n".join(told)


def test_a_row_of_the_table() -> None:
    prediction = predicted(
        "tp=4,pp=2,replicate=2,sp=off,mbs=2,schedule=interleaved,recompute=full,recompute_every=2,zero=3,offload=on"
    )
    row = row_of(prediction)
    assert row["place"] == "7"
    assert (row["tp"], row["pp"], row["dp"], row["mbs"]) == ("4-", "2", "2x8", "2")
    assert (row["schedule"], row["ZeRO"], row["recomp"]) == ("inter/2", "3+o", "full/2")
    assert float(row["step"]) == pytest.approx(prediction.step_seconds, rel=0.01)
    assert float(row["tok/s"].rstrip("k")) * 1000 == pytest.approx(prediction.tokens_per_second, rel=0.01)
    assert row["MFU"] == f"{prediction.mfu:.1%}" and row["HFU"] == f"{prediction.hfu:.1%}"
    assert row["MFU"] != row["HFU"]
    assert float(row["days"]) == pytest.approx(prediction.days(TOKENS), rel=0.02)
    assert float(row["GiB"]) == pytest.approx(prediction.memory_bytes / 2**30, rel=0.02)
    assert float(row["host"]) == pytest.approx(prediction.host_bytes_per_node / 2**30, abs=0.5)
    assert row["bubble"] == f"{prediction.bubble:.1%}"


@pytest.mark.parametrize(
    ("layout", "cells"),
    [
        ("tp=4", {"tp": "4", "schedule": "-", "ZeRO": "1", "recomp": "select", "bubble": "-", "dp": "32"}),
        ("tp=1,sp=off,recompute=none", {"tp": "1", "recomp": "-"}),
        ("tp=4,pp=2,schedule=zbv,mbs=1", {"schedule": "zbv"}),
        ("tp=4,pp=2,schedule=zero-bubble,mbs=1", {"schedule": "zb"}),
        ("tp=4,pp=2,schedule=1f1b,mbs=1", {"schedule": "1f1b"}),
    ],
)
def test_short_words(layout: str, cells: dict[str, str]) -> None:
    row = row_of(predicted(layout))
    assert {name: row[name] for name in cells} == cells


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
    narrow(text.wrapped(text.LEGEND))
    narrow(explain.explain(prediction, 10**12, "layout 1"))
    narrow(explain.compare(prediction, prediction))


def test_operations_are_limited_by_what_takes_longer() -> None:
    lines = narrow(explain.explain(predicted("tp=1,zero=3,mbs=2"), TOKENS, "layout 1")).splitlines()
    limits = {line.split()[0]: line.split()[-1] for line in lines if line.endswith((" arithmetic", " memory"))}
    assert limits["copies"] == "memory"
    products = {limit for name, limit in limits.items() if name in ("up", "down", "qkv", "up weights")}
    assert products == {"arithmetic"}


def test_the_parts_of_a_step_are_shares_of_it() -> None:
    prediction = predicted("tp=4,pp=2,schedule=1f1b,mbs=1")
    heading, row, *_ = text.split([("1", prediction)])
    cells = dict(
        zip(
            heading.replace("tp s", "tp_s").replace("pp s", "pp_s").replace("dp s", "dp_s").split(),
            row.split()[1:],
            strict=True,
        )
    )
    assert cells["matmul"] == f"{prediction.seconds.products / prediction.step_seconds:.1%}"
    assert cells["bubble"] == f"{prediction.seconds.bubble / prediction.step_seconds:.1%}"
    shares = [float(cell.rstrip("%")) for cell in cells.values() if cell.endswith("%")]
    assert sum(shares) == pytest.approx(100, abs=1)
    assert float(cells["tp_s"]) == pytest.approx(prediction.communication["tensor"].total, rel=0.05)


def test_a_part_or_an_axis_that_no_row_has_is_no_column() -> None:
    heading, *_, last = text.split([("1", predicted("tp=1,pp=1,mbs=4"))])
    assert "bubble" not in heading and "tensor" not in heading and "tp s" not in heading
    alone = predicted("tp=1", "demo", 1)
    assert "hidden or not" not in "".join(text.split([("1", alone)]))
    assert last


def test_reasons_are_told_in_their_order_and_the_rest_counted() -> None:
    families = [Rejected(f"family {number}", "its reason " * 20, 10 * number) for number in (1, 3, 2, 4)]
    said = list(text.rejections(families, 2))
    assert said[0] == "not there, and why:"
    assert [line for line in said if "family" in line] == [line for line in said if line.startswith("  family")]
    assert said[1].startswith("  family 1 (10 layouts): its reason")
    assert said[-1] == "  and 2 more, with 60 layouts: --top 4 shows them, and --json"
    assert narrow(said)
    assert list(text.rejections([], 2)) == []


def test_explain_adds_up_and_cites() -> None:
    prediction = predicted("tp=4,pp=2,schedule=1f1b,mbs=1,recompute=full")
    said = narrow(explain.explain(prediction, TOKENS, "layout 3"))
    lines = said.splitlines()
    assert lines[0] == "layout 3: tp=4,pp=2,dp=16,mbs=1,zero=1,recompute=full,schedule=1f1b"
    for part in ("products", "recompute", "tensor", "bubble"):
        [row] = [line for line in lines if line.startswith(part)]
        value = getattr(prediction.seconds, part)
        assert f"{text.number(value)} " in row and f"{value / prediction.step_seconds:.1%}" in row
        assert row.count("#") == round(explain.BAR * value / prediction.step_seconds)
    for source in (
        "Williams et al. 2009",
        "Chen et al. 2016",
        "Shoeybi et al. 2019",
        "Narayanan et al. 2021",
        "Rajbhandari et al. 2020",
    ):
        assert source in " ".join(said.split())
    assert f"{prediction.memory_bytes / 2**30:.2f} 100.0%  73.6 of 80 GiB may be taken; pipeline rank" in said
    assert "with one parameter changed: " in said
    assert "does not fit" not in said
    assert "longest operations" in said


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


def test_offloaded_state_is_not_on_the_device() -> None:
    said = list(explain.explain(predicted("tp=1,pp=1,mbs=1,zero=3,offload=on"), TOKENS, "layout"))
    at = next(index for index, line in enumerate(said) if line.startswith("memory of the fullest device"))
    assert not [line for line in said[at:] if line.startswith(("weights", "gradients", "optimizer"))]


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


def test_compare_shows_both_and_signs() -> None:
    first, second = predicted("tp=4,pp=1,mbs=4"), predicted("tp=1,pp=1,mbs=4,recompute=full")
    said = narrow(explain.compare(first, second, ("1", "5")))
    assert said.startswith("1: tp=4,pp=1,dp=32,mbs=4,zero=1,recompute=selective\n5: tp=1,pp=1,dp=128,mbs=4")
    rows = {line.split()[0]: line for line in said.splitlines()[2:-3] if line}
    step = rows["step"].split()
    assert [step[1], step[2]] == [text.number(first.step_seconds), text.number(second.step_seconds)]
    assert step[3] == explain.signed(second.step_seconds - first.step_seconds)
    assert "-" * 2 in rows["tensor"] and "+" * 2 in rows["recompute"]
    assert f"{first.memory_bytes / 2**30:.2f}" in rows["device"]
    assert said.splitlines()[-1].startswith("5 takes ") or "than 1" in said


def test_small_runs_are_told_in_smaller_units() -> None:
    said = "\n".join(explain.explain(predicted("tp=1", "demo", 1), TOKENS, "layout"))
    assert "MiB      %" in said and " ms a step" in said and "e-0" not in said
    [heading, _] = text.table([("1", predicted("tp=1", "demo", 1))], TOKENS)
    assert "step ms" in heading and " MiB " in heading
