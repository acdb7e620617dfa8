"""Libraries that are slow to import: a test module that is only collected does not wait for them."""

from __future__ import annotations

from importlib import import_module
from typing import Any


class Lazy:
    """A module that is imported where one of its names is first used."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        return getattr(import_module(self._name), name)
