"""Components of documents that edges name, against labels spread until nothing changes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpus.dedup.near import components
from corpus.dedup.near.components import Components, unite
from corpus.engine.errors import WenhaiError

DOCUMENTS = 2_000  # more than three blocks of the bitmap
ORDINALS = st.integers(0, DOCUMENTS - 1) | st.sampled_from([0, 63, 64, 511, 512, DOCUMENTS - 1])


@given(pairs=st.lists(st.tuples(ORDINALS, ORDINALS), min_size=1, max_size=60))
def test_a_root_is_the_number_of_the_smallest_document_among_the_marked(
    tmp_path: Path, pairs: list[tuple[int, int]]
) -> None:
    a, b = np.array(pairs).T
    found = Components()
    found.mark(a)
    found.mark(b)
    found.number(tmp_path / "parents")
    unite(found.parents, found.numbers(a), found.numbers(b))
    marked = sorted({end for pair in pairs for end in pair})
    label = {document: document for document in marked}
    for _ in marked:
        for x, y in pairs:
            label[x] = label[y] = min(label[x], label[y])
    assert found.roots(np.array(marked)).tolist() == [marked.index(label[document]) for document in marked]
    assert (tmp_path / "parents").stat().st_size == 4 * len(marked)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(components, "BLOCK_BITS", 192)
        assert found.list_marked(tmp_path / "marked").tolist() == marked


def test_too_many_marked_documents_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(components, "MAX_MARKED", 2)
    found = Components()
    found.mark(np.array([1, 64, 69]))
    with pytest.raises(WenhaiError, match="3 documents"):
        found.number(tmp_path / "parents")
