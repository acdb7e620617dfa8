"""Prompts from files: a JSON object with `prompt` in each line, or a line of text each."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from corpus.engine.errors import UsageError

MAX_LINE_BYTES = 16 << 20
BYTE_ORDER_MARK = b"\xef\xbb\xbf"


def read_prompts(path: Path) -> Iterator[str]:
    """The prompts of a .jsonl or .txt file, one after the other. Lines without text are none; a JSON prompt may be
    empty.

    Raises:
        UsageError: the file cannot be read or is named otherwise, or a line is wrong; its number is named.
    """
    if path.suffix not in (".jsonl", ".txt"):
        raise UsageError(
            f"{path}: name it .jsonl (an object with `prompt` in each line) or .txt (a prompt in each line)"
        )
    try:
        with open(path, "rb") as file:
            number = 0
            while line := file.readline(MAX_LINE_BYTES + 1):
                number += 1
                if len(line) > MAX_LINE_BYTES:
                    raise UsageError(f"{path}:{number}: longer than {MAX_LINE_BYTES:,} bytes; this is no prompt")
                if number == 1:
                    line = line.removeprefix(BYTE_ORDER_MARK)
                if line.strip():
                    yield _prompt(line.rstrip(b"\r\n"), path, number)
    except OSError as error:
        raise UsageError(f"{path}: cannot be read ({error.strerror})") from error


def _prompt(line: bytes, path: Path, number: int) -> str:
    try:
        text = line.decode()
        value = json.loads(text) if path.suffix == ".jsonl" else {"prompt": text}
        prompt = value.get("prompt") if isinstance(value, dict) else None
        if not isinstance(prompt, str):
            raise ValueError('no object with a text under "prompt"')
        prompt.encode()  # JSON can spell lone surrogates
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path}:{number}: {error}. Mend the line or take it out") from error
    return prompt
