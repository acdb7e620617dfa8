"""Earlier builds around a run: which are refused, what is done again, and what the commands tell of them."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from corpus.__main__ import main
from corpus.dedup.near.earlier import Numbering, check_earlier
from corpus.document import read_table
from corpus.engine.errors import UsageError, WenhaiError
from corpus.engine.run import run_stages
from corpus.prune import unneeded_folders
from tests.corpus.dedup.earlier import Build, config, out_of, run, stages
from tests.corpus.dedup.texts import ANALECTS, POEM, TRADITIONAL_POEM
from tests.corpus.texts import document, write_records


def test_what_cannot_be_an_earlier_build_is_refused(build: Build, tmp_path: Path) -> None:
    first = Path(out_of(build([[POEM, ANALECTS]])))

    def refused(words: str, *earlier: object, **settings: Any) -> None:
        with pytest.raises(WenhaiError, match=words):
            check_earlier(config(earlier, **settings), str(tmp_path / "out"))

    refused("nowhere: no build stands here, but dedup.earlier lists it", tmp_path / "nowhere")
    refused("signed otherwise .ngram 5 there, 4 here.", first, ngram=4)
    refused("num_permutations 112 there, 128 here", first, num_permutations=128)
    refused("bands 14 there, 10 here", first, bands=10)
    refused("rows 8 there, 7 here", first, rows=7)
    refused("scheme classic there, datasketch here", first, scheme="datasketch")
    refused("scripts fold there, keep here", first, scripts="keep")
    check_earlier(config([first], threshold=0.9, max_leaders=3, prefer_sources=("a",)), str(tmp_path / "out"))
    shutil.copytree(first, tmp_path / "copy")
    refused("the same build, listed twice", first, tmp_path / "copy")
    with pytest.raises(UsageError, match="is --out itself"):
        check_earlier(config([first]), f"{first}/../{first.name}/")

    run_stages(stages([["短"]])[:-1], str(tmp_path / "half"), workers=0)
    refused("half: stage 'text' is not complete", tmp_path / "half")

    [signed] = first.glob("signatures-*")
    parts = json.loads((signed / "stage.json").read_text())
    for changed, words in (
        ({"version": 1}, "stage version 1 there, 3 here"),
        ({"config": parts["config"] | {"fold": "0123"}}, "fold 0123 there, "),
    ):
        (signed / "stage.json").write_text(json.dumps(parts | changed))
        refused(words, first)
    (signed / "stage.json").write_text(json.dumps(parts))
    [bands] = (signed / "bands").iterdir()
    bands.write_bytes(bands.read_bytes()[:-1])
    refused(f"bands/{bands.name}: missing or of another size, but dedup.earlier lists", first)
    shutil.rmtree(signed)
    refused("MANIFEST.json: missing or of another size", first)


def test_the_contents_of_earlier_builds_decide_what_is_done_again(tmp_path: Path) -> None:
    first, out, shards = tmp_path / "first", tmp_path / "out", [[TRADITIONAL_POEM, ANALECTS]]
    run(first, [[POEM]])
    assert len(run(out, shards).texts) == 2
    assert run(out, shards, [first]).texts == [ANALECTS]
    run(first, [[POEM], [ANALECTS]])
    assert run(out, shards, [first]).texts == []
    gone = [one.folder.partition("-")[0] for one in unneeded_folders(str(out), [stages(shards, [first])])]
    without = ["buckets", "candidates", "clusters", "components", "members", "survivors", "text"]
    assert gone == without  # those of the run without earlier builds


def test_a_document_stands_in_the_build_that_its_ordinal_falls_into() -> None:
    numbering = Numbering(np.array([0, 3, 3, 5]), np.array(["", "empty", "last"], "S12"))
    assert Numbering.from_params(numbering.params()).names.tolist() == [b"", b"empty", b"last"]
    assert numbering.builds(np.array([0, 2, 3, 4])).tolist() == [b"", b"", b"last", b"last"]
    assert numbering.count(np.array([b"", b"last", b"last"], "S12")) == {"earlier.empty": 0, "earlier.last": 2}


def test_the_command_line_tells_what_fell_for_which_build(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def write(name: str, seeds: Sequence[int], host: str) -> str:
        lines = ({"text": document(seed), "url": f"https://{host}.example/{seed}"} for seed in seeds)
        return str(write_records(tmp_path / f"{name}.jsonl", lines))

    def command(verb: str, name: str, source: str, earlier: Sequence[object]) -> list[str]:
        return [
            *(verb, "--recipe", "web_zh", "--input", source, "--out", str(tmp_path / name)),
            *("--set", f"dedup.earlier={json.dumps(list(map(str, earlier)))}"),
            *(("--workers", "0", "--quiet") if verb == "run" else ()),
        ]

    old, new = write("old", range(6), "old"), write("new", range(3, 9), "new")
    first = tmp_path / "2025"
    assert main(command("run", "2025", old, [])) == 0
    assert main(command("run", "2026", new, [first])) == 0
    out = tmp_path / "2026"
    texts = [row for path in out.glob("text-*/data/*") for row in read_table(path)["url"].to_pylist()]
    assert sorted(texts) == [f"https://new.example/{seed}" for seed in (6, 7, 8)]

    (name,) = json.loads((out / "recipe.json").read_text())["earlier"]
    capsys.readouterr()
    assert main(["explain", str(out), "https://new.example/4"]) == 0
    assert f":4, https://old.example/4 in the earlier build {name}, {first}" in " ".join(
        capsys.readouterr().out.split()
    )
    report, card = (out / "report.md").read_text(), (out / "DATASET_CARD.md").read_text()
    assert "So this is not what a build of all documents together would keep." in report
    assert f"| `{name}` | " in report and f"/{first.name} | 3 |" in report and f"`{name}` (3)" in card
    assert 'id="earlier"' in (out / "report.html").read_text()
    assert "earlier build" not in (first / "report.md").read_text()

    assert main(["plan", *command("plan", "2026", new, [first])[1:], "--json"]) == 0
    assert all(stage["to_run"] == 0 for stage in json.loads(capsys.readouterr().out)["stages"])
    assert main(["prune", str(first), "--recipe", "web_zh", "--yes"]) == 0
    assert main(["verify", str(out)]) == 0 and main(command("run", "2026", new, [first])) == 0
    shutil.rmtree(first)
    capsys.readouterr()
    assert main(["explain", str(out), "https://new.example/4"]) == 0
    assert f"in the earlier build {name}, {first}" in " ".join(capsys.readouterr().out.split())
    for verb in ("plan", "run"):
        assert main(command(verb, "2027", str(tmp_path / "none"), [first])) == 1  # said before inputs are looked for
        assert "no build stands here" in capsys.readouterr().err
    assert not (tmp_path / "2027").exists()
