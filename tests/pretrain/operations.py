"""Counts operations of torch by their names, as in c10d::_allgather_base_."""

from __future__ import annotations

from collections import Counter
from typing import Any

from torch.utils._python_dispatch import TorchDispatchMode


class Operations(TorchDispatchMode):
    """Those of a block."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.counts: Counter[str] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.counts[func.name()] += 1
        return func(*args, **(kwargs or {}))

    def since(self, *names: str) -> tuple[int, ...]:
        """How often each of some was called, since the last look."""
        counts = tuple(self.counts[name] for name in names)
        self.counts.clear()
        return counts
