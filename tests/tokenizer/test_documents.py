"""Any Parquet with a text column is read; decisions about a document depend on its id alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from corpus.engine.errors import WenhaiError
from tests.tokenizer.texts import documents
from tokenizer import documents as documents_module
from tokenizer.documents import Batch, document_keys, is_below, read_documents

NOT_UTF8 = (
    b"\xff",
    b"\xc0\x80",
    b"\xed\xa0\x80",
    b"\xe0\x80\xaf",
    b"\xf4\x90\x80\x80",
    b"\xe5\xad",
    b"a\x80",
    b"\xf8\x88\x80\x80\x80",
)


def read(path: Path, columns: dict[str, Any], **options: Any) -> Batch:
    pq.write_table(pa.table(columns), path, **options)
    (batch,) = read_documents(path)
    return batch


def test_a_document_without_an_id_is_known_by_its_text(tmp_path: Path) -> None:
    columns = {"id": pa.array([None, b"x" * 16, None], pa.binary(16)), "text": pa.array(["学而", "时习", "不亦"])}
    without = read(tmp_path / "b.parquet", {"text": columns["text"]}).ids
    assert read(tmp_path / "a.parquet", columns).ids == [without[0], b"x" * 16, without[2]]


def test_our_own_columns_are_taken_as_they_are(tmp_path: Path) -> None:
    ids = [bytes([number] * 16) for number in range(3)]
    columns = {
        "id": pa.array(ids, pa.binary(16)),
        "source": ["web", "web", "book"],
        "url": ["https://example.org/论语", None, ""],
        "text": pa.array(["学而", "", "时习"], pa.large_string()),
        "title": ["a", "b", "c"],
    }
    batch = read(tmp_path / "a.parquet", columns)
    assert batch == Batch(
        ids,
        pa.array(["学而", "", "时习"], pa.large_string()),
        pa.array(["https://example.org/论语", None, ""]),
        columns["source"],
        0,
        12,
        0,
    )


@pytest.mark.parametrize("extra", [{}, {"id": [1, 2, 3]}, {"id": ["a", "b", "c"]}])
def test_a_foreign_file_gets_ids_from_its_texts(tmp_path: Path, extra: dict[str, Any]) -> None:
    batch = read(tmp_path / "a.parquet", {"text": ["学而", None, "学而"], **extra})
    assert batch.texts.to_pylist() == ["学而", "", "学而"]
    assert batch.ids[0] == batch.ids[2] == xxhash.xxh3_128_digest("学而".encode())
    assert batch.sources == ["a.parquet"] * 3
    assert batch.urls == pa.nulls(3, pa.string())


def test_a_row_that_is_not_utf8_costs_itself_only(tmp_path: Path) -> None:
    raw = pa.array(["学而".encode(), b"\xff\xfe\xd1\xa7", b"ok"], pa.binary())
    text = pa.StringArray.from_buffers(3, raw.buffers()[1], raw.buffers()[2])
    batch = read(tmp_path / "a.parquet", {"text": text})
    assert batch.texts.to_pylist() == ["学而", "ok"]
    assert (batch.num_invalid, batch.num_invalid_bytes, batch.num_bytes) == (1, 4, 8)
    assert len(batch.ids) == len(batch.urls) == len(batch.sources) == 2


def test_urls_and_sources_that_are_not_utf8_are_mended(tmp_path: Path) -> None:
    raw = pa.array(["https://a.org/学".encode(), b"https://b.org/\xff", None], pa.binary())
    names = pa.StringArray.from_buffers(3, raw.buffers()[1], raw.buffers()[2], raw.buffers()[0])
    text = pa.array(["a", "b", "c"])
    batch = read(tmp_path / "a.parquet", {"text": text, "url": names, "source": names})
    assert batch.urls.to_pylist() == ["https://a.org/学", "https://b.org/\ufffd", None]
    assert batch.sources == ["https://a.org/学", "https://b.org/\ufffd", "a.parquet"]


@given(st.lists(st.one_of(st.sampled_from(NOT_UTF8), st.text(max_size=3).map(str.encode), st.binary(max_size=4))))
def test_rows_are_utf8_where_python_says_so(values: list[bytes]) -> None:
    """The kernels that read a batch trust it."""
    raw = pa.array(values, pa.large_binary())
    texts = pa.LargeStringArray.from_buffers(len(raw), raw.buffers()[1], raw.buffers()[2])
    batch = documents_module._batch(pa.record_batch({"text": texts}), "a.parquet")
    kept = [value for value in values if value.decode("utf-8", "ignore").encode() == value]
    assert [text.encode() for text in batch.texts.to_pylist()] == kept
    assert batch.ids == [xxhash.xxh3_128_digest(value) for value in kept]
    assert (batch.num_invalid, batch.num_bytes) == (len(values) - len(kept), sum(map(len, kept)))
    assert batch.num_bytes + batch.num_invalid_bytes == sum(map(len, values))


def test_files_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    for columns in ({"body": ["x"]}, {"text": [1]}):
        with pytest.raises(WenhaiError, match=r"a\.parquet: has no column `text` of strings"):
            read(path, columns)
    path.write_bytes(b"PAR1 not really")
    with pytest.raises(WenhaiError, match=r"a\.parquet: damaged"):
        list(read_documents(path))


def test_a_flipped_bit_in_a_page_is_found(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    text = "".join(documents(20))
    read(path, {"text": [text]}, write_page_checksum=True, compression="none", use_dictionary=False)
    data = bytearray(path.read_bytes())
    data[data.index("学".encode())] ^= 1
    path.write_bytes(data)
    with pytest.raises(WenhaiError, match=r"a\.parquet: damaged"):
        list(read_documents(path))


def test_large_files_come_in_batches(tmp_path: Path) -> None:
    pq.write_table(pa.table({"text": [str(number) for number in range(3000)]}), tmp_path / "a.parquet")
    batches = list(read_documents(tmp_path / "a.parquet"))
    assert [len(batch.texts) for batch in batches] == [1024, 1024, 952]
    assert [text for batch in batches for text in batch.texts.to_pylist()] == [str(number) for number in range(3000)]


def test_an_empty_file_has_no_documents(tmp_path: Path) -> None:
    pq.write_table(pa.table({"text": pa.array([], pa.string())}), tmp_path / "a.parquet")
    assert [batch for batch in read_documents(tmp_path / "a.parquet") if batch.ids] == []
    assert document_keys([], "order", 0).tolist() == []


def test_keys_are_frozen() -> None:
    """Another mixing would move documents between training and validation: raise the stages' versions with it."""
    ids = [bytes(16), bytes(range(16))]
    assert document_keys(ids, "split", 7).tolist() == [11508422510285594504, 12862714545852673676]


@given(st.lists(st.binary(min_size=16, max_size=16), max_size=30), st.integers(0, 2**63 - 1))
def test_a_key_depends_on_its_own_id_only(ids: list[bytes], seed: int) -> None:
    keys = document_keys(ids, "split", seed).tolist()
    assert keys == [int(document_keys([id], "split", seed)[0]) for id in ids]
    assert document_keys(ids[::-1], "split", seed).tolist() == keys[::-1]


def test_keys_are_uniform_and_purposes_independent() -> None:
    ids = [number.to_bytes(16, "little") for number in range(20_000)]  # as far from random as ids come
    split, order = document_keys(ids, "split", 0), document_keys(ids, "order", 0)
    for ratio in (0.001, 0.01, 0.5):
        expected = ratio * len(ids)
        assert abs(is_below(split, ratio).sum() - expected) < 5 * np.sqrt(expected)
    among = is_below(order, 0.5)[is_below(split, 0.5)].mean()
    assert abs(among - 0.5) < 0.02
    assert (document_keys(ids, "split", 1) != split).all()


def test_no_and_all_documents() -> None:
    keys = np.array([0, 2**63, 2**64 - 1], dtype=np.uint64)
    assert is_below(keys, 0.0).tolist() == [False] * 3
    assert is_below(keys, 1.0).tolist() == [True] * 3
    assert is_below(keys, 0.5).tolist() == [True, False, False]


def test_a_large_row_group_is_not_held_whole(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    texts = [random.integers(0x4E00, 0x9000, 1000).astype("<u2").tobytes().decode("utf-16-le") for _ in range(10_000)]
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"text": texts}), path, row_group_size=len(texts), use_dictionary=False)
    before = pa.total_allocated_bytes()
    batches = read_documents(path)
    next(batches)
    assert pa.total_allocated_bytes() - before < path.stat().st_size / 2
    assert sum(len(batch.texts) for batch in batches) == len(texts) - 1024
