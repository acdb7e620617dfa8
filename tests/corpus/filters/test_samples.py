"""Samples: on both sides of every limit, few whatever the shard, masked, and the same however documents are batched."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from corpus.document import DOCUMENT_SCHEMA, document_id
from corpus.filters import load
from corpus.filters.decide import first_failed
from corpus.filters.filter import Filter
from corpus.filters.measure import stored
from corpus.filters.samples import ANYWHERE, NEAREST, SPREAD, Sampler
from tests.corpus.texts import document

MOBILE, MAIL = "13800138000", "wang@example.com"


def documents(count: int) -> pa.Table:
    rows = []
    for seed in range(count):
        text = document(seed, 1 + seed % 15) + f"手机{MOBILE}，\u200b138\u200b00138000，{MAIL}\x1b[31m"
        url = f"https://example.org/{seed}?u={MAIL}"
        rows.append({"id": document_id("t", url, text.encode()), "row": seed, "source": "t", "url": url, "text": text})
    return pa.Table.from_pylist(rows, DOCUMENT_SCHEMA)


def filter_of(folder: Any, personal: str = "[]") -> Filter:
    recipe = folder / "recipe.toml"
    recipe.write_text(
        "[filter.length]\nnum_chars = { min = 200, max = 400 }\n[filter.characters]\nhan_ratio = { max = 0.73 }\n"
    )
    return load(str(recipe), [f"filter.edit.personal_data={personal}"])


def samples(judge: Filter, table: pa.Table, cut: int) -> pa.Table:
    sampler = Sampler(judge.limits)
    for start in range(0, table.num_rows, cut):
        part = table.slice(start, cut)
        verdicts = judge.apply(part).table
        measured = stored(verdicts, {limit.key for limit in judge.limits})
        sampler.add(part, verdicts, measured, first_failed(measured, judge.limits, part.num_rows))
    return sampler.table()


@pytest.fixture(scope="module")
def judge(tmp_path_factory: pytest.TempPathFactory) -> Filter:
    return filter_of(tmp_path_factory.mktemp("recipe"))


@pytest.fixture(scope="module")
def found(judge: Filter) -> pa.Table:
    return samples(judge, documents(600), 600)


def test_they_do_not_depend_on_the_batches(judge: Filter, found: pa.Table) -> None:
    for cut in (37, 250):
        assert repr(samples(judge, documents(600), cut).to_pylist()) == repr(
            found.to_pylist()
        )  # NaN is not equal to NaN


def test_both_sides_of_every_limit_have_the_nearest(judge: Filter, found: pa.Table) -> None:
    verdicts = judge.apply(documents(600)).table
    values = verdicts["length.num_chars"].to_numpy()
    rules = np.array(verdicts["rule"].to_pylist(), object)
    rows = found.to_pylist()
    for limit in judge.limits:
        chosen = [row for row in rows if limit.name in row["chosen_for"]]
        for dropped in (True, False):
            side = [row for row in chosen if (row["failed"] is not None) == dropped]
            assert NEAREST <= len(side) <= NEAREST + SPREAD
            assert all(row["failed"] in (limit.name, None) for row in side)
    low = judge.limits[0]
    below = np.sort(values[(rules == "length.num_chars") & (values < 200)])[-NEAREST:]
    shown = sorted(
        row["length.num_chars"] for row in rows if row["failed"] == low.name and low.name in row["chosen_for"]
    )
    assert shown[-NEAREST:] == below.tolist()


def test_they_are_few_whatever_the_shard(judge: Filter, found: pa.Table) -> None:
    most = ANYWHERE + 2 * (NEAREST + SPREAD) * len(judge.limits)
    assert found.num_rows <= most
    large = samples(judge, pa.concat_tables([documents(600)] * 3), 512)
    assert large.num_rows <= most


def test_nothing_raw_is_in_them_although_the_recipe_masks_nothing(found: pa.Table) -> None:
    excerpts, urls = (" ".join(found[name].to_pylist()) for name in ("excerpt", "url"))
    short = [text for text in found["excerpt"].to_pylist() if len(text) < 200]
    assert short and all("<MOBILE>" in text and "<EMAIL>" in text for text in short)
    for raw in (MOBILE, "0138000", MAIL, "\x1b", "\u200b"):
        assert raw not in excerpts and raw not in urls
    assert max(map(len, found["excerpt"].to_pylist())) <= 200
