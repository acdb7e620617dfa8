"""The benchmark of the loader runs on a small corpus; its figures are what they say; no time is asserted."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

from tokenizer.shards import open_split
from tools.bench import timing
from tools.bench.peers.environment import Environment
from tools.bench.tokenizer import loader

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {
        "NUM_TOKENS": 20_000,
        "NUM_READ": 20,
        "NUM_PLOTTED": 40,
        "NUM_CORPORA": 2,
        "NUM_SHARDS": 3,
    }.items():
        monkeypatch.setattr(loader, name, value)
    monkeypatch.setattr(loader, "MAX_PEER_SAMPLES", 100)

    def in_this_process(work: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        return work(*arguments, **named)

    monkeypatch.setattr(loader, "in_child", in_this_process)


def test_the_tables_and_the_drawing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    called = []

    def call(self: Environment, script: str, verb: str, path: str) -> dict[str, Any]:
        case = json.loads(Path(path).read_text())
        called.append((script, verb, case["num_samples"], case["read"], case["points"], case["warm"]))
        (shard,) = open_split(Path(path).parent, "train")
        assert case["prefixes"] == [str(shard.prefix)] and case["weights"] is None
        curve = [[0, 10**6, 10**6], [case["read"], 3 * 10**6, 10**6]]
        of_start = {"start_seconds": 1.5, "held_bytes": 10**6, "start_bytes": 2 * 10**6}
        return of_start | {"read_seconds": 2.0, "curve": curve}

    monkeypatch.setattr(Environment, "is_installed", lambda self: True)
    monkeypatch.setattr(Environment, "run", call)
    drawing = tmp_path / "memory.svg"
    arguments = SimpleNamespace(data=tmp_path, samples=[50, 10**11], peers=False, plot=drawing)
    loader.run(arguments)  # type: ignore[arg-type]
    told = capsys.readouterr().out
    assert called == [
        ("gpt_dataset.py", "read", 50, 20, 1, True),
        ("gpt_dataset.py", "read", 40, 40, loader.NUM_POINTS, False),
    ]
    assert len(re.findall(r"^ours, [\d,]+ samples .* s .* MB .* M tokens/s$", told, re.MULTILINE)) == 2
    assert re.search(r"^ours, Megatron's order, 50 samples .* M tokens/s$", told, re.MULTILINE)
    assert re.search(r"^GPTDataset, 50 samples +1\.50 s +2 MB +0\.0 M tokens/s$", told, re.MULTILINE)
    assert re.search(r"^2 corpora of 3 shards .* s .* MB$", told, re.MULTILINE)
    assert "GPTDataset: over 40 samples RSS 0 to 2 MB (at most 2) beyond its imports; PSS with them 1 to 1 MB" in told
    root = ElementTree.parse(drawing).getroot()
    lines = [element.get("d", "") for element in root.iter("{http://www.w3.org/2000/svg}path")]
    assert [line.count("L") for line in lines] == [loader.NUM_POINTS, 1]
    assert list(tmp_path.iterdir()) == [drawing], "the corpora are gone"


def test_a_corpus_has_the_tokens_asked_for(tmp_path: Path) -> None:
    (shard,) = open_split(loader.write_corpus(tmp_path / "corpus", 30_000), "train")
    assert shard.num_tokens == 30_000 and 15 <= shard.num_sequences <= 60
    assert np.count_nonzero(shard.tokens(0, 30_000) == loader.EOD) == shard.num_sequences
    shard.verify()


MEASURED_WORK = """
import json
import numpy as np
from tools.bench import timing
kept = []
_, measured = timing.run_measured(lambda: kept.append(np.ones(4_000_000)))
print(json.dumps({**measured, "rss": timing.status("VmRSS"), "pss": timing.proportional()}))
"""


def test_memory_is_that_of_the_work() -> None:
    # in a process of its own: what a worker's tests have freed may be given out again, and is no new memory then
    told = subprocess.run([sys.executable, "-c", MEASURED_WORK], cwd=ROOT, check=True, capture_output=True, text=True)
    measured = json.loads(told.stdout)
    assert 31e6 < measured["start_bytes"] < 60e6
    assert 1e6 < measured["held_bytes"] < measured["rss"]
    assert measured["rss"] > measured["pss"] / 2 > 0
    asked: list[tuple[int, int]] = []
    watched = timing.watch_reads(lambda start, stop: asked.append((start, stop)), 10, 3)
    assert asked == [(0, 3), (3, 6), (6, 10)] and [samples for samples, _, _ in watched["curve"]] == [0, 3, 6, 10]
    with pytest.raises(KeyError):
        timing.status("VmNothing")
