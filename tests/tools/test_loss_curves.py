"""Curves of runs: which steps are compared, how far apart they are, and what is drawn."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from corpus.engine.errors import UsageError
from tools import loss_curves

SVG = "{http://www.w3.org/2000/svg}"


def run_of(folder: Path, reports: list[dict[str, Any]]) -> Path:
    folder.mkdir()
    (folder / "metrics.jsonl").write_text("".join(json.dumps(report) + "\n" for report in reports))
    return folder


def test_two_runs_that_differ_at_one_step(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one = run_of(tmp_path / "one", [{"kind": "train", "step": step, "loss": 4.0 / step} for step in (1, 2, 3, 4)])
    reports = [{"kind": "train", "step": step, "loss": 4.0 / step + 0.5 * (step == 2)} for step in (1, 2, 4, 5)]
    doubled = [{"kind": "train", "step": 1, "loss": 99.0}, {"kind": "validation", "step": 2, "loss": 99.0}]
    two = run_of(tmp_path / "two", [*doubled, *reports])
    loss_curves.main([str(one), str(two), "--svg", str(tmp_path / "a.svg")])
    assert capsys.readouterr().out.splitlines() == [
        f"{one}: 1.0000 at step 4",
        f"{two}: 1.0000 at step 4; at most 5.00e-01 (2.5e-01 relative) from the first, at step 2",
    ]
    drawn = ElementTree.parse(tmp_path / "a.svg").getroot()
    curves = [each for each in drawn.iter(f"{SVG}path") if "line" in each.attrib["class"]]
    assert [each.attrib["d"].count("L") for each in curves] == [2, 2]
    assert ["dashed" in each.attrib["class"] for each in curves] == [False, True]


def test_a_loss_that_only_one_run_has_is_infinitely_far(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, loss in (("one", 1.0), ("two", None)):
        run_of(tmp_path / name, [{"kind": "train", "step": 1, "loss": loss}])
    loss_curves.main([str(tmp_path / "one"), str(tmp_path / "two")])
    assert "at most inf" in capsys.readouterr().out


def test_held_out_bits_beside_the_character_models(tmp_path: Path) -> None:
    values = [{"kind": "validation", "step": step, "bits_per_character": 9.0 - step} for step in (1, 2, 3)]
    run = run_of(tmp_path / "run", values)
    summary = {"unigram_bits_per_character": 8.0, "5gram_bits_per_character": 5.0}
    (run / "summary.json").write_text(json.dumps(summary))
    loss_curves.main([str(run), "--held-out", "--svg", str(tmp_path / "a.svg")])
    drawn = ElementTree.parse(tmp_path / "a.svg").getroot()
    assert len(list(drawn.iter(f"{SVG}path"))) == 3
    assert {"■ run", "■ unigram", "■ 5gram"} <= {each.text for each in drawn.iter(f"{SVG}text")}


def test_runs_of_one_name_are_told_apart(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        run_of(tmp_path / name / "out", [{"kind": "train", "step": step, "loss": 1.0} for step in (1, 2)])
    loss_curves.main([*(str(tmp_path / name / "out") for name in "ab"), "--svg", str(tmp_path / "a.svg")])
    texts = {each.text for each in ElementTree.parse(tmp_path / "a.svg").getroot().iter(f"{SVG}text")}
    assert {"■ a", "■ b"} <= texts


def test_what_cannot_be_compared_is_told(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"metrics\.jsonl: there is none"):
        loss_curves.main([str(tmp_path)])
    for number in (1, 2):
        run_of(tmp_path / str(number), [{"kind": "train", "step": number, "loss": 1.0}])
    with pytest.raises(UsageError, match="share no step"):
        loss_curves.main([str(tmp_path / "1"), str(tmp_path / "2")])
