"""Compares the two libraries that an export is for with our tokenizer, text by text: ids, and what they decode to.

Compared are documents, and texts that conversions of a vocabulary get wrong, made of its own pieces. What differs is
told by the id of the document and the place of the token, never by its text. Each library opens the folder the way its
users do, and is imported when it is needed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from importlib.util import find_spec
from itertools import chain, islice
from pathlib import Path
from typing import Any, NamedTuple

from corpus.engine.errors import SetupError
from tokenizer.export.convert import counted_apart
from tokenizer.model import CHUNK_CHARACTERS, PROBE, SPACE_MARK, Tokenizer

TOKENIZER_JSON = "tokenizer.json"
CODE_POINTS = 0x110000
SURROGATES = range(0xD800, 0xE000)
PLANE = 1 << 16
HIGH_STEP = 251  # above plane 0 every so many code points
EDGES = ("", " ", "\n", "\r\n", "\0", "  \n\n\t", PROBE, SPACE_MARK, f" {SPACE_MARK} {SPACE_MARK}{SPACE_MARK}a")
GROUP_CHARACTERS = 1 << 20  # compared at once: the libraries hold some 200 bytes a token


class Document(NamedTuple):
    """A text, and what it is called in messages."""

    name: str
    text: str


class Library(NamedTuple):
    """Text to ids and back, many at a time."""

    name: str
    backend: Any  # the library's own object
    encode: Callable[[Sequence[str]], list[list[int]]]
    decode: Callable[[Sequence[Sequence[int]]], list[str]]


def open_tokenizers(folder: Path) -> Library:
    """`tokenizers.Tokenizer.from_file`."""
    from tokenizers import Tokenizer

    backend = Tokenizer.from_file(str(folder / TOKENIZER_JSON))
    return Library(
        f"tokenizers {version('tokenizers')}",
        backend,
        lambda texts: [encoding.ids for encoding in backend.encode_batch_fast(list(texts))],
        backend.decode_batch,
    )


def open_transformers(folder: Path) -> Library:
    """`transformers.AutoTokenizer.from_pretrained`, called with nothing but the folder."""
    from transformers import AutoTokenizer

    backend: Any = AutoTokenizer.from_pretrained(str(folder), local_files_only=True)
    return Library(
        f"transformers {version('transformers')}",
        backend,
        lambda texts: backend(list(texts))["input_ids"] if texts else [],
        lambda ids: [backend.decode(one) for one in ids],
    )


def require() -> None:
    """Raises `SetupError` where a library is missing."""
    missing = [name for name in ("tokenizers", "transformers") if find_spec(name) is None]
    if missing:
        raise SetupError(f"export needs {' and '.join(missing)}. Run: pip install 'wenhai[hf]'")


@dataclass
class Comparison:
    """Of one library with ours."""

    library: str
    num_documents: int = 0
    num_characters: int = 0
    num_tokens: int = 0
    num_other_ids: int = 0  # documents
    num_other_texts: int = 0
    first: str | None = field(default=None)  # where the first difference is

    @property
    def is_equal(self) -> bool:
        """Whether nothing differs."""
        return self.first is None


def compare(tokenizer: Tokenizer, libraries: Sequence[Library], documents: Iterable[Document]) -> list[Comparison]:
    """Every document by every library, a million characters at a time."""
    found = [Comparison(library.name) for library in libraries]
    for group in _groups(documents):
        texts = [document.text for document in group]
        expected = [ids.tolist() for ids in tokenizer.encode_batch(texts)]
        for library, comparison in zip(libraries, found, strict=True):
            for document, ours, theirs, text in zip(
                group, expected, library.encode(texts), library.decode(expected), strict=True
            ):
                _add(comparison, document, ours, theirs, text)
    return found


def _add(comparison: Comparison, document: Document, ours: list[int], theirs: list[int], text: str) -> None:
    comparison.num_documents += 1
    comparison.num_characters += len(document.text)
    comparison.num_tokens += len(ours)
    if ours != theirs:
        comparison.num_other_ids += 1
        place = first_difference(ours, theirs)
        comparison.first = comparison.first or f"{document.name}, token {place:,} of {len(ours):,}"
    if text != document.text:
        comparison.num_other_texts += 1
        place = first_difference(document.text, text)
        comparison.first = (
            comparison.first or f"{document.name}, decoded, character {place:,} of {len(document.text):,}"
        )


def first_difference(one: Sequence[object], other: Sequence[object]) -> int:
    """The first place at which two sequences differ, from 0; the shorter's length where it begins the other."""
    return next(
        (place for place, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other))
    )


def _groups(documents: Iterable[Document]) -> Iterator[list[Document]]:
    group: list[Document] = []
    total = 0
    for document in documents:
        if group and total + len(document.text) > GROUP_CHARACTERS:
            yield group
            group, total = [], 0
        group.append(document)
        total += len(document.text)
    if group:
        yield group


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
