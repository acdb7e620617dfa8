"""The two libraries that an export is for, opened from its folder the way their users do. Both are imported when
needed."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol

from corpus.engine.errors import SetupError

TOKENIZER_JSON = "tokenizer.json"


class Library(Protocol):
    """Text to ids and back, many at a time."""

    name: str

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """The ids of each text."""

    def decode(self, ids: Sequence[Sequence[int]]) -> list[str]:
        """The text of each list of ids."""


class Tokenizers:
    """`tokenizers.Tokenizer.from_file`."""

    def __init__(self, folder: Path) -> None:
        from tokenizers import Tokenizer

        self.name = f"tokenizers {version('tokenizers')}"
        self.backend = Tokenizer.from_file(str(folder / TOKENIZER_JSON))

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        return [encoding.ids for encoding in self.backend.encode_batch_fast(list(texts))]

    def decode(self, ids: Sequence[Sequence[int]]) -> list[str]:
        texts: list[str] = self.backend.decode_batch(ids)
        return texts


class Transformers:
    """`transformers.AutoTokenizer.from_pretrained`, called with nothing but the folder."""

    def __init__(self, folder: Path) -> None:
        from transformers import AutoTokenizer

        self.name = f"transformers {version('transformers')}"
        self.backend: Any = AutoTokenizer.from_pretrained(str(folder), local_files_only=True)

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        ids: list[list[int]] = self.backend(list(texts))["input_ids"] if texts else []
        return ids

    def decode(self, ids: Sequence[Sequence[int]]) -> list[str]:
        return [self.backend.decode(one) for one in ids]


def require() -> None:
    """Raises `SetupError` where a library is missing."""
    missing = [name for name in ("tokenizers", "transformers") if find_spec(name) is None]
    if missing:
        raise SetupError(f"export needs {' and '.join(missing)}. Run: pip install 'wenhai[hf]'")
