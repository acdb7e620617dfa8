"""The mixture of a build: how often each document of a text shard is taken, as its stage `mixture` wrote it.

`copies/S.parquet` has a row a document of `data/S.parquet` of the stage `text`, in its order, with the id (binary(16))
and the copies (uint8).
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from corpus.engine import storage
from corpus.engine.errors import WenhaiError
from corpus.engine.storage import File
from tokenizer.documents import damaged


class Copies:
    """The copies of one shard's documents, asked for in its order."""

    def __init__(self, file: File) -> None:
        path = storage.fetch(file.url)
        try:
            table = pq.read_table(path, columns=["id", "copies"], use_threads=False, page_checksum_verification=True)
        except (OSError, KeyError, pa.ArrowException) as error:
            raise damaged(path, error) from error
        self._url = file.url
        self._ids: list[bytes] = table["id"].to_pylist()
        self._copies: NDArray[np.uint8] = table["copies"].to_numpy()
        self._next = 0

    def take(self, ids: list[bytes]) -> NDArray[np.uint8]:
        """uint8[ids]: the copies of the next documents.

        Raises:
            WenhaiError: the next documents are others.
        """
        first, self._next = self._next, self._next + len(ids)
        if self._ids[first : self._next] != ids:
            raise self._foreign()
        return self._copies[first : self._next]

    def end(self) -> None:
        """Raises `WenhaiError` when documents are left that were not asked for."""
        if self._next != len(self._ids):
            raise self._foreign()

    def _foreign(self) -> WenhaiError:
        return WenhaiError(
            f"{self._url}: is the mixture of another text shard. Remove its stage folder and run `python -m corpus run` "
            "again."
        )
