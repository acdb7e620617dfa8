"""Results of an ablation: what is compared, what the tables and the page say."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import numpy as np
import pytest
from rich.cells import cell_len

from pretrain.ablation.measuring import Accuracy, Measured
from pretrain.ablation.page import bars, render
from pretrain.ablation.plan import Plan, new_plan
from pretrain.ablation.results import Metric, Results, collect, exclusion_lines, tables, to_json
from pretrain.ablation.unseen import Document, Held
from tests.html_page import Page

HELD = (
    Held("held out", "one", (Document(np.arange(3), "一二三", "0" * 32),), num_same_id=1, num_same_text=2),
    Held("text", "<诗>", (Document(np.arange(3), "四五六", None),)),
    Held("text", "gone", (), num_same_text=4),
)
BITS = {"one": [5.0, 5.2, 5.1], "other": [5.5, 5.71, 5.59]}


@pytest.fixture
def plan(arms: list[str], config: str) -> Plan:
    return new_plan(arms, config, [], num_seeds=3, num_steps=4, points=2)


def measured(bits: float, accuracy: float | None = None) -> Measured:
    return Measured(
        of="",
        bits_per_character={"held out/one": bits, "text/<诗>": 9 - bits},
        curves={"held out/one": {"2": bits + 1, "4": bits}},
        accuracy={} if accuracy is None else {"tnews": Accuracy(share=accuracy, num_items=50, chance=0.25)},
    )


@pytest.fixture
def results(plan: Plan) -> Results:
    found = {
        f"{arm}-seed{seed}": measured(bits, 0.5 + place / 10)
        for arm, values in BITS.items()
        for place, (seed, bits) in enumerate(zip((7, 8, 9), values, strict=True))
    }
    return collect(plan, HELD, found)


def test_the_json_holds_values_means_and_differences(results: Results) -> None:
    values = json.loads(json.dumps(to_json(results)))
    assert (values["seeds"], values["steps"], values["tokens"]) == ([7, 8, 9], 4, 4 * 4 * 16)
    held, text, task = values["metrics"]
    assert [(m["kind"], m["name"], m["better"]) for m in (held, text, task)] == [
        ("held out", "one", "lower"),
        ("text", "<诗>", "lower"),
        ("task", "tnews", "higher"),
    ]
    assert {arm: found["values"] for arm, found in held["arms"].items()} == BITS
    other = held["arms"]["other"]
    assert other["mean"] == pytest.approx(5.6)
    deviation = math.sqrt((0.1**2 + 0.11**2 + 0.01**2) / 2)
    assert other["standard_deviation"] == pytest.approx(deviation)
    # differences 0.5, 0.51, 0.49: deviation 0.01
    half = 4.30265 * 0.01 / math.sqrt(3)
    assert other["difference"]["mean"] == pytest.approx(0.5)
    assert other["difference"]["interval"] == pytest.approx([0.5 - half, 0.5 + half], rel=1e-5)
    assert other["difference"]["verdict"] == "worse"
    assert text["arms"]["other"]["difference"]["verdict"] == "better"
    assert task["arms"]["other"]["difference"]["verdict"].startswith("not told apart")
    assert "difference" not in held["arms"]["one"]
    assert task["about"] == "50 items, chance 0.250"
    assert values["curves"]["held out/one"]["other"] == {"2": [6.5, 6.71, 6.59], "4": [5.5, 5.71, 5.59]}
    assert values["held_out"][0] == {
        "kind": "held out", "name": "one", "documents": 1, "left_out_same_id": 1, "left_out_same_text": 2
    }  # fmt: skip


def test_only_seeds_that_every_arm_has_are_compared(plan: Plan) -> None:
    found = {"one-seed7": measured(5), "one-seed8": measured(5), "other-seed7": measured(6), "one-seed9": measured(5)}
    results = collect(plan, HELD, found)
    assert results.seeds == (7,)
    assert results.metrics[0].values == {"one": [5.0], "other": [6.0]}
    assert "Not finished: 1 of 3 seeds" in Page(render(results)).text
    with pytest.raises(ValueError, match="no seed is finished"):
        collect(plan, HELD, {"one-seed7": measured(5), "other-seed8": measured(5)})


def test_tables_of_three_arms_fit_into_80_columns(results: Results) -> None:
    values = {"base": [5.0, 5.2, 5.1], "no-filter": [5.5, 5.71, 5.1], "no-dedup": [5.5, 5.71, 5.1]}
    wide = [Metric("text", "wikipedia_paragraphs.jsonl", values, ""), Metric("text", "新闻与百科", values, "")]
    text = tables(results._replace(metrics=wide)).partition("\n\n")[2]
    assert max(map(cell_len, text.splitlines())) <= 80
    one, other = (line for line in text.splitlines() if "±0.1" in line)
    assert cell_len(one[: one.index("5.100")]) == cell_len(other[: other.index("5.100")])


def test_curves_are_of_the_steps_that_all_seeds_have(plan: Plan) -> None:
    found = {f"{arm}-seed{seed}": measured(5) for arm in BITS for seed in (7, 8, 9)}
    curves = {"held out/one": {"10": 5.0, "2": 7.0, "3": 6.5}}  # as JSON sorts them; 3: where a signal stopped it
    found["one-seed7"] = found["one-seed7"].model_copy(update={"curves": curves})
    found["one-seed8"] = found["one-seed7"].model_copy(update={"curves": {"held out/one": {"10": 5.0, "2": 7.0}}})
    found["one-seed9"] = found["one-seed8"]
    assert list(collect(plan, HELD, found).curves["held out/one"]["one"]) == [2, 10]


def test_the_same_documents_of_two_arms_are_said_to_be_the_same() -> None:
    one, text, gone = HELD
    lines = exclusion_lines([one, replace(one, name="other"), text, gone, gone])
    assert [line for line in lines if "same documents" in line] == ["the same documents: held out one, held out other"]


def test_a_single_seed_has_no_error_bars(plan: Plan) -> None:
    results = collect(plan, HELD, {"one-seed7": measured(5), "other-seed7": measured(6)})
    assert "±" not in tables(results).split("± is the")[0]
    assert "not told apart with 1 seed" in tables(results)
    assert to_json(results)["metrics"][0]["arms"]["other"]["difference"]["interval"] is None
    assert "<path" not in bars(results.metrics[0]).figure  # points alone


def test_the_page_shows_the_point_of_every_seed(results: Results) -> None:
    page = Page(render(results))
    figures = [bars(metric).figure for metric in results.metrics]
    for figure, metric in zip(figures, results.metrics, strict=True):
        circles = [attributes for tag, attributes in Page(figure).tags if tag == "circle"]
        assert len(circles) == 6
        places = [float(str(circle["cx"])) for circle in circles]
        values = [value for arm in metric.values.values() for value in arm]
        assert sorted(range(6), key=places.__getitem__) == sorted(range(6), key=values.__getitem__)
        assert [circle["class"] for circle in circles] == ["c0"] * 3 + ["c1"] * 3
    assert "white-space: nowrap" in page.text.split("<")[0] and "<诗>" in page.text
    page.check()
    assert "worse" in page.text
    assert sum(tag == "svg" for tag, _ in page.tags) == len(results.metrics) + 1  # and one learning curve


def test_error_bars_reach_one_deviation_to_both_sides(results: Results) -> None:
    tags = Page(bars(results.metrics[0]).figure).tags
    path = str(next(attributes["d"] for name, attributes in tags if name == "path"))
    low, high, *_ = (float(str(attributes["cx"])) for name, attributes in tags[:20] if name == "circle")
    assert path.startswith(f"M{low:.1f} ") and f"H{high:.1f}" in path  # 5.0 and 5.2: mean 5.1, deviation 0.1
