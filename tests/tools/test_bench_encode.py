"""The benchmark of encoding runs on a small corpus, with models it trains itself or one given; no time is asserted."""

from __future__ import annotations

import json
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.tokenizer.texts import documents
from tokenizer.config import TokenizerConfig
from tokenizer.model import Tokenizer
from tokenizer.train import train
from tools.bench.peers.environment import Environment
from tools.bench.tokenizer import encode

RATE = r" +[\d,.]+ MB/s"


@pytest.fixture
def arguments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(encode, "VOCAB_SIZES", (500,))
    monkeypatch.setattr(Environment, "is_installed", lambda self: False)
    path = tmp_path / "in.jsonl"
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in documents(60)))
    return SimpleNamespace(input=[str(path)], column="text", data=None, peers=False)


def test_models_of_its_own(arguments: Any, capsys: pytest.CaptureFixture[str]) -> None:
    encode.run(arguments)
    told = capsys.readouterr().out
    models = re.findall(r"^(\S+): \d+ ids; 30 documents", told, re.MULTILINE)
    assert models == ["bpe-500.model", "unigram-500.model"]
    assert len(re.findall(rf"^ours{RATE} .* 100\.00 % of documents have equal ids$", told, re.MULTILINE)) == 2
    assert len(re.findall(rf"^text shard to token shard, our whole task{RATE}$", told, re.MULTILINE)) == 2


def test_the_peers_get_the_same_documents(
    tmp_path: Path, arguments: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each its own model file; ids of theirs that differ are seen."""
    path, called = tmp_path / "x.model", []
    path.write_bytes(train(documents(60), TokenizerConfig.model_validate({"vocab_size": 500})))
    tokenizer = Tokenizer(path)

    def call(self: Environment, script: str, *more: str) -> dict[str, float]:
        where, (warm, fresh, out) = more[:-3], map(Path, more[-3:])
        texts = [json.loads(line)["text"] for line in fresh.read_text().splitlines()]
        assert texts == documents(60)[1::2] and set(warm.read_text()) and Path(where[-1]).is_file()
        called.append((script, where[0] if len(where) > 1 else ""))
        ids = tokenizer.encode_batch(texts)
        if where[0] == "kitoken":
            ids[0] = ids[0] + 1
        if script == "encode_texts.py":
            np.savez(out, ids=np.concatenate(ids), lengths=[len(some) for some in ids])
        return {"seconds": 0.5}

    monkeypatch.setattr(Environment, "is_installed", lambda self: True)
    monkeypatch.setattr(Environment, "run", call)
    monkeypatch.setattr(encode, "export_tokenizer", lambda *_: tokenizer.path)
    arguments.data = tokenizer.path
    encode.run(arguments)
    assert called == [("encode_texts.py", "kitoken"), ("encode_texts.py", "tokenizers"), ("megatron_preprocess.py", "")]
    told = capsys.readouterr().out
    assert re.search(rf"^kitoken, .*{RATE} .* 96\.67 % of documents", told, re.MULTILINE)
    assert re.search(rf"^tokenizers, .*{RATE} .* 100\.00 % of documents", told, re.MULTILINE)
    assert re.search(rf"^text shard to token shard, our whole task{RATE} +x [\d.]+$", told, re.MULTILINE)
