"""Plans of ablations: which runs there are, what is the same in all, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from corpus.engine import durable
from corpus.engine.errors import UsageError
from pretrain.ablation import plan as planning
from pretrain.ablation.plan import Plan, check_record, new_plan, record, steps_for
from pretrain.config import load_config
from tests.pretrain.ablation.builds import build
from tests.pretrain.texts import small_tokenizer
from tests.tokenizer.texts import documents
from tokenizer.model import Tokenizer


def planned(arms: list[str], config: str, *overrides: str, **options: Any) -> Plan:
    return new_plan(arms, config, overrides, **{"num_seeds": 2, **options})


def test_runs_are_all_arms_of_a_seed_before_the_next(arms: list[str], config: str) -> None:
    plan = planned(arms, config)
    assert [run.name for run in plan.runs] == ["one-seed7", "other-seed7", "one-seed8", "other-seed8"]
    assert [plan.overrides_of(run)[-1] for run in plan.runs] == [f"training.seed={seed}" for seed in (7, 7, 8, 8)]
    assert {tuple(plan.overrides_of(run)[:-1]) for run in plan.runs} == {plan.overrides}


def test_a_run_differs_from_another_in_seed_and_text_alone(arms: list[str], config: str) -> None:
    plan = planned(arms, config, "optimizer.learning_rate=0.005", num_steps=10, points=3)
    for run in plan.runs:
        own = load_config(config, plan.overrides_of(run))
        assert own == plan.config.model_copy(
            update={"training": plan.config.training.model_copy(update={"seed": run.seed})}
        )
    assert plan.config.optimizer.learning_rate == 0.005
    assert (plan.num_steps, plan.config.checkpoint.every_steps, plan.config.checkpoint.keep_every_steps) == (10, 4, 4)


def test_tokens_become_steps(arms: list[str], config: str) -> None:
    plan = planned(arms, config, least_tokens=641)  # a step takes 4 x 16
    assert (plan.num_steps, plan.num_tokens) == (11, 704)
    assert planned(arms, config, least_tokens=640).num_steps == 10
    assert planned(arms, config).num_steps == 6  # the configuration's


def test_tokens_of_a_batch_that_grows(config: str) -> None:
    growing = load_config(
        config, ["training.rampup={start=1, increment=1, num_samples=6}", "training.micro_batch_size=1"]
    )
    for wanted in (1, 16, 17, 100, 1000):
        steps = steps_for(growing, wanted)
        taken = planning.BatchSizes(4, growing.training.rampup)
        assert taken.num_samples(steps) * 16 >= wanted > taken.num_samples(steps - 1) * 16


def test_epochs_are_of_each_arm_and_many_are_warned_of(arms: list[str], config: str) -> None:
    plan = planned(arms, config)
    for arm in plan.arms:
        assert plan.epochs(arm) == 24 / (sum(shard.num_tokens for shard in arm.shards) // 16)
    assert plan.warnings() == []
    small, large = plan.arms
    assert small.num_tokens < large.num_tokens
    steps = 4 * (small.num_tokens // 16) // 4  # four epochs of the smaller one
    assert planned(arms, config, num_steps=steps).warnings() == []
    (warning,) = planned(arms, config, num_steps=steps + 1).warnings()
    assert warning.startswith("one: its text is read 4.0 times")


def test_arms_of_different_tokenizers_are_refused_with_advice(arms: list[str], config: str, tmp_path: Path) -> None:
    stranger = small_tokenizer(tmp_path / "other.model", vocab_size=480)
    folder = build(tmp_path / "third", stranger, documents(10))
    with pytest.raises(UsageError, match=rf"--recipe RECIPE --out {folder} --tokenizer {arms[0].partition('=')[2]}"):
        planned([*arms, f"third={folder}"], config)


def test_what_are_no_two_arms(arms: list[str], config: str, tmp_path: Path, tokenizer: Tokenizer) -> None:
    one = arms[0].partition("=")[2]
    empty = build(tmp_path / "empty", tokenizer, [], documents(2))
    for words, message in [
        (arms[:1], "two builds or more"),
        ([arms[0], f"one={arms[1].partition('=')[2]}"], "--arm one: is two arms"),
        ([arms[0], f"again={one}"], "another arm is the same text"),
        ([arms[0], one], "write NAME=FOLDER"),
        ([arms[0], f"a/b={one}"], "write NAME=FOLDER"),
        ([arms[0], f"=  {one}"], "write NAME=FOLDER"),
        ([arms[0], "far=s3://bucket/build"], "local disk"),
        ([arms[0], f"empty={empty}"], "no train documents"),
    ]:
        with pytest.raises(UsageError, match=message):
            planned(words, config)


@pytest.mark.parametrize("override", ["training.num_steps=5", "checkpoint.every_steps=1", "checkpoint.url=s3://a/b"])
def test_what_the_ablation_says_itself_cannot_be_set(arms: list[str], config: str, override: str) -> None:
    with pytest.raises(UsageError, match=rf"--set {override}"):
        planned(arms, config, override)


def test_configurations_that_cannot_be_used(arms: list[str], config: str, tmp_path: Path) -> None:
    text = Path(config).read_text()
    (tmp_path / "store.toml").write_text(text.replace("[checkpoint]\n", '[checkpoint]\nurl = "s3://a/b"\n'))
    with pytest.raises(UsageError, match=r"checkpoint\.url"):
        planned(arms, str(tmp_path / "store.toml"))
    (tmp_path / "corpora.toml").write_text(text + '[[data.corpora]]\npath = "elsewhere"\n')
    with pytest.raises(UsageError, match="names the corpora already"):
        planned(arms, str(tmp_path / "corpora.toml"))
    for options in ({"num_seeds": 0}, {"points": 0}):
        with pytest.raises(UsageError, match="1 or more"):
            planned(arms, config, **options)


def test_a_folder_keeps_its_settings_and_takes_more_seeds_and_arms(
    arms: list[str], config: str, tmp_path: Path
) -> None:
    path = tmp_path / "out" / "ablation.json"
    first = check_record(path, record(planned(arms, config), {"one": "a", "other": "b"}))
    path.parent.mkdir()
    durable.write_json(path, first)

    more = record(planned(arms, config, num_seeds=5), {"one": "a", "third": "c"})
    assert check_record(path, more)["arms"] == {"one": "a", "other": "b", "third": "c"}

    with pytest.raises(UsageError, match=r"another optimizer\.learning_rate, schedule\.warmup_steps\."):
        changed = planned(arms, config, "optimizer.learning_rate=0.1", "schedule.warmup_steps=1")
        check_record(path, record(changed, {}))
    with pytest.raises(UsageError, match="arm one was another text"):
        check_record(path, record(planned(arms, config), {"one": "z"}))
    durable.write_json(path, {"format": 0})
    with pytest.raises(UsageError, match="no record of an ablation"):
        check_record(path, first)


def test_the_points_of_a_curve_end_with_the_last_step(arms: list[str], config: str) -> None:
    assert planned(arms, config, num_steps=10, points=3).measured_steps == [4, 8, 10]
    assert planned(arms, config, num_steps=6, points=2).measured_steps == [3, 6]
    assert planned(arms, config, num_steps=2, points=5).measured_steps == [1, 2]
