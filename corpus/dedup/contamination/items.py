"""Evaluation files: the strings that are looked for, and what fates call them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from corpus.engine.errors import WenhaiError
from corpus.engine.storage import File, open_stream

MAX_LINE_BYTES = 16 << 20
NAME_PARTS = 2  # of a file's path in an item's name: tnews/test_public.json


def short_name(url: str) -> str:
    """What an item's name calls its file, wherever it lies.

    >>> short_name("s3://bucket/fewclue/tnews/test_public.json")
    'tnews/test_public.json'
    """
    return "/".join(url.rsplit("/", NAME_PARTS)[-NAME_PARTS:])


def read_items(file: File) -> Iterator[tuple[str, str]]:
    """Yield (name, text) of every string of a file: JSON lines, or any other text by lines.

    Raises:
        WenhaiError: a line of a `.json` or `.jsonl` file is no JSON, or too long; line and file are named.
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
                yield f"{base} line {number}", text
                continue
            try:
                value = json.loads(text) if text.strip() else {}
            except (ValueError, RecursionError) as error:
                raise WenhaiError(f"{file.url}: line {number} is not JSON. Give one JSON object a line.") from error
            key = next((value[key] for key in ("id", "idx") if key in value), None) if isinstance(value, dict) else None
            name = f"{base} line {number}" if key is None else f"{base} id {str(key)[:40]}"
            yield from ((f"{name} {place}".strip(), part) for place, part in _strings(value))


def _strings(value: Any, place: str = "") -> Iterator[tuple[str, str]]:
    if isinstance(value, str):
        yield place, value
    elif isinstance(value, dict):
        for key, part in value.items():
            yield from _strings(part, f"{place}.{key}".lstrip("."))
    elif isinstance(value, list):
        for part in value:
            yield from _strings(part, place)
