"""The decorator of every kernel: numba, compiled once, GIL released, cached in a private folder.

numba's cache files are pickles, so they live where only this user can write (mode 0700), never in a shared folder and
never beside the sources. No `fastmath`: a kernel's result must not depend on the machine it was compiled on.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, TypeVar

from corpus.engine.durable import private_cache

Function = TypeVar("Function", bound=Callable[..., Any])


os.environ.setdefault("NUMBA_CACHE_DIR", str(private_cache() / "numba"))
import numba  # noqa: E402  (reads NUMBA_CACHE_DIR when it is imported)


def kernel(signature: str | None = None) -> Callable[[Function], Function]:
    """Compile a function over arrays: `@kernel()` on first call, or `@kernel("types")` when it is imported."""
    decorator: Any = numba.njit(signature, nogil=True, cache=True)
    return decorator  # type: ignore[no-any-return]
