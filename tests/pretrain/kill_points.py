"""The named points of a save, at which tests kill it or look at what it has left: before each call of a function."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any
from unittest import mock

from corpus.engine import storage
from pretrain.checkpoint import shards
from pretrain.checkpoint.shards import HostCopies
from pretrain.parallel.base.mesh import World

POINTS: dict[str, tuple[Any, str]] = {
    "copy": (HostCopies, "copy"),
    "agree": (World, "any_of"),
    "make folder": (os, "mkdir"),
    "write": (shards, "_bytes"),  # each tensor, hashed on its way
    "fsync": (os, "fsync"),
    "rename": (os, "replace"),  # of COMMIT.json, too
    "upload": (storage, "upload"),
    "gather": (World, "gather"),
    "look": (storage, "sizes"),  # at what stands in the store
    "put commit": (storage, "put"),
    "unlink": (os, "unlink"),  # retention, commits first; and what was uploaded
    "remove folder": (os, "rmdir"),
    "remove commit": (storage, "remove"),
    "remove objects": (storage, "remove_tree"),
}
ON_DISK = {"agree", "make folder", "write", "fsync", "rename", "gather", "unlink", "remove folder"}
IN_STORE = ON_DISK | {"upload", "look", "put commit", "remove commit", "remove objects"}


def before_each(act: Callable[[str, int], None]) -> ExitStack:
    """While it is entered, `act(point, n)` runs in this process before the n-th step of a save, from 1."""
    num_steps = 0

    def acting(point: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def wrapper(*args: Any, **options: Any) -> Any:
            nonlocal num_steps
            num_steps += 1
            act(point, num_steps)
            return function(*args, **options)

        return wrapper

    stack = ExitStack()
    for point, (owner, name) in POINTS.items():
        stack.enter_context(mock.patch.object(owner, name, acting(point, getattr(owner, name))))
    return stack
