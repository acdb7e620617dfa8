"""`python -m pretrain plan`: what is asked is answered, as text and as JSON, and every mistake is one sentence that
helps."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pretrain.config import load_config
from pretrain.plan import command
from pretrain.plan.cost import predict
from pretrain.plan.machines.cluster import load_cluster
from pretrain.plan.pages import arguments
from pretrain.plan.pages.text import WIDTH
from pretrain.plan.search.search import Constraints, search
from pretrain.plan.tuning import tune
from pretrain.plan.tuning.measure import Measurement
from pretrain.workload import parameters

ON_CORES = ("plan", "--config", "demo", "--cluster", "cpu", "--gpus", "2")
ON_GPUS = ("plan", "--config", "demo", "--cluster", "selene-a100-80", "--gpus", "4")
HELD = (*ON_GPUS, "--only", "recompute=none,zero=2,offload=off")  # to few layouts: quick


def test_the_best_layouts_are_ranked_and_the_configured_one_placed(ask: Any) -> None:
    said = ask(*HELD, "--top", "3")
    lines = said.splitlines()
    assert max(map(len, lines)) <= WIDTH
    config = load_config("demo")
    plans = search(
        config,
        4,
        load_cluster("selene-a100-80"),
        constraints=Constraints(recompute=("none",), zero=(2,), offload=(False,)),
    )
    assert lines[0].startswith("demo: 2.901 M parameters on 4 x A100-SXM4-80GB (selene-a100-80, 1 node of 8)")
    assert f"{plans.considered:,} legal layouts" in lines[2] and f" {len(plans.layouts):,} shapes" in lines[2]
    tables = [index for index, line in enumerate(lines) if line.split()[:1] in (["1"], ["*1"])]
    assert len(tables) == 2
    for place, prediction in enumerate(plans.layouts[:3], 1):
        row = lines[tables[0] + place - 1].split()
        assert row[0].strip("*") == str(place)
        assert row[1].rstrip("-") == str(prediction.config.parallel.tp)
    [placed] = [line for line in lines if line.startswith("* the configuration's own layout")]
    rank = plans.rank_of(predict(config, 4, load_cluster("selene-a100-80")))
    assert f"is {rank.words}" in placed
    assert ("not there, and why:" in lines) == bool(plans.rejected)
    assert "--explain 1" in said


def test_json_is_one_object_and_nothing_else(ask: Any) -> None:
    answer = json.loads(ask(*HELD, "--json", "--top", "2"))
    assert answer["num_parameters"] == parameters.of_model(load_config("demo").model)
    assert [layout["rank"] for layout in answer["layouts"]] == [1, 2]
    first = answer["layouts"][0]
    assert first["tensor_parallel"] * first["pipeline_parallel"] * first["data_parallel"] == 4
    assert first["data_parallel_replicate"] * first["data_parallel_shard"] == first["data_parallel"]
    assert first["step_seconds"] <= answer["layouts"][1]["step_seconds"]
    assert first["step_seconds"] == pytest.approx(sum(first["seconds"].values()))
    assert first["tokens_per_second"] == pytest.approx(answer["tokens_per_step"] / first["step_seconds"])
    assert first["memory_bytes"] > 0 and first["fits"] and first["missing_bytes"] == 0
    assert first["days"] == pytest.approx(answer["tokens"] / first["tokens_per_second"] / 86_400)
    assert 0 < first["mfu"] <= first["hfu"] < 1 and first["tflops_per_gpu"] == pytest.approx(first["hfu"] * 19.5)
    assert set(first["communication"]) == {"tensor", "pipeline", "data"}
    assert all(set(family) == {"family", "reason", "layouts"} for family in answer["rejected"])
    assert answer["configured"]["rank"] >= 1
    assert answer["considered"] >= answer["fitting"] >= 2


def test_json_of_one_layout_holds_that_one_and_searches_for_no_other(ask: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arguments, "search", None)
    answer = json.loads(ask(*HELD, "--layout", "tp=1,pp=2,replicate=2,mbs=1,recompute=full", "--json"))
    [layout] = answer["layouts"]
    assert (layout["tensor_parallel"], layout["pipeline_parallel"], layout["data_parallel"]) == (1, 2, 2)
    assert (layout["data_parallel_replicate"], layout["data_parallel_shard"]) == (2, 1)
    assert layout["micro_batch_size"] == 1 and layout["recompute"] == "full" and layout["rank"] is None
    assert layout["hfu"] > layout["mfu"]
    assert answer["num_parameters"] > 0 and answer["rejected"] == []


def test_a_layout_gets_its_place_and_why_it_is_not_the_first(ask: Any) -> None:
    said = ask(*HELD, "--layout", "tp=2,pp=2,dp=1,mbs=1")
    assert max(map(len, said.splitlines())) <= WIDTH
    assert "layout: tp=2,pp=2,dp=1,mbs=1,zero=2" in said
    assert "It is slower than all " in said and " longer than 1: " in said
    assert said.splitlines()[-1].startswith("1 is tp=")
    best = json.loads(ask(*HELD, "--json", "--top", "1"))["layouts"][0]["layout"]
    assert "It is at place 1 of" in ask(*HELD, "--layout", best)


def test_a_layout_where_nothing_fits_is_predicted_all_the_same(ask: Any) -> None:
    words = (
        "plan",
        "--config",
        "yuan-245b",
        "--cluster",
        "selene-a100-80",
        "--gpus",
        "16",
        "--only",
        "tp=8,pp=2,offload=off,zero=1,recompute=full",
    )
    said = ask(*words, "--layout", "tp=8,pp=2,dp=1,mbs=1")
    assert "It does not fit: " in said and "Nothing to compare it with: " in said
    answer = json.loads(ask(*words, "--layout", "tp=8,pp=2,dp=1,mbs=1", "--json"))
    [layout] = answer["layouts"]
    assert not layout["fits"] and layout["missing_bytes"] > 0 and layout["rank"] is None


def test_explain_and_compare_take_ranks_and_layouts(ask: Any) -> None:
    answer = json.loads(ask(*HELD, "--json", "--top", "2"))
    first, second = (layout["layout"] for layout in answer["layouts"])
    assert f"layout 1: {first}" in ask(*HELD, "--explain").replace("\n  ", "")
    assert f"layout 2: {second}" in ask(*HELD, "--explain", "2").replace("\n  ", "")
    assert f"layout: {second}" in ask(*HELD, "--explain", second).replace("\n  ", "")
    said = ask(*HELD, "--compare", "1", "2")
    assert f"1: {first}\n2: {second}" in said
    assert f"A: {first}\nB: tp=2" in ask(*HELD, "--compare", "1", "tp=2,mbs=1")


def test_a_search_is_held_to_what_only_and_schedule_say(ask: Any) -> None:
    answer = json.loads(ask(*HELD, "--only", "tp=1/2,pp=2,mbs=1", "--schedule", "1f1b", "--json"))
    assert {layout["tensor_parallel"] for layout in answer["layouts"]} <= {1, 2}
    assert {(layout["pipeline_parallel"], layout["schedule"]) for layout in answer["layouts"]} == {(2, "1f1b")}
    assert {layout["recompute"] for layout in answer["layouts"]} == {"none"}


def test_tokens_and_overrides_count(ask: Any) -> None:
    words = ("--json", "--top", "1", "--only", "tp=1")
    usual = json.loads(ask(*ON_CORES, *words))
    config = load_config("demo")
    assert (
        usual["tokens"] == config.training.num_steps * config.training.global_batch_size * config.model.sequence_length
    )
    more = json.loads(ask(*ON_CORES, *words, "--tokens", "1.5B", "--set", "training.global_batch_size=8"))
    assert more["tokens"] == 1_500_000_000 and more["tokens_per_step"] == 2 * usual["tokens_per_step"]
    assert json.loads(ask(*ON_CORES, *words, "--software", "megatron-2021"))["software"] == "megatron-2021"


def test_scaling_and_rules_stand_alone_or_in_json(ask: Any, tmp_path: Path) -> None:
    page = tmp_path / "plan.html"
    said = ask(*ON_CORES, "--rules", "--scaling", "1", "2", "--report", str(page))
    assert max(map(len, said.splitlines())) <= WIDTH
    assert "legal layouts" not in said and said.count("\n") > 10
    assert "strong" in page.read_text(encoding="utf-8").lower()
    answer = json.loads(ask(*ON_CORES, "--rules", "--scaling", "1", "2", "--json"))
    assert answer["rules"] and answer["scaling"] and answer["layouts"]


def test_measured_layouts_and_what_was_learnt(
    ask: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Runs are not made here: each is said to take twice what was predicted."""
    ran = []

    def twice(config: Any, num_ranks: int, **kinds: Any) -> Measurement:
        ran.append(config)
        seconds = 2 * predict(config, num_ranks, load_cluster("cpu")).step_seconds
        return Measurement("done", (seconds,) * 3, (100 << 20,) * num_ranks, "")

    monkeypatch.setattr(tune.measure, "measure", twice)
    refitted = tmp_path / "refitted.toml"
    said = ask(*ON_CORES, "--measure", "1", "--refitted", str(refitted))
    assert ran and "fastest: tp=" in said
    assert load_cluster(str(refitted)).name == "cpu"
    answer = json.loads(ask(*ON_CORES, "--measure", "1", "--json"))
    assert answer["measured"]["runs"][0]["measured_step_seconds"] > 0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--cluster", "cpu"), "--config: name a TOML file or one of asc22-4.7b,"),
        (("--config", "demoo", "--cluster", "cpu"), "--config demoo: no such file, and none of"),
        (("--config", "demo"), "--cluster: there is no GPU here, so name the machine: cpu, "),
        (("--config", "demo", "--cluster", "selena"), "--cluster selena: no such file, and none of cpu,"),
        (("--gpus", "0"), "--gpus 0: it must be 1 or more"),
        (("--scaling", "1", "0"), "0 devices: a step takes one at least"),
        (("--software", "ourz"), "--software ourz: known are ours,"),
        (("--tokens", "many"), "--tokens many: write a number of tokens, for example 600k, 300B"),
        (("--layout", "tp=3"), "tp 3"),
        (("--only", "gbs=3"), "--only gbs=3: a search is held to tp, pp, dp, "),
        (("--explain", "900"), "--explain 900: there are ranks 1 to "),
        (("--explain", "0"), "--explain 0: there are ranks 1 to "),
        (("--compare", "1", "tp=x"), "--compare tp=x: tp is a number, 1 or more"),
        (("--measure", "2", "--layout", "tp=1"), "--measure runs the best layouts of a search"),
        (("--refitted", "x.toml"), "--refitted x.toml: nothing is measured. Add --measure 3"),
        (("--set", "training.global_batch_size"), "--set training.global_batch_size: expected SECTION.KEY=VALUE"),
    ],
    ids=lambda words: " ".join(words) if isinstance(words, tuple) else "",
)
def test_a_mistake_is_one_sentence_that_helps(refuse: Any, words: tuple[str, ...], said: str) -> None:
    usual = () if {"--config", "--cluster"} & set(words) else ON_CORES[1:]
    assert said in refuse("plan", *usual, *words)


def test_a_cluster_has_only_so_many_devices(refuse: Any, tmp_path: Path) -> None:
    text = (Path(command.__file__).parent / "machines/clusters/cpu.toml").read_text()
    few = tmp_path / "few.toml"
    few.write_text("most_devices = 2\n" + "\n".join(line for line in text.splitlines() if "most_devices" not in line))
    words = ("plan", "--config", "demo", "--cluster", str(few), "--gpus")
    for asked in (("4",), ("4", "--layout", "tp=2,dp=2"), ("2", "--scaling", "2", "4")):
        assert "has 2 devices, 2 fewer than the 4 that are asked for. Ask for 2 at most" in refuse(*words, *asked)


def test_a_configuration_that_lies_elsewhere_is_said_so(ask: Any) -> None:
    """frontier-1t's own layout is none of 3,072 dies with its batch."""
    said = ask(
        "plan",
        "--config",
        "frontier-1t",
        "--cluster",
        "frontier-mi250x",
        "--gpus",
        "3072",
        "--only",
        "tp=8,pp=96,mbs=1,recompute=full,schedule=1f1b",
    )
    assert "* the configuration's own layout is none of these devices: " in said
