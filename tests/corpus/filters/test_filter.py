"""The public door: any input shape, any batch split, one bad document never more than itself."""

from __future__ import annotations

import pickle
import threading
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpus.engine.errors import UsageError
from corpus.filters import STATISTICS, VERDICT_SCHEMA, Filter, Verdict, load
from tests.corpus.texts import document

MENU = "首页\n新闻频道\n体育频道\n" * 10
DIRTY = "学而\u200b时习之，\r\n" + document(3) + "\n责任编辑：王小明\n电话13800138000。"
TEXTS = [document(1), MENU, "", DIRTY, "短", document(2) * 30, "加微信代开发票" * 20, "\ufffd" * 90, "x" * 5000]
ANY = st.one_of(st.sampled_from(TEXTS), st.text(max_size=120))


def test_a_table_a_batch_an_array_and_a_list_agree(web_zh: Filter) -> None:
    expected = web_zh.apply(TEXTS).table
    for kind in (pa.string(), pa.large_string(), pa.string_view()):
        column = pa.array(TEXTS, pa.string()).cast(kind)
        chunks = pa.chunked_array([column.slice(0, 2), column.slice(2)])
        for documents in (
            pa.table({"id": range(len(TEXTS)), "text": column}),
            pa.table({"text": chunks}),
            chunks,
            column,
        ):
            assert web_zh.apply(documents).table.equals(expected)
    assert web_zh.apply(pa.table({"text": pa.array(TEXTS).dictionary_encode()})).table.equals(expected)
    body = pa.record_batch({"body": pa.array(TEXTS)})
    assert web_zh.apply(body, column="body").table.equals(expected)
    sliced = pa.table({"text": ["前", *TEXTS, "后"]}).slice(1, len(TEXTS))
    assert web_zh.apply(sliced).table.equals(expected)


def test_verdicts_carry_rule_value_threshold_and_all_statistics(web_zh: Filter) -> None:
    verdicts = web_zh.apply(TEXTS)
    assert verdicts.table.schema.equals(VERDICT_SCHEMA)
    assert len(verdicts) == len(list(verdicts)) == len(TEXTS)
    assert verdicts.kept.tolist() == [verdict.kept for verdict in verdicts]
    first, menu, empty = list(verdicts)[:3]
    assert first == Verdict(True, None, None, None, None, TEXTS[0])
    assert (menu.rule, menu.bound) == ("characters.punctuation_per_han", "min")
    assert empty == Verdict(False, "length.num_chars", 0.0, 50.0, "min", "")
    row = verdicts.table.to_pylist()[1]
    assert row[menu.rule] == menu.value  # and the others are stored too
    assert row["lines.label_char_ratio"] > 0.9
    assert all(
        entry.optional or isinstance(row[key], str if entry.labels else float) for key, entry in STATISTICS.items()
    )


def test_the_first_failing_rule_of_the_recipe_names_the_verdict(tmp_path: Path) -> None:
    recipe = tmp_path / "r.toml"
    for first, second in (
        ("lines.label_char_ratio", "length.num_chars"),
        ("length.num_chars", "lines.label_char_ratio"),
    ):
        sections = {
            "lines.label_char_ratio": "[filter.lines]\nlabel_char_ratio = { max = 0.1 }\n",
            "length.num_chars": "[filter.length]\nnum_chars = { min = 5000 }\n",
        }
        recipe.write_text(sections[first] + sections[second])
        (verdict,) = load(recipe).apply([MENU])
        assert verdict.rule == first


@given(st.lists(ANY, max_size=8), st.data())
def test_verdicts_do_not_depend_on_the_split_into_batches(texts: list[str], data: st.DataObject) -> None:
    web_zh = load("web_zh")
    whole = web_zh.apply(texts).table
    cut = data.draw(st.integers(0, len(texts)))
    halves = pa.concat_tables([web_zh.apply(texts[:cut]).table, web_zh.apply(texts[cut:]).table])
    assert whole.combine_chunks().equals(halves.combine_chunks())
    for index, text in enumerate(texts):
        assert whole.slice(index, 1).combine_chunks().equals(web_zh.apply([text]).table.combine_chunks())


def test_large_input_is_cut_into_bounded_slices(web_zh: Filter, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = web_zh.apply(TEXTS).table
    monkeypatch.setattr("corpus.filters.columns.MAX_SLICE_BYTES", 2000)
    monkeypatch.setattr("corpus.filters.columns.MAX_SLICE_ROWS", 2)
    assert web_zh.apply(TEXTS).table.combine_chunks().equals(expected.combine_chunks())


def test_edits_come_before_the_measure_and_are_recorded(web_zh: Filter) -> None:
    (verdict,) = web_zh.apply([DIRTY])
    assert verdict.kept
    assert verdict.text == f"学而时习之，\n{document(3)}\n电话<MOBILE>。"
    row = web_zh.apply([DIRTY]).table.to_pylist()[0]
    kinds = {edit["kind"]: (edit["line"], edit["count"]) for edit in row["edits"]}
    assert kinds == {
        "normalize.invisible": (None, 1),
        "normalize.line_ends": (None, 1),
        "boilerplate.editor": (DIRTY.count("\n") + 0, 1),
        "personal.mobile": (None, 1),
    }
    masked = "13800138000"
    assert row["length.num_chars"] == len(verdict.text) - len("<MOBILE>") + len(masked)  # measured before masking


@pytest.mark.parametrize("text", ["", None, " \n\t", "\u200b", "\x00"])
def test_an_empty_document_is_dropped_by_its_length_whatever_the_recipe(text: str | None, tmp_path: Path) -> None:
    (tmp_path / "r.toml").write_text("[filter.length]\nnum_chars = { max = 10 }\n")
    for recipe in ("web_zh", "demo", tmp_path / "r.toml"):
        (verdict,) = load(recipe).apply([text])
        assert (verdict.kept, verdict.rule, verdict.value, verdict.text) == (False, "length.num_chars", 0.0, "")


def test_one_bad_document_costs_itself_only(web_zh: Filter) -> None:
    raw = [document(1).encode(), b"\xff\xfe\xe4\xb8" + document(2).encode()[:-1], document(3).encode(), b"\xf0\x9f"]
    broken = pa.array(raw, pa.large_binary()).view(pa.large_string())  # what a damaged Parquet file gives
    verdicts = list(web_zh.apply(pa.table({"text": broken})))
    assert [verdict.kept for verdict in verdicts] == [True, True, True, False]
    assert verdicts[1].text.startswith("\ufffd")
    assert web_zh.apply(["a\ud800b", document(1)]).table["text"].to_pylist() == ["a\ufffdb", document(1)]


def test_bounds_are_inclusive(tmp_path: Path) -> None:
    (tmp_path / "r.toml").write_text("[filter.length]\nnum_chars = { min = 3, max = 5 }\n")
    verdicts = list(load(tmp_path / "r.toml").apply(["一二", "一二三", "一二三四五", "一二三四五六"]))
    assert [verdict.kept for verdict in verdicts] == [False, True, True, False]
    assert [verdict.bound for verdict in verdicts] == ["min", None, None, "max"]


def test_not_a_text_column(web_zh: Filter) -> None:
    with pytest.raises(UsageError, match="no column 'text'; it has body"):
        web_zh.apply(pa.table({"body": ["x"]}))
    with pytest.raises(UsageError, match="holds int64"):
        web_zh.apply(pa.table({"text": [1]}))
    with pytest.raises(UsageError, match="holds dictionary"):
        web_zh.apply(pa.table({"text": pa.array([1]).dictionary_encode()}))
    with pytest.raises(UsageError, match="several columns 'text'"):
        web_zh.apply(pa.table([pa.array(["x"]), pa.array(["y"])], names=["text", "text"]))
    with pytest.raises(UsageError, match="not int"):
        web_zh.apply([1])
    with pytest.raises(UsageError, match="not a sequence of documents"):
        web_zh.apply("学而时习之")


def test_threads_share_a_filter(web_zh: Filter) -> None:
    expected = web_zh.apply(TEXTS).table
    found: list[bool] = []
    threads = [
        threading.Thread(target=lambda: found.append(web_zh.apply(TEXTS).table.equals(expected))) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [True] * 4


def test_a_configuration_can_be_sent_to_a_worker() -> None:
    config = load("web_zh").config
    again = pickle.loads(pickle.dumps(config))
    assert again == config
    assert hash(again) == hash(config)
    assert again.meaning() == config.meaning()


def test_a_filter_travels_without_its_tables(tmp_path: Path) -> None:
    (tmp_path / "hosts.txt").write_text("bad.example\n")
    (tmp_path / "words.txt").write_text("文海特别词\n")
    recipe = tmp_path / "my.toml"
    recipe.write_text(
        'extends = "web_zh"\n[filter.blocklist]\nlists = ["porn", "words.txt"]\n[filter.url]\nhosts = ["hosts.txt"]\n'
        'paths = ["words.txt"]\nblocked = { max = 0 }\n'
    )
    judge = load(recipe)
    batch = pa.table({"text": [document(1) + "文海特别词", document(2)], "url": ["http://a.bad.example/", None]})
    before = judge.apply(batch).table
    data = pickle.dumps(judge)
    (tmp_path / "words.txt").unlink()
    assert pickle.loads(data).apply(batch).table == before and before["kept"].to_pylist() == [False, True]
    assert len(data) < 200_000
