"""The benchmark of the whole text side: its text, its probes, its tables; no time is asserted."""

from __future__ import annotations

import cProfile
import itertools
import json
import re
from functools import lru_cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpus.build import stages
from corpus.engine import run as engine_run
from corpus.engine.errors import UsageError
from corpus.recipe import load_recipe
from corpus.sources import Record, SourcesConfig, read
from tests.corpus.texts import document
from tools.bench.corpus import pipeline, recombine
from tools.bench.peers.environment import Environment

SMALL = ("tokenizer.vocab_size=900", "tokenizer.num_threads=1")


@pytest.fixture
def sources() -> list[list[str]]:
    return [[document(seed) for seed in range(start, start + 12)] for start in (0, 100)]


def shingles(text: str) -> set[str]:
    return {text[start : start + 5] for start in range(len(text) - 4)}


def test_recombined_documents_are_new_and_keep_their_shape(sources: list[list[str]]) -> None:
    made = list(itertools.islice(recombine.documents(sources, 1), 400))
    assert made == list(itertools.islice(recombine.documents(sources, 1), 400))
    assert not set(made) & set(itertools.islice(recombine.documents(sources, 2), 400))
    sentences = {sentence for source in sources for text in source for sentence in recombine._SENTENCES.findall(text)}
    assert {sentence for text in made for sentence in recombine._SENTENCES.findall(text)} <= sentences
    again = [text for text, before in itertools.pairwise([*made[1:], ""]) if text == before]
    assert 0.02 < len(again) / len(made) < 0.08
    mean = sum(map(len, made)) / len(made)
    assert mean == pytest.approx(sum(len(text) for source in sources for text in source) / 24, rel=0.15)


def test_a_copy_resembles_its_original_little(sources: list[list[str]]) -> None:
    pools = recombine._pools([recombine._SENTENCES.findall(text) for source in sources for text in source])
    random = recombine.np.random.default_rng(0)
    split = recombine._SENTENCES.findall("".join(sources[0]))
    one, other = (shingles("".join(recombine._exchanged(split, pools, random))) for _ in range(2))
    assert len(one & other) / len(one | other) < 0.6  # all 24 texts share one small stock of sentences


@given(st.text(alphabet="甲乙。！\n a", max_size=40))
def test_sentences_are_the_whole_text(text: str) -> None:
    found = recombine._SENTENCES.findall(text)
    assert "".join(found) == text and all(found)


@pytest.mark.parametrize("kind", pipeline.KINDS)
def test_both_kinds_of_files_hold_the_same_text(sources: list[list[str]], tmp_path: Path, kind: str) -> None:
    size = recombine.write(sources, tmp_path, 30_000, kind, 5)
    [file] = tmp_path.iterdir()
    records = list(read(str(file), SourcesConfig()))
    texts = [record.text for record in records if isinstance(record, Record) and record.text]
    assert texts == list(itertools.islice(recombine.documents(sources, 5), len(records)))
    assert size == sum(len(text.encode()) for text in texts) >= 30_000 > size - len(texts[-1].encode())


def test_a_profile_charges_a_function_with_what_it_calls_in_c() -> None:
    def work() -> int:
        return sum(divmod(number, 7)[1] for number in range(3)) + len(json.dumps([1]))

    profile = cProfile.Profile(iter(range(1000)).__next__)  # a tick at every look
    profile.runcall(work)
    found = pipeline.own_times(profile)
    assert {f"tests/tools/{Path(__file__).name}: {work.__qualname__}", "encoder"} <= found.keys()
    assert sum(found.values()) == sum(one.inlinetime for one in profile.getstats() if "disable" not in str(one.code))


@pytest.mark.timeout(300)
def test_the_tables(
    sources: list[list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(pipeline, "in_child", lambda work, *values: work(*values))
    monkeypatch.setattr(pipeline, "WARM_BYTES", 3_000)
    monkeypatch.setattr(pipeline, "start_up", lru_cache(pipeline.start_up))  # once is enough here
    monkeypatch.setattr(Environment, "install", lambda self: None)
    called = []

    def call(self: Environment, script: str, sample: str, model: str) -> dict[str, Any]:
        called.append((script, Path(model).name, self.name))
        size = sum(len(text.encode()) for text in Path(sample).read_text().splitlines())
        seconds = {"datatrove": 3.0, "sentencepiece": 1.0}
        return {"documents": 3, "bytes": size, "kept": 2, "seconds": seconds}

    monkeypatch.setattr(Environment, "run", call)
    for number, texts in enumerate(sources):
        (tmp_path / f"{number}.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    arguments = SimpleNamespace(
        input=[str(tmp_path / "*.jsonl")], column="text", megabytes=0.06, recipe="web_zh", set=SMALL, peers=True
    )
    pipeline.run(SimpleNamespace(**vars(arguments), out=tmp_path / "bench"))
    told = capsys.readouterr().out
    build = str(tmp_path / "bench/build")
    names = [stage.name for stage in stages(load_recipe("web_zh"), ())]
    for name in (*names, "sample", "tokens"):
        assert engine_run.current(build, name).counts
        assert len(re.findall(rf"^{name} .*$", told, re.MULTILINE)) == 2  # what it costs, and what is inside
    assert "to text shards" in told and "to token shards" in told and "times" in told
    assert called == [("python_pipeline.py", "tokenizer.model", "pipeline")]
    shares = re.findall(r"^[a-z]\w+ .* ([\d.]+)%$", told, re.MULTILINE)
    assert sum(map(float, shares)) == pytest.approx(100, abs=1)


def test_input_without_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"body": "学而时习之"}\n')
    with pytest.raises(UsageError, match="--column"):
        pipeline.read_sources(SimpleNamespace(input=[str(tmp_path)], column="text"))


def test_nothing_is_left_behind(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(pipeline.tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(pipeline, "read_sources", lambda arguments: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        pipeline.run(SimpleNamespace(out=None, megabytes=1.0))
    assert not list(tmp_path.iterdir())


def test_costs_up_to_a_stage_leave_training_out() -> None:
    costs = {
        name: pipeline.Cost(seconds, 0) for name, seconds in {"text": 2.0, "tokenizer": 50.0, "tokens": 3.0}.items()
    }
    found = pipeline.Measured(costs, 1, 1, 1, 0, 0, 0, 0, {})
    assert (pipeline.seconds_to(found, "text"), pipeline.seconds_to(found, "tokens")) == (2.0, 5.0)
