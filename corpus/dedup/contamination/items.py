"""Evaluation files: the strings that are looked for, and what fates call them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any

from corpus.engine.errors import WenhaiError
from corpus.engine.storage import File, open_stream
from corpus.safe import snippet

MAX_LINE_BYTES = 16 << 20
NAME_PARTS = 2  # of a file's path in an item's name: tnews/test_public.json
SHOWN_CHARS = 60
_LINK = re.compile(r"(?ai)(?:\b[a-z][a-z0-9+.-]*://|\bwww\.|\b[a-z0-9][a-z0-9.-]{0,250}\.[a-z]{2,63}/)[!-~]*")
_LETTER = re.compile(r"[^\W\d_]")


def short_name(url: str) -> str:
    """What an item's name calls its file, wherever it lies.

    >>> short_name("s3://bucket/fewclue/tnews/test_public.json")
    'tnews/test_public.json'
    """
    return "/".join(url.rsplit("/", NAME_PARTS)[-NAME_PARTS:])


def read_items(file: File, ngram: int) -> Iterator[tuple[str, str]]:
    """Yield (name, text) of every string of a file: JSON lines, or any other text by lines.

    A string that is links, or digits and punctuation, would find every page that has the same link, so its text is
    empty here; a line of nothing else is a mistake.

    Raises:
        WenhaiError: a line of a `.json` or `.jsonl` file is no JSON, or too long, or one says nothing; line and file
            are named.
    """
    base = short_name(file.url)
    is_json = base.endswith((".json", ".jsonl"))
    with open_stream(file.url) as stream:
        for number, line in enumerate(iter(lambda: stream.readline(MAX_LINE_BYTES + 1), b""), 1):
            if len(line) > MAX_LINE_BYTES:
                raise WenhaiError(
                    f"{file.url}: line {number} is longer than {MAX_LINE_BYTES:,} bytes. Give one item a line."
                )
            text = line.decode("utf-8", "replace")
            if not is_json:
                yield from _saying([(f"{base} line {number}", text)], ngram, f"{file.url}:{number}")
                continue
            try:
                value = json.loads(text) if text.strip() else {}
            except (ValueError, RecursionError) as error:
                raise WenhaiError(f"{file.url}: line {number} is not JSON. Give one JSON object a line.") from error
            key = next((value[key] for key in ("id", "idx") if key in value), None) if isinstance(value, dict) else None
            name = f"{base} line {number}" if key is None else f"{base} id {str(key)[:40]}"
            parts = [(f"{name} {place}".strip(), part) for place, part in _strings(value)]
            yield from _saying(parts, ngram, f"{file.url}:{number}")


def _saying(parts: Sequence[tuple[str, str]], ngram: int, where: str) -> Iterator[tuple[str, str]]:
    """The strings of a line, empty ones for those that say nothing; refuses a line in which none does."""
    silent = [_says_nothing(text, ngram) for _, text in parts]
    if any(silent) and all(empty or not text.strip() for (_, text), empty in zip(parts, silent, strict=True)):
        shown = snippet(parts[silent.index(True)][1].strip(), SHOWN_CHARS)
        raise WenhaiError(
            f"{where}: is links, or digits and punctuation, only ({shown}). Every "
            "document with that link would count as contaminated: take the line out, or give the item's own text."
        )
    yield from ((name, "" if empty else text) for (name, text), empty in zip(parts, silent, strict=True))


def _says_nothing(text: str, ngram: int) -> bool:
    """Whether a string is long enough to be looked for, but what is left without its links is not, or has no letter.

    >>> [_says_nothing(text, 10) for text in ("https://a.example/b.html", "12345-67890", "短句", "见 a.example/b 学而时习之")]
    [True, True, False, True]
    """
    rest = _LINK.sub(" ", text)
    if rest == text and _LETTER.search(text):
        return False
    if sum(map(str.isalnum, text)) < ngram:
        return False  # counted as too short
    return sum(map(str.isalnum, rest)) < ngram or not _LETTER.search(rest)


def _strings(value: Any, place: str = "") -> Iterator[tuple[str, str]]:
    if isinstance(value, str):
        yield place, value
    elif isinstance(value, dict):
        for key, part in value.items():
            yield from _strings(part, f"{place}.{key}".lstrip("."))
    elif isinstance(value, list):
        for part in value:
            yield from _strings(part, place)
