"""Functions of installed packages as rules, by the entry-point group `wenhai.filters`, where somebody allows it.

A recipe only names an entry point, so a recipe alone runs nothing: it takes a package that was installed, and
`--allow-code` (`allow_code=True` in Python) of the one who runs it. A function takes a `pa.Table` of `text` and `url`
and returns a bool or a float64 a document; the range decides, True is 1. Version and file are in the fingerprint.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable
from contextlib import redirect_stdout
from functools import lru_cache
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from corpus.engine.errors import UsageError, WenhaiError
from corpus.filters.statistic import Floats
from corpus.safe import snippet

GROUP = "wenhai.filters"


class Function(NamedTuple):
    """An entry point's function, and what tells this version of it from others."""

    call: Callable[[pa.Table], Any]
    digest: str  # distribution, version, sha256 of the module's file


@lru_cache(maxsize=16)
def load_function(name: str) -> Function:
    """Import the function of an entry point and try it on two texts.

    Raises:
        UsageError: there is none, several, or it cannot be loaded.
        WenhaiError: it raises, or returns something else than a number a document.
    """
    found = entry_points(group=GROUP)
    if len(chosen := list(found.select(name=name))) != 1:
        known = ", ".join(sorted(found.names)) or "none"
        raise UsageError(f"{name}: {len(chosen)} entry points of {GROUP} have this name; installed: {known}.")
    try:
        with redirect_stdout(sys.stderr):  # stdout is data
            call = chosen[0].load()
        content = Path(str(sys.modules[chosen[0].module].__file__)).read_bytes()
    except (Exception, SystemExit) as error:
        raise UsageError(
            f"{name}: {chosen[0].value} cannot be loaded ({type(error).__name__}: {error}). Mend or install it."
        ) from error
    run(call, name, pa.array(["学而时习之", ""], pa.large_string()), None)
    version = f"{chosen[0].dist.name} {chosen[0].dist.version}" if chosen[0].dist else ""
    return Function(call, f"{version} {hashlib.sha256(content).hexdigest()}")


def run(call: Callable[[pa.Table], Any], where: str, texts: pa.LargeStringArray, urls: pa.StringArray | None) -> Floats:
    """float64[documents]: what a function returns for a batch.

    Raises:
        WenhaiError: it raises, or returns something else; no document of the batch has an end then.
    """
    urls = urls if urls is not None else pa.nulls(len(texts), pa.string())
    try:
        with redirect_stdout(sys.stderr):
            values = np.asarray(call(pa.table({"text": texts, "url": urls})))
    except (Exception, SystemExit) as error:
        reason = snippet(f"{type(error).__name__}: {error}")
        raise WenhaiError(f"{where} raised {reason}. Mend it and run the same command again.") from error
    if values.shape != (len(texts),) or values.dtype not in (np.bool_, np.float64):
        raise WenhaiError(
            f"{where} returned {values.dtype}{list(values.shape)} for {len(texts)} documents. "
            "It must return a bool or a float64 for each."
        )
    values = values.astype(np.float64)
    return np.where(np.isfinite(values), values, np.nan)
