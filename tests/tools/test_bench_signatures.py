"""The benchmark of signatures runs on a few documents; no time is asserted."""

from __future__ import annotations

import json
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from corpus.dedup.near.minhash import hash_shingles
from tests.corpus.dedup.test_minhash import fold_all
from tests.corpus.dedup.texts import ANALECTS, POEM, shingles
from tests.corpus.texts import document
from tools.bench import timing
from tools.bench.corpus import signatures
from tools.bench.peers import environment


def test_the_tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "in.jsonl"
    path.write_text("".join(json.dumps({"text": document(seed)}) + "\n" for seed in range(6)))
    called = []

    def call(script: str, path: str, step: str, folder: Path | None) -> dict[str, Any]:
        called.append((script, step, len(Path(path).read_text().splitlines())))
        return {"mb_a_second": 0.001}

    monkeypatch.setattr(timing, "RUNS", 1)
    monkeypatch.setattr(signatures, "REPEATS", 2)
    monkeypatch.setattr(environment, "is_installed", lambda *_: True)
    monkeypatch.setattr(environment, "call", call)
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
