"""Ranks that were kept for the next test end with the file."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.pretrain.ranks import end_reused_ranks


@pytest.fixture(autouse=True, scope="module")
def _reused_ranks_end() -> Iterator[None]:
    yield
    end_reused_ranks()
