"""Layouts in words: what is read back is what was written, and every mistake is one sentence that helps."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpus.engine.errors import UsageError
from pretrain.config import ParallelConfig, RunConfig, load_config
from pretrain.parallel.base.mesh import layout
from pretrain.plan.naming import layout_name, parse_constraints, parse_layout, parse_words
from tests.pretrain.tiny import tiny_config

YUAN = load_config("yuan-245b")


@st.composite
def layouts(draw: st.DrawFn) -> tuple[RunConfig, int]:
    """A layout of a model of 8 layers and 4 heads, and its number of ranks."""
    pp = draw(st.sampled_from([1, 2, 4]))
    schedule = draw(st.sampled_from(["gpipe", "1f1b", "interleaved", "zero-bubble", "zbv"]))
    parallel: dict[str, Any] = {
        "tp": draw(st.sampled_from([1, 2, 4])),
        "sequence_parallel": draw(st.booleans()),
        "pp": pp,
        "schedule": schedule,
        "dp_replicate": draw(st.sampled_from([1, 2])),
        "zero": draw(st.sampled_from([1, 2, 3])),
        "offload": draw(st.booleans()),
        "recompute": draw(st.sampled_from(["none", "selective", "full"])),
    }
    if parallel["recompute"] == "full":
        parallel["recompute_every"] = draw(st.sampled_from([1, 2]))
    if pp > 1 and schedule == "1f1b" and draw(st.booleans()):
        parallel["layers_per_stage"] = (8 - pp + 1, *[1] * (pp - 1))
    if pp == 2 and schedule in ("interleaved", "zero-bubble"):
        parallel["stages_per_rank"] = draw(st.sampled_from([2, 4]))
    shards = draw(st.sampled_from([1, 2]))
    training = {"micro_batch_size": draw(st.sampled_from([1, 2])), "global_batch_size": draw(st.sampled_from([8, 16]))}
    config = tiny_config(
        model={"num_layers": 8},
        parallel=parallel,
        training=training,
    )
    return config, parallel["tp"] * pp * parallel["dp_replicate"] * shards


def meaning(config: RunConfig, devices: int) -> tuple[Any, ...]:
    """All that a layout is; what has no effect left out."""
    parallel = config.parallel.model_dump(exclude={"dp_shard", "schedule", "sequence_parallel", "stages_per_rank"})
    told = config.parallel
    effects = (told.schedule if told.pp > 1 else None, told.chunks, told.sequence_parallel or told.tp == 1)
    training = config.training
    return parallel, effects, layout(told, devices), training.micro_batch_size, training.global_batch_size


@given(layouts(), layouts())
def test_a_name_is_read_back_over_any_configuration(
    chosen: tuple[RunConfig, int], other: tuple[RunConfig, int]
) -> None:
    (config, devices), (base, _) = chosen, other
    read = parse_layout(layout_name(config, devices, base), base, devices)
    assert meaning(read, devices) == meaning(config, devices)


def test_what_is_left_out_is_as_configured() -> None:
    parallel = parse_layout("pp=19", YUAN, 2128).parallel
    assert (parallel.tp, parallel.pp, parallel.recompute, parallel.zero) == (8, 19, "full", 1)


def test_short_names_mean_the_long_ones() -> None:
    short = parse_words("mbs=2,gbs=8,sp=off,vpp=2,replicate=2,shard=4,layers_per_stage=1/2", "--layout")
    assert short == {
        "micro_batch_size": 2,
        "global_batch_size": 8,
        "sequence_parallel": False,
        "stages_per_rank": 2,
        "dp_replicate": 2,
        "dp_shard": 4,
        "layers_per_stage": (1, 2),
    }


def test_stages_and_shards_of_the_configuration_do_not_stay_where_others_are_named() -> None:
    parallel = ParallelConfig(
        pp=2, layers_per_stage=(1, 1), dp_shard=4, dp_replicate=2, recompute="full", recompute_every=2
    )
    config = tiny_config(parallel=parallel.model_dump())
    found = parse_layout("pp=1,dp=8,recompute=none,mbs=1", config, 8).parallel
    assert found == ParallelConfig()


def test_a_pipeline_that_is_not_told_reduces_gradients_once_a_step() -> None:
    def zero(words: str, **parallel: object) -> int:
        return parse_layout(words, tiny_config(parallel=parallel), 4).parallel.zero

    assert [zero("pp=2,mbs=1"), zero("pp=1,mbs=1"), zero("pp=2,mbs=1,zero=3"), zero("pp=2,mbs=1", zero=2)] == [
        1,
        2,
        3,
        2,
    ]


@pytest.mark.parametrize(
    ("words", "sizes", "told"),
    [
        ("1/2/2/1", (1, 2, 2, 1), "1/2x2/1"),
        ("1x2/2x2", (1, 1, 2, 2), "1x2/2x2"),
        ("3/1x3", (3, 1, 1, 1), "3/1x3"),
    ],
)
def test_equal_stages_are_counted(words: str, sizes: tuple[int, ...], told: str) -> None:
    config = tiny_config(model={"num_layers": 6})
    found = parse_layout(f"pp=4,mbs=1,layers_per_stage={words}", config, 4)
    assert found.parallel.layers_per_stage == sizes
    assert f"layers_per_stage={told}" in layout_name(found, 4)
    for wrong in ("1x0/2x2", "1xx2/2x2", "x4", "1x99999999999"):
        with pytest.raises(UsageError, match=r"numbers between slashes|is a number"):
            parse_layout(f"pp=4,mbs=1,layers_per_stage={wrong}", config, 4)


def test_axes_may_be_called_as_json_calls_them() -> None:
    long = "tensor_parallel=1,pipeline_parallel=2,data_parallel=2,micro_batch_size=1,zero=1"
    assert parse_layout(long, tiny_config(), 4) == parse_layout("tp=1,pp=2,dp=2,mbs=1,zero=1", tiny_config(), 4)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("tp", "write name=value"),
        (" , ", "no layout. Write name=value"),
        ("tpp=3", "has no 'tpp'; did you mean tp?"),
        ("auto=1", "has no 'auto'; names are dp, tp,"),
        ("tp=x", "tp is a number, 1 or more"),
        ("tp=0", "tp is a number, 1 or more"),
        ("sp=2", "sequence_parallel is on or off"),
        ("schedule=foo", "schedule is one of gpipe, 1f1b, interleaved, zero-bubble, zbv"),
        ("recompute=all", "recompute is one of none, selective, full"),
        ("layers_per_stage=1/x", "layers_per_stage is numbers between slashes"),
        ("tp=8,tp=8", "tp is said twice"),
        ("zero=5", "zero: Input should be 1, 2 or 3"),
        ("tp=8,pp=8,dp=2", "tp 8 x pp 8 x dp 2 are 128 devices, not 2,128. Take --gpus 128"),
        ("tp=3", "Take --gpus 2,052 or 2,166, or a tp and pp whose product divides 2,128"),
        ("replicate=3", "Take --gpus 1,824 or 2,736"),
        ("shard=5", "tp 8 x pp 38 x dp 5 are 1,520 devices"),
        ("shard=1", "With this tp and pp 2,128 devices have dp=7"),
        ("dp=7,shard=3", "dp 7 is not dp_replicate x dp_shard"),
        ("tp=7,pp=38,dp=8", "tp 7 ranks cannot share 128 heads"),
        ("pp=266,tp=8,dp=1", "266 stages, and the model has 76 layers"),
        ("mbs=11", "must be a multiple of training.micro_batch_size 11"),
        ("gbs=3361", "does not divide into micro-batches of 1. Use --set training.global_batch_size=3367"),
        ("pp=19,vpp=1,schedule=interleaved", "runs at least 2 stages on a rank"),
    ],
)
def test_a_mistake_is_one_sentence_that_helps(words: str, said: str) -> None:
    with pytest.raises(UsageError) as error:
        parse_layout(words, YUAN, 2128)
    assert said in str(error.value)
    assert "\n" not in str(error.value)


def test_a_search_is_held_to_values() -> None:
    names = ("tp", "data_parallel", "recompute", "sequence_parallel", "micro_batch_size")
    found = parse_constraints("tp=4/8,dp=2,recompute=none/full,sp=on,mbs=1", names)
    assert found == {
        "tp": (4, 8),
        "data_parallel": (2,),
        "recompute": ("none", "full"),
        "sequence_parallel": (True,),
        "micro_batch_size": (1,),
    }


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("gbs=3", "held to tp, dp. The rest: --layout"),
        ("", "nothing to hold to"),
        ("tp=4/x", "tp is a number"),
        ("tp", "tp"),
    ],
)
def test_what_a_search_cannot_be_held_to(words: str, said: str) -> None:
    with pytest.raises(UsageError, match="--only") as error:
        parse_constraints(words, ("tp", "data_parallel"))
    assert said in str(error.value)
