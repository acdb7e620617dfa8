"""Compares another library with our tokenizer, document by document: ids, and the text they decode to.

What differs is told by the id of the document and the place of the token, never by its text.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from tokenizer.export.libraries import Library
from tokenizer.model import Tokenizer

GROUP_CHARACTERS = 1 << 20  # compared at once: the libraries hold some 200 bytes a token


class Document(NamedTuple):
    """A text, and what it is called in messages."""

    name: str
    text: str


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
