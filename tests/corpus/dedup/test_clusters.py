"""Survivors and components against definitions written out in Python."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpus.dedup.near.candidates import EDGE_DTYPE, EXACT, NEAR
from corpus.dedup.near.clusters import SURVIVOR, ShardedFates, cluster_table, count, drops, resolve, resolve_files
from corpus.dedup.records import Array, Runs, array_rows, write_array
from corpus.dedup.text.keys import KEY_DTYPE, DocumentKeys, id_bytes
from corpus.engine.storage import File


def ranked(count: int) -> DocumentKeys:
    """Documents whose rank is their number."""
    keys = np.zeros(count, KEY_DTYPE)
    keys["rank"] = np.arange(count)[::-1]
    keys["id"][:, 1] = np.arange(count) + 1000
    return keys


def edges_of(*rows: tuple[int, int, float, int]) -> Array:
    """Edges between documents whose id is their number."""
    return np.array([(*row, (0, row[0])) for row in rows], EDGE_DTYPE)


def dropped(edges: Array) -> Array:
    found = resolve(edges)
    gone: Array = found[found["kind"] != SURVIVOR]
    return gone


def fates(edges: Array) -> dict[int, tuple[int, float, int]]:
    found = dropped(edges)
    assert (found["survivor_id"][:, 1] == found["survivor"]).all()
    return {int(f["document"]): (int(f["survivor"]), round(float(f["similarity"]), 4), int(f["kind"])) for f in found}


def test_a_long_chain_keeps_every_second_document() -> None:
    chain = edges_of(*((i, i + 1, 0.9, NEAR) for i in range(9999)))
    found = resolve(chain)
    assert found["document"][found["kind"] != SURVIVOR].tolist() == list(range(1, 10_000, 2))
    assert count(found) == {"clusters": 1, "clustered_documents": 10_000, "exact": 0, "near": 5_000}
    assert (found["component"] == 0).all() and (found["members"] == 10_000).all()


def test_copies_share_the_fate_of_their_original() -> None:
    edges = edges_of((0, 1, 0.875, NEAR), (1, 2, 1.0, EXACT), (1, 3, 1.0, EXACT), (4, 5, 1.0, EXACT))
    assert fates(edges) == {
        1: (0, 0.875, NEAR),
        2: (0, 0.875, NEAR),
        3: (0, 0.875, NEAR),
        5: (4, 1.0, EXACT),
    }


def test_the_most_similar_survivor_is_named_and_the_id_breaks_ties() -> None:
    edges = edges_of((0, 3, 0.82, NEAR), (1, 3, 0.95, NEAR), (2, 3, 0.95, NEAR))
    assert fates(edges) == {3: (1, 0.95, NEAR)}


def test_an_edge_found_in_many_partitions_counts_once() -> None:
    edge = edges_of((0, 1, 0.9, NEAR))
    found = resolve(np.concatenate([edge] * 14))
    assert count(found) == {"clusters": 1, "clustered_documents": 2, "exact": 0, "near": 1}


def test_no_edges() -> None:
    found = resolve(np.empty(0, EDGE_DTYPE))
    assert len(found) == 0 and set(count(found).values()) == {0}


def test_ordinals_beyond_32_bits() -> None:
    base = 5 << 33
    found = dropped(edges_of((base, base + 2, 0.9, NEAR)))
    assert (found["document"].tolist(), found["survivor"].tolist()) == ([base + 2], [base])
    assert found["component"].tolist() == [base]


@given(
    st.integers(2, 30).flatmap(
        lambda n: st.tuples(st.just(n), st.sets(st.tuples(st.integers(0, n - 1), st.integers(0, n - 1)), max_size=60))
    )
)
def test_survivors_and_clusters_are_what_the_definition_says(drawn: tuple[int, set[tuple[int, int]]]) -> None:
    size, pairs = drawn
    pairs = {(a, b) for a, b in pairs if a < b}
    edges = edges_of(*((a, b, 0.8 + 0.001 * (7 * a + b) % 0.2, NEAR) for a, b in sorted(pairs)))
    generator = np.random.default_rng(size)
    everyone = resolve(generator.permutation(edges))
    found = everyone[everyone["kind"] != SURVIVOR]

    survives: dict[int, bool] = {}
    for document in range(size):  # in rank order
        survives[document] = not any(b == document and survives[a] for a, b in pairs)
    assert set(found["document"].tolist()) == {document for document, stays in survives.items() if not stays}
    assert all(survives[int(f["survivor"])] and (int(f["survivor"]), int(f["document"])) in pairs for f in found)

    label = list(range(size))
    for _ in range(size):
        for a, b in pairs:
            label[a] = label[b] = min(label[a], label[b])
    touched = {end for pair in pairs for end in pair}
    assert everyone["document"].tolist() == sorted(touched)
    for fate in everyone:
        assert int(fate["component"]) == label[int(fate["document"])]
        assert int(fate["members"]) == label.count(int(fate["component"]))
    assert count(everyone)["clusters"] == len({label[document] for document in touched})


def runs(path: Path, edges: Array) -> Runs:
    write_array(path, edges)
    return Runs([array_rows(File(str(path), path.stat().st_size, "", len(edges)), EDGE_DTYPE)], EDGE_DTYPE)


@pytest.mark.parametrize("group_edges", [1 << 20, 40, 7])
def test_groups_of_components_give_what_all_edges_at_once_give(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, group_edges: int
) -> None:
    """Files hold the same pair again; a component larger than a group is resolved whole."""
    generator = np.random.default_rng(3)
    ends = np.sort(generator.integers(0, 300, (200, 2)), axis=1)
    pairs = [(int(a), int(b), 0.8 + 0.01 * (int(a + b) % 20), NEAR) for a, b in ends if a < b]
    edges = edges_of(*dict.fromkeys(pairs), *((300, i, 1.0, EXACT) for i in range(301, 350)))
    files = [runs(tmp_path / f"{i}.npy", edges[i // 2 :: 3]) for i in range(6)]
    monkeypatch.setattr("corpus.dedup.near.clusters.GROUP_EDGES", group_edges)
    monkeypatch.setattr("corpus.dedup.near.clusters.BLOCK_EDGES", 11)
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    sharded = ShardedFates(scratch, np.array([0, 100, 100, 350]))
    groups = list(resolve_files(files, 350, scratch))
    assert (len(groups) == 1) == (group_edges == 1 << 20)
    for group in groups:
        sharded.add(group)
    whole = resolve(edges)
    assert np.concatenate([sharded.shard(shard) for shard in range(3)]).tobytes() == whole.tobytes()
    assert sharded.counts == count(whole)


def test_no_edges_in_any_file(tmp_path: Path) -> None:
    assert list(resolve_files([runs(tmp_path / "0.npy", np.empty(0, EDGE_DTYPE))], 9, tmp_path)) == []
    assert len(ShardedFates(tmp_path, np.array([0, 9])).shard(0)) == 0


def test_drops_and_clusters_of_a_shard_name_the_survivor() -> None:
    keys = ranked(9)
    edges = edges_of((0, 4, 0.9, NEAR), (0, 8, 1.0, EXACT), (2, 3, 0.8, NEAR))
    edges["id"] = keys["id"][edges["a"]]
    here = resolve(edges)[2:]  # documents 3, 4 and 8: a shard that begins at 3
    found = drops(here, 3)
    assert found["row"].tolist() == [0, 1, 5] and found["kind"].tolist() == [NEAR, NEAR, EXACT]
    assert found["survivor"].tobytes() == id_bytes(keys[[2, 0, 0]]).tobytes()
    assert found["similarity"][0] == np.float32(0.8) and found["cluster"].tolist() == [2, 0, 0]
    table = cluster_table(here, 3, keys[here["document"]]).to_pydict()
    assert table["id"] == [id_bytes(keys)[i].tobytes() for i in (3, 4, 8)]
    assert (table["row"], table["members"], table["kind"]) == ([0, 1, 5], [2, 3, 3], ["near", "near", "exact"])
    assert table["survivor"] == [id_bytes(keys)[i].tobytes() for i in (2, 0, 0)]
    stays = cluster_table(resolve(edges)[:1], 0, keys[:1]).to_pydict()
    assert stays["survivor"] == stays["id"] and stays["kind"] == ["survivor"] and stays["similarity"] == [1.0]


@pytest.mark.parametrize("size", [2, 1000])
def test_all_documents_equal(size: int) -> None:
    star = edges_of(*((0, i, 1.0, EXACT) for i in range(1, size)))
    assert count(resolve(star))["exact"] == size - 1 == len(dropped(star))
