"""Linear time: four times the input costs at most some four times as much, never sixteen times."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from typing import Any


def seconds(function: Callable[..., Any], *args: Any) -> float:
    """CPU time of one call, without collections among what other tests left."""
    gc.disable()
    try:
        start = time.process_time()
        function(*args)
        return time.process_time() - start
    finally:
        gc.enable()


def assert_linear(function: Callable[[Any], Any], make: Callable[[int], Any], size: int, slack: float = 0.05) -> float:
    """`function(make(n))` is no worse than linear up to `n = size`. Returns the time at `size`; that and `slack` are in
    seconds of CPU.

    Linear time grows by 4, quadratic time by 16: the bound of 8 bears a factor of two of noise on either side.
    """
    function(make(size // 100))
    for _ in range(5):  # on a busy machine CPU time is not even
        small, large = (seconds(function, make(num)) for num in (size // 4, size))
        if large <= 8 * small + slack:
            return large
    raise AssertionError(f"{small:.3f} s at {size // 4}, {large:.3f} s at {size}")
