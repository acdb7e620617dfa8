"""Yuan's rules: each is one prediction beside the model as it is, and what they claim is so."""

from __future__ import annotations

import json
import math

import pytest

from pretrain.config import load_config
from pretrain.plan.cost import predict
from pretrain.plan.machines.cluster import Cluster, load_cluster
from pretrain.plan.pages.rules import COLUMNS, as_json, of_width, rules


def test_yuan_on_its_cluster(cluster: Cluster) -> None:
    config = load_config("yuan-245b")
    start, *followed = rules(config, 2128, cluster)
    assert [rule.symbol for rule in followed] == ["S", "L", "h", "B", "m"]
    own = predict(config, 2128, cluster)
    work = own.seconds.products + own.seconds.recompute
    assert start.tensor == pytest.approx(work / own.communication["tensor"].total) and start.bubble == own.bubble
    longer, fewer, wider, larger, _ = followed
    assert longer.tensor > start.tensor and longer.data > start.data  # every ratio grows with S
    assert fewer.change == "p 38 -> 19, d 7 -> 14" and fewer.pipeline > start.pipeline
    assert wider.tensor > start.tensor and wider.change.startswith("L 76 -> 38, h 16,384 -> ")
    assert larger.bubble < start.bubble and "up to 4,879 windows (10 M tokens" in larger.sentence
    assert larger.change == "B 3,360 -> 4,879", "twice as many would be above"
    assert "here 37 / 480" in followed[4].sentence
    assert all(len(rule.cells) == len(COLUMNS) for rule in (start, *followed))
    assert json.loads(json.dumps(as_json(followed)))[0]["symbol"] == "S"


def test_a_batch_above_the_bound_stays(cluster: Cluster) -> None:
    config = load_config("yuan-245b", ["training.global_batch_size=7000"])
    start, *_, above, _ = rules(config, 2128, cluster)
    assert above.change == "B 7,000" and above.sentence.startswith("no larger batch: 4,879 windows are the most")
    assert (above.data, above.bubble) == (start.data, start.bubble)


def test_the_sentences_are_so_of_the_figures() -> None:
    """Without tensor parallelism, and with gradients that are summed in each micro-batch."""
    start, _, wider, larger = rules(load_config("llama-3-8b"), 64, load_cluster("h100-80"))
    assert wider.tensor == math.inf and wider.data < start.data and "as many gradients are exchanged" in wider.sentence
    assert larger.data == pytest.approx(start.data) and "gains nothing here" in larger.sentence


def test_what_is_not_divided_exchanges_nothing(cluster: Cluster) -> None:
    start, *_ = found = rules(load_config("gpt2-124m"), 1, cluster)
    assert start.tensor == start.pipeline == start.data == math.inf and start.bubble == 0
    assert start.cells[2:6] == ("–", "–", "–", "0.0%") and as_json(found)[0]["tensor"] is None


def test_a_rule_that_makes_no_layout_says_so(cluster: Cluster) -> None:
    """A batch of 7 x 479 over 14 data-parallel ranks."""
    found = {
        rule.symbol: rule
        for rule in rules(load_config("yuan-245b", ["training.global_batch_size=3353"]), 2128, cluster)
    }
    assert "3353" in found["L"].cells[-1] and found["L"].mfu == 0 < found["S"].mfu


def test_wider_models_keep_their_heads() -> None:
    for name, ranks in (("yuan-245b", 8), ("llama-3-8b", 2)):
        model = load_config(name).model
        wide = of_width(model, 1.4 * model.hidden_size, model.num_layers // 2, ranks)
        assert wide.hidden_size == pytest.approx(1.4 * model.hidden_size, rel=0.1)
        assert wide.head_size == model.head_size and wide.num_heads % ranks == 0
        assert wide.num_heads * model.kv_heads == wide.kv_heads * model.num_heads
