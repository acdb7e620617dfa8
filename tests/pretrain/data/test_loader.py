"""The loader: one integer is its whole state, and every batch is what the definition says, one integer at a time."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, fields
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpus.engine.errors import UsageError
from pretrain.data import Batch, Blend, CorpusShare, Loader, Shard, Span, Stream
from tests.pretrain.data.plain import Row, chairmen, row_of, window_of
from tests.pretrain.data.shards import EOD, PERIOD, ArrayShard, HugeShard, cut, shards_of

FLAGS = ("document_mask", "reset_positions", "prefix_lm")


@dataclass(frozen=True)
class Case:
    """Corpora of a few tokens, how they are cut into shards, blended and read."""

    corpora: dict[str, list[int]]
    cuts: list[list[int]]
    weights: list[Fraction]
    sequence_length: int
    seed: int
    flags: dict[str, bool]

    def loader(self) -> Loader:
        is_only = len(self.corpora) == 1
        streams = [
            Stream(cut(tokens, sizes), self.sequence_length, self.seed, "" if is_only else name)
            for (name, tokens), sizes in zip(self.corpora.items(), self.cuts, strict=True)
        ]
        blend = None if is_only else Blend(self.weights)
        return Loader(streams, blend, seed=self.seed, **self.flags)  # type: ignore[arg-type]

    def rows(self, start: int, count: int) -> list[Row]:
        """What the samples are by definition."""
        total = sum(self.weights)
        chosen = chairmen([weight / total for weight in self.weights], start + count)
        rows = []
        for sample in range(start, start + count):
            name, tokens = list(self.corpora.items())[chosen[sample]]
            index = chosen[:sample].count(chosen[sample])
            num_windows = (len(tokens) - 1) // self.sequence_length
            window = window_of(index, num_windows, self.seed, name if len(self.corpora) > 1 else "")
            first = window * self.sequence_length
            window_tokens = tokens[first : first + self.sequence_length + 1]
            mask, prefix = self.flags["document_mask"], self.flags["prefix_lm"]
            rows.append(row_of(window_tokens, EOD, sample, self.seed, mask, prefix))
        return rows


@st.composite
def cases(draw: st.DrawFn) -> Case:
    sequence_length = draw(st.integers(1, 9))
    names = draw(st.lists(st.sampled_from(["web", "books", "百科", "code"]), min_size=1, max_size=4, unique=True))
    corpora, cuts = {}, []
    for name in names:
        tokens = draw(st.lists(st.integers(EOD, EOD + 3), min_size=sequence_length + 1, max_size=60))
        places = sorted(draw(st.lists(st.integers(0, len(tokens)), max_size=4)))
        corpora[name] = tokens
        cuts.append(np.diff([0, *places, len(tokens)]).tolist())
    weights = draw(st.lists(st.integers(1, 9).map(Fraction), min_size=len(names), max_size=len(names)))
    flags = {flag: draw(st.booleans()) for flag in FLAGS}
    return Case(corpora, cuts, weights, sequence_length, draw(st.integers(0, 2**62)), flags)


@given(cases(), st.integers(0, 60), st.integers(0, 12))
def test_a_batch_is_what_the_definition_says(case: Case, start: int, count: int) -> None:
    batch, rows = case.loader().batch(start, count), case.rows(start, count)
    assert batch.tokens.tolist() == [row.tokens for row in rows]
    assert batch.targets.tolist() == [row.targets for row in rows]
    assert batch.document_ids.tolist() == [row.document_ids for row in rows]
    assert (batch.positions is not None) == case.flags["reset_positions"]
    assert (batch.prefix_ends is not None) == case.flags["prefix_lm"]
    if batch.positions is not None:
        assert batch.positions.tolist() == [row.positions for row in rows]
    if batch.prefix_ends is not None:
        assert batch.prefix_ends.tolist() == [row.ends for row in rows]
    assert batch.tokens.dtype == batch.targets.dtype == np.int64


@given(cases(), st.integers(0, 2**50), st.lists(st.integers(0, 9), min_size=1, max_size=5))
def test_any_split_over_ranks_or_steps_is_the_same_batch(case: Case, start: int, counts: list[int]) -> None:
    whole = case.loader().batch(start, sum(counts))
    parts = []
    for count in counts:  # each part from a loader of its own: another rank, or the same one after a restart
        parts.append(case.loader().batch(start, count))
        start += count
    assert_equal(whole, parts)


def assert_equal(whole: Batch, parts: Sequence[Batch]) -> None:
    for field in fields(Batch):
        expected = getattr(whole, field.name)
        if expected is None:
            assert all(getattr(part, field.name) is None for part in parts)
        else:
            assert np.array_equal(expected, np.concatenate([getattr(part, field.name) for part in parts]))


@given(cases(), st.data())
def test_the_samples_of_tokens_are_those_whose_origins_hold_one(case: Case, data: st.DataObject) -> None:
    loader = case.loader()
    stream = data.draw(st.integers(0, len(loader.streams) - 1))
    shard = data.draw(st.integers(0, len(case.cuts[stream]) - 1))
    ends = st.integers(0, case.cuts[stream][shard])
    start, stop = sorted(data.draw(st.tuples(ends, ends)))
    limit = data.draw(st.integers(0, 50))
    expected = [
        sample
        for sample, (origin, spans) in enumerate(loader.origins(0, limit))
        if origin == stream
        and any(span.shard == shard and max(span.start, start) < min(span.stop, stop) for span in spans)
    ]
    assert loader.samples(stream, shard, start, stop, limit) == expected


def test_a_small_corpus_of_a_long_run_is_asked_for_its_own_epochs_only() -> None:
    """Of 10^9 samples it gave 10^6: 50,000 epochs to go through, not fifty million."""
    limits: list[int] = []

    class Noted(Stream):
        def samples(self, shard: int, start: int, stop: int, limit: int) -> list[int]:
            limits.append(limit)
            return []

    streams = [Stream(shards_of([41]), 2, name="web"), Noted(shards_of([41]), 2, name="books")]
    Loader(streams, Blend([Fraction(999), Fraction(1)])).samples(1, 0, 0, 9, 10**9)
    assert limits == [10**6 + 3]


def test_origins_read_nothing() -> None:
    class Unread(ArrayShard):
        def tokens(self, start: int, stop: int) -> Any:
            raise AssertionError("read")

    streams = [Stream([Unread(np.zeros(9, dtype=np.uint16))], 4, name=name) for name in ("web", "books")]
    loader = Loader(streams, Blend([Fraction(1), Fraction(1)]))
    assert sorted((stream, *spans) for stream, spans in loader.origins(0, 4)) == [
        (0, Span(0, 0, 5)), (0, Span(0, 4, 9)), (1, Span(0, 0, 5)), (1, Span(0, 4, 9))
    ]  # fmt: skip


@pytest.mark.parametrize("flags", [{}, dict.fromkeys(FLAGS, True)])
def test_threads_that_read_different_batches_get_their_own(flags: dict[str, bool]) -> None:
    streams = [Stream(shards_of([2000, 77, 3000]), 7, name=name) for name in ("web", "books", "code")]
    loader = Loader(streams, Blend([Fraction(5), Fraction(3), Fraction(1)]), **flags)  # type: ignore[arg-type]
    starts = [(17 * index) % 5000 for index in range(200)]
    expected = [loader.batch(start, 6) for start in starts]
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda start: loader.batch(start, 6), starts))
    for one, other in zip(expected, found, strict=True):
        assert_equal(one, [other])


def test_corpora_that_do_not_belong_together_are_refused() -> None:
    web = Stream(shards_of([10]), 4, name="web")
    other = Stream([ArrayShard(np.zeros(10, dtype=np.uint16), eod=7)], 4, name="code")
    with pytest.raises(UsageError, match="corpus code: its documents do not all end with token 0"):
        Loader([web, other], Blend([Fraction(1), Fraction(1)]))
    mixed: list[Shard] = [*shards_of([10]), ArrayShard(np.zeros(10, dtype=np.uint16), eod=7)]
    with pytest.raises(UsageError, match="end with token 0"):
        Loader([Stream(mixed, 4)])


def test_a_run_in_figures() -> None:
    streams = [Stream(shards_of([size]), 4, name=name) for name, size in (("web", 401), ("books", 41))]
    loader = Loader(streams, Blend([Fraction(3), Fraction(1)]))
    assert loader.describe(200) == [
        CorpusShare("web", 401, 100, Fraction(3, 4), 1.5),
        CorpusShare("books", 41, 10, Fraction(1, 4), 5.0),
    ]
    assert loader.num_tokens == 442
    assert Loader(streams[:1]).describe(250) == [CorpusShare("web", 401, 100, Fraction(1), 2.5)]
    with pytest.raises(ValueError, match="unpack"):
        _ = loader.num_samples_per_epoch


def test_more_than_two_to_the_thirty_one_tokens_and_windows() -> None:
    """Tokens beyond 2**31, bytes beyond 2**32, and with sequence_length 1 also more than 2**32 windows."""
    sizes = [2**31 + 11, 3, 2**33 + 5]
    shards = [HugeShard(size, base) for size, base in zip(sizes, [0, sizes[0], sizes[0] + 3], strict=True)]
    for sequence_length in (1, 2048):
        stream = Stream(shards, sequence_length, seed=3)
        loader = Loader([stream])
        assert loader.num_samples_per_epoch == (sum(sizes) - 1) // sequence_length
        for start in (0, stream.num_samples - 2, 10**15):
            windows = stream.windows(start, 4)
            assert windows.min() >= 0 and windows.max() < stream.num_samples
            expected = (windows[:, None] * sequence_length + np.arange(sequence_length)) % PERIOD
            assert np.array_equal(loader.batch(start, 4).tokens, expected)
        (last,) = stream.samples(2, sizes[2] - stream.num_dropped_tokens - 1, sizes[2], stream.num_samples)
        assert stream.windows(last, 1).tolist() == [stream.num_samples - 1]
        (spans,) = stream.spans(last, 1)
        assert spans[-1] == Span(2, spans[-1].start, sizes[2] - stream.num_dropped_tokens)
        assert loader.batch(last, 1).targets[0, -1] == (sum(sizes) - stream.num_dropped_tokens - 1) % PERIOD
