"""What the text stage keeps, and its index: clusters, their sizes, and whose duplicate a document is."""

from __future__ import annotations

from collections import Counter

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from corpus.dedup import DedupConfig
from corpus.dedup.near.survivors import INDEX_SCHEMA
from tests.corpus.dedup.build import Deduplicate, document_id
from tests.corpus.dedup.test_stages import corpus
from tests.corpus.dedup.texts import POEM, TRADITIONAL_POEM, edited, random_text

ALL = DedupConfig(keep="all_with_size")


def index_of(result: object) -> dict[bytes, list[dict[str, object]]]:
    """id -> index rows of the text stage."""
    data, index = result.table("text", "data"), result.table("text", "index")  # type: ignore[attr-defined]
    assert index.schema.equals(INDEX_SCHEMA, check_metadata=True)
    found: dict[bytes, list[dict[str, object]]] = {}
    for id, text, row in zip(data["id"].to_pylist(), data["text"].to_pylist(), index.to_pylist(), strict=True):
        assert row["text_bytes"] == len(text.encode())
        found.setdefault(id, []).append(row)
    assert index.select(["id", "row", "source"]).equals(data.select(["id", "row", "source"]))
    return found


def test_a_survivor_carries_the_number_of_documents_it_stands_for(deduplicate: Deduplicate) -> None:
    generator = np.random.default_rng(0)
    original = random_text(generator, 2000)
    near = [edited(generator, original, 0.004) + "另" * 3 for _ in range(2)]
    alone = random_text(generator, 300)
    result = deduplicate([[POEM, near[0], alone], [], [original, near[1], POEM + "。"]])
    rows = index_of(result)
    assert len(rows) == 3
    assert rows[document_id(alone)] == [rows[document_id(alone)][0] | {"cluster": None, "cluster_size": 1}]
    sizes = {row["cluster_size"] for some in rows.values() for row in some}
    assert sizes == {1, 2, 3}
    for id, [row] in rows.items():
        assert row["survivor"] and row["cluster"] in (None, id)


@settings(max_examples=4)
@given(seed=st.integers(0, 3), cut=st.integers(0, 30))
def test_sizes_add_up_to_the_documents_that_came_in(deduplicate: Deduplicate, seed: int, cut: int) -> None:
    texts = corpus(seed)
    result = deduplicate([texts[:cut], texts[cut:]])
    kept = [row for some in index_of(result).values() for row in some]
    assert sum(row["cluster_size"] for row in kept) == len(texts)  # type: ignore[misc]
    stands_for = Counter(fate["detail"] for fate in result.fates)
    for id, rows in index_of(result).items():
        assert [row["cluster_size"] for row in rows] == [1 + stands_for[id.hex()]]


def test_all_with_size_drops_nothing_and_knows_the_survivors(deduplicate: Deduplicate) -> None:
    texts = [*corpus(1), TRADITIONAL_POEM + "。"]
    few, everything = deduplicate([texts[:20], texts[20:]]), deduplicate([texts[:20], texts[20:]], ALL)
    assert everything.texts == texts and everything.fates == []
    counts, dropped = everything.counts("text"), few.counts("text").dropped
    assert (counts.documents_in, counts.documents_out, counts.dropped) == (len(texts), len(texts), {})
    assert counts.bytes_in == counts.bytes_out == few.counts("text").bytes_in
    assert counts.extra == {rule.replace("dedup", "duplicates"): count for rule, count in dropped.items()}
    index = everything.table("text", "index")
    assert [text for text, stays in zip(texts, index["survivor"].to_pylist(), strict=True) if stays] == few.texts
    ids = [document_id(text) for text in texts]
    kept = dict(zip([document_id(text) for text in few.texts], few.table("text", "index").to_pylist(), strict=True))
    for id, row in zip(ids, index.to_pylist(), strict=True):
        survivor = row["cluster"] or id
        assert kept[survivor]["cluster_size"] == row["cluster_size"]
        assert row["survivor"] or row["cluster_size"] > 1
    twin = {fate["id"]: bytes.fromhex(fate["detail"]) for fate in few.fates}
    assert all(
        row["cluster"] == twin[id] for id, row in zip(ids, index.to_pylist(), strict=True) if not row["survivor"]
    )


def test_other_stages_do_not_run_again_for_another_keep(deduplicate: Deduplicate) -> None:
    few, everything = deduplicate([[POEM, POEM]]), deduplicate([[POEM, POEM]], ALL)
    assert few.folders["clusters"].digest == everything.folders["clusters"].digest
    assert few.folders["text"].digest != everything.folders["text"].digest
