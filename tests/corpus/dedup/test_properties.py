"""The promises of deduplication, on the real file stages: small corpora with planted duplicates of every kind.

What a corpus holds is drawn by hypothesis. What must come out is told by the edges that the stages verified and by the
documents themselves: two resemble each other when their folded texts are equal, or the shares of equal minima of their
signatures, made here once more, reach the threshold.
"""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpus.dedup import DedupConfig
from corpus.dedup.near.candidates import sketches
from corpus.dedup.near.signatures import sign_texts
from corpus.dedup.records import bases
from tests.corpus.dedup.build import Deduplicate, Result, document_id
from tests.corpus.dedup.texts import ANALECTS, POEM, TRADITIONAL_POEM, edited, random_text
from tests.examples import examples

CONFIG = DedupConfig()
TINY = ["", "短", "短。", "……", "！！", "天地", "天地玄黄", "\n", "a", "Ａ"]


def chain(generator: np.random.Generator, length: int, count: int, step: int) -> list[str]:
    """Texts that each resemble the next one, and the first and the last of which have nothing in common."""
    texts = [random_text(generator, length)]
    while len(texts) < count:
        texts.append(texts[-1][step:] + random_text(generator, step))
    return texts


def template(generator: np.random.Generator, count: int) -> list[str]:
    """Pages of one site: half of each is the site's, and no two are near duplicates."""
    header, footer = random_text(generator, 90), random_text(generator, 60)
    return [header + random_text(generator, 150) + footer for _ in range(count)]


@st.composite
def families(draw: st.DrawFn) -> list[str]:
    """Texts that have to do with each other: copies, revisions, a chain, pages of a template, twins, next to
    nothing."""
    generator = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    text, count = random_text(generator, draw(st.sampled_from([60, 200, 600]))), draw(st.integers(1, 5))
    share = draw(st.sampled_from([0.004, 0.01, 0.03]))
    made = {
        "copies": [text] * count + [text + "。"],
        "revisions": [text, *(edited(generator, text, share) for _ in range(count))],
        "chain": chain(generator, 400, count + 2, 40),
        "template": template(generator, count + 2),
        "twins": [POEM, TRADITIONAL_POEM, ANALECTS, POEM.replace("，", " ")],
        "tiny": draw(st.lists(st.sampled_from(TINY), max_size=6)),
    }
    return made[draw(st.sampled_from(sorted(made)))]


corpora = st.lists(families(), max_size=5).map(lambda parts: list(itertools.chain.from_iterable(parts)))


def split(data: st.DataObject, texts: Sequence[str]) -> list[list[str]]:
    """The texts in another order, cut into files somewhere; a file may be empty."""
    shuffled = data.draw(st.permutations(texts))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(texts)), max_size=4)))
    return [shuffled[first:last] for first, last in itertools.pairwise([0, *cuts, len(texts)])]


class Resemblance:
    """How alike two texts of a corpus are, by their own signatures."""

    def __init__(self, texts: Sequence[str]) -> None:
        different = sorted(set(texts))
        ids = pa.array([document_id(text) for text in different], pa.binary(16))
        signed = sign_texts(ids, pa.array(different, pa.large_string()), CONFIG)
        self._exact = dict(zip(different, map(bytes, signed.keys["exact"]), strict=True))
        self._minima = dict(zip(different, sketches(signed.signatures), strict=True))

    def exact(self, text: str) -> bytes:
        """What copies of a text have in common."""
        return self._exact[text]

    def __call__(self, a: str, b: str) -> float:
        if self._exact[a] == self._exact[b]:
            return 1.0
        return float((self._minima[a] == self._minima[b]).mean())


def kinds(result: Result) -> dict[int, str]:
    """What became of each document that resembles another: survivor, exact or near, by ordinal."""
    starts = bases(result.folders["signatures"].files("keys"))
    found: dict[int, str] = {}
    for start, file in zip(starts[:-1].tolist(), result.folders["clusters"].files("clusters"), strict=True):
        table = pa.parquet.read_table(file.url, columns=["row", "kind"])
        found |= {start + row["row"]: row["kind"] for row in table.to_pylist()}
    return found


@examples(40)
@given(texts=corpora, data=st.data())
def test_every_drop_has_its_survivor_and_every_component_one(
    deduplicate: Deduplicate, texts: list[str], data: st.DataObject
) -> None:
    shards = split(data, texts)
    result = deduplicate(shards)
    alike, by_id = Resemblance(texts), {document_id(text): text for text in texts}
    kept, dropped = result.texts, [by_id[fate["id"]] for fate in result.fates]
    assert Counter(kept) + Counter(dropped) == Counter(texts)
    assert len({alike.exact(text) for text in kept}) == len(kept)  # no exact copy beside another
    for fate, text in zip(result.fates, dropped, strict=True):
        survivor = by_id[bytes.fromhex(fate["detail"])]
        assert survivor in kept
        assert alike(text, survivor) >= CONFIG.threshold - 1e-6
        assert fate["value"] == pytest.approx(alike(text, survivor), abs=1e-6)

    ordinals, became = list(itertools.chain.from_iterable(shards)), kinds(result)
    assert Counter(ordinals[place] for place, kind in became.items() if kind != "survivor") == Counter(dropped)
    for file in result.folders["candidates"].files("edges"):
        for edge in np.load(file.url):
            a, b = int(edge["a"]), int(edge["b"])
            assert alike(ordinals[a], ordinals[b]) >= CONFIG.threshold - 1e-6
            assert (became[a], became[b]) != ("survivor", "survivor")
    components = defaultdict(set)
    for row in result.table("clusters", "clusters").to_pylist():
        components[row["component"]].add(row["kind"])
    assert all("survivor" in found and len(found) > 1 for found in components.values())


@examples(20)
@given(texts=corpora, data=st.data())
def test_survivors_depend_on_the_set_of_documents_alone(
    deduplicate: Deduplicate, texts: list[str], data: st.DataObject
) -> None:
    reference = deduplicate([texts])
    shards = split(data, texts)
    result = deduplicate(shards)
    assert sorted(result.texts) == sorted(reference.texts)
    assert fates(result) == fates(reference)
    again = deduplicate([*shards, data.draw(st.sampled_from(shards))])  # a file that comes twice
    assert sorted(again.texts) == sorted(reference.texts)


def fates(result: Result) -> Counter[tuple[bytes, str, float, str]]:
    return Counter((fate["id"], fate["rule"], fate["value"], fate["detail"]) for fate in result.fates)


@examples(16)
@given(seed=st.integers(0, 2**32 - 1), pages=st.integers(10, 40))
def test_a_chain_of_pages_never_swallows_its_site(deduplicate: Deduplicate, seed: int, pages: int) -> None:
    """One component from end to end (a share of 0.87 with the next page, 0.66 with the third): most of it would go."""
    generator = np.random.default_rng(seed)
    site = chain(generator, 600, pages, 40)
    result = deduplicate([site[::2], site[1::2]])
    alike = Resemblance(site)
    reach = max(
        distance for distance in range(pages) for first in range(pages - distance)
        if alike(site[first], site[first + distance]) >= CONFIG.threshold
    )  # fmt: skip
    assert 1 <= reach <= 4
    assert len(result.texts) >= pages / (2 * reach + 1)
    kept = sorted(site.index(text) for text in result.texts)
    assert all(later - earlier <= 2 * reach + 1 for earlier, later in itertools.pairwise([-1, *kept, pages]))


@examples(16)
@given(seed=st.integers(0, 2**32 - 1))
def test_pages_of_one_template_all_stay(deduplicate: Deduplicate, seed: int) -> None:
    site = template(np.random.default_rng(seed), 30)
    assert sorted(deduplicate([site[:7], site[7:]]).texts) == sorted(site)
