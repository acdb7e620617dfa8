"""The benchmarks of filters and signatures run on a few documents and compare equal work; no time is asserted."""

from __future__ import annotations

import importlib
import json
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from corpus.dedup.near.minhash import hash_shingles
from corpus.engine.errors import UsageError, WenhaiError
from tests.corpus.dedup.test_minhash import fold_all
from tests.corpus.dedup.texts import ANALECTS, POEM, shingles
from tests.corpus.texts import document
from tools.bench import inputs, timing
from tools.bench.__main__ import main
from tools.bench.corpus import filters, signatures
from tools.bench.peers.environment import DATATROVE, Environment


@pytest.fixture
def arguments(tmp_path: Path) -> Any:
    path = tmp_path / "in.jsonl"
    path.write_text("".join(json.dumps({"text": document(seed) if seed else "短"}) + "\n" for seed in range(12)))
    return SimpleNamespace(input=[str(path)], recipe="web_zh", column="text", peers=False, memory=False, data=None)


@pytest.mark.long
def test_the_table(arguments: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(timing, "RUNS", 1)
    called = []

    def call(self: Environment, script: str, path: str, *more: str) -> dict[str, Any]:
        documents = len(Path(path).read_text().splitlines())
        called.append((script, *more))
        return {"mb_a_second": 0.5, "documents": documents, "kept": 0, "reasons": {"Gopher: dup_line_frac": documents}}

    monkeypatch.setattr(Environment, "is_installed", lambda self: True)
    monkeypatch.setattr(Environment, "run", call)
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
    monkeypatch.setattr(Environment, "python", Path("/bin/false"))
    with pytest.raises(WenhaiError, match=r"datatrove_rules\.py failed"):
        DATATROVE.run("datatrove_rules.py")


def test_the_peers_are_pinned() -> None:
    lines = [line for line in DATATROVE.requirements.read_text().splitlines() if not line.startswith("#")]
    assert all(re.fullmatch(r"[\w.-]+==[\w.]+", line) for line in lines)
    assert {"datatrove==0.10.1", "spacy==3.8.18", "jieba==0.42.1", "fasttext-numpy2-wheel==0.9.2"} <= set(lines)


def test_the_tables_of_signatures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "in.jsonl"
    path.write_text("".join(json.dumps({"text": document(seed)}) + "\n" for seed in range(6)))
    called = []

    def call(self: Environment, script: str, path: str, step: str) -> dict[str, Any]:
        called.append((script, step, len(Path(path).read_text().splitlines())))
        return {"mb_a_second": 0.001}

    monkeypatch.setattr(timing, "RUNS", 1)
    monkeypatch.setattr(Environment, "is_installed", lambda self: True)
    monkeypatch.setattr(Environment, "run", call)
    signatures.run(SimpleNamespace(input=[str(path)], column="text", peers=False, data=None))  # type: ignore[arg-type]
    told = capsys.readouterr().out
    assert called == [("datatrove_minhash.py", "signatures", 6)]
    assert len(re.findall(r": everything .* x ", told)) == 1
    assert re.search(r"datatrove 0\.10\.1.* 0\.001 MB/s x ", told) and "datasketch MinHash.bulk" in told


def test_every_shingle_is_hashed_once() -> None:
    codes, offsets, forms = fold_all([POEM, "短", ANALECTS])
    last, hashes = 0, np.empty(len(codes), np.uint32)
    for text, form in enumerate(forms):
        count = hash_shingles(codes, offsets[text], offsets[text + 1], 4, hashes)
        assert count == max(0, len(form) - 3)
        assert len(set(hashes[:count].tolist())) == len(shingles(form, 4))
        last = (last + int(hashes[count - 1])) % 2**32 if count else last
    assert signatures.hash_all(codes, offsets, 4) == last


def test_the_command_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Without words those benchmarks run that need no more than a build; a wrong word starts none."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")  # as main sets it: gone again with the test
    called: list[str] = []
    monkeypatch.setattr(importlib, "import_module", lambda name: SimpleNamespace(run=lambda _: called.append(name)))
    main([])
    main(["loader"])
    assert called == [
        *("tools.bench.corpus.filters", "tools.bench.corpus.signatures", "tools.bench.tokenizer.encode"),
        "tools.bench.tokenizer.loader",
    ]
    with pytest.raises(SystemExit, match="2"):
        main(["loader", "fliters"])
    assert "no benchmark is called fliters" in capsys.readouterr().err and len(called) == 4
