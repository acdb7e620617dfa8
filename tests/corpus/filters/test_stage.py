"""The stage: every document in has one fate, statistics for all, the same bytes each time."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from corpus.document import DOCUMENT_SCHEMA, FATE_SCHEMA, read_table, write_table
from corpus.engine.errors import SetupError
from corpus.engine.manifest import commit_files
from corpus.engine.stage import Folder, Output
from corpus.engine.storage import File
from corpus.filters import STATISTICS, load, normalizing
from corpus.filters.blocklist import load_blocklist
from corpus.filters.stage import STATISTICS_SCHEMA, FilterStage, _filter
from corpus.kernels import folding, tables
from tests.corpus.texts import document

TEXTS = [
    document(0),
    "",
    "首页\n新闻频道\n" * 20,
    document(1) + "\n责任编辑：王小明",
    "加微信代开发票" * 30,
    document(2) + "电话13800138000。",
]


def documents(texts: list[str]) -> pa.Table:
    rows = [
        {
            "id": index.to_bytes(16, "big"),
            "row": index + 10,  # rows that never became documents stand before
            "source": "test",
            "url": None if index == 1 else f"https://example.org/{index}",
            "title": None if index == 3 else "题",
            "date": None,
            "encoding": "utf-8",
            "meta": json.dumps({"n": index}),
            "text": text,
        }
        for index, text in enumerate(texts)
    ]
    return pa.Table.from_pylist(rows, schema=DOCUMENT_SCHEMA)


def run(folder: Path, table: pa.Table, stage: FilterStage) -> tuple[Output, dict[str, int]]:
    folder.mkdir(exist_ok=True)
    shard = folder / "00003-00.parquet"
    write_table(shard, table)
    commit_files(str(folder), {"data/00003-00.parquet": {"bytes": 0, "sha256": "", "rows": 6}}, "extract")
    (task,) = stage.plan({"extract": Folder.open(str(folder))})
    assert task.name == "00003-00"
    task = type(task)(task.name, (File(str(shard), 0, "", table.num_rows),))
    for kind in ("data", "fates", "statistics", "samples"):
        (folder / kind).mkdir(exist_ok=True)
    out = Output(str(folder))
    counts = stage.run(task, out)
    counts.check("test")
    assert counts.documents_in == table.num_rows
    assert counts.bytes_in == pc.sum(pc.binary_length(table["text"])).as_py() if table.num_rows else True
    rows = {name: file.rows for name, file in out.files.items()}
    assert rows.pop("samples/00003-00.parquet") == min(table.num_rows, rows["statistics/00003-00.parquet"])
    assert rows == {
        "data/00003-00.parquet": counts.documents_out,
        "fates/00003-00.parquet": sum(counts.dropped.values()),
        "statistics/00003-00.parquet": table.num_rows,
    }
    return out, counts.dropped | counts.extra


def test_a_shard(tmp_path: Path) -> None:
    stage = FilterStage(load("web_zh").config)
    out, counts = run(tmp_path / "a", documents(TEXTS), stage)
    kept = read_table(tmp_path / "a" / "data/00003-00.parquet")
    fates = read_table(tmp_path / "a" / "fates/00003-00.parquet")
    statistics = read_table(tmp_path / "a" / "statistics/00003-00.parquet")
    assert kept.schema.equals(DOCUMENT_SCHEMA)
    assert fates.schema.equals(FATE_SCHEMA)
    assert statistics.schema.equals(STATISTICS_SCHEMA)
    assert kept["row"].to_pylist() == [10, 13, 15]
    assert kept["text"].to_pylist() == [document(0), document(1), document(2) + "电话<MOBILE>。"]
    assert kept["meta"].to_pylist() == ['{"n": 0}', '{"n": 3}', '{"n": 5}']
    columns = ("row", "rule", "bound", "shard", "place", "detail")
    assert [tuple(fate[name] for name in columns) for fate in fates.to_pylist()] == [
        (11, "length.num_chars", "min", "00003-00", None, None),
        (12, "characters.punctuation_per_han", "min", "00003-00", None, None),
        (14, "characters.punctuation_per_han", "min", "00003-00", None, None),
    ]  # fmt: skip
    assert fates["url"].to_pylist() == [None, "https://example.org/2", "https://example.org/4"]
    assert statistics["row"].to_pylist() == [10, 11, 12, 13, 14, 15]
    assert statistics["kept"].to_pylist() == [True, False, False, True, False, True]
    assert statistics["rule"].to_pylist()[1] == "length.num_chars"
    assert [edit["kind"] for edit in statistics["edits"].to_pylist()[3]] == ["boilerplate.editor"]
    assert statistics["lines.label_char_ratio"].to_pylist()[2] > 0.9  # measured although another rule decided
    assert counts == {
        "length.num_chars": 1,
        "characters.punctuation_per_han": 2,
        "edited.boilerplate.editor": 1,
        "edited.personal.mobile": 1,
        "edited.normalize.white_space": 1,
    }
    again, _ = run(tmp_path / "b", documents(TEXTS), stage)
    assert {name: file.sha256 for name, file in again.files.items()} == {
        name: file.sha256 for name, file in out.files.items()
    }


def test_titles_are_masked_as_texts_are(tmp_path: Path) -> None:
    titles = ["王13800138000，a@b.cn", None, "题"]
    table = documents([document(index) for index in range(3)])
    table = table.set_column(table.schema.get_field_index("title"), DOCUMENT_SCHEMA.field("title"), pa.array(titles))
    stage = FilterStage(load("web_zh", ['filter.edit.personal_data=["mobile"]']).config)
    own = FilterStage(load("web_zh").config, {"00003": stage.filter})  # of the source that the shard is of
    for name, one in (("a", stage), ("b", own)):
        _, counts = run(tmp_path / name, table, one)
        kept = read_table(tmp_path / name / "data/00003-00.parquet")
        assert kept["title"].to_pylist() == ["王<MOBILE>，a@b.cn", None, "题"]
        assert counts["edited.personal.title.mobile"] == 1 and "edited.personal.title.email" not in counts


def test_an_empty_shard_and_one_where_nothing_is_kept(tmp_path: Path) -> None:
    stage = FilterStage(load("web_zh").config)
    for name, texts in (("empty", []), ("nothing_kept", ["", "短"])):
        run(tmp_path / name, documents(texts), stage)
        assert read_table(tmp_path / name / "data/00003-00.parquet").num_rows == 0
        assert read_table(tmp_path / name / "data/00003-00.parquet").schema.equals(DOCUMENT_SCHEMA)


def test_the_configuration_names_what_changes_bytes() -> None:
    config = FilterStage(load("web_zh", ["filter.length.num_chars.min=51"]).config).config()
    assert config["statistics"] == list(STATISTICS)
    assert config["rules"][2][:2] == ["length.num_chars", 51.0]


def test_a_table_that_is_computed_otherwise_is_another_filter(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another version of Python's Unicode data or of OpenCC does this."""
    stage = FilterStage(load("web_zh").config)
    before = stage.config()
    assert stage.config() == before
    for module, name in ((tables, "class_table"), (folding, "matching_table"), (normalizing, "action_table")):
        changed = getattr(module, name)().copy()
        changed[0x4E00] += 1
        with monkeypatch.context() as patch:
            patch.setattr(module, name, lambda changed=changed: changed)
            assert stage.config() != before, name
    with monkeypatch.context() as patch:
        patch.setattr("unicodedata.unidata_version", "9.0.0")
        assert stage.config() != before
    converting = FilterStage(load("web_zh", ['filter.edit.script="simplified"']).config)
    known = converting.config()
    with monkeypatch.context() as patch:
        patch.setattr("corpus.filters.config.version_of", lambda package: "0.1.2")
        assert converting.config() != known and stage.config() == before
    assert stage.config() == before


def test_a_worker_that_reads_another_list_than_was_planned_stops(tmp_path: Path) -> None:
    words = tmp_path / "words.txt"
    words.write_text("某某词\n")
    stage = FilterStage(load("web_zh", [f'filter.blocklist.lists=["{words}"]']).config).for_worker()
    run(tmp_path / "same", documents(TEXTS[:1]), stage)
    words.write_text("另一词\n")
    load_blocklist.cache_clear()  # another process
    _filter.cache_clear()
    with pytest.raises(SetupError, match="filter: words are not what the plan of this build read"):
        run(tmp_path / "other", documents(TEXTS[:1]), stage)
    run(tmp_path / "planned", documents(TEXTS[:1]), FilterStage(stage.filter).for_worker())
