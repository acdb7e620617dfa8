"""One archive for all tests (they only read it), and a server for each."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.corpus.commoncrawl.archive import Archive, make_archive
from tests.corpus.commoncrawl.server import Server, serving


@pytest.fixture(scope="session")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Archive:
    return make_archive(tmp_path_factory.mktemp("archive"))


@pytest.fixture
def server(archive: Archive) -> Iterator[Server]:
    with serving(archive.folder) as one:
        yield one


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "out"
