"""The loader written down from its definition, one integer at a time: what every batch is compared with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from hashlib import blake2b
from itertools import pairwise
from math import floor

WORD = 2**64 - 1


@dataclass(frozen=True)
class Row:
    """One sample: T of each but `ends`, which is empty without prefixes."""

    tokens: list[int]
    targets: list[int]
    document_ids: list[int]
    positions: list[int]
    ends: list[int]


def window_of(sample: int, num_windows: int, seed: int, name: str = "") -> int:
    """The window of sample `sample` of a corpus; `name` where it is one of several."""
    epoch, value = divmod(sample, num_windows)
    if num_windows == 1:
        return 0
    message = f"wenhai sample order 1 seed {seed} epoch {epoch}" + (f" corpus {name}" if name else "")
    raw = blake2b(message.encode(), digest_size=64).digest()
    keys = [int.from_bytes(raw[first : first + 8], "little") for first in range(0, 64, 8)]
    num_bits = (num_windows - 1).bit_length()
    low_bits = (num_bits + 1) // 2
    while True:
        low, high = value % 2**low_bits, value >> low_bits
        for turn, key in enumerate(keys):
            if turn % 2 == 0:
                low ^= mixed(high ^ key) % 2**low_bits
            else:
                high ^= mixed(low ^ key) % 2 ** (num_bits - low_bits)
        value = (high << low_bits) + low
        if value < num_windows:
            return value


def mixed(value: int) -> int:
    """splitmix64's finalizer."""
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & WORD
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & WORD
    return value ^ (value >> 31)


def chairmen(shares: Sequence[Fraction], num_places: int) -> list[int]:
    """Tijdeman's rule, place by place: of those released the one that is due first, of equals the first."""
    if len(shares) == 1:
        return [0] * num_places
    bound = 1 - Fraction(1, 2 * len(shares) - 2)
    counts = [0] * len(shares)
    chosen = []
    for place in range(1, num_places + 1):
        released = [c for c, share in enumerate(shares) if counts[c] + 1 - share * place <= bound]
        first = min(released, key=lambda c: (floor((counts[c] + bound) / shares[c]), c))
        counts[first] += 1
        chosen.append(first)
    return chosen


def prefix_length(size: int, sample: int, segment: int, seed: int) -> int:
    """In [0, size)."""
    raw = blake2b(f"wenhai prefix 1 seed {seed}".encode(), digest_size=16).digest()
    first, second = (int.from_bytes(raw[place : place + 8], "little") for place in (0, 8))
    return (mixed(mixed(sample ^ first) ^ segment ^ second) >> 32) * size >> 32


def row_of(window: Sequence[int], eod: int, sample: int, seed: int, document_mask: bool, prefix_lm: bool) -> Row:
    """What a window of T + 1 tokens gives as sample `sample` of the run."""
    size = len(window) - 1
    bounds = [0, *(place + 1 for place in range(size - 1) if window[place] == eod), size]
    documents = list(pairwise(bounds))
    ids = [number for number, (first, stop) in enumerate(documents) for _ in range(first, stop)]
    positions = [place for first, stop in documents for place in range(stop - first)]
    targets, ends = list(window[1:]), []
    if prefix_lm:
        for number, (first, stop) in enumerate(documents if document_mask else [(0, size)]):
            end = first + prefix_length(stop - first, sample, number, seed)
            ends += [end] * (stop - first)
            for place in range(first + 1, end):  # of the targets that a token of this part sees
                targets[place - 1] = -1
    return Row(list(window[:-1]), targets, ids, positions, ends)
