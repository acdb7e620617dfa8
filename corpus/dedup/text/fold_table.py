"""The table that folding looks up: for each code point, the one it is hashed as. For hashing only, text never changes.

Compatibility and full-width forms become their NFKC character, letters lower case without accents, Traditional and
Taiwan/Hong Kong variant characters Simplified (OpenCC's character tables); white space, punctuation, controls and
decoration are skipped. Han, letters, digits, currency and mathematical signs stay. A text of punctuation alone folds to
nothing; its exact key then falls back to its raw bytes.

Trade-off: a table of single characters sees no phrases (支援, as Taiwan says 支持, stays another word) and never expands
one character into several (㎏ stays), but a character costs one lookup. It is built once a process. It depends on the
Unicode and OpenCC versions, so its digest is part of the `signatures` stage's configuration.
"""

from __future__ import annotations

import unicodedata
from functools import lru_cache

import numpy as np
import numpy.typing as npt
import opencc
import xxhash

Codes = npt.NDArray[np.uint32]

NUM_CODE_POINTS = 0x110000
SKIP = 0  # the table's value for a code point that is not hashed

# Where NFKC, case or category can change a code point: Han, Hangul and private use, most of Unicode, are left out.
FOLDED_RANGES = (
    (0x0000, 0x3400),
    (0xA000, 0xAC00),
    (0xF900, 0x12000),
    (0x16E00, 0x17000),
    (0x1D400, 0x1D800),
    (0x1E900, 0x20000),
    (0x2F800, 0x2FA20),
    (0xE0000, 0xE01F0),
)
HAN_RANGES = ((0x2E80, 0x3000), (0x3400, 0xA000), (0xF900, 0xFB00), (0x20000, 0x323B0))
SKIPPED_CATEGORIES = frozenset(["Zs", "Zl", "Zp", "Cc", "Cf", "Pc", "Pd", "Ps", "Pe", "Pi", "Pf", "Po", "Sk"])
ACCENTS = ((0x0300, 0x0370), (0x3099, 0x309B))  # combining accents and kana voicing marks
SKIPPED_RANGES = (
    *ACCENTS,
    (0x2500, 0x2600),  # box drawing, blocks, geometric shapes
    (0xFF9E, 0xFFA0),  # half-width voicing marks
    (0xFE00, 0xFE10),  # variation selectors
    (0xE0100, 0xE01F0),
)
SKIPPED_SIGNS = "~|"  # mathematical signs by category, punctuation in Chinese use (also as ～ and ｜)
# Characters that conversion phrase by phrase exchanges (了解 and 瞭解) and character by character does not: each pair
# was left over between passages and their OpenCC twins in `python -m tools.evaluate.dedup`, most frequent first.
EXCHANGED = "馀余 瞭了 覆复 藉借 锺钟 迳径 甦苏 象像 暱昵 彷仿 伕夫 揹背 俱具 谘咨 钜巨 座坐 甯宁 讬托 颚腭".split()
OPENCC_CHAIN = ("t2s", "tw2s", "hk2s")  # the later two add a dozen regional variants: 著 -> 着, 衞 -> 卫


@lru_cache(maxsize=1)
def fold_table() -> Codes:
    """Return uint32[0x110000]: the code point that each one is hashed as, or `SKIP`."""
    table = np.arange(NUM_CODE_POINTS, dtype=np.uint32)
    for source, target in _simplified():
        table[source] = target
    for pair in EXCHANGED:
        table[table == ord(pair[0])] = ord(pair[1])
    simplified = table.copy()
    for low, high in FOLDED_RANGES:
        for code in range(low, high):
            table[code] = _fold_form(code, simplified)
    table.setflags(write=False)
    return table


@lru_cache(maxsize=1)
def fold_digest() -> str:
    """Return the table's digest in hex."""
    return xxhash.xxh3_128_hexdigest(fold_table().astype("<u4").tobytes())


def _simplified() -> list[tuple[int, int]]:
    """(Traditional or variant, Simplified) code points, by running every Han character through OpenCC's tables."""
    sources = [chr(code) for low, high in HAN_RANGES for code in range(low, high)]
    targets = sources
    converters = [opencc.OpenCC(name) for name in OPENCC_CHAIN]
    for _ in range(2):  # a second round: 薴 -> 苧 -> 苎
        for converter in converters:
            targets = converter.convert("\n".join(targets)).split("\n")
    if len(targets) != len(sources) or any(len(target) != 1 for target in targets):
        raise AssertionError("OpenCC's character tables no longer map one character to one character")
    return [(ord(a), ord(b)) for a, b in zip(sources, targets, strict=True) if a != b]


def _fold_form(code: int, simplified: Codes) -> int:
    """Compatibility form, no accents, lower case, Simplified: each step where it gives a single character again."""
    form = chr(code)
    for step in (_bare, str.casefold, _bare):
        candidate = step(form)
        form = candidate if len(candidate) == 1 else form
    if unicodedata.category(form) in SKIPPED_CATEGORIES or form in SKIPPED_SIGNS or _within(form, SKIPPED_RANGES):
        return SKIP
    return int(simplified[ord(form)])


def _bare(character: str) -> str:
    """NFKC without accents: Ａ -> A, é -> e, ガ -> カ."""
    decomposed = unicodedata.normalize("NFKD", character)
    return unicodedata.normalize("NFKC", "".join(mark for mark in decomposed if not _within(mark, ACCENTS)))


def _within(character: str, ranges: tuple[tuple[int, int], ...]) -> bool:
    return any(low <= ord(character) < high for low, high in ranges)
