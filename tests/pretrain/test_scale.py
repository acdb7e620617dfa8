"""The scaling harness: what batch each point has, what efficiency is, and real steps on one and two ranks."""

from __future__ import annotations

import json
import math
import xml.etree.ElementTree as ElementTree
from collections.abc import Sequence
from pathlib import Path

import pytest

from corpus.engine import durable
from corpus.engine.errors import UsageError
from pretrain import scale
from pretrain.__main__ import main
from pretrain.config import load_config
from pretrain.scale import Point, config_of, rows, write_report
from tests.pretrain.ranks import reused_ranks

TINY = """
[model]
num_layers = 2
hidden_size = 32
num_heads = 4
sequence_length = 16
vocab_size = 250
padded_vocab_size = 256
[optimizer]
learning_rate = 1e-2
[training]
num_steps = 100
global_batch_size = 8
micro_batch_size = 2
device = "cpu"
timeout_minutes = 1.0
[checkpoint]
every_steps = 100
[evaluation]
every_steps = 100
"""


@pytest.fixture
def config(tmp_path: Path) -> str:
    (tmp_path / "tiny.toml").write_text(TINY)
    return str(tmp_path / "tiny.toml")


def point(kind: scale.Kind, ranks: int, tokens_per_second: float, **fields: object) -> Point:
    values = {
        "kind": kind,
        "ranks": ranks,
        "global_batch_size": 8,
        "micro_batch_size": 2,
        "tokens_per_second": tokens_per_second,
        "flops_per_second": 1e9,
        "step_seconds": [0.1, 0.3, 0.2],
        "run": "tiny",
        "layout": f"dp {ranks}",
        "device": "cpu",
        "machine": "Abacus",
        "cores": 2,
        "ranks_per_node": ranks,
        "threads": 1,
        "tokens": "random",
    }
    return Point.model_validate({**values, **fields})


def test_the_batch_grows_or_stays(config: str) -> None:
    base = load_config(config, ["training.rampup={start=4, increment=4, num_samples=100}"])
    assert [config_of(base, "weak", ranks, 2).training.global_batch_size for ranks in (2, 4, 8)] == [8, 16, 32]
    assert [config_of(base, "strong", ranks, 2).training.global_batch_size for ranks in (2, 4, 8)] == [8, 8, 8]
    assert config_of(base, "weak", 2, 2).training.rampup is None


def test_only_data_parallel_ranks_let_it_grow(config: str) -> None:
    """More ranks of a pipeline share the same batch."""
    base = load_config(config, ["parallel.pp=2", "training.global_batch_size=2", "training.micro_batch_size=1"])
    assert [config_of(base, "weak", ranks, 2).training.global_batch_size for ranks in (2, 4)] == [2, 4]
    assert config_of(base, "strong", 4, 2).training.global_batch_size == 2  # one for each of two pipelines


def test_what_does_not_divide_is_refused(config: str) -> None:
    base = load_config(config)
    with pytest.raises(UsageError, match=r"cannot grow from 3 to 4 data-parallel ranks\. Let it be a multiple of 3"):
        config_of(base, "weak", 4, 3)
    with pytest.raises(UsageError, match="does not divide into micro-batches"):
        config_of(base, "strong", 3, 1)
    with pytest.raises(UsageError, match="is not the number of ranks, 3"):
        config_of(load_config(config, ["parallel.tp=2"]), "strong", 3, 2)


def test_efficiency_is_speed_a_rank_beside_the_fewest() -> None:
    points = [
        point("weak", 4, 1000.0),
        point("weak", 8, 1900.0),
        point("strong", 8, 1500.0),
        point("strong", 16, 2000.0),
    ]
    assert [(row.point.ranks, row.speedup, row.efficiency) for row in rows(points, "weak")] == [
        (4, 1.0, 1.0),
        (8, 1.9, 0.95),
    ]
    assert [(row.point.ranks, row.speedup, row.efficiency) for row in rows(points, "strong")] == [
        (4, 1.0, 1.0),
        (8, 1.5, 0.75),
        (16, 2.0, 0.5),
    ]


def test_the_report_names_frontier_and_the_median_step(tmp_path: Path) -> None:
    for each in (point("weak", 1, 1000.0), point("weak", 2, 1800.0), point("strong", 2, 1500.0)):
        durable.write_json(tmp_path / "points" / each.file_name, each.model_dump(mode="json"))
    write_report(tmp_path)
    told = (tmp_path / "scaling.md").read_text()
    assert "| 2 | dp 2 | 8 | 2 | 0.200 | 1,800 | 1.80 | 90% |" in told
    assert "| 2 | dp 2 | 8 | 2 | 0.200 | 1,500 | 1.50 | 75% |" in told
    assert "89 %" in told and "1,024" in told
    value = json.loads((tmp_path / "scaling.json").read_text())
    assert [row["efficiency"] for row in value["curves"]["strong"]] == [1.0, 0.75]
    drawn = ElementTree.parse(tmp_path / "scaling.svg")
    words = ["".join(text.itertext()) for text in drawn.iter("{http://www.w3.org/2000/svg}text")]
    assert "strong scaling: the batch stays. 1 ranks: 100%, 2 ranks: 75%" in words
    assert any("Abacus" in each for each in words)


def test_points_of_different_runs_are_not_drawn_together(tmp_path: Path) -> None:
    for each in (point("weak", 1, 1000.0), point("weak", 2, 1800.0, machine="other")):
        durable.write_json(tmp_path / "points" / each.file_name, each.model_dump(mode="json"))
    with pytest.raises(UsageError, match="has points of different runs"):
        write_report(tmp_path)


def test_a_job_measures_its_own_number_of_ranks(config: str, tmp_path: Path) -> None:
    """What `srun` and torchrun do: one job for each number, into one folder."""
    words = ["scale", "--config", config, "--ranks", "1", "2", "--out", str(tmp_path), "--steps", "2", "--warm-up", "1"]
    for ranks in (1, 2):
        assert reused_ranks(main, ranks, words) == [0] * ranks
    points = {path.name: json.loads(path.read_text()) for path in (tmp_path / "points").iterdir()}
    assert sorted(points) == ["strong-000001.json", "strong-000002.json", "weak-000001.json", "weak-000002.json"]
    assert {name: each["global_batch_size"] for name, each in points.items()} == {
        "strong-000001.json": 8,
        "strong-000002.json": 8,
        "weak-000001.json": 8,
        "weak-000002.json": 16,
    }
    two = points["weak-000002.json"]
    assert (two["ranks"], two["layout"], len(two["step_seconds"]), two["tokens"]) == (2, "dp 2", 2, "random")
    assert two["tokens_per_second"] == pytest.approx(16 * 16 / (sum(two["step_seconds"]) / 2))
    assert (tmp_path / "scaling.svg").exists()
    assert reused_ranks(main, 1, [*words[:3], "--ranks", "2", *words[6:]]) == [2]


def test_each_point_here_is_a_launch_of_its_own(
    config: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    launched: list[tuple[str, int]] = []

    def launch(command: Sequence[str], num_ranks: int) -> int:
        kind = command[command.index("--kind") + 1]
        launched.append((kind, num_ranks))
        found = point("weak" if kind == "weak" else "strong", num_ranks, 100.0 * math.sqrt(num_ranks))
        durable.write_json(tmp_path / "points" / found.file_name, found.model_dump(mode="json"))
        write_report(tmp_path)
        return 0

    monkeypatch.setattr(scale, "launch", launch)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    words = ["scale", "--config", config, "--ranks", "4", "1", "2", "--out", str(tmp_path)]
    assert main(words) == 0
    assert launched == [("weak", 1), ("weak", 2), ("weak", 4), ("strong", 2), ("strong", 4)]
    assert "Strong scaling" in capsys.readouterr().out
    monkeypatch.setattr(scale, "launch", lambda *_: 1)
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 1


def test_mistakes_are_told_before_anything_starts(
    config: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["scale", "--config", config, "--out", str(tmp_path / "out"), "--ranks"]
    assert main([*words, "0", "1"]) == 2
    assert main([*words, "1", "3"]) == 2
    assert "does not divide" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
