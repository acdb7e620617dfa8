"""Grouping against a brute-force oracle that compares every document of a bucket with every leader, in Python."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpus.dedup.near import candidates
from corpus.dedup.near.candidates import EXACT, NEAR, Take, find_edges
from corpus.dedup.near.minhash import EXACT_BAND, NO_SHINGLE, SignatureArray, band_keys, exact_band_keys
from corpus.dedup.records import Array, Ordinals
from corpus.dedup.text.hashing import Keys
from corpus.dedup.text.keys import EARLIER, KEY_DTYPE, DocumentKeys
from tests.corpus.dedup.texts import rank

K, BANDS, ROWS, THRESHOLD = 8, 4, 2, 0.5


def documents(generator: np.random.Generator, count: int, num_values: int) -> tuple[DocumentKeys, SignatureArray]:
    """Documents whose minima collide often; equal exact keys have equal signatures, as equal texts do."""
    exact = generator.integers(0, max(1, count // 2 + 1), count)
    keys = np.zeros(count, KEY_DTYPE)
    keys["exact"][:, 0] = exact.astype(np.uint64) << np.uint64(32)
    keys["rank"] = generator.integers(0, 3, count)
    keys["num_bytes"] = generator.integers(0, 3, count)
    keys["id"] = generator.integers(0, 4, (count, 2))
    signatures = generator.integers(0, num_values, (count + 1, K), dtype=np.uint32)[exact]
    return keys, signatures


def records(keys: DocumentKeys, signatures: SignatureArray) -> tuple[Keys, Ordinals]:
    all_keys = np.concatenate((exact_band_keys(keys["exact"]), band_keys(signatures, BANDS, ROWS).ravel()))
    return all_keys, np.concatenate((np.arange(len(keys)), np.repeat(np.arange(len(keys)), BANDS)))


def oracle(keys: DocumentKeys, signatures: SignatureArray, max_leaders: int) -> tuple[set[tuple[int, int, int]], int]:
    order = rank(keys)
    buckets = defaultdict(list)
    for key, document in zip(*records(keys, signatures), strict=True):
        buckets[int(key)].append(int(document))
    edges, overflow = set(), 0
    for key, members in buckets.items():
        members.sort(key=lambda document: order[document])
        leaders: list[int] = []
        seen: dict[tuple[int, ...], int] = {}
        for document in members:
            exact = tuple(keys["exact"][document].tolist())
            original, old = seen.setdefault(exact, document), bool(keys["rank"][document] >= EARLIER)
            if original != document:
                if key & 0xFF == EXACT_BAND and not old:
                    edges.add((original, document, EXACT))
                continue
            if key & 0xFF == EXACT_BAND:
                continue
            near = [x for x in leaders if not old and (signatures[x] == signatures[document]).mean() >= THRESHOLD]
            edges |= {(leader, document, NEAR) for leader in near}
            if not near and sum((keys["rank"][x] >= EARLIER) == old for x in leaders) < max_leaders:
                leaders.append(document)
            elif not near:
                overflow += 1
    return edges, overflow


def triples(edges: Array) -> set[tuple[int, int, int]]:
    return set(zip(edges["a"].tolist(), edges["b"].tolist(), edges["kind"].tolist(), strict=True))


@pytest.mark.parametrize("chunk_members", [1 << 17, 7])
@given(
    seed=st.integers(0, 2**32),
    count=st.integers(1, 40),
    num_values=st.integers(1, 6),
    max_leaders=st.sampled_from([1, 2, 256]),
    num_earlier=st.sampled_from([0, 0, 5, 20]),
)
def test_edges_are_the_oracles(
    seed: int, count: int, num_values: int, max_leaders: int, num_earlier: int, chunk_members: int
) -> None:
    keys, signatures = documents(np.random.default_rng(seed), count, num_values)
    keys["rank"][:num_earlier] |= EARLIER
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(candidates, "CHUNK_MEMBERS", chunk_members)
        patch.setattr(candidates, "CHUNK_ROWS", 1)
        edges, counts = find_edges(
            *records(keys, signatures), keys.__getitem__, signatures.__getitem__, THRESHOLD, max_leaders
        )
    expected, overflow = oracle(keys, signatures, max_leaders)
    assert triples(edges) == expected and len(edges) == len(expected) == counts["edges"]
    assert counts["overflow"] == overflow
    assert edges[["a", "b"]].tolist() == sorted(edges[["a", "b"]].tolist())
    for edge in edges:
        assert edge["similarity"] == np.float32((signatures[edge["a"]] == signatures[edge["b"]]).mean())


def test_documents_that_share_bands_but_not_minima_are_not_merged() -> None:
    """A site's template gives every page the same first band; the pages are different."""
    generator = np.random.default_rng(0)
    keys, signatures = documents(generator, 300, 1 << 30)
    keys["exact"][:, 0] = generator.permutation(300).astype(np.uint64) << np.uint64(32)
    signatures = generator.integers(0, 1 << 32, (300, K), dtype=np.uint32)
    signatures[:, :ROWS] = 1
    edges, counts = find_edges(*records(keys, signatures), keys.__getitem__, signatures.__getitem__, THRESHOLD, 100)
    assert len(edges) == 0
    assert counts["buckets"] == 1 and counts["overflow"] == 200
    assert counts["comparisons"] == 99 * 100 // 2 + 201 * 100 - 100


def test_a_collision_of_exact_band_keys_is_not_a_duplicate() -> None:
    """56 of 128 bits make the band key; short documents have equal signatures and must not be compared by them."""
    keys, signatures = np.zeros(2, KEY_DTYPE), np.full((2, K), NO_SHINGLE, np.uint32)
    keys["exact"] = [[1 << 40, 5], [1 << 40, 6]]
    edges, counts = find_edges(
        exact_band_keys(keys["exact"]), np.arange(2), keys.__getitem__, signatures.__getitem__, THRESHOLD, 256
    )
    assert counts["buckets"] == 1 and len(edges) == 0


def test_ten_thousand_copies_are_linear() -> None:
    keys, signatures = documents(np.random.default_rng(0), 10_000, 1)
    keys["exact"] = 7
    edges, counts = find_edges(*records(keys, signatures), keys.__getitem__, signatures.__getitem__, THRESHOLD, 256)
    assert len(edges) == 9_999 and len(set(edges["a"].tolist())) == 1
    assert counts["comparisons"] == 0


def test_ten_thousand_near_copies_are_compared_once_a_bucket() -> None:
    keys, signatures = documents(np.random.default_rng(0), 10_000, 1)
    keys["exact"][:, 0] = np.arange(10_000).astype(np.uint64) << np.uint64(32)
    edges, counts = find_edges(*records(keys, signatures), keys.__getitem__, signatures.__getitem__, THRESHOLD, 256)
    assert len(edges) == 9_999
    assert counts["comparisons"] == BANDS * 9_999


def test_ordinals_beyond_32_bits_are_kept() -> None:
    base = 3 << 40
    keys, signatures = documents(np.random.default_rng(1), 50, 2)
    all_keys, ordinals = records(keys, signatures)

    def shifted(rows: Array) -> Take:
        return lambda wanted: rows[wanted - base]

    near, _ = find_edges(all_keys, ordinals, keys.__getitem__, signatures.__getitem__, THRESHOLD, 256)
    far, _ = find_edges(all_keys, ordinals + base, shifted(keys), shifted(signatures), THRESHOLD, 256)
    assert len(near) and triples(far) == {(a + base, b + base, kind) for a, b, kind in triples(near)}


@pytest.mark.parametrize("count", [0, 1])
def test_nothing_to_compare(count: int) -> None:
    keys, signatures = documents(np.random.default_rng(0), count, 2)
    edges, counts = find_edges(*records(keys, signatures), keys.__getitem__, signatures.__getitem__, THRESHOLD, 256)
    assert len(edges) == 0 and counts["buckets"] == 0
