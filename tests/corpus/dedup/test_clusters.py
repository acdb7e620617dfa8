"""Survivors and components against definitions written out in Python."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corpus.dedup.candidates import EDGE_DTYPE, EXACT, NEAR
from corpus.dedup.clusters import resolve, shard_drops
from corpus.dedup.keys import KEY_DTYPE, DocumentKeys, id_bytes
from corpus.dedup.records import Array


def ranked(count: int) -> DocumentKeys:
    """Documents whose rank is their number."""
    keys = np.zeros(count, KEY_DTYPE)
    keys["quality"] = np.arange(count)[::-1]
    keys["id"][:, 1] = np.arange(count) + 1000
    return keys


def edges_of(*rows: tuple[int, int, float, int]) -> Array:
    return np.array(list(rows), EDGE_DTYPE)


def fates(edges: Array, count: int) -> dict[int, tuple[int, float, int]]:
    found, _ = resolve(edges, ranked(count).__getitem__)
    return {int(f["document"]): (int(f["survivor"]), round(float(f["similarity"]), 4), int(f["kind"])) for f in found}


def test_the_ends_of_a_chain_both_stay() -> None:
    assert fates(edges_of((0, 1, 0.9, NEAR), (1, 2, 0.85, NEAR)), 3) == {1: (0, 0.9, NEAR)}


def test_a_long_chain_keeps_every_second_document() -> None:
    chain = edges_of(*((i, i + 1, 0.9, NEAR) for i in range(9999)))
    found, counts = resolve(chain, ranked(10_000).__getitem__)
    assert found["document"].tolist() == list(range(1, 10_000, 2))
    assert counts["clusters"] == 1 and counts["clustered_documents"] == 10_000
    assert (found["cluster"] == 0).all()


def test_a_star_keeps_its_centre() -> None:
    assert set(fates(edges_of(*((0, i, 0.9, NEAR) for i in range(1, 50))), 50)) == set(range(1, 50))


def test_copies_share_the_fate_of_their_original() -> None:
    edges = edges_of((0, 1, 0.875, NEAR), (1, 2, 1.0, EXACT), (1, 3, 1.0, EXACT), (4, 5, 1.0, EXACT))
    assert fates(edges, 6) == {
        1: (0, 0.875, NEAR),
        2: (0, 0.875, NEAR),
        3: (0, 0.875, NEAR),
        5: (4, 1.0, EXACT),
    }


def test_the_most_similar_survivor_is_named_and_rank_breaks_ties() -> None:
    edges = edges_of((0, 3, 0.82, NEAR), (1, 3, 0.95, NEAR), (2, 3, 0.95, NEAR))
    assert fates(edges, 4) == {3: (1, 0.95, NEAR)}


def test_an_edge_found_in_many_partitions_counts_once() -> None:
    edge = edges_of((0, 1, 0.9, NEAR))
    found, counts = resolve(np.concatenate([edge] * 14), ranked(2).__getitem__)
    assert len(found) == 1 and counts == {"edges": 1, "clusters": 1, "clustered_documents": 2, "exact": 0, "near": 1}


def test_no_edges() -> None:
    found, counts = resolve(np.empty(0, EDGE_DTYPE), ranked(1).__getitem__)
    assert len(found) == 0 and set(counts.values()) == {0}


def test_ordinals_beyond_32_bits() -> None:
    base = 5 << 33
    keys = ranked(3)
    found, _ = resolve(edges_of((base, base + 2, 0.9, NEAR)), lambda wanted: keys[wanted - base])
    assert (found["document"].tolist(), found["survivor"].tolist()) == ([base + 2], [base])
    assert found["cluster"].tolist() == [base]


@settings(max_examples=60)
@given(
    st.integers(2, 30).flatmap(
        lambda n: st.tuples(st.just(n), st.sets(st.tuples(st.integers(0, n - 1), st.integers(0, n - 1)), max_size=60))
    )
)
def test_survivors_and_clusters_are_what_the_definition_says(drawn: tuple[int, set[tuple[int, int]]]) -> None:
    count, pairs = drawn
    pairs = {(a, b) for a, b in pairs if a < b}
    edges = edges_of(*((a, b, 0.8 + 0.001 * (7 * a + b) % 0.2, NEAR) for a, b in sorted(pairs)))
    generator = np.random.default_rng(count)
    found, counts = resolve(generator.permutation(edges), ranked(count).__getitem__)

    survives: dict[int, bool] = {}
    for document in range(count):  # in rank order
        survives[document] = not any(b == document and survives[a] for a, b in pairs)
    assert set(found["document"].tolist()) == {document for document, stays in survives.items() if not stays}
    assert all(survives[int(f["survivor"])] and (int(f["survivor"]), int(f["document"])) in pairs for f in found)

    label = list(range(count))
    for _ in range(count):
        for a, b in pairs:
            label[a] = label[b] = min(label[a], label[b])
    assert all(int(f["cluster"]) == label[int(f["document"])] for f in found)
    touched = {end for pair in pairs for end in pair}
    assert counts["clusters"] == len({label[document] for document in touched})


def test_drops_are_split_by_shard_with_the_ids_of_survivors() -> None:
    keys = ranked(9)
    found, _ = resolve(edges_of((0, 4, 0.9, NEAR), (0, 8, 1.0, EXACT), (2, 3, 0.8, NEAR)), keys.__getitem__)
    shards = list(shard_drops(found, np.array([0, 4, 4, 9]), keys.__getitem__))
    assert [shard["row"].tolist() for shard in shards] == [[3], [], [0, 4]]
    assert shards[2]["survivor"].tobytes() == id_bytes(keys[[0, 0]]).tobytes()
    assert shards[0]["similarity"][0] == np.float32(0.8)
    assert shards[2]["kind"].tolist() == [NEAR, EXACT]


@pytest.mark.parametrize("count", [2, 1000])
def test_all_documents_equal(count: int) -> None:
    star = edges_of(*((0, i, 1.0, EXACT) for i in range(1, count)))
    found, counts = resolve(star, ranked(count).__getitem__)
    assert counts["exact"] == count - 1 == len(found)
