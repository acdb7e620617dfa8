"""`python -m corpus quality`: files in, a model and a table out; labels from a build; mistakes told."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from corpus.__main__ import main
from corpus.build import stages
from corpus.engine.run import run_stages
from corpus.filters.quality.model import load_model
from corpus.quality.assessment import assess, render
from corpus.quality.weak_labels import documents_of_build
from corpus.recipe import load_recipe
from corpus.sources import SourcesConfig
from corpus.sources.packing import find_sources
from tests.corpus.filters.quality.test_model import classes

pytestmark = pytest.mark.skipif(find_spec("sklearn") is None, reason="no scikit-learn here")


@pytest.fixture
def files(tmp_path: Path) -> dict[str, str]:
    paths = {}
    for name, texts in classes(120).items():
        path = tmp_path / f"{name}.jsonl"
        lines = [json.dumps({"body": text}, ensure_ascii=False) for text in texts]
        path.write_text("\n".join([*lines, "no json", lines[0]]) + "\n", "utf-8")
        paths[name] = str(path)
    return paths


def test_train_and_evaluate(files: dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "quality.model"
    given = ["--good", files["high"], "--bad", files["low"], "--class", f"advertisement={files['advertisement']}"]
    given += ["--column", "body"]
    assert main(["quality", "train", *given, "--out", str(out), "--bits", "14"]) == 0
    said = capsys.readouterr()
    assert "1 records without a readable text" in said.err
    assert "[filter.quality] model = " in said.err
    assert load_model(str(out)).classes == ("high", "low", "advertisement")
    assert main(["quality", "evaluate", "--model", str(out), *given, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert sum(map(sum, found["confusion"])) == 360  # a text that stands twice counts once
    assert found["accuracy"] > 0.95


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--good", "{high}"], "2 to 13 classes"),
        (["--good", "{high}", "--class", "low"], "NAME=GLOB"),
        (["--good", "{high}", "--bad", "none-*.jsonl"], "matches no file"),
        (["--good", "{high}", "--bad", "{low}", "--bits", "40"], "--bits"),
        (["--good", "{high}", "--bad", "{low}", "--orders", "4"], "--orders"),
        (["--good", "{high}", "--bad", "{low}", "--inverse-penalty", "nan"], "--inverse-penalty"),
        (["--good", "{high}", "--bad", "{low}", "--seed", "4294967296"], "--seed"),
        (["--good", "{high}", "--bad", "{low}"], "at least 20"),  # the column is another
        (["--from-build", "none", "--good", "{high}"], "from the build"),
    ],
)
def test_mistakes(
    files: dict[str, str], words: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "m"
    assert main(["quality", "train", *(word.format(**files) for word in words), "--out", str(out)]) == 2
    assert message in capsys.readouterr().err
    assert not out.exists()


def test_the_numbers_of_a_small_case_by_hand() -> None:
    found = assess(np.array([[0.9, 0.1], [0.7, 0.3], [0.6, 0.4], [0.2, 0.8]]), np.array([0, 0, 1, 1]), ["a", "b"])
    first = found.classes[0]
    assert (first.precision, first.recall, first.f1, first.auc) == pytest.approx((2 / 3, 1, 0.8, 1))
    assert found.accuracy == 0.75
    assert found.calibration_error == pytest.approx((0.1 + 0.3 + 0.6 + 0.2) / 4)
    assert found.log_loss == pytest.approx(-np.log([0.9, 0.7, 0.4, 0.8]).mean())
    assert "0.667" in render(found)


def test_labels_from_a_build(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = tmp_path / "in.jsonl"
    spam = ["需要代開發票加微信，澳门威尼斯人娱乐城，" * 12 + f"今天是第{number}天。" for number in range(24)]
    texts = [*classes(60)["high"], *classes(24)["low"], *spam]
    source.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts), "utf-8")
    build, out = str(tmp_path / "build"), tmp_path / "quality.model"
    run_stages(stages(load_recipe("web_zh"), find_sources([SourcesConfig()], [str(source)])), build, workers=0)
    found = {name: list(texts) for name, texts in documents_of_build(build).items()}
    assert set(found["high"]) <= set(texts[:60]) and len(found["high"]) > 40
    assert set(found["low"]) <= set(texts[60:]) and len(found["low"]) > 20
    assert set(found["advertisement"]) <= set(spam)
    capsys.readouterr()
    assert main(["quality", "train", "--from-build", build, "--out", str(out), "--bits", "14", "--seed", "3"]) == 0
    assert "heuristics" in capsys.readouterr().err
    assert load_model(str(out)).classes[:2] == ("high", "low")
