"""A projection follows the rates and the stages' own plans; the page that quotes one quotes what the tool says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from corpus.__main__ import main as corpus_main
from corpus.dedup import records
from corpus.dedup.near import clusters
from corpus.dedup.near.candidates import EDGE_DTYPE
from corpus.engine.errors import UsageError
from corpus.plan import DEFAULT_RATES, OTHER_RATE, Rate
from corpus.recipe import load_recipe
from tests.corpus.texts import document
from tools import projection
from tools.projection import Corpus, Machines, Work, project

ROOT = Path(__file__).parents[2]
DOCUMENTS, SHARDS = 10**8, 80
RECIPE = load_recipe("web_zh")
ALL = load_recipe("web_zh", ["dedup.repeated_lines.min_documents=5", "dedup.substrings.min_chars=99"])


def corpus(documents: int = DOCUMENTS) -> Corpus:
    return Corpus(documents, 2_500 * documents, SHARDS, 0.8)


def test_tasks_are_those_that_the_stages_plan() -> None:
    found = {work.stage: work for work in project(corpus(), RECIPE, DEFAULT_RATES)}
    ranges = 1 << records.partition_bits(DOCUMENTS * 8 // 10 * 15, SHARDS)
    assert found["buckets"].tasks == ranges and found["candidates"].tasks % ranges == 0
    assert found["components"].tasks == found["tokenizer"].tasks == 1
    groups = found["candidates"].disk_bytes / EDGE_DTYPE.itemsize / clusters.GROUP_EDGES
    assert groups < found["survivors"].tasks <= groups + 1 and 1 < found["clusters"].tasks <= SHARDS
    assert {found[name].tasks for name in ("filter", "signatures", "members", "text", "tokens")} == {SHARDS}
    assert found["buckets"].reads == found["members"].reads == SHARDS * ranges * projection.READS_A_SECTION
    assert found["candidates"].reads == 2 * found["candidates"].tasks * SHARDS * projection.READS_A_SECTION
    assert list(found)[-5:] == ["sources", "shares", "sample", "tokenizer", "tokens"]


def test_stages_without_a_rate_are_reckoned_all_the_same() -> None:
    found = {work.stage: work for work in project(corpus(), ALL, {})}
    assert {"line_keys", "repeated_lines", "substrings"} <= set(found)
    assert found["filter"].disk_bytes == pytest.approx(
        DEFAULT_RATES.get("filter", OTHER_RATE).disk_bytes * 2_500 * DOCUMENTS
    )


def test_cost_is_rate_times_bytes() -> None:
    rates = dict.fromkeys(DEFAULT_RATES, Rate(1e-8, 0.5, 1))
    found = {work.stage: work for work in project(corpus(), RECIPE, rates)}
    assert found["filter"].core_seconds == pytest.approx(2_500)
    assert found["filter"].disk_bytes == pytest.approx(1.25e11)
    assert found["filter"].read_bytes == found["extract"].disk_bytes
    assert found["buckets"].core_seconds > 2_500  # and a little for each of its reads
    double = {work.stage: work for work in project(corpus(2 * DOCUMENTS), RECIPE, rates)}
    assert double["filter"].core_seconds == pytest.approx(5_000)


def test_the_slowest_of_cores_network_and_driver_decides() -> None:
    work = Work("x", 100, 1_000.0, 0.0, 1e9, 0, 1)
    assert work.seconds(Machines(1, 10, 1e12)) == (pytest.approx(100.0), "cores")
    assert work.seconds(Machines(1, 60, 1e12)) == (pytest.approx(20.0), "cores")  # two waves of ten seconds
    assert work.seconds(Machines(2, 60, 1e12)) == (pytest.approx(10.0), "cores")
    assert work.seconds(Machines(1, 100, 1e7)) == (pytest.approx(100.0), "network")
    many = Work("x", 10**6, 1.0, 0.0, 0.0, 0, 1)
    assert many.seconds(Machines(100, 10, 1e9)) == (pytest.approx(10**6 * projection.DRIVER_SECONDS), "driver")
    alone = Work("x", 1, 50.0, 0.0, 0.0, 0, 1)
    assert alone.seconds(Machines(100, 10, 1e9)) == (50.0, "one task")


def test_more_nodes_are_never_slower_and_one_task_stays(capsys: pytest.CaptureFixture[str]) -> None:
    machines = [Machines(nodes, 16, 1.25e9) for nodes in (1, 4, 16, 64)]
    for work in project(corpus(), ALL, DEFAULT_RATES):
        times = [work.seconds(one)[0] for one in machines]
        assert times == sorted(times, reverse=True), work
    projection.main(["--documents", "1e8", "--bytes", "2.5e11", "--nodes", "1", "8"])
    told = capsys.readouterr().out
    assert re.search(r"^8 nodes: .*stages of one task", told, re.MULTILINE)
    assert max(map(len, told.splitlines())) <= 120 and "not measured at this size" in told


@pytest.mark.parametrize("option", ["--documents", "--bytes", "--nodes", "--cores", "--network-gbit", "--requests"])
def test_nothing_of_nothing_is_refused(option: str) -> None:
    with pytest.raises(UsageError, match=f"{option}: give a number above 0"):
        projection.main([option, "0"])


def test_bands_are_those_of_the_recipe(capsys: pytest.CaptureFixture[str]) -> None:
    told = []
    for bands in (8, 16):
        projection.main(["--documents", "1e8", "--bytes", "2.5e11", "--set", f"dedup.bands={bands}"])
        told += re.findall(r"ranges: ([0-9,]+) of ([0-9.]+) M", capsys.readouterr().out)
    few, many = (int(ranges.replace(",", "")) * float(records) for ranges, records in told)
    assert few / many == pytest.approx(9 / 17, rel=0.01)


def test_rates_of_a_finished_build(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "in.txt").write_text("\n".join(document(seed).replace("\n", " ") for seed in range(8)) + "\n短")
    out = str(tmp_path / "out")
    words = ["run", "--recipe", "web_zh", "--set", "sources.document=line", "--input", str(tmp_path / "in.txt")]
    assert corpus_main([*words, "--out", out, "--workers", "0", "--quiet"]) == 0
    rates, kept = projection.rates_of(out)
    size = sum(len(document(seed).encode()) for seed in range(8)) + 3
    assert kept == pytest.approx(8 / 9) and set(rates) == {one.stage for one in project(corpus(), RECIPE, {})[:-5]}
    [data] = Path(out).glob("signatures-*")
    written = sum(path.stat().st_size for kind in ("keys", "signatures", "bands") for path in (data / kind).iterdir())
    assert rates["signatures"].disk_bytes == pytest.approx(written / size, rel=0.01)
    projection.main(["--rates", out, "--show-rates"])
    assert '    "filter": Rate(' in capsys.readouterr().out


def test_a_page_gets_the_table_and_keeps_the_rest(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    opening = f"above\n```sh\n{projection.COMMAND}\n```\n\n```\n"
    for old in ("", "old\nold\n"):
        page.write_text(f"{opening}{old}```\nbelow\n\n```sh\nmore\n```\n")
        projection.rewrite(page, "new")
        assert page.read_text() == f"{opening}new\n```\nbelow\n\n```sh\nmore\n```\n"
    page.write_text("nothing")
    with pytest.raises(UsageError, match="no block"):
        projection.rewrite(page, "new")


def test_the_pages_quote_the_tool(capsys: pytest.CaptureFixture[str]) -> None:
    projection.main([])
    told = capsys.readouterr().out
    for page in ("docs/scale.md", "docs/scale.zh.md"):
        assert f"{projection.COMMAND}\n```\n\n```\n{told}```\n" in (ROOT / page).read_text(encoding="utf-8"), (
            "the page is out of date: python -m tools.projection --into docs/scale.md docs/scale.zh.md"
        )
