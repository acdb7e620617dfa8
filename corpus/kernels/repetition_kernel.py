"""Repeated n-grams and entropy of each document without its white space: exact, in a few passes.

An n-gram is named by the position it was first seen at, and a position whose n-gram was seen earlier *follows* it. Only
followers can follow at the next length, and most of those need no table: where the first occurrence goes on with the
same character, the name stays. The rest are looked up by (name, next character) in an open hash table whose 64-bit
slots hold the whole key and the position, so nothing is compared by hash and no collision changes a number.

A third of the lookups of natural text go either way, and a branch on them costs more than the memory: the loops write
their result always and advance by 0 or 1. Plain tables for each length, or the same names with branches, were slower
(`python -m tools.bench filters` times it).
"""

from __future__ import annotations

import numpy as np

from corpus.engine.compiled import kernel
from corpus.kernels.code_points import Array, code_point_class, decode, slots_for
from corpus.kernels.tables import CLASS_MASK, NEWLINE, WHITESPACE

POSITION_BITS = 20
MAX_REPETITION_CHARS = 1 << POSITION_BITS  # repetition is measured on this much of a document: 50 MB of scratch

# Columns of `measure_repetition`.
REPETITION_CHARS = 0
TOP_2_GRAM = 1  # then 3, 4
SEEN_5_GRAM = 4  # then 6, 7, 8, 9, 10
NUM_REPETITION_COLUMNS = 10
MIN_TOP, MAX_TOP = 2, 4
MIN_SEEN, MAX_SEEN = 5, 10

# A slot: generation (4 bits; another one's slots are empty) | name | next character | position, 20 bits each.
NAME_SHIFT = 2 * POSITION_BITS
GENERATION_SHIFT = 3 * POSITION_BITS
LAST_GENERATION = 15
ONE_POSITION = 1 << POSITION_BITS
FIBONACCI = 0x9E3779B97F4A7C15  # 2^64 / golden ratio
NUM_LOGARITHMS = 4096


@kernel()
def measure_repetition(offsets: Array, data: Array, table: Array, out: Array, entropy: Array) -> None:
    """Repeated n-grams of each document without its white space.

    `out`, int64[documents, NUM_REPETITION_COLUMNS]: the characters looked at; the occurrences of the most frequent
    2-, 3- and 4-gram that occurs twice or more (0 without one); the characters covered by a 5- ... 10-gram that
    started earlier in the document. `entropy`, float64[documents]: of single characters, in nats.
    """
    longest = 0
    for row in range(len(offsets) - 1):
        longest = max(longest, offsets[row + 1] - offsets[row])
    size = min(longest, MAX_REPETITION_CHARS) + 1
    ids = np.empty(size, np.uint32)  # of the character at each position, in order of first appearance
    names = np.empty(size, np.uint32)
    follows = np.empty(size, np.uint8)
    followers = np.empty(size, np.uint32)  # positions, ascending
    unsure = np.empty(size, np.uint32)  # followers whose first occurrence goes on otherwise
    counts = np.empty(size, np.uint32)  # by id
    first_position = np.empty(size, np.uint32)  # by id
    occurrences = np.empty(size, np.uint32)  # by name, the first one not counted
    slots = np.zeros(slots_for(size), np.uint64)
    id_of = np.zeros(0x110000, np.uint32)
    logarithms = np.empty(NUM_LOGARITHMS, np.float64)  # n ln n
    for k in range(NUM_LOGARITHMS):
        logarithms[k] = k * np.log(np.float64(max(k, 1)))
    base = np.uint32(1)  # an id below it belongs to an earlier document
    generation = np.uint64(0)
    used_slots = 0  # by the generations since all were emptied
    for row in range(len(offsets) - 1):
        i = offsets[row]
        end = offsets[row + 1]
        if np.int64(base) + size >= 0xFFFFFFFF:
            id_of[:] = 0
            base = np.uint32(1)
        n = distinct = 0
        while i < end and n < MAX_REPETITION_CHARS:
            byte = data[i]
            if 0xE4 <= byte <= 0xE9:  # U+4000 to U+9FFF: two thirds of all, and no white space among them
                c = np.uint32(((byte & 0x0F) << 12) | ((data[i + 1] & 0x3F) << 6) | (data[i + 2] & 0x3F))
                i += 3
            else:
                code, i = decode(data, i)
                c = np.uint32(code)
                cls = code_point_class(table, c) & CLASS_MASK
                if cls in (WHITESPACE, NEWLINE):
                    continue
            known = id_of[c]
            is_new = known < base
            known = base + np.uint32(distinct) if is_new else known
            id_of[c] = known
            known -= base
            counts[distinct] = 0  # of the next new character, whether or not it is this one
            first_position[distinct] = n
            distinct += is_new
            ids[n] = known
            names[n] = first_position[known]
            counts[known] += 1
            n += 1
        base += np.uint32(distinct)
        out[row, :] = 0
        out[row, REPETITION_CHARS] = n
        total = 0.0
        for k in range(distinct):
            count = counts[k]
            total += logarithms[count] if count < NUM_LOGARITHMS else count * np.log(np.float64(count))
        entropy[row] = max(0.0, np.log(np.float64(n)) - total / n) if n else 0.0

        num = 0
        for i in range(n - 1):
            followers[num] = i
            num += (names[i] != i) & (counts[ids[i + 1]] > 1)
        for length in range(2, MAX_SEEN + 1):
            if num > 0 and followers[num - 1] + length > n:
                num -= 1
            if num == 0:
                break
            reach = length - 1
            num_unsure = 0
            for k in range(num):
                i = followers[k]
                goes_on = ids[names[i] + reach] == ids[i + reach]
                follows[i] = goes_on
                unsure[num_unsure] = i
                num_unsure += not goes_on

            bits = 4
            while (1 << bits) < 2 * num_unsure:
                bits += 1
            if generation == LAST_GENERATION:
                slots[:used_slots] = 0
                generation = np.uint64(0)
                used_slots = 0
            generation += np.uint64(1)
            used_slots = max(used_slots, 1 << bits)
            shift = np.uint64(64 - bits)
            mask = np.uint64((1 << bits) - 1)
            for k in range(num_unsure):
                i = unsure[k]
                key = (
                    (generation << np.uint64(GENERATION_SHIFT))
                    | (np.uint64(names[i]) << np.uint64(NAME_SHIFT))
                    | (np.uint64(ids[i + reach]) << np.uint64(POSITION_BITS))
                )
                slot = (key * np.uint64(FIBONACCI)) >> shift
                entry = slots[slot]
                while (entry ^ key) >= np.uint64(ONE_POSITION) and (entry >> np.uint64(GENERATION_SHIFT)) == generation:
                    slot = (slot + np.uint64(1)) & mask
                    entry = slots[slot]
                found = (entry ^ key) < np.uint64(ONE_POSITION)
                entry = entry if found else key | np.uint64(i)
                slots[slot] = entry
                names[i] = np.uint32(entry ^ key)
                follows[i] = found

            left = 0
            if length <= MAX_TOP:
                occurrences[:n] = 0
                top = np.uint32(0)
                for k in range(num):
                    i = followers[k]
                    followers[left] = i
                    left += follows[i]
                    count = occurrences[names[i]] + np.uint32(follows[i])
                    occurrences[names[i]] = count
                    top = max(top, count)
                out[row, TOP_2_GRAM + length - MIN_TOP] = top + 1 if top > 0 else 0
            else:
                covered = covered_to = 0
                for k in range(num):
                    i = followers[k]
                    followers[left] = i
                    left += follows[i]
                    if follows[i]:
                        covered += i + length - max(i, covered_to)
                        covered_to = i + length
                out[row, SEEN_5_GRAM + length - MIN_SEEN] = covered
            num = left
