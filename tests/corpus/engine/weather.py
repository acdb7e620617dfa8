"""`weather://` in this process, and what its requests were."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from corpus.engine import retries
from tools.weather import faults
from tools.weather.faults import Weather


class Sky:
    """A store whose weather changes as a test wants."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch) -> None:
        self.folder = folder / "store"
        self._patch = patch
        self.becomes()

    def becomes(self, **settings: Any) -> Weather:
        """Other weather from now on; what was counted is forgotten."""
        number = len(list(self.folder.parent.glob("log-*")))
        weather = Weather(root=str(self.folder), log=str(self.folder.parent / f"log-{number}"), **settings)
        Path(weather.log).mkdir()
        for name, value in faults.environment(weather, self.folder.parent).items():
            self._patch.setenv(name, value)
        faults._times.clear()
        retries.take_request_counts()
        return weather

    @property
    def requests(self) -> Counter[str]:
        """How many were made of each kind."""
        return Counter(one.kind for one in self.made)

    @property
    def made(self) -> list[faults.Made]:
        """All since the weather changed."""
        return list(faults.made(faults.weather().log))


@contextmanager
def open_sky(folder: Path, *, pauses: bool = False) -> Iterator[Sky]:
    """A store without objects and without faults; without `pauses` requests are repeated at once."""
    for needed in ("fsspec", "s3fs"):
        pytest.importorskip(needed)
    import fsspec

    from tools.weather.filesystem import WeatherFileSystem

    fsspec.register_implementation("weather", WeatherFileSystem, clobber=True)
    with pytest.MonkeyPatch.context() as patch:
        if not pauses:
            patch.setattr(retries, "_pause", lambda seconds: None)
        patch.setattr(retries, "_has_answered", True)
        yield Sky(folder, patch)
