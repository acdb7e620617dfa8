"""The page of a plan: what it shows, that it asks for nothing and escapes everything, and that drawings say what is
so."""

from __future__ import annotations

import re
from dataclasses import replace
from xml.etree import ElementTree

import pytest

from pretrain.config import RunConfig, load_config
from pretrain.parallel.base.simulate import Timeline, simulate
from pretrain.plan.cost import predict
from pretrain.plan.machines.cluster import Cluster, load_cluster
from pretrain.plan.naming import layout_name
from pretrain.plan.pages import report, rules, timeline
from pretrain.plan.pages.scaling import Curve, Point, Scaling
from pretrain.plan.prediction import Prediction
from pretrain.plan.search.legal import Layout
from pretrain.plan.search.search import Plans, Rejected
from pretrain.schedules import actions, stage_ranks
from tests.html_page import Page

EVIL = '</svg><script>alert("x")</script>"\'&|学'
DEVICES = 64


@pytest.fixture(scope="module")
def cluster() -> Cluster:
    return load_cluster("selene-a100-80")


@pytest.fixture(scope="module")
def config() -> RunConfig:
    return load_config("frontier-22b")


@pytest.fixture(scope="module")
def plans(config: RunConfig, cluster: Cluster) -> Plans:
    found = []
    for tp, pp in ((2, 1), (4, 1), (2, 2), (4, 4), (8, 1)):
        layout = Layout(tp, pp, 1, DEVICES // (tp * pp), 1, recompute="full")
        found.append(predict(layout.configure(config), DEVICES, cluster, exact=False))
    found.sort(key=lambda one: one.step_seconds)
    return Plans(found, [Rejected("tensor parallel 16", "16 do not divide 8 GPUs of a node", 12)], 17, 0.25)


def scaled(one: Prediction) -> Scaling:
    points = [Point(64, 640, one, "", 1.0), Point(128, 640, one, "", 0.75), Point(256, 640, None, "no", 0.0)]
    return Scaling([Curve("weak", False, points), Curve("strong", True, points)], "tp=2, kept")


def svgs(page: str) -> list[ElementTree.Element]:
    return [ElementTree.fromstring(found) for found in re.findall(r"<svg.*?</svg>", page, re.DOTALL)]


def test_everything_is_on_the_page(plans: Plans, config: RunConfig, cluster: Cluster) -> None:
    own = predict(config, DEVICES, cluster)
    text = report.render(
        plans, 180 * 10**9, name="frontier-22b", marked={"configured": own}, scaled=scaled(plans.best),
        ruled=rules.rules(config, DEVICES, cluster),
    )  # fmt: skip
    page = Page(text)
    for words in (
        "frontier-22b on 64 x A100-SXM4-80GB", "17 legal layouts", "22.07 B parameters", "180.0 B tokens in all",
        layout_name(plans.best.config, DEVICES), layout_name(config, DEVICES),
        f"configured: {plans.rank_of(own).words}",
        "73.6 of 80 GiB", "Throughput against memory", "tp=2, kept", "tensor parallel 16",
        "16 do not divide 8 GPUs of a node", "NVLink 3",
        *(rule.change for rule in rules.rules(config, DEVICES, cluster)),
    ):  # fmt: skip
        assert words in page.text, words
    marked = re.findall(r'<tr class="mark">.*?</tr>', text)
    assert len(marked) == 1 and "configured" in marked[0]
    assert len(svgs(text)) == 3 + 1 + 2 + 2  # bars, space, pipelines of the best with one and the configured, scaling


def test_it_asks_for_nothing_and_runs_nothing(plans: Plans) -> None:
    first = plans.best
    network = first.cluster.networks[0].model_copy(update={"name": EVIL})
    device = first.cluster.device.model_copy(update={"name": EVIL, "peak": {"bf16": 312e12}})
    cluster = first.cluster.model_copy(
        update={"name": EVIL, "description": EVIL, "device": device, "networks": (network, *first.cluster.networks[1:])}
    )
    evil = replace(first, cluster=cluster, software=replace(first.software, description=EVIL))
    hostile = Plans([evil, *plans.layouts[1:]], [Rejected(EVIL, EVIL, 1)], 1, 1.0)
    page = report.render(
        hostile, 10**9, name=EVIL, marked={EVIL: plans.layouts[1]},
        ruled=[rules.Rule(EVIL, EVIL, 1.0, 1.0, 1.0, 0.1, 0.5, 1, EVIL)], scaled=replace(scaled(evil), kept=EVIL),
    )  # fmt: skip
    assert page.count("alert(") >= 10 and len(svgs(page)) == 8
    Page(page).check()


def test_only_pipelines_are_drawn_as_such(plans: Plans) -> None:
    single = [one for one in plans.layouts if one.config.parallel.pp == 1]
    assert "Pipelines" not in Page(report.render(replace(plans, layouts=single), 1, marked={"own": single[0]})).text
    page = report.render(plans, 1, marked={"own": single[0]})
    assert page.count('class="wide"') == 1


def test_the_front_is_what_nothing_beats(plans: Plans) -> None:
    front = report.front(plans.layouts)
    for one in plans.layouts:
        smaller = [other for other in plans.layouts if other.memory_bytes <= one.memory_bytes]
        beaten = any(other.tokens_per_second > one.tokens_per_second for other in smaller)
        assert (one in front) == (not beaten)
    assert [one.memory_bytes for one in front] == sorted(one.memory_bytes for one in front)


def simulated(schedule: str, ranks: int, micro_batches: int, chunks: int = 1) -> Timeline:
    lists = actions(schedule, ranks, chunks, micro_batches)  # type: ignore[arg-type]
    return simulate(
        lists, stage_ranks(schedule, ranks, chunks), lambda action: {"F": 1.0, "B": 2.0}.get(action.kind, 1.0)
    )  # type: ignore[arg-type]


def test_a_short_step_is_drawn_whole() -> None:
    found = simulated("zbv", 3, 7, chunks=2)
    (svg,) = svgs(timeline.draw(found, "title").figure)
    blocks = list(svg.iter("rect"))
    assert len(blocks) == sum(map(len, found.lists))
    assert sum(block.get("class", "").endswith(" faint") for block in blocks) == len(blocks) // 2
    ends = [float(block.get("x", 0)) + float(block.get("width", 0)) for block in blocks]
    assert timeline.WIDTH - 4 < max(ends) <= timeline.WIDTH
    starts = {float(block.get("x", 0)) for block in blocks}
    assert min(starts) == timeline.LEFT


def test_a_long_step_is_drawn_by_its_ends() -> None:
    found = simulated("1f1b", 30, 200)
    shown = timeline.rows(30)
    assert len(shown) == timeline.MOST_ROWS and (shown[0], shown[-1]) == (0, 29) and shown == sorted(set(shown))
    window = timeline.fit(list(timeline.blocks(found, shown)), found.total)
    assert 0 < window.begin < window.rest < found.total and not window.is_whole
    figure = timeline.draw(found, "title").figure
    (svg,) = svgs(figure)
    assert 0.9 * timeline.MOST_BLOCKS <= len(list(svg.iter("rect"))) <= 1.1 * timeline.MOST_BLOCKS
    places = [window.place(value) for value in (0, window.begin, window.rest, found.total)]
    assert places == sorted(places) and places[2] - places[1] == pytest.approx(timeline.GAP)
    assert "20 of 30 ranks" in figure and "in the middle" in figure


def test_the_timeline_is_the_predicted_pipeline(config: RunConfig, cluster: Cluster) -> None:
    layout = Layout(4, 4, 1, 4, 1, recompute="full")
    one = predict(layout.configure(config), DEVICES, cluster)
    found = timeline.of(one)
    assert len(found.lists) == 4 and len(found.lists[0]) == 2 * one.micro_batches
    assert 0.9 * one.step_seconds < found.total < 1.02 * one.step_seconds
