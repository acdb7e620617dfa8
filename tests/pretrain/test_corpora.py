"""The corpora of a run: their shares from weights and epochs, one digest, and what does not fit together refused by
name."""

from __future__ import annotations

import re
import shutil
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpus.engine.errors import UsageError, WenhaiError
from pretrain.batch_size import BatchSizes
from pretrain.config import CorpusConfig, RampupConfig, RunConfig, corpus_folders
from pretrain.corpora import corpora_digest, corpus_shares, new_loader, open_corpora, order_from, sample_shares
from pretrain.run.datasets import open_datasets
from tests.pretrain.texts import small_tokenizer, smallest_config, text_folder
from tests.tokenizer.texts import documents
from tokenizer.model import Tokenizer

Listed = list[dict[str, Any]]


def corpora_of(*values: dict[str, float]) -> list[CorpusConfig]:
    return [CorpusConfig(path=f"c{number}", **each) for number, each in enumerate(values)]


def shares(corpora: list[CorpusConfig], sizes: list[int], num_steps: int, batch: int = 10) -> list[Fraction]:
    found = sample_shares(corpora, sizes, BatchSizes(batch), num_steps)
    return [share / sum(found) for share in found]


def test_corpora_that_say_nothing_are_read_equally_often() -> None:
    assert shares(corpora_of({}, {}, {}), [100, 300, 600], 7) == [Fraction(1, 10), Fraction(3, 10), Fraction(6, 10)]


def test_weights_are_exact_and_stay_as_they_were_written() -> None:
    corpora = corpora_of({"weight": 0.1}, {"weight": 0.2}, {"weight": 0.7})
    assert sample_shares(corpora, [5, 5, 5], BatchSizes(10), 7) == [Fraction(1, 10), Fraction(2, 10), Fraction(7, 10)]


@given(st.lists(st.tuples(st.sampled_from(["weight", "epochs"]), st.integers(1, 40)), min_size=1, max_size=6))
def test_each_corpus_with_epochs_gets_exactly_them(said: list[tuple[str, int]]) -> None:
    sizes = [10 * (number + 1) for number in range(len(said))]
    corpora = corpora_of({"weight": 1.0}, *({what: value / 8} for what, value in said))
    found = shares(corpora, [50, *sizes], 1000)
    assert sum(found) == 1
    for size, share, (what, value) in zip(sizes, found[1:], said, strict=True):
        if what == "epochs":
            assert share * 10_000 == Fraction(value, 8) * size
        else:
            assert share == found[0] * Fraction(value, 8)


def test_epochs_alone_must_fill_the_run_within_a_batch() -> None:
    corpora = corpora_of({"epochs": 2.0}, {"epochs": 1.0})
    for num_steps in (30, 31):  # 305 samples; 300 and 310
        assert shares(corpora, [100, 105], num_steps) == [Fraction(200, 305), Fraction(105, 305)]
    for num_steps in (29, 32):
        with pytest.raises(
            UsageError, match=rf"take 305 samples of the run's {num_steps * 10}, and no corpus has a weight"
        ):
            shares(corpora, [100, 105], num_steps)


def test_epochs_beyond_the_run_are_refused_with_the_steps_they_take() -> None:
    corpora = corpora_of({"epochs": 3.0}, {"weight": 1.0})
    message = r"take 300 samples of the run's 290, and leave none.*num_steps=31 takes 310"
    with pytest.raises(UsageError, match=message):
        shares(corpora, [100, 5], 29)
    with pytest.raises(UsageError, match="leave none"):
        shares(corpora, [100, 5], 30)
    assert shares(corpora, [100, 5], 31) == [Fraction(300, 310), Fraction(10, 310)], "the advice can be followed"
    ramped = BatchSizes(10, RampupConfig(start=5, increment=5, num_samples=20))
    assert ramped.num_samples(30) < 300
    with pytest.raises(UsageError, match=r"num_steps=33 takes 310"):
        sample_shares(corpora, [100, 5], ramped, 30)


@given(st.integers(1, 400), st.integers(1, 60), st.integers(1, 9))
def test_a_run_of_epochs_alone_can_have_the_length_that_is_advised(size: int, num_steps: int, start: int) -> None:
    batch_sizes = BatchSizes(9, RampupConfig(start=start, increment=1, num_samples=50))
    corpora = corpora_of({"epochs": 0.5}, {"epochs": 1.25})
    try:
        sample_shares(corpora, [size, 7], batch_sizes, num_steps)
    except UsageError as error:
        advised = re.search(r"num_steps=(\d+)", str(error))
        assert advised is not None
        sample_shares(corpora, [size, 7], batch_sizes, int(advised[1]))


def test_a_finished_run_started_again_has_its_shares() -> None:
    """Also with fewer steps than it has done, which changes nothing that it took."""
    corpora, before = corpora_of({"epochs": 2.0}, {"epochs": 1.0}), BatchSizes(10)
    whole = sample_shares(corpora, [100, 100], before, 30)
    for num_steps in (30, 29, 3):
        assert sample_shares(corpora, [100, 100], BatchSizes(10, None, 30, 300), num_steps) == whole
    with pytest.raises(UsageError, match=r"take 75 samples of the run's 300"):
        sample_shares(corpora, [25, 25], BatchSizes(10, None, 30, 300), 30)


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    return small_tokenizer(tmp_path_factory.mktemp("tokenizer") / "tokenizer.model")


@pytest.fixture(scope="module")
def two(tokenizer: Tokenizer, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    path = tmp_path_factory.mktemp("two")
    texts = documents(30)
    news = {"00000-00-train": texts[:10], "00001-00-train": texts[10:14], "00000-00-validation": texts[28:]}
    return {
        "news": text_folder(path / "news", tokenizer, news),
        "books": text_folder(path / "books", tokenizer, {"00000-00-train": texts[14:28]}, first_id=100),
    }


def run_config(listed: Listed, **sections: Any) -> RunConfig:
    return smallest_config(data={"corpora": listed, **sections.pop("data", {})}, **sections)


def listed(folders: dict[str, Path], **weights: float) -> Listed:
    return [{"path": str(folders[name]), "weight": weight} for name, weight in weights.items()]


def test_a_blend_reads_each_corpus_by_its_share_and_tells_what_it_holds(
    two: dict[str, Path], tokenizer: Tokenizer
) -> None:
    found = open_datasets(run_config(listed(two, news=0.75, books=0.25)), None, tokenizer.path)
    batch_corpora = [stream for stream, _ in found.loader.origins(0, 400)]
    assert batch_corpora.count(0) == 300
    assert list(found.held_out) == ["news"], "books have no validation split"
    assert [(share.name, share.weight) for share in corpus_shares(found.loader, 14)] == [
        ("news", Fraction(3, 4)),
        ("books", Fraction(1, 4)),
    ]
    assert sum(map(len, found.train_texts())) == sum(map(len, documents(28)))
    assert [(share.corpus, share.weight) for share in found.order.shares] == [("news", "3/4"), ("books", "1/4")]


def test_weights_of_any_size_are_kept_exactly_and_too_small_ones_are_refused_by_name(
    two: dict[str, Path], tokenizer: Tokenizer
) -> None:
    found = open_datasets(run_config(listed(two, news=3e-300, books=1.2345678901234e-300)), None, tokenizer.path)
    assert [Fraction(share.weight) for share in found.order.shares] == [
        Fraction("3e-300"),
        Fraction("1.2345678901234e-300"),
    ]
    with pytest.raises(UsageError, match="corpus books: its share of 1e-06 is less than one sample in 100,000"):
        open_datasets(run_config(listed(two, news=1e6, books=1)), None, tokenizer.path)


def test_one_listed_corpus_is_read_as_data_is(two: dict[str, Path], tokenizer: Tokenizer) -> None:
    alone = open_datasets(smallest_config(), two["news"], tokenizer.path)
    for one in ([{"path": str(two["news"])}], [{"path": str(two["news"]), "name": "other", "weight": 2.0}]):
        named = open_datasets(run_config(one), None, tokenizer.path)
        assert named.identity == alone.identity
        assert named.order == alone.order
        assert np.array_equal(named.loader.batch(0, 20).tokens, alone.loader.batch(0, 20).tokens)


def test_the_order_of_the_list_changes_the_blend_and_nothing_else(two: dict[str, Path]) -> None:
    there, back = (
        open_corpora(config.data, corpus_folders(config.data, None))
        for config in (run_config(listed(two, news=1, books=1)), run_config(listed(two, books=1, news=1)))
    )
    assert corpora_digest(there) == corpora_digest(back) != corpora_digest(there[:1])
    config = run_config(listed(two, news=1, books=1))
    loaders = [new_loader(corpora, order_from(config, corpora=corpora), config) for corpora in (there, back)]
    firsts = [
        sorted(loader.batch(0, 40).tokens.tolist()) for loader in loaders
    ]  # as many of each corpus, in its own order
    assert firsts[0] == firsts[1]


def test_megatron_s_order_has_a_stream_a_shard_and_a_share_a_corpus(two: dict[str, Path], tokenizer: Tokenizer) -> None:
    config = run_config(listed(two, news=3, books=1), data={"order": "megatron"}, training={"num_steps": 40})
    found = open_datasets(config, None, tokenizer.path)
    assert [stream.name for stream in found.loader.streams] == ["news/0", "news/1", "books"]
    assert found.order.run_samples == 80
    news, books = corpus_shares(found.loader, 80)
    assert (news.name, books.name) == ("news", "books")
    assert float(news.weight) == pytest.approx(0.75, abs=0.03)
    resumed = open_datasets(config, None, tokenizer.path, step=10, num_samples=50)
    assert resumed.order.run_samples == 50 + 30 * 2, "the samples that were taken count, whatever the batch was"


def test_what_does_not_fit_together_is_refused(two: dict[str, Path], tokenizer: Tokenizer, tmp_path: Path) -> None:
    def refused(listed: Listed, message: str, **sections: Any) -> None:
        with pytest.raises(WenhaiError, match=message):
            open_datasets(run_config(listed, **sections), None, tokenizer.path)

    other = text_folder(tmp_path / "other", tokenizer, {"00000-00-train": documents(2)})
    held_out = text_folder(tmp_path / "held", tokenizer, {"00000-00-validation": documents(2)})
    both = listed(two, news=1, books=1)
    refused([*both, {"path": str(held_out), "weight": 1.0}], "corpus held has no train documents")
    (tmp_path / "link").symlink_to(two["news"])
    for again in (two["news"], tmp_path / "link"):
        refused([*both, {"path": str(again), "name": "again", "weight": 1.0}], "is two corpora of the run")
    refused(
        [*both, {"path": str(other), "weight": 1.0}],
        r"other: .*sequence_length 900 needs 901",
        model={"sequence_length": 900},
    )
    another = small_tokenizer(tmp_path / "other.model", vocab_size=510)
    foreign = text_folder(tmp_path / "foreign", another, {"00000-00-train": documents(4)})
    refused([*both, {"path": str(foreign), "weight": 1.0}], "foreign: made by another tokenizer than .*news")
    refused(listed({"books": two["books"], "other": other}, books=1, other=1), "validation split has no text")
    with pytest.raises(UsageError, match=r"is not the tokenizer of .*news"):
        open_datasets(run_config(both), None, tmp_path / "other.model")
    shutil.copytree(two["news"], tmp_path / "torn")
    (tmp_path / "torn" / "data" / "00001-00-train.idx").unlink()
    refused([*both, {"path": str(tmp_path / "torn"), "weight": 1.0}], r"torn/data/00001-00-train\.idx: cannot be read")
