"""`python -m tokenizer report` and `compare`: what they print, write and refuse."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from corpus.engine import storage
from corpus.engine.errors import UsageError
from corpus.engine.manifest import commit_files
from corpus.engine.stage import Folder
from tests.tokenizer.texts import documents
from tokenizer.__main__ import main
from tokenizer.config import TokenizerConfig
from tokenizer.model import Tokenizer
from tokenizer.report import vocabulary_report
from tokenizer.report.reading import read_texts
from tokenizer.train import train


@pytest.fixture(scope="module")
def text_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("text")
    pq.write_table(pa.table({"text": documents(6), "source": ["poems", "classics"] * 3}), folder / "a.parquet")
    pq.write_table(pa.table({"text": [*documents(4, start=6), None]}), folder / "b.parquet")
    return folder


@pytest.fixture(scope="module")
def built(text_folder: Path) -> Path:
    out = text_folder / "out"
    settings = ["--set", "tokenizer.vocab_size=500", "--set", "tokenizer.reject_pieces=['学而']"]
    assert main(["run", "--out", str(out), "--text", str(text_folder), "--workers", "0", "--quiet", *settings]) == 0
    return out


def test_a_report_on_texts(
    model_file: Path, tokenizer: Tokenizer, text_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "page.html"
    assert main(["report", str(model_file), "--text", str(text_folder), "--json", "--html", str(page)]) == 0
    sources = {"classics": documents(6)[1::2], "poems": documents(6)[::2], "b.parquet": documents(4, start=6)}
    assert json.loads(capsys.readouterr().out) == vocabulary_report(tokenizer, sources)
    assert page.read_text().startswith("<!DOCTYPE html>")


def test_the_report_of_a_build_is_the_one_that_training_wrote(built: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(built), "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["vocab_size_asked"] == 500
    assert list(report["sources"]) == ["b.parquet", "classics", "poems"]
    assert main(["report", str(built)]) == 0
    assert "kept out of the vocabulary: 学而" in capsys.readouterr().out


def test_a_report_of_an_older_version_is_refused(
    built: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    shutil.copytree(built, out)
    (file,) = out.glob("**/report/tokenizer.json")
    file.write_text('{"vocab_size": 400}')
    assert main(["report", str(out)]) == 1
    assert "older version" in capsys.readouterr().err
    listed = Folder.open(str(file.parent.parent)).listed()
    files = {one.url: {"bytes": one.bytes, "sha256": one.sha256} for one in listed if not one.url.endswith(".html")}
    commit_files(str(file.parent.parent), files, "tokenizer")  # as it was before there was a page
    assert main(["report", str(out)]) == 1
    assert "older version" in capsys.readouterr().err


def test_a_comparison(model_file: Path, text_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    small = tmp_path / "small.model"
    small.write_bytes(train(documents(100), TokenizerConfig(vocab_size=500)))
    page = tmp_path / "page.html"
    arguments = ["compare", str(small), str(model_file), "--text", str(text_folder)]
    assert main([*arguments, "--html", str(page)]) == 0
    printed = capsys.readouterr().out
    assert "fewest tokens for these texts: " in printed
    assert "<table>" in page.read_text()
    assert main([*arguments, "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert [row["vocab_size"] for row in result["candidates"].values()] == [500, 700]


def test_one_tokenizer_is_no_comparison(
    model_file: Path, text_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for names in ([str(model_file)], [str(model_file)] * 2):
        assert main(["compare", *names, "--text", str(text_folder)]) == 2
        assert "two or more" in capsys.readouterr().err


def test_remote_tokenizers(
    model_bytes: bytes, tokenizer: Tokenizer, text_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["run", "--out", "memory://remote-tokenizer", "--text", str(text_folder), "--workers", "0", "--quiet"]
    assert main([*arguments, "--set", "tokenizer.vocab_size=500"]) == 0
    with storage.create("memory://remote-tokenizer/other.model") as path:
        path.write_bytes(model_bytes)
    named = ["memory://remote-tokenizer/other.model", "memory://remote-tokenizer"]
    assert main(["compare", *named, "--text", str(text_folder), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["candidates"]
    assert [row["vocab_size"] for row in found.values()] == [700, 500]
    assert main(["report", named[0], "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["tokenizer_sha256"] == tokenizer.sha256
    for missing in ("memory://remote-tokenizer/none.model", "memory://nowhere"):
        assert main(["compare", named[0], missing, "--text", str(text_folder)]) == 1
        assert missing in capsys.readouterr().err


def test_a_tokenizer_of_another_end_of_document_is_refused(
    model_file: Path, text_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = tmp_path / "other.model"
    other.write_bytes(model_file.read_bytes().replace(b"<|endoftext|>", b"<|end_of_doc>"))
    assert main(["compare", str(model_file), str(other), "--text", str(text_folder)]) == 1
    assert f"{other}: has no control symbol <|endoftext|>" in capsys.readouterr().err


def test_no_characters_are_refused(model_file: Path, text_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for number in ("0", "-5"):
        assert main(["report", str(model_file), "--text", str(text_folder), "--characters", number]) == 2
        assert "give 1 or more" in capsys.readouterr().err


def test_of_many_files_some_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(9):
        pq.write_table(pa.table({"text": [f"{number}" * 10] * 3}), tmp_path / f"{number}.parquet")
    monkeypatch.setattr("tokenizer.report.reading.MAX_FILES", 4)
    assert list(read_texts([str(tmp_path)], 10**6)) == ["0.parquet", "2.parquet", "4.parquet", "6.parquet"]


def test_each_file_gives_its_part(tmp_path: Path) -> None:
    pq.write_table(pa.table({"text": ["甲" * 10] * 50}), tmp_path / "a.parquet")
    pq.write_table(pa.table({"text": ["乙" * 10] * 50}), tmp_path / "b.parquet")
    pq.write_table(pa.table({"text": ["丙" * 10] * 2}), tmp_path / "c.parquet")
    texts = read_texts([str(tmp_path)], 120)
    assert {name: len(found) for name, found in texts.items()} == {"a.parquet": 4, "b.parquet": 4, "c.parquet": 2}
    assert sum(len(found) for found in read_texts([str(tmp_path)], 10**6).values()) == 102


def test_no_text_is_refused(tmp_path: Path) -> None:
    pq.write_table(pa.table({"text": ["", None]}, schema=pa.schema([("text", pa.string())])), tmp_path / "a.parquet")
    with pytest.raises(UsageError, match="no document with text"):
        read_texts([str(tmp_path)], 100)
