"""Texts that conversions of a vocabulary get wrong, made of its own pieces; every export is compared on them, too."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain, islice

from tokenizer.export.convert import counted_apart
from tokenizer.export.proof import Document
from tokenizer.model import CHUNK_CHARACTERS, PROBE, SPACE_MARK, Tokenizer

CODE_POINTS = 0x110000
SURROGATES = range(0xD800, 0xE000)
PLANE = 1 << 16
HIGH_STEP = 251  # above plane 0 every so many code points
EDGES = ("", " ", "\n", "\r\n", "\0", "  \n\n\t", PROBE, SPACE_MARK, f" {SPACE_MARK} {SPACE_MARK}{SPACE_MARK}a")


def trial_documents(tokenizer: Tokenizer) -> Iterator[Document]:
    """Names of ids, every character of plane 0, all pieces, runs of each, pieces that overlap themselves, long
    lines."""
    ids = range(tokenizer.vocab_size)
    names = [tokenizer.piece(id) for id in ids if tokenizer.is_control(id) or tokenizer.is_byte(id)]
    pieces = [tokenizer.piece_bytes(id).decode() for id in ids if not tokenizer.is_byte(id)]
    pieces = [piece for piece in pieces if piece]
    excluded = {"\n"}.union(*counted_apart(tokenizer))
    kinds: dict[str, Iterable[str]] = {
        "edge": EDGES,
        "character": _characters(),
        "name": [*names, "".join(names), " ".join(names), *(f"学{name}{name} a" for name in names)],
        "piece": [*pieces, "".join(pieces), "".join(reversed(pieces)), " ".join(pieces), "，".join(pieces)],
        "run": (piece * count for piece in pieces for count in (2, 3, 5)),
        "overlap": _overlaps(pieces),
        "long": _long_texts([piece for piece in pieces if not excluded & {*piece}]),
    }
    for kind, texts in kinds.items():
        for number, text in enumerate(texts):
            yield Document(f"trial text {kind} {number}", text)


def _characters() -> Iterator[str]:
    yield "".join(chr(c) for c in range(PLANE) if c not in SURROGATES)
    yield "".join(map(chr, range(PLANE, CODE_POINTS, HIGH_STEP)))


def _overlaps(pieces: Iterable[str]) -> Iterator[str]:
    """Each piece that begins as it ends, laid over itself: 哈哈 gives 哈哈哈哈哈."""
    for piece in pieces:
        for size in range(1, len(piece)):
            if piece.endswith(piece[:size]):
                yield piece + piece[size:] * 3


def _long_texts(pieces: list[str]) -> Iterator[str]:
    """Lines of 65,536 characters and more or less, of all pieces and of blanks."""
    line = "".join(islice(chain(pieces, reversed(pieces)), CHUNK_CHARACTERS))
    line = (line * (CHUNK_CHARACTERS // len(line) + 1))[:CHUNK_CHARACTERS]
    yield f"{line[1:]}\n{line}\n{line}{line[:7]}"
    yield line[-1] + line
    yield " " * (CHUNK_CHARACTERS + 1)
