"""Yuan's rules: the closed forms against the table of operations and the ring, what they claim, and the published numbers."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpus.engine.errors import UsageError
from pretrain.config import ModelConfig, load_config
from pretrain.plan.machines.cluster import Cluster, load_cluster
from pretrain.plan.machines.collectives import Collectives, Group
from pretrain.plan.pages import rules
from pretrain.plan.pages.ratios import Case, bubble, data_ratio, of_width, pipeline_ratio, tensor_ratio
from pretrain.workload import megatron_operations
from pretrain.workload.operations import Shape
from pretrain.workload.software import MEGATRON_2021, OURS

FLOPS, BANDWIDTH = 2e14, 1e11


@pytest.fixture(scope="module")
def cluster() -> Cluster:
    return load_cluster("selene-a100-80")


def gpt(hidden: int, window: int, layers: int = 4) -> ModelConfig:
    """A layer of 12 h^2 + norms' and biases' few parameters, of which there are none here."""
    return ModelConfig(
        num_layers=layers, hidden_size=hidden, num_heads=hidden // 64, sequence_length=window, padded_vocab_size=1024, activation="gelu"
    )  # fmt: skip


shapes = st.tuples(st.sampled_from([512, 1024, 4096]), st.sampled_from([128, 1024, 4096]), st.integers(2, 16))


@given(shapes)
def test_with_full_recompute_they_are_the_published_forms(shape: tuple[int, int, int]) -> None:
    """(4h + 2S/3) W / ((t-1) F), l (24h + 4S) W / (tF), 4BS (1 + S/6h) W / ((d-1) b F)."""
    h, s, ranks = shape
    model = gpt(h, s)
    tensor = (4 * h + 2 * s / 3) * BANDWIDTH / ((ranks - 1) * FLOPS)
    assert tensor_ratio(model, ranks, BANDWIDTH, FLOPS) == pytest.approx(tensor)
    pipeline = 3 * (24 * h + 4 * s) * BANDWIDTH / (ranks * FLOPS)
    assert pipeline_ratio(model, 3, ranks, BANDWIDTH, FLOPS) == pytest.approx(pipeline)
    assert pipeline_ratio(model, 3, ranks, BANDWIDTH, FLOPS, is_scattered=True) == pytest.approx(pipeline * ranks)
    data = 4 * 96 * s * (1 + s / (6 * h)) * BANDWIDTH / ((ranks - 1) * 2 * FLOPS)
    assert data_ratio(model, 96, ranks, BANDWIDTH, FLOPS, gradient_bytes=2) == pytest.approx(data, rel=0.01)  # norms


@given(shapes, st.booleans())
def test_they_count_what_the_table_of_operations_does(shape: tuple[int, int, int], is_full: bool) -> None:
    h, s, ranks = shape
    ranks = 2 ** (ranks % 3 + 1)
    model = gpt(h, s)
    work = megatron_operations.layer(Shape(model, s, ranks, 1, 2), MEGATRON_2021)
    forward = sum(operation.flops for operation in work.forward)
    computed = forward * (1 + is_full) + sum(one.flops for one in (*work.inputs, *work.weights))
    reduced = (6 if is_full else 4) * 2 * (ranks - 1) / ranks * 2 * s * h
    wanted = (computed / FLOPS) / (reduced / BANDWIDTH)
    assert tensor_ratio(model, ranks, BANDWIDTH, FLOPS, is_full) == pytest.approx(wanted)


@given(shapes)
def test_what_the_rules_claim(shape: tuple[int, int, int]) -> None:
    """Ratios grow with S and h, the data one with B; depth changes none but the bubble, which more micro-batches shorten."""
    h, s, ranks = shape
    small, longer, wider = gpt(h, s), gpt(h, 2 * s), gpt(2 * h, s)
    for ratio in (tensor_ratio, lambda *given: pipeline_ratio(given[0], 2, *given[1:])):
        now = ratio(small, ranks, BANDWIDTH, FLOPS)
        assert now < ratio(longer, ranks, BANDWIDTH, FLOPS) and now < ratio(wider, ranks, BANDWIDTH, FLOPS)
        assert now == ratio(gpt(h, s, layers=8), ranks, BANDWIDTH, FLOPS)
        assert now > ratio(small, ranks + 1, BANDWIDTH, FLOPS)
    now = data_ratio(small, 8, ranks, BANDWIDTH, FLOPS)
    assert now < data_ratio(longer, 8, ranks, BANDWIDTH, FLOPS)
    assert 2 * now == pytest.approx(data_ratio(small, 16, ranks, BANDWIDTH, FLOPS))
    assert bubble(8, 16) == 2 * bubble(8, 32) == 2 * bubble(8, 16, chunks=2)


def test_published_bubbles() -> None:
    assert f"{bubble(38, 480):.1%}" == "7.7%" and f"{bubble(2, 6):.1%}" == "16.7%"


def test_links_are_those_of_the_collectives(cluster: Cluster) -> None:
    case = Case.of(load_config("yuan-245b"), 2128, cluster, OURS)
    links = Collectives(cluster)
    size = 1e12
    assert case.link(8, 1) == pytest.approx(2 * 7 / 8 * size / links.all_reduce(Group(8, 1), size), rel=1e-3)
    assert case.link(16, 1) < case.link(8, 1)  # beyond the node
    assert case.link(1, 1) == math.inf and case.sending() == pytest.approx(size / links.send(56, size), rel=1e-3)


def test_yuan_on_its_cluster(cluster: Cluster) -> None:
    config = load_config("yuan-245b")
    text = "\n".join(rules.lines(config, 2128, cluster))
    for words in ("tensor 8 x pipeline 38 x data 7, 480 micro-batches of 1", "37/480 = 7.7 %", "3,360 windows are 6.88 M tokens",
                  "| p 38 -> 19, d 7 -> 14 |", "18/240 = 7.5 %", "740 would make 5 %", "up to 4,879 windows"):  # fmt: skip
        assert words in text, words
    assert [rule.symbol for rule in rules.rules(config, 2128, cluster)] == ["S", "L", "h", "B", "m"]
    assert rules.as_json(rules.rules(config, 2128, cluster))[4]["title"] == "micro-batches"
    assert "scores are 80 of the 114 bytes" in rules.rules(config, 2128, cluster, MEGATRON_2021)[0].change


def test_what_is_not_divided_exchanges_nothing(cluster: Cluster) -> None:
    config = load_config("gpt2-124m")
    alone = Case.of(config, 1, cluster, OURS)
    assert alone.ratios.tensor == alone.ratios.pipeline == alone.ratios.data == math.inf and alone.ratios.bubble == 0
    text = "\n".join(rules.lines(config, 1, cluster))
    assert "Nothing is exchanged" in text and "| as it is | – | – | – | 0.0 % |" in text and "nan" not in text
    eight = "\n".join(rules.lines(config, 8, cluster))
    assert "this ZeRO sums them 2 times a step" in eight and "No tensor parallelism" in eight


def test_hidden_size_that_is_enough(cluster: Cluster) -> None:
    """From the width it names on, the ratio is ten."""
    config = load_config("yuan-245b")
    change = rules.rules(config, 2128, cluster)[2].change
    needed = int(change.split(" channels")[0].split()[-1].replace(",", ""))
    case = Case.of(config, 2128, cluster, OURS)
    assert case.tensor_of(of_width(config.model, needed, 76), 8) >= 9.99
    assert case.tensor_of(of_width(config.model, needed - 256, 76), 8) < 10


def test_a_batch_beyond_the_bound_says_so(cluster: Cluster) -> None:
    config = load_config("yuan-245b", ["training.global_batch_size=6720"])
    assert rules.rules(config, 2128, cluster)[3].change.startswith("More than 10 M tokens")


def test_unknown_peak_is_one_sentence(cluster: Cluster) -> None:
    unknown = cluster.model_copy(update={"device": cluster.device.model_copy(update={"name": "Abacus", "peak": {}})})
    with pytest.raises(UsageError, match="what a Abacus does in bf16"):
        rules.rules(load_config("yuan-245b"), 2128, unknown)
