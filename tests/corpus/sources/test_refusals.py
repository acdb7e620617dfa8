"""What is mostly wrong stops a build or is named at its end; what no reader reads is left out and counted."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from corpus.__main__ import main
from corpus.engine.run import current
from corpus.report.lookup import find
from corpus.sources import stage
from tests.corpus.sources.test_archives import PNG, zipped
from tests.corpus.texts import document


def run(folder: Path, out: Path, *words: str) -> int:
    command = ["run", "--recipe", "web_zh", "--input", str(folder), "--out", str(out), "--workers", "0", "--quiet"]
    return main([*command, *words])


def write(folder: Path, name: str, texts: range, field: str = "text") -> None:
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    rows = [json.dumps({field: document(index), "id": index}, ensure_ascii=False) for index in texts]
    (folder / name).write_text("\n".join(rows))


def test_a_wrong_column_stops_the_build_and_says_which_there_are(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path / "in", "a.jsonl", range(20), "body")
    write(tmp_path / "in", "b.jsonl", range(20, 21))
    for _ in range(2):  # what is done is not taken for good by the next run
        assert run(tmp_path / "in", tmp_path / "out") == 4
        message = capsys.readouterr().err
        assert "20 of 21 records in 2 files" in message and "no field 'text'; fields: body, id" in message
    assert not (tmp_path / "out/recipe.json").exists()
    assert run(tmp_path / "in", tmp_path / "out", "--set", 'sources.text=["body", "text"]') == 0


def test_a_source_stops_the_build_before_its_end(tmp_path: Path) -> None:
    for part in range(9):
        write(tmp_path / "in", f"{part}.jsonl", range(40 * part, 40 * part + 40), "text" if part < 2 else "body")
    assert run(tmp_path / "in", tmp_path / "out", "--set", "input.task_bytes=1") == 4
    (folder,) = (tmp_path / "out").glob("extract-*")
    assert len(list((folder / "done").iterdir())) == 5 and not (folder / "MANIFEST.json").exists()
    assert (
        run(tmp_path / "in", tmp_path / "out", "--set", "input.task_bytes=1", "--set", "sources.max_error_ratio=1") == 4
    )
    assert current(str(tmp_path / "out"), "extract").counts.extra["files_mostly_in_error"] == 7


def test_a_file_that_is_mostly_wrong_is_named_and_the_build_goes_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path / "in", "good.jsonl", range(40))
    (tmp_path / "in/sub").mkdir()
    (tmp_path / "in/sub/bad.jsonl").write_text("no json\n" * 2 + json.dumps({"text": document(99)}))
    assert run(tmp_path / "in", tmp_path / "out") == 4
    assert "sub/bad.jsonl: 2 of 3, error:json" in capsys.readouterr().err
    assert current(str(tmp_path / "out"), "text").counts.documents_out > 20


def test_a_file_that_grows_while_it_is_read_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "in", "a.jsonl", range(9))
    whole = stage.read

    def read(url: str, *arguments: Any) -> Iterator[Any]:
        yield from whole(url, *arguments)
        with open(url, "a") as file:
            file.write("\n" + json.dumps({"text": document(9)}))

    monkeypatch.setattr(stage, "read", read)
    assert run(tmp_path / "in", tmp_path / "out") == 1
    assert "its bytes are not those that were listed" in capsys.readouterr().err and not list(
        tmp_path.glob("out/extract-*/MANIFEST.json")
    )
    monkeypatch.setattr(stage, "read", whole)
    assert run(tmp_path / "in", tmp_path / "out") == 0
    assert current(str(tmp_path / "out"), "extract").counts.documents_out == 10


def test_a_build_that_keeps_nothing_is_no_success(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in/a.jsonl").write_text(json.dumps({"text": "短"}))
    assert run(tmp_path / "in", tmp_path / "out") == 4
    assert "no document was kept of 1 records" in capsys.readouterr().err


def test_pictures_are_left_out_and_counted_by_kind(tmp_path: Path) -> None:
    write(tmp_path / "in", "2024/a.jsonl", range(3))
    write(tmp_path / "in", "2025/a.jsonl", range(3, 6))
    for name, data in (("b.txt", PNG), ("c", PNG), ("d.rar", b"Rar!\x1a\x07\0"), ("e.zip", zipped({"f.png": PNG}))):
        (tmp_path / "in" / name).write_bytes(data)
    assert run(tmp_path / "in", tmp_path / "out") == 0
    counts = current(str(tmp_path / "out"), "extract").counts
    assert counts.dropped == {"left_out.png": 3, "left_out.rar": 1} and not counts.errors


def test_every_document_knows_its_file_member_and_offset(tmp_path: Path) -> None:
    write(tmp_path / "in", "2024/a.jsonl", range(2))
    write(tmp_path / "in", "2025/a.jsonl", range(2, 4))
    text, inner = document(4), json.dumps([{"text": document(5)}, {"text": document(6)}])
    (tmp_path / "in/b.zip").write_bytes(zipped({"x.txt": text.encode(), "y.json": inner.encode()}))
    assert run(tmp_path / "in", tmp_path / "out") == 0
    out = str(tmp_path / "out")
    assert [found.place for found in find(out, "2025/a.jsonl")] == [
        "2025/a.jsonl:offset 0",
        f"2025/a.jsonl:offset {len(json.dumps({'text': document(2), 'id': 2}, ensure_ascii=False).encode()) + 1}",
    ]
    assert [found.place for found in find(out, "b.zip")] == [
        "b.zip!x.txt:offset 0",
        "b.zip!y.json:offset 1",
        f"b.zip!y.json:offset {inner.index('}') + 3}",
    ]
    (found,) = find(out, "b.zip!y.json:1")
    assert found.place == "b.zip!y.json:offset 1" and found.shard is not None


def test_nested_names_alternatives_and_names_by_folder(tmp_path: Path) -> None:
    (tmp_path / "in/news").mkdir(parents=True)
    rows = [
        {"content": document(0), "data": {"title": "论语"}, "site": "a"},
        {"content": " ", "body": document(1), "title": "孟子"},
        {"段落": [{"内容": document(2).split("\n")[0]}, {"内容": document(3)}]},
    ]
    (tmp_path / "in/news/a.jsonl").write_text("\n".join(json.dumps(row, ensure_ascii=False) for row in rows))
    mine = tmp_path / "mine.toml"
    mine.write_text(
        'extends = "web_zh"\n[sources]\ntext = ["content", "body", "段落.内容"]\ntitle = ["title", "data.title"]\n'
        'name = { field = "site", path = "^([^/]+)/" }\n'
    )
    assert run(tmp_path / "in", tmp_path / "out", "--recipe", str(mine)) == 0
    found = find(str(tmp_path / "out"), "news/a.jsonl")
    assert [(one.source, one.title) for one in found] == [("a", "论语"), ("news", "孟子"), ("news", None)]


def test_an_expression_without_a_group_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path / "in", "a.jsonl", range(1))
    for pattern in ("news", "(a)(b)", "("):
        assert run(tmp_path / "in", tmp_path / "out", "--set", f'sources.name.path="{pattern}"') == 2
        assert "sources.0.name.path: " in capsys.readouterr().err
