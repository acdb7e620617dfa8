"""The report of a run: what counts of its records, what the page may do, what a stranger's text may not."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pretrain.__main__ import main
from pretrain.monitor import report
from pretrain.monitor.log import CELLS, Curve, read_log
from pretrain.monitor.metadata import baselines, charts, state
from pretrain.run.evaluation import _draw_report
from tests.html_page import Page

EVIL = '</svg><script>alert("x")</script>"\'&`|学'


def record(kind: str, step: int, **values: Any) -> str:
    return json.dumps({"kind": kind, "step": step, "at": 1.76e9 + step, **values}, ensure_ascii=False) + "\n"


def trained(*steps: int, **values: Any) -> str:
    return "".join(record("train", step, loss=10.0 - step / 100, **values) for step in steps)


def write(out: Path, text: str, **summary: Any) -> Path:
    (out / "metrics.jsonl").write_text(text, encoding="utf-8")
    if summary:
        (out / "summary.json").write_text(json.dumps(summary))
    return out


def values_of(curve: Curve) -> dict[int, float]:
    return {cell.step: cell.total for cell in curve.cells}


WHOLE = (
    record("start", 0, ranks=4, layout="tp 2 x dp 2", precision="fp16", device="cpu", parameters=3, resumed_from=None)
    + trained(1, 2, 3, bits_per_character=6.0, learning_rate=1e-3, grad_norm=1.5, grad_norms={"mlp": 0.5, "head": 0.2},
              tokens_per_second=1000.0, flops_per_second=2e12, mfu=0.4, hfu=0.5, bubble=0.1, loss_scale=65536.0,
              phases={"data": 0.1, "forward": 0.3, "backward": 0.6}, batch_size=4, host_bytes=1 << 30,
              device_bytes=1 << 31, device_peak_bytes=1 << 32)
    + record("validation", 3, loss=5.0, bits_per_character=3.5, **{"bits_per_character/百科": 3.25})
    + record("save", 3, folder="step-00000003", stall_seconds=0.25, seconds=2.0, bytes=5_000_000)
    + record("overflow", 4, loss_scale=32768.0) + record("not_finite", 5, loss=None, verdict="data")
    + record("loss_spike", 6, loss=9.0) + record("save_failed", 6, reason=EVIL)
    + trained(6, batch_size=8) + record("end", 6, seconds=60.0)
)  # fmt: skip


def test_every_curve_and_event_is_on_the_page(tmp_path: Path) -> None:
    write(tmp_path, WHOLE, steps=6, tokens=4096, parameters=3_000_000, held_out_bits_per_character=3.5,
          bigram_bits_per_character=4.76, corpora={"百科": 3.25}, sample="春天来了，\n万物复苏。")  # fmt: skip
    assert main(["report", str(tmp_path)]) == 0
    page = Page((tmp_path / "report.html").read_text())
    for title in ("Loss", "Bits per character", "Learning rate", "Gradient norm", "Gradient norm by group", "Speed",
                  "Memory", "Utilisation", "Pipeline bubble", "Where the time goes", "Loss scale",
                  "Batch size"):  # fmt: skip
        assert title in page.text, title
    assert [tag for tag, _ in page.tags].count("svg") == 12
    markdown = (tmp_path / "report.md").read_text()
    for text in ("Finished after step 6. 4 ranks, tp 2 x dp 2, fp16, cpu.", "3.500", "春天来了，\n万物复苏。", "百科",
                 "folder step-00000003, stall 0.25 s, took 2 s, bytes 5.0 MB", "verdict data",
                 "loss or gradient not finite: 1"):  # fmt: skip
        assert text in page.text and text in markdown, text


def test_a_strangers_text_stays_text(tmp_path: Path) -> None:
    checkpoint = tmp_path / "checkpoints" / "step-00000006"
    checkpoint.mkdir(parents=True)
    (checkpoint / "COMMIT.json").write_text('{"files": {"a": {"bytes": 2000000}}}')
    (checkpoint / "config.json").write_text(json.dumps({"config": {"data": {"x": EVIL}}}))
    page = Page(report.write_report(write(tmp_path, WHOLE, sample=EVIL, corpora={EVIL: 1.0})).read_text())
    page.check()
    assert page.text.count(EVIL) == 3 and "step-00000006" in page.text and "2.0 MB" in page.text
    markdown = (tmp_path / "report.md").read_text()
    outside = re.sub(r"^(`{3,})\w*\n.*?^\1$", "", markdown, flags=re.DOTALL | re.MULTILINE)
    assert "&lt;script&gt;" in outside and "<script>" not in outside


def test_the_page_may_be_shown_to_others(tmp_path: Path) -> None:
    """No password of a URL, and not where files lie."""
    url = "sftp://ann:s3@cret@store.example/runs"
    text = (
        record("start", 0)
        + record("save", 1, folder=f"{url}/step-00000001")
        + record(
            "save_failed", 2, reason=f"{url}/step-00000002: refused (https://a.example/b?part=1&X-Amz-Signature=cret)"
        )
        + record("loss_spike", 3, file="/scratch/ann/runs/loss_spikes/step-00000003.jsonl")
    )
    checkpoint = tmp_path / "checkpoints" / "step-00000001"
    checkpoint.mkdir(parents=True)
    (checkpoint / "COMMIT.json").write_text("{}")
    config = {"checkpoint": {"url": url}, "data": {"corpora": [{"path": f"{url}/a?token=cret", "weight": 1.0}]}}
    (checkpoint / "config.json").write_text(json.dumps({"config": config}))
    page = report.write_report(write(tmp_path, text)).read_text()
    for shown in (page, (tmp_path / "report.md").read_text()):
        assert "cret" not in shown and "ann" not in shown
        assert "sftp://…@store.example/runs" in shown and "part=1" in shown and "weight = 1.0" in shown
        assert "folder step-00000001" in shown and "file step-00000003.jsonl" in shown


def test_corpora_and_sources_have_lines_of_their_own(tmp_path: Path) -> None:
    parts = {"bits_per_character/百科": 3.25, "bits_per_character/source:诗": 2.5, "bits_per_character/source:a/b": 4.5}
    out = write(tmp_path, record("validation", 3, bits_per_character=3.5, **parts), sources={"诗": 2.5, "a/b": 4.5})
    log = read_log(out)
    labels = {chart.title: [name for name, _ in chart.legend] for chart in charts(log)}
    assert labels["Bits per character"] == ["held out", "百科"]
    assert labels["Bits per character by source"] == ["诗", "a/b"], "as recorded: the largest first"
    assert baselines(log) == [("of source 诗", "2.500"), ("of source a/b", "4.500")]


def test_phases_that_took_no_time_are_not_named(tmp_path: Path) -> None:
    log = read_log(write(tmp_path, trained(1, 2, phases={"forward": 1.0, "save": 0.0})))
    (chart,) = (chart for chart in charts(log) if chart.title == "Where the time goes")
    assert [name for name, _ in chart.legend] == ["forward"]


def test_a_step_that_was_done_again_counts_once(tmp_path: Path) -> None:
    text = (
        record("start", 0)
        + trained(1, 2, 3, 4, 5)
        + record("validation", 4, loss=1.0)
        + record("start", 2, resumed_from="step-00000002")
        + record("train", 3, loss=7.0)
    )
    log = read_log(write(tmp_path, text))
    assert values_of(log.curve("train/loss")) == {1: 9.99, 2: 9.98, 3: 7.0}  # 4 and 5 are still to come again
    assert not log.curve("validation/loss").cells and log.restarts == [2] and log.step == 3
    assert state(log).startswith("Running at step 3")


def test_a_torn_line_and_foreign_lines_are_left_out(tmp_path: Path) -> None:
    text = trained(1) + "[1]\n" + '{"kind": "train"}\n' + '{"kind": "train", "step": null, "loss": 1}\n' + trained(2)
    log = read_log(write(tmp_path, text + '{"kind": "train", "step": 3, "lo'))
    assert list(values_of(log.curve("train/loss"))) == [1, 2] and log.unreadable == 4


@pytest.mark.parametrize("text", ["", record("start", 0), record("train", 1), trained(1), record("end", 7)])
def test_a_run_that_has_hardly_begun_has_a_page(tmp_path: Path, text: str) -> None:
    assert main(["report", str(write(tmp_path, text))]) == 0
    markdown, page = ((tmp_path / name).read_text() for name in ("report.md", "report.html"))
    assert "restarts" in markdown
    assert ("Nothing is recorded yet." in markdown) is (not text)
    assert ("Curves" in markdown) is ("loss" in text) and ("Curves" in page) is ("loss" in text)


def test_a_folder_without_a_run_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(tmp_path)]) == 2
    assert "has no metrics.jsonl" in capsys.readouterr().err and not list(tmp_path.iterdir())


def test_the_end_of_a_run_is_not_spoilt_by_its_report(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _draw_report(tmp_path)
    assert "WARNING: no report" in capsys.readouterr().err
    _draw_report(write(tmp_path, WHOLE))
    assert str(tmp_path / "report.html") in capsys.readouterr().err


@given(st.lists(st.floats(-100, 100), min_size=1, max_size=3000))
def test_a_curve_of_any_length_keeps_its_mean_and_extremes_in_bounded_cells(values: list[float]) -> None:
    curve = Curve()
    for step, value in enumerate(values, start=1):
        curve.add(step, value)
    assert len(curve.cells) <= 2 * CELLS
    assert sum(cell.count for cell in curve.cells) == len(values)
    assert curve.mean == pytest.approx(sum(values) / len(values), abs=1e-9)
    assert (min(cell.low for cell in curve.cells), curve.high) == (min(values), max(values))
    at = 0
    for cell in curve.cells:
        part = values[at : at + cell.count]
        assert (cell.step, cell.last, cell.low, cell.high) == (at + 1, at + cell.count, min(part), max(part))
        at += cell.count


def test_going_back_into_a_wide_cell_keeps_what_was_before() -> None:
    curve = Curve()
    for step in range(1, 8 * CELLS + 1):
        curve.add(step, 1.0)
    assert len(curve.cells) <= 2 * CELLS
    curve.cut(1001)
    assert curve.cells[-1].last == 1000 and sum(cell.count for cell in curve.cells) == 1000
    curve.add(1001, 5.0)
    assert curve.cells[-1].last == 1001 and curve.high == 5.0


def test_a_long_run_has_a_small_page(tmp_path: Path) -> None:
    with open(tmp_path / "metrics.jsonl", "w") as file:
        for step in range(1, 4001):
            file.write(record("train", step, loss=1 / step, grad_norm=2.0) + record("save", step, folder="f"))
    assert report.write_report(tmp_path).stat().st_size < 400_000
    log = read_log(tmp_path)
    assert log.counts["save"] == 4000 and len(log.timeline()) == 200
