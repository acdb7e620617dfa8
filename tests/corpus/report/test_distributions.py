"""Counts on the grids are what one gets by judging every document again; samples do not depend on how shards are
cut."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from corpus.document import write_table
from corpus.engine.storage import File
from corpus.filters.decide import Limit
from corpus.report import distributions
from corpus.report.distributions import NOT_A_NUMBER, Distribution, Measured, measure

LIMITS = {"length.num_chars": {"min": 50.0, "max": 5000.0}, "a.ratio": {"max": 0.25}, "b.flag": {"max": 0.0}}
RULES = {key: [Limit(key, *bound) for bound in bounds.items()] for key, bounds in LIMITS.items()}
DOCUMENTS = 3000


def statistics() -> dict[str, np.ndarray]:
    chance = np.random.default_rng(7)
    ratio = np.round(chance.beta(1, 6, DOCUMENTS), 3)
    ratio[::50] = np.nan
    return {
        "length.num_chars": np.floor(np.exp(chance.normal(6, 1.5, DOCUMENTS))),
        "a.ratio": ratio,
        "b.flag": (chance.random(DOCUMENTS) < 0.1).astype(float),
        "c.score": chance.normal(0, 3, DOCUMENTS),
        "d.none": np.full(DOCUMENTS, np.nan),
    }


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> list[File]:
    folder = tmp_path_factory.mktemp("statistics")
    table = pa.table({"row": pa.array(range(DOCUMENTS), pa.uint32()), **statistics()})
    write_table(folder / "00000-00.parquet", table)
    return [File(str(folder / "00000-00.parquet"), 0, "", DOCUMENTS)]


@pytest.fixture(scope="module")
def measured(files: list[File]) -> Measured:
    return measure(files, RULES)


def named(measured: Measured, name: str) -> Distribution:
    return next(one for one in measured.distributions if one.name == name)


def passes(values: np.ndarray, low: float | None, high: float | None) -> np.ndarray:
    return ~((values < (-np.inf if low is None else low)) | (values > (np.inf if high is None else high)))


def test_every_pair_of_limits_on_the_grid_is_counted_exactly(measured: Measured) -> None:
    columns = statistics()
    for one in measured.distributions:
        others = np.ones(DOCUMENTS, bool)
        for key, bounds in LIMITS.items():
            if key != one.name:
                others &= passes(columns[key], bounds.get("min"), bounds.get("max"))
        assert one.passing_others == others.sum()
        assert set(one.limits.values()) <= set(one.grid)
        for i in range(0, len(one.grid), 7):
            for j in range(i, len(one.grid), 5):
                inside = others & passes(columns[one.name], one.grid[i], one.grid[j])
                assert one.passing_others - one.below[i] - (one.up_to[-1] - one.up_to[j]) == inside.sum()
                if one.name == "a.ratio":  # characters of documents without a value are on no grid
                    numbers = inside & ~np.isnan(columns["a.ratio"])
                    characters = columns["length.num_chars"][numbers].sum()
                    assert one.characters_up_to[j] - one.characters_below[i] == characters


def test_places_tell_each_document_apart_from_each_limit(measured: Measured) -> None:
    columns = statistics()
    assert measured.sampled == DOCUMENTS
    for one in measured.distributions:
        places = np.frombuffer(one.places, np.uint8).astype(int)
        values = columns[one.name]
        assert (places[np.isnan(values)] == NOT_A_NUMBER).all()
        numbers = ~np.isnan(values)
        for i in (0, len(one.grid) // 2, len(one.grid) - 1):
            assert ((places < 2 * i + 1) == (values < one.grid[i]))[numbers].all()
            assert ((places > 2 * i + 1) == (values > one.grid[i]))[numbers].all()


def test_what_was_not_measured_has_no_histogram(measured: Measured) -> None:
    assert [one.name for one in measured.distributions] == ["length.num_chars", "a.ratio", "b.flag", "c.score"]
    assert named(measured, "a.ratio").num_documents == DOCUMENTS - 60


def test_axes_are_bent_where_a_limit_lies_far_from_the_end(measured: Measured) -> None:
    assert named(measured, "length.num_chars").bend == 50
    assert named(measured, "a.ratio").bend == 0
    for one in measured.distributions:
        assert len(one.grid) <= 126
        assert list(one.grid) == sorted(set(one.grid))
        assert (one.axis(one.grid[0]), one.axis(one.grid[-1])) == (0, 1)


def test_the_kept_and_the_lengths(measured: Measured) -> None:
    columns = statistics()
    kept = np.ones(DOCUMENTS, bool)
    for key, bounds in LIMITS.items():
        kept &= passes(columns[key], bounds.get("min"), bounds.get("max"))
    assert (measured.documents, measured.kept) == (DOCUMENTS, kept.sum())
    assert sum(one.documents for one in measured.lengths) == DOCUMENTS
    assert sum(one.kept for one in measured.lengths) == kept.sum()


def test_a_large_corpus_is_sampled_evenly_and_always_alike(files: list[File], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(distributions, "SAMPLE_ROWS", 600)
    one, two = measure(files, RULES), measure(files, RULES)
    assert one == two
    assert 500 < one.sampled < 700
    assert len(named(one, "c.score").places) == one.sampled
    assert named(one, "c.score").below == named(measure(files, RULES), "c.score").below  # counts are of all
