"""Megatron's order: against its algorithm written out, against arrays it made, and (slow) against megatron-core
itself."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from corpus.engine.errors import UsageError
from pretrain.data import Loader, Span, megatron, megatron_arrays
from pretrain.data.megatron import MegatronBlend, MegatronStream, index_bytes, open_megatron
from pretrain.data.megatron_arrays import blending_indices, build_indices, sample_index
from tests.pretrain.data.test_reader import EOD, numbered, write_folder
from tokenizer.shards import open_split
from tokenizer.shards.megatron_index import index_parts
from tools.bench.peers.environment import MEGATRON, Environment

# What megatron-core 0.16.1 made of GOLDEN_LENGTHS and of GOLDEN_WEIGHTS:
# pytest -m slow tests/pretrain/data/test_megatron.py -k golden
GOLDEN_LENGTHS = [5, 1, 9, 3, 1, 7]
GOLDEN: dict[str, Any] = {"sequence_length": 4, "num_samples": 15, "seed": 1234}
GOLDEN_DOCUMENTS = [1, 2, 5, 2, 3, 4, 1, 0, 4, 5, 0, 3, 1, 0, 3, 2, 5, 4]
GOLDEN_SAMPLES = [
    [0, 0],
    [1, 3],
    [1, 7],
    [2, 2],
    [2, 6],
    [3, 3],
    [3, 7],
    [4, 2],
    [7, 1],
    [8, 0],
    [9, 3],
    [10, 0],
    [10, 4],
    [12, 0],
    [13, 3],
    [14, 2],
    [15, 3],
    [15, 7],
    [16, 2],
    [16, 6],
]
GOLDEN_SHUFFLE = [9, 7, 4, 3, 11, 2, 6, 1, 10, 5, 0, 8, 17, 13, 12, 16, 15, 18, 14]
GOLDEN_WEIGHTS = [0.5, 0.3, 0.2]
GOLDEN_DATASETS = [0, 1, 2, 0, 1, 0, 2, 0, 1, 0, 0, 1, 2, 0, 1, 0, 2, 0, 1, 0]

SMALL_LENGTHS = st.lists(st.integers(1, 12), min_size=1, max_size=30)


def walked_samples(lengths: list[int], documents: list[int], sequence_length: int, num_samples: int) -> list[list[int]]:
    """`build_sample_idx` of helpers.cpp, line by line."""
    place, offset = 0, 0
    index = [[0, 0]]
    while len(index) <= num_samples:
        remaining = sequence_length + 1
        while remaining:
            length = lengths[documents[place]] - offset
            remaining -= length
            if remaining <= 0:
                offset += remaining + length - 1
                remaining = 0
            else:
                place, offset = place + 1, 0
        index.append([place, offset])
    return index


def chosen_one_by_one(weights: list[float], num_samples: int) -> list[tuple[int, int]]:
    """`build_blending_indices` of helpers.cpp, line by line."""
    taken, found = [0] * len(weights), []
    for sample in range(num_samples):
        best, largest = 0, weights[0] * max(float(sample), 1.0) - taken[0]
        for dataset in range(1, len(weights)):
            error = weights[dataset] * max(float(sample), 1.0) - taken[dataset]
            if error > largest:
                best, largest = dataset, error
        found.append((best, taken[best]))
        taken[best] += 1
    return found


@given(SMALL_LENGTHS, st.integers(1, 4), st.integers(1, 15), st.integers(1, 40))
def test_samples_begin_where_a_walk_finds_them(
    lengths: list[int], num_epochs: int, sequence_length: int, block: int
) -> None:
    documents = np.random.default_rng(0).permutation(np.tile(np.arange(len(lengths), dtype=np.int32), num_epochs))
    num_tokens = num_epochs * sum(lengths)
    if num_tokens <= sequence_length:
        return
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(megatron_arrays, "BLOCK_DOCUMENTS", block)
        found = sample_index(np.array(lengths, np.int32), documents, sequence_length, num_tokens)
    expected = walked_samples(lengths, documents.tolist(), sequence_length, (num_tokens - 1) // sequence_length)
    assert found.tolist() == expected and found.dtype == np.int32


WEIGHTS = st.one_of(
    st.lists(st.integers(1, 9), min_size=1, max_size=6),
    st.lists(st.floats(1e-4, 1), min_size=1, max_size=12),
    st.integers(1, 8).map(lambda count: [1.0] * count),
)


@given(WEIGHTS, st.integers(1, 600), st.integers(1, 60))
def test_a_blend_is_chosen_as_one_by_one(weights: list[float], num_samples: int, lane_steps: int) -> None:
    shares = megatron.normalize(np.array(weights, dtype=np.float64))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(megatron_arrays, "LANE_STEPS", lane_steps)
        patch.setattr(megatron_arrays, "BLOCK_DOCUMENTS", 50)
        datasets, numbers = blending_indices(shares, num_samples)
    assert list(zip(datasets.tolist(), numbers.tolist(), strict=True)) == chosen_one_by_one(
        shares.tolist(), num_samples
    )
    assert datasets.dtype == np.int16 and numbers.dtype == np.int64


def test_a_lane_that_began_with_a_bad_guess_is_mended_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """With every later guess wrong by a thousand samples of one dataset, no lane meets the truth."""
    walk = megatron_arrays._walk

    def misled(weights: Any, starts: Any, taken: Any, num_steps: int) -> Any:
        taken[0, 1:] += 1000  # in place: these are the guesses that lanes are compared with
        return walk(weights, starts, taken, num_steps)

    monkeypatch.setattr(megatron_arrays, "_walk", misled)
    monkeypatch.setattr(megatron_arrays, "LANE_STEPS", 40)
    shares = np.array([0.5, 0.3, 0.2])
    datasets, _ = blending_indices(shares, 500)
    assert datasets.tolist() == [dataset for dataset, _ in chosen_one_by_one(shares.tolist(), 500)]


def test_what_megatron_made_of_a_small_corpus() -> None:
    indices = build_indices(np.array(GOLDEN_LENGTHS, dtype=np.int32), **GOLDEN)
    assert indices.document.tolist() == GOLDEN_DOCUMENTS and indices.document.dtype == np.int32
    assert indices.sample.tolist() == GOLDEN_SAMPLES and indices.sample.dtype == np.int32
    assert indices.shuffle.tolist() == GOLDEN_SHUFFLE and indices.shuffle.dtype == np.uint32


def test_what_megatron_made_of_a_blend() -> None:
    blend = MegatronBlend(GOLDEN_WEIGHTS, 20)
    assert blend.datasets.tolist() == GOLDEN_DATASETS
    assert blend.requests == [11, 7, 5], "half a percent more than 10, 6 and 4, rounded up"
    assert len(MegatronBlend([1.0, 1.0, 1.0], 20).datasets) == 21, "a third of 20, rounded up, three times"


def test_a_last_epoch_of_which_little_is_needed_is_shuffled_apart() -> None:
    """1,001 tokens are 100 samples of 10: 80 % of the second epoch are 80."""
    lengths = np.array([11] + [10] * 99, dtype=np.int32)
    for num_samples, is_apart in ((101, True), (179, True), (180, False), (200, False)):
        indices = build_indices(lengths, 10, num_samples, seed=3)
        assert len(indices.document) == 200 and len(indices.shuffle) == 200
        assert (set(indices.shuffle[100:].tolist()) == set(range(100, 200))) == is_apart
        assert (set(indices.document[100:].tolist()) == set(range(100))) == is_apart


LONG_LENGTHS = np.array([2**30, 2**30, 129], dtype=np.int32)


class CountingShard:
    """Token p of the shard is p."""

    def __init__(self, lengths: list[int]) -> None:
        self.num_tokens = sum(lengths)
        self.eod = EOD

    def tokens(self, start: int, stop: int) -> NDArray[np.int64]:
        assert 0 <= start < stop <= self.num_tokens
        return np.arange(start, stop)


def stream_of(lengths: list[int], sequence_length: int, num_samples: int, seed: int = 0) -> MegatronStream:
    return MegatronStream(CountingShard(lengths), np.array(lengths, dtype=np.int32), sequence_length, num_samples, seed)


def laid_out(lengths: list[int], stream: MegatronStream) -> NDArray[np.int64]:
    """The tokens of the document index, end to end."""
    documents = np.split(np.arange(sum(lengths)), np.cumsum(lengths)[:-1])
    return np.concatenate([documents[number] for number in stream.indices.document])


runs = st.tuples(SMALL_LENGTHS, st.integers(1, 15), st.integers(1, 60), st.integers(0, 2**32 - 1)).filter(
    lambda run: sum(run[0]) > run[1]
)


@given(runs)
def test_a_sample_is_tokens_of_its_documents_end_to_end(run: tuple[list[int], int, int, int]) -> None:
    lengths, sequence_length, num_samples, seed = run
    stream = stream_of(lengths, sequence_length, num_samples, seed)
    assert stream.num_built >= num_samples
    tokens = laid_out(lengths, stream)
    batch = Loader([stream]).batch(0, stream.num_built)
    for row, window in enumerate(stream.indices.shuffle.tolist()):
        expected = tokens[window * sequence_length :][: sequence_length + 1]
        assert batch.tokens[row].tolist() == expected[:-1].tolist()
        assert batch.targets[row].tolist() == expected[1:].tolist()


@given(runs, st.data())
def test_the_samples_of_a_token_are_those_that_hold_it(
    run: tuple[list[int], int, int, int], data: st.DataObject
) -> None:
    lengths, sequence_length, num_samples, seed = run
    stream = stream_of(lengths, sequence_length, num_samples, seed)
    start = data.draw(st.integers(0, stream.num_tokens))
    stop = data.draw(st.integers(start, stream.num_tokens))
    limit = data.draw(st.integers(0, stream.num_built + 5))
    expected = [
        sample
        for sample, spans in enumerate(stream.spans(0, stream.num_built))
        if sample < limit and any(span.start < stop and start < span.stop for span in spans)
    ]
    assert stream.samples(0, start, stop, limit) == (expected if start < stop else [])


def test_a_sample_has_a_span_for_each_document() -> None:
    stream = stream_of([4, 1, 3], 5, 1)
    stream.indices.document[:] = [2, 1, 0]
    assert stream.spans(0, 1) == [[Span(0, 5, 8), Span(0, 4, 5), Span(0, 0, 2)]]
    with pytest.raises(ValueError, match=r"samples \[0, 2\) of a run of 1"):
        stream.spans(0, 2)


def test_what_cannot_be_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match=r"8 tokens.*needs 9"):
        stream_of([8], 8, 1)
    with pytest.raises(UsageError, match="seeds of 0 to 4294967295"):
        stream_of([9], 8, 1, seed=2**32)
    with pytest.raises(UsageError, match="blends 32,766 shards at most"):
        MegatronBlend([1.0] * 32_767, 5)
    stream = stream_of([9, 8], 8, 100)
    made = stream.indices.document.nbytes + stream.indices.sample.nbytes + stream.indices.shuffle.nbytes
    assert made == index_bytes(17, 2, 8, 100) + 8  # the end of the last sample
    with pytest.raises(UsageError, match=r"10\.0 GB.* order = .permuted."):
        MegatronBlend([1.0, 1.0], 10**9)


@pytest.fixture(scope="module")
def corpora(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Three folders: of one shard, of three of which one is empty, and of one with short documents only."""
    root = tmp_path_factory.mktemp("corpora")
    return [
        write_folder(root / "one", {"00000-00-train": numbered(40, 1)}),
        write_folder(
            root / "three",
            {"00000-00-train": numbered(25, 2), "00001-00-train": [], "00002-00-train": numbered(60, 3, 30)},
        ),
        write_folder(root / "short", {"00000-00-train": numbered(70, 4, 3)}),
    ]


def test_several_shards_are_datasets_of_a_blend(corpora: list[Path]) -> None:
    named = [("one", corpora[0], 3.0), ("three", corpora[1], 1.0)]
    streams, blend = open_megatron(named, "train", sequence_length=7, num_samples=50, seed=5)
    assert blend and [stream.name for stream in streams] == ["one", "three/0", "three/1"]
    small, large = streams[1].num_tokens, streams[2].num_tokens
    weights = [3.0, small / (small + large), large / (small + large)]
    alike = MegatronBlend(weights, 50)
    assert blend.datasets.tolist() == alike.datasets.tolist() and blend.requests == alike.requests
    assert all(stream.num_built >= request for stream, request in zip(streams, blend.requests, strict=True))
    loader = Loader(streams, blend)
    assert loader.batch(0, 50).tokens.shape == (50, 7)
    for stream in range(3):
        expected = [sample for sample, (origin, _) in enumerate(loader.origins(0, 50)) if origin == stream]
        assert loader.samples(stream, 0, 0, streams[stream].num_tokens, 50) == expected
    with pytest.raises(ValueError, match="of a run of"):
        blend.origins(0, 10**6)


def test_one_shard_needs_no_blend(corpora: list[Path]) -> None:
    streams, blend = open_megatron([("", corpora[0], 1.0)], "train", 7, 50, seed=5)
    (shard,) = open_split(corpora[0], "train")
    expected = build_indices(shard.lengths, 7, 50, 5)
    assert blend is None and streams[0].indices.shuffle.tolist() == expected.shuffle.tolist()
    with pytest.raises(UsageError, match="no validation documents"):
        open_megatron([("", corpora[0], 1.0)], "validation", 7, 50, seed=5)


def test_a_blend_that_takes_more_than_was_built_is_refused(
    corpora: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(megatron, "SURPLUS", -0.9)
    with pytest.raises(UsageError, match=r"corpus one: the blend takes 1000 samples and \d+ are built"):
        open_megatron([("one", corpora[0], 1.0), ("short", corpora[2], 1.0)], "train", 7, 2000, seed=5)


def test_all_indices_together_are_bounded(corpora: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    named = [("one", corpora[0], 1.0), ("short", corpora[2], 1.0)]
    streams, _ = open_megatron(named, "train", 7, 60, seed=5)
    alone = max(index_bytes(stream.num_tokens, len(stream.starts) - 1, 7, 31) for stream in streams)
    monkeypatch.setattr(megatron, "MAX_INDEX_BYTES", max(alone, 60 * megatron.BLEND_BYTES))
    with pytest.raises(UsageError, match="permuted"):
        open_megatron(named, "train", 7, 60, seed=5)


# --------------------------------------------------------------------------------------------- megatron-core itself


@pytest.fixture(scope="module")
def peer() -> Environment:
    """The environment of megatron-core; made where there is an index to install from."""
    try:
        MEGATRON.install()
    except Exception as error:
        pytest.skip(f"megatron-core cannot be installed here: {error}")
    return MEGATRON


def made_by_megatron(peer: Environment, out: Path, cases: list[dict[str, Any]]) -> list[dict[str, NDArray[Any]]]:
    """The arrays of each case, by one child process."""
    out.mkdir()
    (out / "cases.json").write_text(json.dumps(cases))
    peer.run("gpt_dataset.py", "arrays", str(out / "cases.json"), str(out))
    return [dict(np.load(out / f"{case['name']}.npz")) for case in cases]


def same(ours: NDArray[Any], theirs: NDArray[Any]) -> bool:
    """Equal to the bit, dtype and shape included."""
    return ours.dtype == theirs.dtype and ours.shape == theirs.shape and ours.tobytes() == theirs.tobytes()


@pytest.mark.slow
def test_the_golden_arrays_are_megatrons(peer: Environment, tmp_path: Path) -> None:
    documents = [(f"{row:032x}", None, [7] * (length - 1)) for row, length in enumerate(GOLDEN_LENGTHS)]
    folder = write_folder(tmp_path / "tokens", {"00000-00-train": documents})
    prefix = str(folder / "data/00000-00-train")
    single = GOLDEN | {"name": "single", "prefixes": [prefix], "weights": None}
    blend = GOLDEN | {"name": "blend", "prefixes": [prefix] * 3, "weights": GOLDEN_WEIGHTS, "num_samples": 20}
    made, blended = made_by_megatron(peer, tmp_path / "out", [single, blend])
    assert made["document_0"].tolist() == GOLDEN_DOCUMENTS
    assert made["sample_0"].tolist() == GOLDEN_SAMPLES
    assert made["shuffle_0"].tolist() == GOLDEN_SHUFFLE
    assert blended["datasets"].tolist() == GOLDEN_DATASETS


@pytest.mark.slow
def test_one_dataset_is_megatrons(peer: Environment, tmp_path: Path) -> None:
    """Many corpora, lengths, epochs and seeds: arrays to the bit, and the tokens of the samples."""
    rng = np.random.default_rng(0)
    cases: list[dict[str, Any]] = []
    for number in range(60):
        max_tokens = int(rng.choice([1, 2, 12, 90]))  # 1: every document is its end alone
        folder = write_folder(
            tmp_path / f"tokens{number}", {"00000-00-train": numbered(int(rng.integers(20, 200)), number, max_tokens)}
        )
        (shard,) = open_split(folder, "train")
        sequence_length = int(rng.integers(2, 18))
        epochs = rng.uniform(0.1, 5.2)
        num_samples = max(1, int(epochs * shard.num_tokens / sequence_length))
        case = {"name": f"case{number}", "prefixes": [str(shard.prefix)], "weights": None, "num_samples": num_samples}
        case |= {"sequence_length": sequence_length, "seed": int(rng.integers(0, 2**32)), "read": 30}
        cases.append(case)
    for case, made in zip(cases, made_by_megatron(peer, tmp_path / "out", cases), strict=True):
        folder = Path(case["prefixes"][0]).parents[1]
        (shard,) = open_split(folder, "train")
        settings = [case[key] for key in ("sequence_length", "num_samples", "seed")]
        indices = build_indices(shard.lengths, *settings)
        assert same(indices.document, made["document_0"]), case
        assert same(indices.sample, made["sample_0"]), case
        assert same(indices.shuffle, made["shuffle_0"]), case
        streams, _ = open_megatron([("", folder, 1.0)], "train", *settings)
        batch = Loader(streams).batch(0, len(made["tokens"]))
        assert batch.tokens.tolist() == made["tokens"].tolist() and batch.targets.tolist() == made["labels"].tolist()


@pytest.mark.slow
def test_blends_are_megatrons(peer: Environment, tmp_path: Path) -> None:
    """Two to five datasets: which gives each sample, their own arrays with the surplus, and the tokens."""
    rng = np.random.default_rng(1)
    folders = [write_folder(tmp_path / f"tokens{n}", {"00000-00-train": numbered(50 + 40 * n, n)}) for n in range(5)]
    cases: list[dict[str, Any]] = []
    for number in range(40):
        count = 2 + number % 4
        weights = [rng.random(count), rng.integers(1, 10, count), np.ones(count)][number % 3].astype(float).tolist()
        case = {"name": f"case{number}", "weights": weights, "num_samples": int(rng.integers(count, 3000)), "read": 40}
        case |= {"prefixes": [str(folder / "data/00000-00-train") for folder in folders[:count]]}
        case |= {"sequence_length": int(rng.integers(2, 18)), "seed": int(rng.integers(0, 2**32))}
        cases.append(case)
    for case, made in zip(cases, made_by_megatron(peer, tmp_path / "out", cases), strict=True):
        named = [(str(n), folders[n], weight) for n, weight in enumerate(case["weights"])]
        streams, blend = open_megatron(named, "train", case["sequence_length"], case["num_samples"], case["seed"])
        assert blend and same(blend.datasets, made["datasets"]) and same(blend.numbers, made["numbers"])
        for number, stream in enumerate(streams):
            assert same(stream.indices.document, made[f"document_{number}"])
            assert same(stream.indices.sample, made[f"sample_{number}"])
            assert same(stream.indices.shuffle, made[f"shuffle_{number}"])
        batch = Loader(streams, blend).batch(0, len(made["tokens"]))
        assert batch.tokens.tolist() == made["tokens"].tolist() and batch.targets.tolist() == made["labels"].tolist()


@pytest.mark.slow
def test_more_than_two_to_the_thirty_one_tokens_are_megatrons(peer: Environment, tmp_path: Path) -> None:
    """A file of holes: only its index is read."""
    (tmp_path / "long.idx").write_bytes(b"".join(index_parts(LONG_LENGTHS, "uint16")))
    with open(tmp_path / "long.bin", "wb") as file:
        file.truncate(2 * int(LONG_LENGTHS.sum(dtype=np.int64)))
    case = {"prefixes": [str(tmp_path / "long")], "weights": None, "sequence_length": 2_048, "seed": 7}
    case |= {"name": "long", "num_samples": 2**20 + 5}
    (made,) = made_by_megatron(peer, tmp_path / "out", [case])
    indices = build_indices(LONG_LENGTHS, 2_048, 2**20 + 5, 7)
    assert same(indices.sample, made["sample_0"]) and same(indices.shuffle, made["shuffle_0"])
