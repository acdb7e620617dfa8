"""A trie over characters as a double array (Aoe 1989): one addition and one comparison a step, 16 bytes a node.

Characters are numbered from 1 up by how many strings hold them, so that the children of a node lie close together. A
node is a slot; its child by character number c is slot `base + c`, if that slot's `check` is this base: no two nodes
have the same base. The first step needs no check: the slot of a string's first character is the character's own number.

A code point that is in no string has number 0. A text of numbers ends with a 0 or a negative number, which no step
takes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from corpus.engine.compiled import kernel
from tokenizer.kernels.lexicon import UnsupportedError

Array = NDArray[Any]

CODE_POINTS = 0x110000
MAX_SLOTS = 1 << 25  # 512 MB; strings that share their beginnings as those of a vocabulary do fill nearly all slots
MAX_TRIES = 1 << 30  # of slots for a base: some seconds
CHECK, BASE, VALUE, WEIGHT = range(4)  # columns of a node


class Trie(NamedTuple):
    """Strings as arrays; `nodes` and `weights` are two views of the same memory, (slots, 4)."""

    numbers: NDArray[np.int32]  # by code point
    nodes: NDArray[np.int32]  # check, base (0: no child), and the value of the string that ends here (-1: none does)
    weights: NDArray[np.float32]  # the last column is that string's weight, -inf where there is none


def build(strings: Mapping[str, tuple[int, float]]) -> Trie:
    """The trie of strings, none empty, with a value (0 and above) and a weight each.

    Raises:
        UnsupportedError: they were made to take more memory or time than any vocabulary does.
    """
    counts = Counter(character for string in strings for character in set(string))
    ranked = sorted(counts, key=lambda character: (-counts[character], character))
    numbers = np.zeros(CODE_POINTS, np.int32)
    numbers[[ord(character) for character in ranked]] = np.arange(1, len(ranked) + 1)
    number_of = {character: number for number, character in enumerate(ranked, 1)}
    nodes = [dict[int, int]() for _ in range(len(ranked) + 1)]  # children by number; node 0 is not used
    ends: dict[int, tuple[int, float]] = {}
    for string, end in strings.items():
        node = number_of[string[0]]
        for character in string[1:]:
            node = nodes[node].setdefault(number_of[character], len(nodes))
            if node == len(nodes):
                nodes.append({})
        ends[node] = end
    slots, bases = _place(nodes, len(ranked))
    size = int(bases.max(initial=0)) + len(ranked) + 1
    packed = np.zeros((size, 4), np.int32)
    weights = packed.view(np.float32)
    packed[:, VALUE], weights[:, WEIGHT] = -1, -np.inf
    packed[slots, BASE] = bases
    for node, children in enumerate(nodes):
        packed[slots[list(children.values())], CHECK] = bases[node]
    for node, (value, weight) in ends.items():
        packed[slots[node], VALUE], weights[slots[node], WEIGHT] = value, weight
    return Trie(numbers, packed, weights)


def _place(nodes: list[dict[int, int]], num_characters: int) -> tuple[Array, Array]:
    """Slot and base of each node: those with most children choose first."""
    parents = [node for node, children in enumerate(nodes) if children]
    parents.sort(key=lambda node: -len(nodes[node]))
    starts = np.cumsum([0, *(len(nodes[node]) for node in parents)])
    labels = np.array([number for node in parents for number in sorted(nodes[node])], np.int64)
    capacity = 2 * (len(nodes) + num_characters + 1)
    bases = np.zeros(len(parents), np.int64)
    while True:
        if capacity > MAX_SLOTS:
            raise UnsupportedError(f"its pieces do not fit into a trie of {MAX_SLOTS:,} slots")
        taken, used = np.zeros((2, capacity), np.uint8)
        placed = place(starts, labels, num_characters, taken, used, bases, MAX_TRIES)
        if placed == len(parents):
            break
        if placed < 0:
            raise UnsupportedError("its pieces take too long to put into a trie")
        capacity *= 2
    slots, base_of = np.zeros(len(nodes), np.int64), np.zeros(len(nodes), np.int64)
    slots[1 : num_characters + 1] = np.arange(1, num_characters + 1)
    base_of[parents] = bases
    for node, base in zip(parents, bases.tolist(), strict=True):
        for number, child in nodes[node].items():
            slots[child] = base + number
    return slots, base_of


@kernel(leaf=True)
def place(
    starts: Array, labels: Array, num_characters: int, taken: Array, used: Array, bases: Array, tries: Any
) -> Any:
    """Find a base for each parent, whose labels are sorted; returns how many have one, or -1 after so many tries.

    They are fewer than all where the room of `taken` (by slot) is not enough.

    Parents come by their number of children, most first; among those of equal number each looks from where the one
    before it was placed. So the slots are passed once for each number of children.
    """
    taken[: num_characters + 1] = 1
    lowest, slot = num_characters + 1, num_characters + 1
    for parent in range(len(starts) - 1):
        first, last = starts[parent], starts[parent + 1]
        if parent and last - first != first - starts[parent - 1]:
            while taken[lowest]:
                lowest += 1
            slot = lowest
        while True:
            base = slot - labels[first]
            if base + labels[last - 1] + 1 >= len(taken):
                return parent
            tries -= 1
            if tries < 0:
                return -1
            if base > 0 and not taken[slot] and not used[base]:
                k = first + 1
                while k < last and not taken[base + labels[k]]:
                    k += 1
                tries -= k - first
                if k == last:
                    break
            slot += 1
        bases[parent], used[base] = base, 1
        for k in range(first, last):
            taken[base + labels[k]] = 1
    return len(starts) - 1
