from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from corpus.dedup import DedupConfig
from corpus.dedup.near.candidates import arrange
from corpus.dedup.near.signatures import Signed, sign, sign_texts
from corpus.dedup.text.keys import KEY_DTYPE, DocumentKeys, id_bytes
from tests.corpus.dedup.texts import ANALECTS, POEM

TEXTS = [POEM, "", "短", ANALECTS, "，", POEM * 3]
IDS = [bytes([i] * 15 + [200 - i]) for i in range(len(TEXTS))]


def columns() -> tuple[pa.Array, pa.Array]:
    return pa.array(IDS, pa.binary(16)), pa.array(TEXTS, pa.large_string())


def same(a: Signed, b: Signed) -> bool:
    return all(x.tobytes() == y.tobytes() for x, y in zip(vars(a).values(), vars(b).values(), strict=True))


def test_ids_come_back() -> None:
    assert id_bytes(sign_texts(*columns(), DedupConfig()).keys).tobytes() == b"".join(IDS)


def test_slices_and_chunks_are_signed_like_whole_columns() -> None:
    config = DedupConfig()
    ids, texts = columns()
    whole = sign_texts(ids, texts, config)
    assert same(
        whole, sign_texts(pa.chunked_array([ids[:2], ids[2:]]), pa.chunked_array([texts[:1], texts[1:]]), config)
    )
    padded_ids, padded = pa.concat_arrays([ids[:1], ids, ids[:1]]), pa.concat_arrays([texts[3:4], texts, texts[:1]])
    assert same(whole, sign_texts(padded_ids[1:-1], padded[1:-1], config))
    joined = sign([sign_texts(ids[:2], texts[:2], config), sign_texts(ids[2:], texts[2:], config)], config)
    order, other = np.lexsort((whole.band_rows, whole.band_keys)), np.lexsort((joined.band_rows, joined.band_keys))
    assert (whole.keys == joined.keys).all() and (whole.signatures == joined.signatures).all()
    assert (whole.band_keys[order] == joined.band_keys[other]).all()
    assert (whole.band_rows[order] == joined.band_rows[other]).all()


def test_no_texts() -> None:
    ids, texts = columns()
    for empty in (sign_texts(ids[:0], texts[:0], DedupConfig()), sign([], DedupConfig())):
        assert (len(empty.keys), empty.signatures.shape, len(empty.band_keys)) == (0, (0, 112), 0)


def test_short_texts_have_only_their_exact_key() -> None:
    signed = sign_texts(*columns(), DedupConfig())
    every = DedupConfig().bands + 1  # and the exact key
    assert np.bincount(signed.band_rows).tolist() == [every, 1, 1, every, 1, every]


def rank(keys: DocumentKeys) -> list[int]:
    """The place of each document in the order that buckets are compared in."""
    order, _ = arrange(np.zeros(len(keys), np.uint32), keys)
    return list(np.argsort(order).tolist())


@pytest.mark.parametrize("column", ["rank", "num_bytes", "id", "digest"])
def test_order_is_by_rank_then_bytes_then_id_then_digest(column: str) -> None:
    keys = np.zeros(3, KEY_DTYPE)
    if column in ("rank", "num_bytes"):  # more is better
        keys[column] = [1, 2**40, 2]
        later = {"rank": "num_bytes", "num_bytes": "id"}[column]
        keys[later].reshape(3, -1)[:, 0] = [9, 1, 5] if later == "num_bytes" else [1, 9, 5]
        assert rank(keys) == [2, 0, 1]
    else:  # smaller bytes are better, the first half first
        keys[column] = [[1, 0], [0, 2**63], [0, 7]]
        assert rank(keys) == [2, 1, 0]


def test_equal_records_keep_their_order() -> None:
    assert rank(np.zeros(4, KEY_DTYPE)) == [0, 1, 2, 3]
