"""The filter benchmark runs on a few documents and compares equal work; no time is asserted."""

from __future__ import annotations

import json
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from corpus.engine.errors import UsageError, WenhaiError
from corpus.filters import load
from tests.corpus.texts import document
from tools.bench import inputs, timing
from tools.bench.corpus import filters
from tools.bench.peers import environment


@pytest.fixture
def arguments(tmp_path: Path) -> Any:
    path = tmp_path / "in.jsonl"
    path.write_text("".join(json.dumps({"text": document(seed) if seed else "短"}) + "\n" for seed in range(12)))
    return SimpleNamespace(input=[str(path)], recipe="web_zh", column="text", peers=False, memory=False, data=None)


@pytest.mark.long
def test_the_table(arguments: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(timing, "RUNS", 1)
    called = []

    def call(script: str, path: str, *more: str, folder: Path | None) -> dict[str, Any]:
        documents = len(Path(path).read_text().splitlines())
        called.append((script, *more))
        return {"mb_a_second": 0.5, "documents": documents, "kept": 0, "reasons": {"Gopher: dup_line_frac": documents}}

    monkeypatch.setattr(environment, "is_installed", lambda *_: True)
    monkeypatch.setattr(environment, "call", call)
    filters.run(arguments)
    told = capsys.readouterr().out
    assert called == [
        ("datatrove_rules.py", "fineweb"),
        ("datatrove_rules.py", "fineweb2"),
        ("fasttext_predict.py",),
    ]
    assert re.search(r"^two threads.* x |only one core here", told, re.MULTILINE)
    assert "everything: apply" in told
    parts = re.findall(r"([\d.]+)% of the whole", told)  # one row a kernel, and their sum
    assert len(parts) == len(filters.KERNELS) + 6
    assert sum(map(float, parts[:-1])) == pytest.approx(float(parts[-1]), abs=1)
    assert told.count("keeps 11 of 12 (91.7%)") == 2  # on all documents, and on the peers' sample
    assert "keeps 0 of 12 (0.0%); dup_line_frac 12" in told
    [ours] = re.findall(r"^ours, everything +([\d.]+) MB/s +x ([\d,.]+)", told, re.MULTILINE)
    assert float(ours[1].replace(",", "")) == pytest.approx(float(ours[0]) / 0.5, rel=0.2)


def test_without_peers_it_says_how_to_get_them(
    arguments: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(environment, "is_installed", lambda: False)
    texts = pa.array(list(inputs.read_documents(arguments)), pa.large_string())
    filters.compare(texts, load("web_zh"), False)
    assert "--peers installs them" in capsys.readouterr().out


def test_a_sample_is_spread(arguments: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    texts = [str(number) * 10 for number in range(100)]
    few = inputs.spread(texts, sum(map(len, texts)) // 10)
    assert few == texts[::10]
    assert inputs.spread(texts, 10**9) == texts
    monkeypatch.delenv("WENHAI_TEST_DATA", raising=False)
    arguments.input, arguments.data = None, Path("build/none")
    with pytest.raises(UsageError, match="give --input"):
        list(inputs.read_documents(arguments))


def test_a_peer_that_fails_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environment, "python", lambda folder: Path("/bin/false"))
    with pytest.raises(WenhaiError, match=r"datatrove_rules\.py failed"):
        environment.call("datatrove_rules.py")


def test_the_peers_are_pinned() -> None:
    lines = [line for line in environment.REQUIREMENTS.read_text().splitlines() if not line.startswith("#")]
    assert all(re.fullmatch(r"[\w.-]+==[\w.]+", line) for line in lines)
    assert {"datatrove==0.10.1", "spacy==3.8.18", "jieba==0.42.1", "fasttext-numpy2-wheel==0.9.2"} <= set(lines)
