"""Where documents begin and end inside a window of tokens."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Int64Array = NDArray[np.int64]


def document_ids(tokens: Int64Array, eod: int) -> NDArray[np.int32]:
    """Number the documents of each row from 0; the end-of-document token is the last of its document.

    >>> document_ids(np.array([[5, 6, 0, 7, 0, 0, 8]]), eod=0).tolist()
    [[0, 0, 0, 1, 1, 2, 3]]
    """
    ids = np.zeros(tokens.shape, dtype=np.int32)
    np.cumsum(tokens[:, :-1] == eod, axis=1, dtype=np.int32, out=ids[:, 1:])
    return ids
