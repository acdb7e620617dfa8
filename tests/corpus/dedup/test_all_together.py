"""Every part of deduplication in one recipe, by the command lines that a user types, down to the tokens."""

from __future__ import annotations

import itertools
import json
import random
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from corpus.__main__ import main
from corpus.document import read_table
from corpus.engine.run import current
from corpus.report import ledger
from corpus.report.metadata import gather
from tests.corpus.texts import document, write_records
from tokenizer.__main__ import main as tokenizer
from tokenizer.shards import open_split

RECIPE = """
extends = "web_zh"
input.task_bytes = 12000
[dedup]
keep = "all_with_size"
[dedup.repeated_lines]
min_documents = 4
[dedup.contamination]
files = ["{folder}/items.jsonl"]
[dedup.substrings]
min_chars = 60
min_left = 100
[filter.quality]
model = "off"
score = "off"
[[mixture.buckets]]
statistic = "dedup.survivor"
bounds = [1]
weights = [0, 1]
[tokenizer]
vocab_size = 600
num_threads = 1
validation_ratio = 0.1
"""
MENU = "首页 新闻 论坛 登录 注册"  # of every page
ITEM = "一个长方形的花园长十二米宽九米沿着四周铺一条一米宽的小路问小路的面积是多少平方米"
STAGES = ["filter", "repeated_lines", "contamination", "clusters", "substrings", "text"]  # that documents pass


def pages() -> tuple[dict[str, str], dict[str, str]]:
    """URL -> text of an earlier build and of a new one."""
    old = {f"https://old.example/{seed}": document(seed, 20) for seed in range(8)}
    texts = {f"own/{seed}": document(seed, 20) for seed in range(100, 116)}
    texts |= {f"old/{seed}": document(seed, 20) for seed in range(3)}
    texts |= {
        "twin/exact": document(100, 20) + "。",
        "twin/near": document(101, 20).replace("清晨", "早上") + "又是一天。",
    }
    passage = document(102, 20)[60:260].partition("。")[2].rpartition("。")[0] + "。"
    texts |= {"copies": f"{document(120, 12)}\n{passage}", "excerpt": passage, "exam": f"{document(121, 14)}\n{ITEM}。"}
    return old, {f"https://new.example/{name}": f"{MENU}\n{text}" for name, text in texts.items()}


def build(folder: Path, name: str, records: Sequence[tuple[str, str]], *more: str, files: int = 1) -> Path:
    """Run the recipe on some files of (URL, text) records."""
    for number in range(files):
        rows = ({"url": url, "text": text} for url, text in records[number::files])
        write_records(folder / f"{name}-in" / f"{number}.jsonl", rows)
    assert main(command("run", folder, name, "--workers", "0", "--quiet", *more)) == 0
    return folder / name


def command(verb: str, folder: Path, name: str, *more: str) -> list[str]:
    files = ["--input", str(folder / f"{name}-in"), "--out", str(folder / name)]
    earlier = [] if name == "old" else ["--set", f"dedup.earlier={json.dumps([str(folder / 'old')])}"]
    return [verb, "--recipe", str(folder / "recipe.toml"), *files, *earlier, *more]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("together")
    write_records(folder / "items.jsonl", [{"question": ITEM}])
    (folder / "recipe.toml").write_text(RECIPE.format(folder=folder))
    old, new = pages()
    build(folder, "old", list(old.items()))
    build(folder, "new", list(new.items()), files=3)
    return folder


def rows(out: Path, kind: str) -> list[dict[str, Any]]:
    return [row for file in current(str(out), "text").files(kind) for row in read_table(Path(file.url)).to_pylist()]


def test_each_page_ends_where_its_part_says(built: Path) -> None:
    out = str(built / "new")

    def ends(name: str) -> tuple[Any, ...]:
        """The stages that changed it, and the last event."""
        [found] = ledger.find(out, f"https://new.example/{name}")
        events = [event for event in ledger.history(out, found) if event.what not in ("read", "measured")]
        assert (events[0].stage, events[0].what) == ("repeated_lines", "edited")
        return (*(event.stage for event in events[1:]), events[-1].values.get("copies", events[-1].values.get("rule")))

    assert ends("own/105") == ("text", "mixture", 1)
    assert ends("old/1") == ends("own/100") == ends("own/101") == ("text", "mixture", 0)  # duplicates
    assert ends("twin/exact") == ends("twin/near") == ("text", "mixture", 1)
    assert ends("copies") == ("substrings", "text", "mixture", 1)
    assert ends("excerpt") == ("substrings", "substrings", "substrings.num_chars")
    assert ends("exam") == ("contamination", "contamination.share")


def test_every_document_is_accounted_for_at_every_step(built: Path) -> None:
    out = built / "new"
    counts = [current(str(out), stage).counts for stage in STAGES]
    for before, after in itertools.pairwise(counts):
        assert (before.documents_out, before.bytes_out) == (after.documents_in, after.bytes_in)
        assert after.documents_in == after.documents_out + sum(after.dropped.values())
    assert counts[0].documents_in - counts[-1].documents_out == 2 and len(rows(out, "data")) == counts[-1].documents_out
    index = rows(out, "index")
    assert sum(row["cluster_size"] for row in index if row["survivor"]) == len(index) - 3  # which stand for old ones
    for data, row in zip(rows(out, "data"), index, strict=True):
        assert data["id"] == row["id"] and len(data["text"].encode()) == row["text_bytes"]


def test_order_and_files_change_nothing(built: Path, tmp_path: Path) -> None:
    records = list(pages()[1].items())
    random.Random(1).shuffle(records)
    (tmp_path / "recipe.toml").symlink_to(built / "recipe.toml")
    (tmp_path / "old").symlink_to(built / "old")
    other = build(tmp_path, "new", records, files=5)
    texts, expected = (sorted((row["url"], row["text"]) for row in rows(out, "data")) for out in (other, built / "new"))
    assert texts == expected
    sizes = [Counter((row["cluster"], row["cluster_size"], row["survivor"]) for row in rows(out, "index"))
             for out in (other, built / "new")]  # fmt: skip
    assert sizes[0] == sizes[1]


def test_the_other_commands_know_it(built: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out, recipe = str(built / "new"), str(built / "recipe.toml")
    assert main(["verify", out]) == main(["status", out]) == main(["report", out]) == main(["mixture", out]) == 0
    report = (built / "new" / "report.md").read_text()
    assert "contamination.share" in report and "substrings.num_chars" in report
    capsys.readouterr()
    assert main(command("plan", built, "new", "--json")) == 0
    assert all(stage["to_run"] == 0 for stage in json.loads(capsys.readouterr().out)["stages"])
    assert main(["prune", out, "--recipe", recipe, "--yes"]) == 0
    assert main(["verify", out]) == 0
    assert tokenizer(["run", "--recipe", recipe, "--out", out, "--workers", "0", "--quiet"]) == 0
    written = [shard.num_sequences for split in ("train", "validation") for shard in open_split(built / "new", split)]
    assert sum(written) == sum(row["survivor"] for row in rows(built / "new", "index"))
    assert main(["verify", out]) == 0 and gather(out).funnel.breaches == ()
