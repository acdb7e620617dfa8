"""From files to token shards through a [mixture], by the command lines that a user types."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from corpus.__main__ import main
from corpus.document import read_table
from corpus.engine.run import current
from corpus.report.metadata import gather
from corpus.report.summary import funnel
from tests.corpus.texts import document, write_records
from tokenizer.__main__ import main as tokenizer
from tokenizer.shards import open_split

RECIPE = """
extends = "web_zh"
[dedup]
keep = "all_with_size"
[mixture]
sources = { baike = 2.5, "foru*" = 0.5 }
[[mixture.buckets]]
statistic = "dedup.survivor"
bounds = [1]
weights = [0, 1]
[tokenizer]
vocab_size = 600
num_threads = 1
validation_ratio = 0.1
"""
SOURCES = {"baike": (0, 24), "web": (100, 30), "forum": (200, 20)}
COPIES = 4  # of a web page, beside its original


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("mixture")
    for source, (first, count) in SOURCES.items():
        texts = {f"{source}/{number}": document(first + number) for number in range(count)}
        if source == "web":
            texts |= {f"web/copy-{number}": document(first) for number in range(COPIES)}
        records = ({"text": text, "url": f"https://{name}", "source": source} for name, text in texts.items())
        write_records(folder / "in" / f"{source}.jsonl", records)
    (folder / "recipe.toml").write_text(RECIPE)
    assert main(words(folder)) == 0
    return folder


def words(folder: Path, *more: str, recipe: str = "recipe.toml") -> list[str]:
    shards = ["--set", "input.task_bytes=20000", "--workers", "0", "--quiet"]
    files = ["--input", str(folder / "in"), "--out", str(folder / "out")]
    return ["run", "--recipe", str(folder / recipe), *files, *shards, *more]


def test_each_source_is_taken_as_often_as_the_recipe_says(built: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = str(built / "out")
    assert main(["mixture", out, "--json"]) == 0
    groups = {one["name"]: one for one in json.loads(capsys.readouterr().out)}
    assert groups["web"]["documents"] == 30 + COPIES and groups["web"]["copies"] == groups["web"]["chosen"] == 30
    assert 48 <= groups["baike"]["copies"] <= 72 and groups["baike"]["chosen"] == 24
    assert groups["forum"]["copies"] == groups["forum"]["chosen"] < 20
    assert groups["below 1"]["documents"] == COPIES and groups["below 1"]["copies"] == 0
    assert main(["mixture", out]) == 0
    assert "share mixed" in capsys.readouterr().out
    for page in ("report.md", "report.html"):
        assert "What the tokenizer takes of the text" in (built / "out" / page).read_text()


def test_everything_is_kept_and_the_report_still_knows_the_clusters(built: Path) -> None:
    facts = gather(str(built / "out"))
    assert facts.funnel.documents_kept == facts.funnel.documents_in and not facts.funnel.dropped
    assert facts.clusters == [("5 to 9", 1, 5)] and facts.reasons == [] and facts.funnel.breaches == ()
    card = (built / "out" / "DATASET_CARD.md").read_text()
    assert "4 exact and 0 near duplicates were found and kept" in card and "one document of each group" not in card


def test_the_tokenizer_writes_the_copies_and_explain_finds_them(
    built: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = built / "out"
    recipe = ["--recipe", str(built / "recipe.toml"), "--out", str(out), "--workers", "0"]
    assert tokenizer(["run", *recipe, "--quiet"]) == 0
    copies: Counter[bytes] = Counter()
    for file in current(str(out), "mixture").files("copies"):
        for row in read_table(Path(file.url)).to_pylist():
            copies[row["id"]] += row["copies"]
    found: Counter[bytes] = Counter()
    once: set[bytes] = set()
    for split in ("train", "validation"):
        for shard in open_split(out, split):
            ids = pq.read_table(f"{shard.prefix}.docs.parquet")["id"].to_pylist()
            found.update(ids)
            once |= set(ids) if split == "validation" else set()
    assert found == {id: 1 if id in once else count for id, count in copies.items() if count}
    summary = funnel(str(out))
    assert summary.breaches == () and summary.documents_kept == summary.documents_in
    written = sum(shard.meta.num_characters for split in ("train", "validation") for shard in open_split(out, split))
    assert summary.token_bytes == pytest.approx(3 * written, rel=0.05)  # nearly all of it Chinese
    assert gather(str(out)).reasons == []

    capsys.readouterr()
    assert main(["explain", str(out), "https://baike/3"]) == 0
    told = capsys.readouterr().out
    identity = bytes.fromhex(told.split()[1])
    assert f"taken {copies[identity]} times (weight 2.5)" in told
    assert told.count("tokenized: ") == found[identity]
    assert main(["verify", str(out)]) == 0


def test_a_recipe_without_a_mixture_is_told_of_the_one_there_is(
    built: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (built / "plain.toml").write_text(
        RECIPE.partition("[mixture]")[0] + "[tokenizer]" + RECIPE.partition("[tokenizer]")[2]
    )
    recipe = ["--recipe", str(built / "plain.toml"), "--workers", "0", "--quiet"]
    assert tokenizer(["run", *recipe, "--out", str(built / "out")]) == 0
    assert "holds a mixture and this recipe has no [mixture]" in capsys.readouterr().err
    documents = sum(
        shard.num_sequences for split in ("train", "validation") for shard in open_split(built / "out", split)
    )
    assert documents == current(str(built / "out"), "text").counts.documents_out
    mixed = ["--recipe", str(built / "recipe.toml"), "--workers", "0", "--quiet"]
    assert tokenizer(["run", *mixed, "--out", str(built / "other"), "--text", str(built / "out")]) == 0
    assert "every document of --text is taken once" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("override", "words_told"),
    [
        ("mixture.sources.wikki=2", "'wikki' is no source of the text"),
        ("mixture.sources.web=101", "mixture.sources.web"),
        ("mixture.source.web=1", "did you mean sources?"),
    ],
)
def test_a_mistake_is_told_in_words(
    built: Path, capsys: pytest.CaptureFixture[str], override: str, words_told: str
) -> None:
    assert main(words(built, "--set", override)) == 2
    assert words_told in capsys.readouterr().err
