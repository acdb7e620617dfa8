"""Encoding with a tokenizer that is there already: builds that share one can be compared and blended."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from corpus.engine.run import read_run
from tests.tokenizer.texts import documents
from tokenizer.__main__ import main
from tokenizer.model import Tokenizer
from tokenizer.shards import open_split

SETTINGS = ("--set", "tokenizer.vocab_size=600", "--set", "tokenizer.num_threads=1", "--workers", "0", "--quiet")


def run(folder: Path, out: str, *words: str | Path) -> int:
    return main(
        ["run", "--out", str(folder / out), "--text", str(folder / f"{out}.parquet"), *SETTINGS, *map(str, words)]
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("given")
    pq.write_table(pa.table({"text": documents(60)}), folder / "one.parquet")
    pq.write_table(pa.table({"text": documents(90, start=30)}), folder / "other.parquet")
    assert run(folder, "one") == 0
    return folder


def test_two_builds_share_a_tokenizer(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(folder, "other", "--tokenizer", folder / "one", "--json") == 0
    summary = json.loads(capsys.readouterr().out)
    assert (summary["documents"], Path(summary["tokenizer"]).read_bytes()) == (
        90,
        Tokenizer(folder / "one").path.read_bytes(),
    )
    (one,), (other,) = (open_split(folder / name, "train") for name in ("one", "other"))
    assert one.identity == other.identity
    tokenizer = Tokenizer(folder / "other")
    texts = {tokenizer.decode(other.sequence(number)[:-1]) for number in range(other.num_sequences)}
    assert texts <= set(documents(90, start=30))


def test_a_second_run_does_nothing_and_its_own_vocabulary_can_come_back(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(folder, "other") == 0
    own = Tokenizer(folder / "other").sha256
    for _ in range(2):
        assert run(folder, "other", "--tokenizer", Tokenizer(folder / "one").path) == 0
        assert Tokenizer(folder / "other").sha256 == Tokenizer(folder / "one").sha256 != own
        assert read_run(str(folder / "other"))["stages"].keys() == {"tokenizer", "tokens"}
    before = {path: path.stat().st_mtime_ns for path in (folder / "other").rglob("*.bin")}
    assert run(folder, "other") == 0
    assert Tokenizer(folder / "other").sha256 == own
    assert {path: path.stat().st_mtime_ns for path in (folder / "other").rglob("*.bin")} == before  # both were kept
    assert read_run(str(folder / "other"))["stages"].keys() >= {"sources", "shares", "sample", "tokenizer", "tokens"}


def test_its_report_wants_text(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(folder, "other", "--tokenizer", folder / "one") == 0
    assert main(["report", str(folder / "other")]) == 1
    assert "trained elsewhere. Give --text" in capsys.readouterr().err
    assert main(["report", str(folder / "other"), "--text", str(folder / "other.parquet")]) == 0


def test_what_is_no_tokenizer_is_refused(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "no.model").write_bytes(b"no model")
    assert run(folder, "other", "--tokenizer", folder / "no.model") == 1
    assert run(folder, "other", "--tokenizer", folder / "nowhere.model") == 2
    assert "nowhere.model" in capsys.readouterr().err
    assert run(folder, "other", "--tokenizer", "s3://bucket/a.model") == 2
    assert "Copy it here first" in capsys.readouterr().err
