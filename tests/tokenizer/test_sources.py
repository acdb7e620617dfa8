"""Shares of sources: the water level, the script of a document, and sums that no layout of shards changes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import opencc
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpus.engine.errors import UsageError
from corpus.engine.inputs import list_inputs
from corpus.engine.run import run_stages
from tests.tokenizer.texts import LINES, documents
from tokenizer import sources
from tokenizer.config import TokenizerConfig
from tokenizer.documents import text_files
from tokenizer.sources import (
    MAX_CHARACTERS,
    Group,
    Share,
    SharesStage,
    SourcesStage,
    Totals,
    add_total,
    fill,
    read_shares,
    shares,
)
from tokenizer.traditional import READ_CHARACTERS, is_traditional

SIZES = st.lists(st.tuples(st.integers(0, 10**9), st.floats(0, 100)), min_size=1, max_size=12)


def level_by_bisection(sizes: list[float], weights: list[float], total: float) -> float:
    low, high = 0.0, max(size / weight for size, weight in zip(sizes, weights, strict=True) if weight) + 1
    for _ in range(200):
        middle = (low + high) / 2
        reached = sum(min(size, middle * weight) for size, weight in zip(sizes, weights, strict=True))
        low, high = (middle, high) if reached < total else (low, middle)
    return high


@given(SIZES, st.floats(0, 1))
def test_fill_finds_the_level_that_bisection_finds(groups: list[tuple[int, float]], part: float) -> None:
    sizes = [float(size) for size, _ in groups]
    weights = [max(weight, 1e-3) for _, weight in groups]
    total = part * sum(sizes)
    taken = fill(np.array(sizes), np.array(weights), total)
    level = level_by_bisection(sizes, weights, total)
    expected = [min(size, level * weight) for size, weight in zip(sizes, weights, strict=True)]
    assert taken == pytest.approx(expected, rel=1e-6, abs=1e-6 * (1 + sum(sizes)))
    assert (taken <= np.array(sizes)).all()


@given(SIZES, st.floats(0, 2))
def test_fill_takes_what_is_asked_for_or_all_there_is(groups: list[tuple[int, float]], part: float) -> None:
    """Also where some groups weigh nothing: they are asked last."""
    sizes, weights = (np.array(column, np.float64) for column in zip(*groups, strict=True))
    weights[weights < 1e-3] = 0
    total = part * sizes.sum()
    taken = fill(sizes, weights, total)
    assert taken.sum() == pytest.approx(min(total, sizes.sum()), rel=1e-9)
    if taken[weights == 0].any():
        assert (taken[weights > 0] == sizes[weights > 0]).all()


def totals_of(sizes: dict[Group, int]) -> dict[Group, list[int]]:
    return {group: [1, size] for group, size in sizes.items()}


def taken(found: list[Share]) -> dict[str, float]:
    return {f"{share.source}{'*' * share.traditional}": share.bytes * share.ratio for share in found}


def test_shares_follow_the_power_and_a_small_source_gives_all_it_has() -> None:
    totals = totals_of({Group("web", False): 10**12, Group("books", False): 10**8, Group("poems", False): 1000})
    found = taken(shares(totals, TokenizerConfig(sample_bytes=100_000_000, source_exponent=0.5)))
    assert found["poems"] == pytest.approx(1000)
    assert found["web"] / found["books"] == pytest.approx(100)
    assert sum(found.values()) == pytest.approx(100_000_000)
    as_it_comes = shares(totals, TokenizerConfig(sample_bytes=10_000_000, source_exponent=1.0))
    assert len({share.ratio for share in as_it_comes}) == 1
    alike = taken(shares(totals, TokenizerConfig(sample_bytes=2_001_000, source_exponent=0.0)))
    assert alike == {"web": pytest.approx(10**6), "books": pytest.approx(10**6), "poems": pytest.approx(1000)}


@pytest.mark.parametrize(("ratio", "expected"), [(0.3, 0.3), (0.0, 0.0), (0.9, 0.5), (1.0, 0.5)])
def test_a_ratio_of_traditional_documents_is_met_where_there_are_enough(ratio: float, expected: float) -> None:
    sizes = {Group("a", True): 400_000, Group("b", True): 100_000, Group("a", False): 10**7, Group("b", False): 10**6}
    recipe = TokenizerConfig(sample_bytes=1_000_000, source_exponent=0.5, traditional_ratio=ratio)
    found = taken(shares(totals_of(sizes), recipe))
    assert sum(found.values()) == pytest.approx(1_000_000)
    assert found["a*"] + found["b*"] == pytest.approx(expected * 1_000_000)
    if ratio == 0.3:
        assert found["a*"] / found["b*"] == pytest.approx(2)
    assert found["a"] / found["b"] == pytest.approx(10**0.5)


def test_a_source_without_text_is_not_sampled() -> None:
    found = shares({Group("empty", False): [5, 0], Group("web", False): [1, 10]}, TokenizerConfig(source_exponent=0.0))
    assert [(share.source, share.ratio) for share in found] == [("empty", 0.0), ("web", 1.0)]
    assert shares({}, TokenizerConfig()) == []


def write(folder: Path, rows: list[tuple[str | None, str]], files: int) -> Path:
    folder.mkdir()
    for number in range(files):
        part = rows[number::files]
        columns = {"text": [text for _, text in part], "source": pa.array([source for source, _ in part], pa.string())}
        pq.write_table(pa.table(columns), folder / f"{number}.parquet")
    return folder


def weigh(folder: Path, out: Path, recipe: TokenizerConfig) -> list[Share]:
    files = tuple(text_files([str(folder)]))
    folders = run_stages([SourcesStage(recipe, files), SharesStage(recipe)], str(out), workers=0)
    assert folders["sources"].counts.documents_in == folders["sources"].counts.documents_out
    (file,) = folders["shares"].files("shares")
    return list(read_shares(file).values())


def test_totals_do_not_depend_on_shards(tmp_path: Path) -> None:
    to_traditional = opencc.OpenCC("s2t").convert
    rows = [("诗", to_traditional(text) if number % 3 else text) for number, text in enumerate(documents(30))]
    rows += [("書", text.replace("鳥飛絕", "鸟飞绝")) for text in documents(20, start=100)] + [
        ("書", "学" * (MAX_CHARACTERS + 5)),
        ("空", ""),
    ]
    recipe = TokenizerConfig(traditional_ratio=0.2, sample_bytes=1000)
    found = weigh(write(tmp_path / "a", rows, 2), tmp_path / "x", recipe)
    assert weigh(write(tmp_path / "b", rows[::-1], 5), tmp_path / "y", recipe) == found
    documents_of = {(share.source, share.traditional): share.documents for share in found}
    assert documents_of == {("書", False): 21, ("空", False): 1, ("诗", False): 10, ("诗", True): 20}
    sizes = {share.group: share.bytes for share in found}
    assert sizes[Group("書", False)] == sum(len(text.encode()) for _, text in rows[30:50]) + 3 * MAX_CHARACTERS


def test_without_a_ratio_scripts_are_not_told_apart_and_a_file_names_its_source(tmp_path: Path) -> None:
    folder = write(tmp_path / "a", [(None, "學而時習之"), (None, "学而时习之")], 1)
    assert [share.group for share in weigh(folder, tmp_path / "x", TokenizerConfig())] == [Group("0.parquet", False)]


def test_another_balance_weighs_nothing_again(tmp_path: Path) -> None:
    recipe = TokenizerConfig(traditional_ratio=0.2)
    [file] = list_inputs([str(write(tmp_path / "a", [("x", "学")], 1) / "0.parquet")])
    for update, same in (
        ({"source_exponent": 0.1, "traditional_ratio": 0.9}, True),
        ({"traditional_ratio": None}, False),
    ):
        other = recipe.model_copy(update=update)
        assert (SourcesStage(other, (file,)).config() == SourcesStage(recipe, (file,)).config()) == same
        assert SharesStage(other).config() != SharesStage(recipe).config()


def test_sources_that_tell_documents_apart_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "MAX_SOURCES", 3)
    totals = Totals()
    for number in range(6):
        add_total(totals, Group(str(number), False), 1, 1)
    with pytest.raises(UsageError, match="more than 3 sources: the column `source`"):
        add_total(totals, Group("another", False), 1, 1)


def scripts(texts: list[str]) -> list[bool]:
    found: list[bool] = is_traditional(pa.array(texts, pa.large_string())).tolist()
    return found


def test_the_script_of_a_document_is_that_of_most_of_its_characters() -> None:
    convert = opencc.OpenCC("s2t").convert
    simplified = [line for line in LINES if not scripts([line])[0]]
    assert len(simplified) == len(LINES) - 1  # one line is Traditional
    assert all(scripts([convert(line) for line in simplified if convert(line) != line]))
    assert scripts(["學而时习之", "學習时", "里面的后面干净", "裡面的後面乾淨", "abc €𠀀", "", "ひらがな"]) == [
        *(False, True, False, True, False, False, False)
    ]


def test_only_the_beginning_of_a_document_is_read() -> None:
    assert scripts(["一" * READ_CHARACTERS + "學", "一" * (READ_CHARACTERS - 1) + "學"]) == [False, True]


@given(st.lists(st.text(st.sampled_from("學学時时a€𠀀 里"), max_size=9), max_size=20), st.integers(0, 3))
def test_each_document_is_judged_alone(texts: list[str], start: int) -> None:
    """A slice of an Arrow array gives what its texts give, counted by hand."""
    sides = {"學": 1, "時": 1, "学": -1, "时": -1}
    expected = [sum(sides.get(character, 0) for character in text) > 0 for text in texts]
    found = is_traditional(pa.array(texts, pa.large_string())[start:])
    assert found.tolist() == expected[start:]
