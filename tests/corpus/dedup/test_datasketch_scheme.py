"""Against datasketch itself, which the scheme must equal bit for bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from corpus.dedup import DedupConfig
from corpus.dedup.near.minhash import datasketch_minhash
from tests.corpus.dedup.build import Deduplicate
from tests.corpus.dedup.test_minhash import fold_all
from tests.corpus.dedup.texts import ANALECTS, POEM, edited, random_text
from tests.lazy import Lazy

datasketch = Lazy("datasketch")

MIXED = POEM + "abc é ж €𠮷🀄" + ANALECTS  # code points of one to four bytes
OURS = {"seed": 1, "scheme": "affine32"}


def theirs(form: str, ngram: int, k: int) -> Any:
    sketch = datasketch.MinHash(num_perm=k)
    sketch.update_batch([form[i : i + ngram].encode() for i in range(len(form) - ngram + 1)])
    return sketch


@pytest.mark.parametrize(("ngram", "k"), [(5, 112), (1, 16), (20, 64)])
def test_signatures_are_datasketchs(ngram: int, k: int) -> None:
    texts = [POEM, "短", MIXED, "", "𠮷" * 30, random_text(np.random.default_rng(0), 500)]
    codes, offsets, forms = fold_all(texts)
    for row, form in zip(datasketch_minhash(codes, offsets, ngram, k), forms, strict=True):
        assert row.tolist() == theirs(form, ngram, k).hashvalues.tolist()


def test_signatures_of_a_build_load_as_lean_minhash_and_work_in_its_index(deduplicate: Deduplicate) -> None:
    generator = np.random.default_rng(1)
    text = random_text(generator, 800)
    texts = [text, edited(generator, text, 0.005), ANALECTS]
    config = DedupConfig(scheme="datasketch")
    result = deduplicate([texts], config)
    assert len(result.texts) == 2 and [fate["rule"] for fate in result.fates] == ["dedup.near"]
    rows = np.load(result.folders["signatures"].files("signatures")[0].url)
    sketches = [datasketch.LeanMinHash(hashvalues=row, **OURS) for row in rows]
    _, _, forms = fold_all(texts)
    assert sketches[2].jaccard(theirs(forms[2], config.ngram, config.num_permutations)) == 1.0
    index = datasketch.MinHashLSH(params=(config.bands, config.rows), num_perm=config.num_permutations)
    for number, sketch in enumerate(sketches):
        index.insert(number, sketch)
    assert sorted(index.query(theirs(forms[1], config.ngram, config.num_permutations))) == [0, 1]
