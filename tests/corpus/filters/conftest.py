"""The filter that most tests judge with."""

from __future__ import annotations

import pytest

from corpus.filters import Filter, load


@pytest.fixture(scope="session")
def web_zh() -> Filter:
    """The filter of the recipe web_zh; it keeps nothing between batches."""
    return load("web_zh")
