"""Survivors and components against definitions written out in Python."""

from __future__ import annotations

import itertools
import tracemalloc
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar
from unittest import mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpus.dedup import ClustersStage, ComponentsStage, DedupConfig, SurvivorsStage
from corpus.dedup.near.candidates import EDGE_DTYPE, EXACT, NEAR
from corpus.dedup.near.clusters import SURVIVOR, cluster_table, count, drops, resolve
from corpus.dedup.near.earlier import EarlierBuild, EarlierBuilds
from corpus.dedup.near.mapped import resolve_mapped
from corpus.dedup.records import Array, Runs, array_rows, cuts_of, save, write_array
from corpus.dedup.text.keys import KEY_DTYPE, DocumentKeys, id_bytes
from corpus.document import write_table
from corpus.engine import storage
from corpus.engine.run import run_stages
from corpus.engine.stage import Counts, Folder, Output, Stage, Task
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


@dataclass(frozen=True)
class Given(Stage):
    """A finished stage whose task i writes one array; shared by the tests, so not in the fingerprint."""

    name: ClassVar[str] = ""
    version: ClassVar[int] = 1
    kind: ClassVar[str] = ""

    arrays: tuple[Array, ...]

    def config(self) -> dict[str, Any]:
        return {"bytes": [array.tobytes().hex() for array in self.arrays]}

    def plan(self, upstream: Mapping[str, Folder]) -> list[Task]:
        return [Task(f"{i:05d}", params={"number": i}) for i in range(len(self.arrays))]

    def run(self, task: Task, out: Output) -> Counts:
        array = self.arrays[task.params["number"]]
        save(out, f"{self.kind}/{task.name}.npy", len(array), write_array, array)
        return Counts(len(array), len(array), 3 * len(array), 3 * len(array)) if self.kind == "keys" else Counts()


class Keys(Given):
    name: ClassVar[str] = "signatures"
    kind: ClassVar[str] = "keys"


class Edges(Given):
    name: ClassVar[str] = "candidates"
    kind: ClassVar[str] = "edges"


def random_edges(generator: np.random.Generator, keys: DocumentKeys) -> Array:
    """Pairs, chains, stars and exact copies, whose originals alone have other edges; many pairs tie."""
    size = len(keys)
    copies = np.flatnonzero(generator.random(size) < 0.2)
    rest = np.setdiff1d(np.arange(size), copies)
    rows = [(a, b, NEAR) for a, b in np.sort(generator.choice(rest, (size // 3, 2)), axis=1).tolist() if a < b]
    chain = generator.permutation(rest)[: size // 5]
    rows += [(a, b, NEAR) for a, b in zip(np.sort(chain)[:-1].tolist(), np.sort(chain)[1:].tolist(), strict=True)]
    rows += [(int(rest[0]), b, NEAR) for b in rest[-size // 10 :].tolist() if b > rest[0]]
    rows += [(a, b, EXACT) for a, b in zip(generator.choice(rest, len(copies)).tolist(), copies.tolist(), strict=True)]
    edges = np.zeros(len(rows), EDGE_DTYPE)
    higher, lower, edges["kind"] = np.array(rows).T
    ordinals = generator.permutation(size)  # of ranks
    edges["a"], edges["b"] = ordinals[higher], ordinals[lower]
    edges["similarity"] = np.where(edges["kind"] == EXACT, 1, 0.8 + 0.05 * ((7 * edges["a"] + edges["b"]) % 3))
    edges["id"] = keys["id"][edges["a"]]
    return edges


def random_keys(generator: np.random.Generator, size: int) -> DocumentKeys:
    """Documents of which some have one id, as records read twice have."""
    keys = ranked(size)
    keys["id"] = generator.integers(0, 4, (size, 2))
    return keys


LIMITS = {"as they are": {}, "many groups": {"GROUP_EDGES": 9}, "mapped": {"GROUP_EDGES": 40, "MAX_EDGES": 30}}


@pytest.mark.parametrize("limits", LIMITS)
@pytest.mark.parametrize(("seed", "workers", "earlier"), [(0, 0, 0), (1, 2, 0), (2, 0, 2)])
def test_the_stages_write_what_all_edges_at_once_give(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limits: str, seed: int, workers: int, earlier: int
) -> None:
    """Workers see the groups and not the limits of the test."""
    for module in ("clusters", "stages"):
        for name, value in LIMITS[limits].items():
            monkeypatch.setattr(f"corpus.dedup.near.{module}.{name}", value, raising=False)
    monkeypatch.setattr("corpus.dedup.records.BLOCK_RECORDS", 11)
    monkeypatch.setattr("corpus.dedup.near.stages.SHARDS_AT_ONCE", 2)
    generator = np.random.default_rng(seed)
    sizes = [100, 0, 250, 1, 90, 30, 40]
    keys = random_keys(generator, sum(sizes))
    edges = random_edges(generator, keys)
    starts = cuts_of(np.array(sizes))
    shards = tuple(keys[first:last] for first, last in itertools.pairwise(starts))
    new = len(sizes) - earlier
    files = tuple(edges[generator.random(len(edges)) < 0.5] for _ in range(5))
    stages = [Keys(shards[:new]), Edges((*files, edges[::2], edges[1::2])), ComponentsStage(), SurvivorsStage()]
    given = run_stages(stages[:3], str(tmp_path / "out"), workers=0)
    builds = EarlierBuilds(DedupConfig())
    old = [
        EarlierBuild(
            "", run_stages([Keys((shard,))], str(tmp_path / f"old-{i}"), workers=0)["signatures"], given["candidates"]
        )
        for i, shard in enumerate(shards[new:])
    ]
    builds.__dict__["builds"] = tuple(old)  # in the order of their documents
    found = run_stages([*stages, ClustersStage(DedupConfig(), earlier=builds)], str(tmp_path / "out"), workers=workers)
    groups = found["survivors"].files("survivors")
    assert (len(groups) == 1) == (limits == "as they are")
    assert any(file.rows > 30 for file in found["components"].files("edges"))  # one is resolved on mapped files

    fates = resolve(edges)
    names = np.array(["", *(build.name for build in old)], "S12")
    of_build = np.searchsorted(cuts_of(np.array([starts[new], *sizes[new:]])), fates["survivor"], "right") - 1
    mine = fates[: np.searchsorted(fates["document"], starts[new])]
    extra = found["clusters"].counts.extra
    assert extra == count(mine) | {
        f"earlier.{name.decode()}": int(((mine["kind"] != SURVIVOR) & (names[of_build[: len(mine)]] == name)).sum())
        for name in names[1:]
    }
    assert sum(extra[name] for name in extra if name.startswith("earlier")) > 0 or not earlier
    counts = found["clusters"].counts
    assert (counts.documents_out, counts.bytes_out) == (starts[new], 3 * starts[new])
    for shard, base in enumerate(starts[:new].tolist()):
        here = slice(*np.searchsorted(fates["document"], [base, base + sizes[shard]]))
        part, of = fates[here], names[of_build[here]]
        write_array(tmp_path / "drops", drops(part, base, of))
        write_table(tmp_path / "clusters", cluster_table(part, base, keys[part["document"]], of))
        for kind in ("drops", "clusters"):
            file = found["clusters"].files(kind)[shard]
            assert Path(file.url).read_bytes() == (tmp_path / kind).read_bytes(), (kind, shard)


@pytest.mark.parametrize(("shards", "group_edges"), [(4, 100), (16, 100), (64, 100), (64, 1000)])
def test_requests_grow_with_shards_and_with_tasks_times_groups(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shards: int, group_edges: int
) -> None:
    """Of each group a task reads offsets and records, of each shard keys; what a stage lists is read once a task."""
    monkeypatch.setattr("corpus.dedup.near.clusters.GROUP_EDGES", group_edges)
    generator = np.random.default_rng(shards)
    keys = random_keys(generator, 2048)
    edges = random_edges(generator, keys)
    stages: list[Stage] = [Keys(tuple(np.split(keys, shards))), Edges((edges[::2], edges[1::2]))]
    stages += [ComponentsStage(), SurvivorsStage(), ClustersStage(DedupConfig())]
    run_stages(stages[:-1], str(tmp_path), workers=0)
    reads = mock.Mock(wraps=storage.read_into)
    monkeypatch.setattr(storage, "read_into", reads)
    with mock.patch.object(Folder, "files", autospec=True, side_effect=Folder.files) as lists:
        folders = run_stages(stages, str(tmp_path), workers=0)
    groups, tasks = folders["survivors"].manifest["tasks"], folders["clusters"].manifest["tasks"]
    assert groups == len(edges) // group_edges + 1 and tasks == shards // 16 + 1
    assert reads.call_count == 2 * tasks * groups + shards
    assert lists.call_count == tasks + 3  # those of the plan


def runs(path: Path, edges: Array) -> Runs:
    write_array(path, edges)
    return Runs([array_rows(File(str(path), path.stat().st_size, "", len(edges)), EDGE_DTYPE)], EDGE_DTYPE)


@given(st.integers(0, 1 << 32), st.integers(5, 200))
def test_mapped_files_give_what_memory_gives(tmp_path_factory: pytest.TempPathFactory, seed: int, size: int) -> None:
    generator = np.random.default_rng(seed)
    edges = random_edges(generator, random_keys(generator, size))
    edges["a"], edges["b"] = 67 * edges["a"] + (5 << 20), 67 * edges["b"] + (5 << 20)
    folder = tmp_path_factory.mktemp("scratch")
    again = generator.permutation(np.concatenate((edges, edges[::3])))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("corpus.dedup.records.BLOCK_RECORDS", 64)
        assert resolve_mapped(runs(folder / "e.npy", again), folder).tobytes() == resolve(edges).tobytes()


def test_memory_of_mapped_files_does_not_grow_with_the_edges(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("corpus.dedup.records.BLOCK_RECORDS", 1_000)
    monkeypatch.setattr("corpus.dedup.near.components.BLOCK_BITS", 1 << 13)
    peaks = []
    for size in (100, 100_000):
        edges = edges_of(*((0, i, 0.9, NEAR) for i in range(1, size)))
        (tmp_path / str(size)).mkdir()
        files = runs(tmp_path / str(size) / "e.npy", edges)
        tracemalloc.start()
        found = resolve_mapped(files, tmp_path / str(size))
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        assert count(found) == {"clusters": 1, "clustered_documents": size, "exact": 0, "near": size - 1}
    assert peaks[1] < 700_000 < edges.nbytes // 5


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
