"""The decorator of every kernel: numba, compiled once, GIL released, cached in a private folder.

numba's cache files are pickles, so they live where only this user can write (mode 0700), never in a shared folder and
never beside the sources. No `fastmath`: a kernel's result must not depend on the machine it was compiled on.

numba looks at a kernel's own file to see whether its cached code is stale, but the code also holds what the file
imports: inlined kernels and constants of other modules. So each kernel is cached in a folder named by a digest of its
file and of all modules of ours that it reaches by imports.
"""

from __future__ import annotations

import ast
import atexit
import hashlib
import os
import shutil
import sys
import tempfile
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar

from corpus.engine.durable import private_cache
from corpus.engine.errors import WenhaiError

Function = TypeVar("Function", bound=Callable[..., Any])


def _cache_folder() -> str:
    """$NUMBA_CACHE_DIR, or a private folder; where it cannot be written, one for this process and those it starts."""
    try:
        folder = os.environ.get("NUMBA_CACHE_DIR") or str(private_cache() / "numba")
        os.makedirs(folder, 0o700, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return folder
    except (OSError, RuntimeError, WenhaiError) as error:  # RuntimeError: there is no home
        own = tempfile.mkdtemp(prefix="wenhai-")
        atexit.register(shutil.rmtree, own, ignore_errors=True)
        print(f"wenhai: compiled code is not kept, so each start takes seconds longer: {error}", file=sys.stderr)
        return own


_CACHE = _cache_folder()
os.environ["NUMBA_CACHE_DIR"] = _CACHE
import numba  # noqa: E402  (reads NUMBA_CACHE_DIR when it is imported)


def kernel(signature: str | None = None, *, leaf: bool = False) -> Callable[[Function], Function]:
    """Compile a function over arrays: `@kernel()` on first call, or `@kernel("types")` when it is imported.

    A leaf makes no array and returns none, so numba need not count who holds its arguments. Those counts are atomic:
    they cost more than a short helper itself, and two threads that share a table wait for each other at each.
    """
    options: dict[str, Any] = {"_nrt": False} if leaf else {}

    def decorate(function: Function) -> Function:
        config: Any = numba.config
        config.CACHE_DIR = os.path.join(_CACHE, sources_digest(function.__module__))
        compiled: Any = numba.njit(signature, nogil=True, cache=True, **options)(function)
        return compiled  # type: ignore[no-any-return]

    return decorate


@lru_cache(maxsize=256)
def sources_digest(module: str) -> str:
    """Twelve hex digits over the sources of a module and of all it imports from its own top-level package."""
    digest = hashlib.sha256()
    for name in sorted(_reached(module, set())):
        digest.update(name.encode() + b"\0" + (_source(name) or b"") + b"\0")
    return digest.hexdigest()[:12]


def _reached(module: str, seen: set[str]) -> set[str]:
    if module not in seen and _source(module) is not None:
        seen.add(module)
        for imported in _imports(module):
            _reached(imported, seen)
    return seen


@lru_cache(maxsize=1024)
def _imports(module: str) -> tuple[str, ...]:
    """What a module imports from its own top-level package when it is loaded; what is for type checkers only is not."""
    names: list[str] = []
    for node in ast.parse(_source(module) or b"").body:
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names += [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
    return tuple(name for name in names if name.partition(".")[0] == module.partition(".")[0])


@lru_cache(maxsize=1024)
def _source(module: str) -> bytes | None:
    """The text of a module; None where the name is none (a function) or a package, whose own code is no kernel's."""
    top, *parts = module.split(".")
    for folder in getattr(sys.modules.get(top), "__path__", ()):
        path = Path(folder, *parts).with_suffix(".py")
        if parts and path.is_file():
            return path.read_bytes()
    return None
