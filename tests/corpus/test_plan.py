"""A plan tells tasks and costs before the run, from an earlier run's rates where there are any."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from corpus import build, plan
from corpus.__main__ import main
from corpus.recipe import load_recipe
from tests.corpus.texts import write_shards

EVERYTHING = (  # what a recipe can switch on
    "dedup.repeated_lines.min_documents=10",
    "dedup.substrings.min_chars=100",
    'dedup.contamination.files=["items.jsonl"]',
    "mixture.sources={local=1}",
)
OPTIONS = ["--recipe", "web_zh", "--set", "input.task_bytes=1000"]


@pytest.fixture
def inputs(tmp_path: Path) -> Path:
    return write_shards(tmp_path / "in", [range(9), range(9, 18)])


def planned(capsys: pytest.CaptureFixture[str], inputs: Path, out: Path) -> dict[str, object]:
    assert main(["plan", *OPTIONS, "--input", str(inputs), "--out", str(out), "--json"]) == 0
    value: dict[str, object] = json.loads(capsys.readouterr().out)
    return value


def test_defaults_then_what_was_measured(
    inputs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    before = planned(capsys, inputs, out)
    assert str(before["rates"]).startswith("defaults: ") and not out.exists()
    extract, later = before["stages"][0], before["stages"][1:]  # type: ignore[index]
    assert (extract["tasks"], extract["to_run"]) == (2, 2)
    total = sum(path.stat().st_size for path in inputs.iterdir())
    assert extract["disk_bytes"] == int(plan.DEFAULT_RATES["extract"].disk_bytes * total)
    assert all(one["tasks"] is None for one in later)
    files = ["--input", str(inputs), "--out", str(out)]
    assert main(["run", *OPTIONS, *files, "--workers", "0", "--quiet"]) == 0
    assert str(planned(capsys, inputs, out)["rates"]).startswith("defaults")  # too small a build to measure by
    monkeypatch.setattr(plan, "MIN_MEASURED_BYTES", 1)
    done = planned(capsys, inputs, out)
    assert str(done["rates"]).startswith("measured on")
    assert all(one["to_run"] == 0 and one["disk_bytes"] == 0 for one in done["stages"])  # type: ignore[attr-defined]
    (inputs / "2.jsonl").write_bytes((inputs / "0.jsonl").read_bytes())
    more = planned(capsys, inputs, out)["stages"][0]  # type: ignore[index]
    [folder] = out.glob("extract-*")
    written = sum(path.stat().st_size for kind in ("data", "fates", "places") for path in (folder / kind).iterdir())
    assert more["tasks"] == 3 and more["disk_bytes"] == pytest.approx(0.5 * written, rel=0.1)  # one task


def test_the_table_tells_when_the_disk_is_too_small(
    inputs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ["plan", *OPTIONS, "--input", str(inputs), "--out", str(tmp_path / "out"), "--workers", "4"]
    assert main(words) == 0
    table = capsys.readouterr().out
    assert "2 input files" in table and "4 workers" in table and "enough" in table
    rate = plan.Rate(1e-3, 1e12, 1 << 30)
    monkeypatch.setattr(plan, "DEFAULT_RATES", dict.fromkeys(plan.DEFAULT_RATES, rate))
    assert main(words) == 0
    table = capsys.readouterr().out
    assert "NOT ENOUGH" in table and "2.1 GB" in table  # two tasks beside each other


def test_compressed_inputs_weigh_their_text() -> None:
    assert plan._text_ratio("s3://crawl/A.WARC.GZ") > plan._text_ratio("a.jsonl") == 1.0


def test_a_dump_is_reckoned_with_its_markup(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "zhwiki.xml").write_bytes(b"<mediawiki>" + b" " * 1_000_000)
    extract, later = planned(capsys, tmp_path, tmp_path.parent / "out")["stages"][:2]  # type: ignore[index]
    assert extract["cpu_seconds"] == pytest.approx(plan.WIKITEXT_CPU_SECONDS * 1e6, abs=0.1)
    text_bytes = plan.WIKITEXT_TEXT_RATIO * 1_000_011
    assert later["disk_bytes"] == int(plan.DEFAULT_RATES["filter"].disk_bytes * text_bytes)


def test_every_stage_of_a_build_has_a_rate() -> None:
    """Whoever adds a stage measures it: the command stands above `DEFAULT_RATES`."""
    names = [stage.name for stage in build.stages(load_recipe("web_zh", EVERYTHING), ())]
    assert len(names) > 12 and set(names) <= set(plan.DEFAULT_RATES)
    assert set(build.TOKENIZER_STAGES) - {"tokenizer"} <= set(plan.DEFAULT_RATES)
    assert all(rate.cpu_seconds > 0 and rate.peak_bytes > 0 for rate in plan.DEFAULT_RATES.values())


def test_a_stage_without_a_rate_is_reckoned_and_named(
    inputs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(plan.DEFAULT_RATES, "filter")
    done = planned(capsys, inputs, tmp_path / "out")
    total = sum(path.stat().st_size for path in inputs.iterdir())
    assert done["stages"][1]["disk_bytes"] == int(plan.OTHER_RATE.disk_bytes * total)  # type: ignore[index]
    assert str(done["rates"]).endswith("; filter as one pass over the text")


def test_a_stage_that_was_never_measured_here_takes_its_default(
    inputs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    words = ["run", *OPTIONS, "--set", "dedup.repeated_lines=off"]
    assert main([*words, "--input", str(inputs), "--out", str(out), "--workers", "0", "--quiet"]) == 0
    monkeypatch.setattr(plan, "MIN_MEASURED_BYTES", 1)
    words = ["plan", *OPTIONS, "--input", str(inputs), "--out", str(out), "--json"]
    assert main(words) == 0
    done = json.loads(capsys.readouterr().out)
    total = sum(path.stat().st_size for path in inputs.iterdir())
    [lines] = [one for one in done["stages"] if one["stage"] == "line_keys"]
    assert lines["disk_bytes"] == int(plan.DEFAULT_RATES["line_keys"].disk_bytes * total)
    assert (
        done["rates"].startswith("measured on")
        and "line_keys, line_counts, repeated_lines by defaults" in done["rates"]
    )
