"""Standard input, read whole up to a bound."""

from __future__ import annotations

import sys

from corpus.engine.errors import UsageError

MAX_BYTES = 64 << 20


def read_stdin() -> bytes:
    """What is on standard input; raises `UsageError` beyond `MAX_BYTES`."""
    data = sys.stdin.buffer.read(MAX_BYTES + 1)
    if len(data) > MAX_BYTES:
        raise UsageError(f"standard input: more than {MAX_BYTES:,} bytes. Encode files with `run --text`.")
    return data
