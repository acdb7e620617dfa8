"""Configurations: named ones load, mistakes are all listed with their paths, nothing depends on the mesh."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any

import pytest

from corpus.engine.config import parse
from corpus.engine.errors import UsageError
from pretrain.batch_size import BatchSizes, check_batch_sizes
from pretrain.config import RunConfig, load_config, named_configs, to_json, with_vocab_size
from pretrain.schedules import SCHEDULES, ScheduleSpec
from tests.pretrain.tiny import tiny_config


@pytest.mark.parametrize("name", named_configs())
def test_named_configurations_load_and_survive_json(name: str) -> None:
    config = load_config(name)
    assert parse(RunConfig, to_json(config), name) == config


def test_the_named_configurations() -> None:
    names = named_configs()
    assert names == sorted(names) and {"demo", "gpt2-124m", "yuan-13b"} <= set(names)
    yuan = load_config("yuan-13b")
    training, schedule = yuan.training, yuan.schedule
    sizes = BatchSizes(training.global_batch_size, training.rampup)
    assert 0 <= 146_484_375 - sizes.num_samples(training.num_steps) < 2688
    assert sizes.num_samples(training.num_steps) * yuan.model.sequence_length == pytest.approx(300.0e9, rel=1e-3)
    assert abs(sizes.num_samples(schedule.warmup_steps) - 488_280) <= 2240 / 2
    assert schedule.decay_steps is not None
    assert abs(sizes.num_samples(schedule.warmup_steps + schedule.decay_steps) - 131_835_937) <= 2688 / 2
    check_batch_sizes(training, 112)


def test_overrides_and_own_files(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(Path(__file__).parents[2].joinpath("pretrain/configs/demo.toml").read_text())
    config = load_config(str(path), ["training.num_steps=777", "model.norm=layernorm"])
    assert (config.training.num_steps, config.model.norm) == (777, "layernorm")


def test_every_mistake_is_listed() -> None:
    with pytest.raises(UsageError) as caught:
        load_config("demo", ["model.num_layer=3", "training.num_steps=0", "parallel.zero=4"])
    message = str(caught.value)
    assert caught.value.exit_code == 2
    for part in (
        "3 errors",
        "model.num_layer: unknown key; did you mean num_layers?",
        "training.num_steps",
        "parallel.zero",
    ):
        assert part in message


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("model.num_heads=5", "hidden_size 192 does not divide into num_heads 5"),
        ("model.num_kv_heads=4", "must be a multiple of num_kv_heads 4"),
        ("model.padded_vocab_size=8100", "must be a multiple of 128, for example 8192"),
        ("model.vocab_size=9000", "padded_vocab_size 8192 is below vocab_size 9000"),
        ("schedule.warmup_steps=100000", "longer than the run"),
        ("training.micro_batch_size=3", "must be a multiple of training.micro_batch_size 3"),
        ("training.max_grad_norm=0", "greater than 0"),
        ("training.max_grad_norm=inf", "finite number"),
        ("training.seed=9223372036854775808", "less than 9223372036854775808"),
        ("schedule.decay_steps=0", "greater than or equal to 1"),
        ("training.rampup={start=5,increment=1,num_samples=9}", "rampup.start 5 is above global_batch_size 4"),
        ("training.rampup={start=1,increment=2,num_samples=9}", "no whole number of increments of 2"),
        ("training.rampup={start=1,increment=0,num_samples=9}", "greater than or equal to 1"),
        ('data.corpora=[{path="a"},{path="b/a"}]', "two corpora are called a"),
        ('data.corpora=[{path="."}]', "Give the corpus a `name`"),
        ('data.corpora=[{path="a"},{path="b",weight=2.0},{path="c",epochs=1.0}]', "a: needs a weight or epochs"),
        ('data.corpora=[{path="a",weight=2.0,epochs=1.0}]', "a: has a weight and epochs"),
        ('data.corpora=[{path="a",weight=0.0}]', "greater than 0"),
        ('checkpoint.url="runs/a"', "url runs/a is not of object storage. Leave it out"),
    ],
)
def test_what_does_not_fit_is_refused(override: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        load_config("demo", [override])


@pytest.mark.parametrize(
    ("layout", "message"),
    [
        ({"tp": 3}, "tp 3 ranks cannot share 4 heads of keys and values evenly. Use a divisor of it, for example 1"),
        ({"tp": 8}, "tp 8 ranks cannot share 4 heads of keys and values evenly. Use a divisor of it, for example 4"),
        ({"pp": 5}, "pp 5 x 1 stages on a rank are 5 stages, and the model has 4 layers.*lower parallel.pp or"),
        ({"pp": 2, "schedule": "interleaved", "stages_per_rank": 3}, "2 x 3 stages on a rank are 6 stages, and"),
        ({"pp": 2, "layers_per_stage": [1, 2, 1]}, "has 3 entries, but pp 2 x 1 .* are 2 stages. Give one entry"),
        ({"pp": 2, "layers_per_stage": [1, 2]}, "has 3 layers in all, the model 4. Let them be equal"),
        ({"pp": 2, "layers_per_stage": [4, 0]}, "greater than or equal to 1"),
        ({"pp": 2, "stages_per_rank": 2}, "1f1b runs exactly 1 stages on a rank, stages_per_rank is 2.*choose inter"),
        ({"pp": 2, "schedule": "gpipe", "stages_per_rank": 2}, "gpipe runs exactly 1"),
        (
            {"pp": 2, "schedule": "interleaved", "stages_per_rank": 1},
            "at least 2 .* is 1. Leave it out, or choose 1f1b",
        ),
        (
            {"pp": 2, "schedule": "zbv", "stages_per_rank": 1},
            "zbv runs exactly 2 stages on a rank, stages_per_rank is 1",
        ),
        (
            {"pp": 2, "schedule": "zbv", "stages_per_rank": 3},
            "zbv runs exactly 2 stages on a rank, stages_per_rank is 3",
        ),
        (
            {"stages_per_rank": 2},
            "stages_per_rank is of a pipeline, and pp is 1. Raise pp, or leave stages_per_rank out",
        ),
        ({"layers_per_stage": [4]}, "layers_per_stage is of a pipeline, and pp is 1"),
        ({"recompute": "selective", "recompute_every": 2}, "recompute_every 2 .* full, not selective. Leave it out"),
        ({"recompute_every": 2}, "recompute_every 2 .* full, not none"),
        ({"zero": 4}, "1, 2 or 3"),
        ({"schedule": "dualpipe"}, "'gpipe', '1f1b', 'interleaved', 'zero-bubble' or 'zbv'"),
    ],
)
def test_layouts_that_do_not_fit_are_refused(layout: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        tiny_config(model={"num_layers": 4}, parallel=layout)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ({"num_kv_heads": 1}, "2 ranks cannot share 1 heads of keys and values"),
        ({"ffn_hidden_size": 33}, "2 ranks cannot share 33 feed-forward channels"),
        ({"sequence_length": 15}, "2 ranks cannot share 15 tokens of a sequence"),
    ],
)
def test_models_that_ranks_cannot_share_are_refused(model: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        tiny_config(model=model, parallel={"tp": 2})
    if "sequence_length" in model:
        tiny_config(model=model, parallel={"tp": 2, "sequence_parallel": False})
    with pytest.raises(UsageError, match=r"384 ranks cannot share 256 entries .* example 128"):
        heads = {"num_heads": 384, "hidden_size": 768, "ffn_hidden_size": 768}
        tiny_config(model=heads, parallel={"tp": 384})


@pytest.mark.parametrize(("schedule", "spec"), SCHEDULES.items(), ids=SCHEDULES)
def test_legal_layouts_are_taken(schedule: str, spec: ScheduleSpec) -> None:
    recomputes = [("none", 1), ("selective", 1), ("full", 1), ("full", 3)]
    axes = product((1, 2, 4), (1, 2, 4), (False, True), (1, 2, 3), (1, 2), recomputes)
    for tp, pp, sequence_parallel, zero, dp_replicate, (recompute, every) in axes:
        layout = {"tp": tp, "pp": pp, "sequence_parallel": sequence_parallel, "zero": zero, "schedule": schedule,
                  "dp_replicate": dp_replicate, "recompute": recompute, "recompute_every": every}  # fmt: skip
        if pp == 1:
            assert tiny_config(parallel=layout).parallel.num_stages == 1
            continue
        for chunks in {spec.fewest_chunks, spec.most_chunks or 4}:
            num_stages = pp * chunks
            model = {"num_layers": num_stages + 1}
            uneven = layout | {"stages_per_rank": chunks, "layers_per_stage": [2, *[1] * (num_stages - 1)]}
            assert tiny_config(model=model, parallel=uneven).parallel.num_stages == num_stages
        default = tiny_config(model={"num_layers": 16}, parallel=layout).parallel
        assert default.chunks == spec.fewest_chunks


def test_an_unknown_name_lists_the_known_ones() -> None:
    with pytest.raises(UsageError, match=r"no such file, and none of .*demo, .*gpt2-124m"):
        load_config("gpt5")


def test_the_tokenizer_must_fit_the_model() -> None:
    config = tiny_config(model={"vocab_size": None})
    assert with_vocab_size(config, 200).model.vocab_size == 200
    with pytest.raises(UsageError, match=r"300 entries.*--set model\.padded_vocab_size=384"):
        with_vocab_size(config, 300)
    with pytest.raises(UsageError, match="has 200 entries, the configuration says 250"):
        with_vocab_size(tiny_config(), 200)
