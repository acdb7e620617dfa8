"""The decorator of every kernel: numba, compiled once, GIL released, cached in a private folder.

numba's cache files are pickles, so they live where only this user can write (mode 0700), never in a shared folder and
never beside the sources. No `fastmath`: a kernel's result must not depend on the machine it was compiled on.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from corpus.engine.errors import WenhaiError

Function = TypeVar("Function", bound=Callable[..., Any])


def private_cache() -> Path:
    """The folder of our own compiled code: `$XDG_CACHE_HOME/wenhai`, mode 0700, owned by this user."""
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = base / "wenhai"
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    status = folder.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid():
        raise WenhaiError(f"{folder}: not a folder of this user. Set XDG_CACHE_HOME to a private folder.")
    if status.st_mode & 0o077:
        folder.chmod(0o700)
    return folder


os.environ.setdefault("NUMBA_CACHE_DIR", str(private_cache() / "numba"))
import numba  # noqa: E402  (reads NUMBA_CACHE_DIR when it is imported)


def kernel(signature: str | None = None) -> Callable[[Function], Function]:
    """Compile a function over arrays: `@kernel()` on first call, or `@kernel("types")` when it is imported."""
    decorator: Any = numba.njit(signature, nogil=True, cache=True)
    return decorator  # type: ignore[no-any-return]
