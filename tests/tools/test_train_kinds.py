"""The shipped quality model's trainer: sources kept apart, calibration on the other half, the same bytes twice."""

from __future__ import annotations

import json
import random
from pathlib import Path

import numpy as np
import pytest

from corpus.filters.quality.model import KINDS, load_model, softmax
from tests.corpus.texts import document
from tools import train_kinds

pytest.importorskip("sklearn")


def rows(start: int, count: int, sources: str) -> list[dict[str, str]]:
    """`count` texts of each kind: a document with words of the kind strewn in."""
    made = []
    for number in range(start, start + count):
        for kind in KINDS:
            chance = random.Random(f"{kind} {number}")
            words = [document(number)[:120]] + [f"{kind}词{chance.randint(0, 9)}" for _ in range(40)]
            chance.shuffle(words)
            made.append({"text": "，".join(words), "kind": kind, "source": f"{sources}{number % 6}"})
    return made


def write(path: Path, lines: list[dict[str, str]]) -> Path:
    path.write_text("".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines), "utf-8")
    return path


def test_train_judge_write(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = ["--train", str(write(tmp_path / "a", rows(0, 12, "a")))]
    judge = ["--judge", str(write(tmp_path / "b", rows(100, 12, "b")))]
    for name in ("1.model", "2.model"):
        assert train_kinds.main([*given, *judge, "--out", str(tmp_path / name)]) == 0
    assert (tmp_path / "1.model").read_bytes() == (tmp_path / "2.model").read_bytes()
    model = load_model(str(tmp_path / "1.model"))
    assert model.classes == KINDS and model.header.trained["calibrated"] == dict.fromkeys(KINDS, 12)
    said = capsys.readouterr().out
    assert "keeps 98.0% of good" in said and "spun " in said
    assert train_kinds.main([*given, "--judge", given[1], "--out", str(tmp_path / "3")]) == 2
    assert "a0 is a source of both files" in capsys.readouterr().err
    bad = [{"text": "无", "kind": "bad", "source": "c"}]
    assert train_kinds.main([*given, "--judge", str(write(tmp_path / "c", bad)), "--out", str(tmp_path / "3")]) == 2
    assert "no kind 'bad'" in capsys.readouterr().err


def test_halves_share_no_source_and_each_kind_is_in_both(tmp_path: Path) -> None:
    judged = train_kinds.read(write(tmp_path / "b", rows(0, 12, "b")))
    first = train_kinds.halves(judged, 5)
    assert not set(judged.sources[first]) & set(judged.sources[~first])
    assert set(judged.labels[first]) == set(judged.labels[~first]) == set(range(len(KINDS)))


def test_calibration_takes_back_a_shift_and_a_scale() -> None:
    chance = np.random.default_rng(1)
    logits = chance.normal(size=(20_000, 3)) * 2
    draws = (softmax(logits).cumsum(axis=1) < chance.random((20_000, 1))).sum(axis=1)
    shift = np.array([1.0, -2.0, 0.5])
    scale, bias = train_kinds.calibrate(logits / 3 - shift / 3, draws)
    counts = np.sqrt(np.bincount(draws))  # a class counts as the root of its documents
    assert scale == pytest.approx(3, rel=0.05)
    expected = shift - np.log(counts)
    assert bias - bias.mean() == pytest.approx(expected - expected.mean(), abs=0.1)


def test_spoiled_texts_are_of_good_ones_and_the_same_each_time(tmp_path: Path) -> None:
    lines = [{"text": document(number), "kind": "good", "source": "a"} for number in range(5)]
    good = train_kinds.read(write(tmp_path / "a", lines))
    one, two = train_kinds.spoil(good, 3), train_kinds.spoil(good, 3)
    assert one.texts == two.texts and one.texts != train_kinds.spoil(good, 4).texts
    assert np.bincount(one.labels, minlength=len(KINDS)).tolist() == [
        500 * (k in ("ocr_noise", "garbled")) for k in KINDS
    ]
    assert not set(one.texts) & set(good.texts)
