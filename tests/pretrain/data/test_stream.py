"""One corpus: every token is a target once an epoch, and a token's samples are found without a search."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpus.engine.errors import UsageError
from pretrain.data import Span, Stream
from pretrain.data.stream import LOOK_AHEAD, MAX_TOKENS
from tests.pretrain.data.plain import window_of
from tests.pretrain.data.shards import ArrayShard, HugeShard, shards_of

corpora = st.tuples(
    st.lists(st.integers(0, 40), min_size=1, max_size=6), st.integers(1, 12), st.integers(0, 2**40)
).filter(lambda corpus: sum(corpus[0]) > corpus[1])


def places(spans: list[Span], sizes: list[int]) -> list[int]:
    """The places in the stream of the tokens of a sample."""
    starts = np.cumsum([0, *sizes]).tolist()
    assert all(0 <= span.start < span.stop <= sizes[span.shard] for span in spans)
    return [starts[span.shard] + offset for span in spans for offset in range(span.start, span.stop)]


@given(corpora)
def test_every_token_is_a_target_once_an_epoch(corpus: tuple[list[int], int, int]) -> None:
    sizes, sequence_length, seed = corpus
    stream = Stream(shards_of(sizes), sequence_length, seed)
    for epoch in range(2):
        found = [places(spans, sizes) for spans in stream.spans(epoch * stream.num_samples, stream.num_samples)]
        assert all(window == list(range(window[0], window[0] + sequence_length + 1)) for window in found)
        targets = sorted(place for window in found for place in window[1:])
        assert targets == list(range(1, stream.num_tokens - stream.num_dropped_tokens))
    assert 0 <= stream.num_dropped_tokens < sequence_length


@given(corpora, st.integers(0, 10**20), st.integers(0, 9), st.sampled_from(["", "web"]))
def test_a_sample_is_the_window_of_its_definition(
    corpus: tuple[list[int], int, int], start: int, count: int, name: str
) -> None:
    sizes, sequence_length, seed = corpus
    stream = Stream(shards_of(sizes), sequence_length, seed, name)
    expected = [window_of(sample, stream.num_samples, seed, name) for sample in range(start, start + count)]
    assert stream.windows(start, count).tolist() == expected
    firsts = [places(spans, sizes)[0] for spans in stream.spans(start, count)]
    assert firsts == [window * sequence_length for window in expected]


@given(corpora, st.data())
def test_the_samples_of_tokens_are_those_whose_spans_hold_one(
    corpus: tuple[list[int], int, int], data: st.DataObject
) -> None:
    sizes, sequence_length, seed = corpus
    stream = Stream(shards_of(sizes), sequence_length, seed, "web")
    shard = data.draw(st.integers(0, len(sizes) - 1))
    start, stop = sorted(data.draw(st.tuples(st.integers(0, sizes[shard]), st.integers(0, sizes[shard]))))
    limit = data.draw(st.integers(0, 3 * stream.num_samples))
    expected = [
        sample
        for sample, spans in enumerate(stream.spans(0, limit))
        if any(span.shard == shard and max(span.start, start) < min(span.stop, stop) for span in spans)
    ]
    assert stream.samples(shard, start, stop, limit) == expected


def test_looking_ahead_changes_nothing() -> None:
    """Jumps forwards and back, over epochs, past what is remembered, and more than is remembered."""
    stream = Stream(shards_of([3001]), 2, seed=5)
    whole = [window_of(sample, 1500, 5) for sample in range(4000)]
    rng = np.random.default_rng(0)
    for start, count in zip(rng.integers(0, 3000, 400).tolist(), rng.integers(0, 40, 400).tolist(), strict=True):
        assert stream.windows(start, count).tolist() == whole[start : start + count]
    for count in (LOOK_AHEAD - 1, LOOK_AHEAD, LOOK_AHEAD + 1, 1600):
        assert stream.windows(1499, count).tolist() == whole[1499 : 1499 + count]
        assert stream.windows(1500, 3).tolist() == whole[1500:1503]
    with pytest.raises(ValueError, match="read-only"):
        stream.windows(0, 4)[0] = 7


@pytest.mark.parametrize("sizes", [[], [0], [0, 0], [1], [8], [4, 4]])
def test_a_corpus_shorter_than_one_sample_is_refused(sizes: list[int]) -> None:
    shards = [ArrayShard(np.zeros(size, dtype=np.uint16)) for size in sizes]
    with pytest.raises(UsageError, match=rf"corpus web has {sum(sizes)} tokens in {len(sizes)} shards.* needs 9"):
        Stream(shards, 8, name="web")
    with pytest.raises(UsageError, match=rf"the corpus has {sum(sizes)} tokens"):
        Stream(shards, 8)


def test_more_tokens_than_have_places_are_refused() -> None:
    assert len(set(Stream([HugeShard(MAX_TOKENS)], 1).windows(2**62 - 3, 4).tolist())) == 4
    with pytest.raises(UsageError, match="at most"):
        Stream([HugeShard(MAX_TOKENS), HugeShard(1)], 1)


@pytest.mark.parametrize("size", [2**31 + 5, 2**53 + 1, 2**62 - 4])
def test_places_beyond_what_floats_and_int32_count(size: int) -> None:
    """With one token a window: the numbers of windows and of tokens pass 2^31 and 2^53 and stay exact."""
    stream = Stream([HugeShard(size), HugeShard(3)], 1, seed=3)
    assert stream.num_samples == size + 2
    for start in (0, stream.num_samples - 2, 2**31 - 2, 2**53 - 1, 10**18):
        expected = [window_of(sample, size + 2, 3) for sample in range(start, start + 4)]
        assert stream.windows(start, 4).tolist() == expected
        for sample, window, spans in zip(range(start, start + 4), expected, stream.spans(start, 4), strict=True):
            if window <= size - 2:
                assert spans == [Span(0, window, window + 2)]
                if start < size:
                    assert sample in stream.samples(0, window, window + 1, sample + 1)
    last = int(stream.windows(0, 1)[0])
    assert last > 2**31 - 1 or size < 2**32
    ends = stream.samples(1, 2, 3, stream.num_samples)
    assert len(ends) == 1 and stream.spans(ends[0], 1) == [[Span(1, 1, 3)]]


def test_two_hundred_billion_windows_cost_no_memory_to_order() -> None:
    stream = Stream([HugeShard(2**47)], sequence_length=512)
    assert len(set(stream.windows(0, 1000).tolist())) == 1000
    assert stream.num_samples > 2 * 10**11
