"""Doctests are looked for only where there are some: a module without any is not imported to find none in it."""

from __future__ import annotations

import gc
from pathlib import Path

import pytest
from _pytest.doctest import DoctestModule


@pytest.hookimpl(wrapper=True)
def pytest_collect_file(file_path: Path) -> object:
    collectors = yield
    if file_path.suffix != ".py" or b">>>" in file_path.read_bytes():
        return collectors
    return [collector for collector in collectors if not isinstance(collector, DoctestModule)]


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> object:
    """What is collected stays to the end: no collector of garbage looks through it, now or later."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()
