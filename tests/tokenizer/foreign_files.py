"""Token files of other programs for tests, written by hand as their formats say."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from pathlib import Path

import numpy as np

CODES = {"uint8": 1, "int8": 2, "int16": 3, "int32": 4, "int64": 5, "uint16": 8}


def write_megatron(prefix: Path, documents: Sequence[Sequence[Sequence[int]]], dtype: str = "uint16") -> Path:
    """`P.bin` and `P.idx` of documents that are lists of sequences."""
    sequences = [sequence for document in documents for sequence in document]
    lengths = np.array([len(sequence) for sequence in sequences], np.int64)
    pointers = (np.cumsum(lengths) - lengths) * np.dtype(dtype).itemsize
    table = np.cumsum([0, *map(len, documents)])
    prefix.with_name(f"{prefix.name}.bin").write_bytes(b"".join(np.array(ids, dtype).tobytes() for ids in sequences))
    prefix.with_name(f"{prefix.name}.idx").write_bytes(
        struct.pack("<9sQBQQ", b"MMIDIDX\0\0", 1, CODES[dtype], len(sequences), len(table))
        + lengths.astype("<i4").tobytes()
        + pointers.astype("<i8").tobytes()
        + table.astype("<i8").tobytes()
    )
    return prefix


def write_datatrove(path: Path, documents: Sequence[Sequence[int]], itemsize: int = 2, metadata: bool = True) -> Path:
    """`P.ds`, `P.ds.index` and `P.ds.metadata`."""
    tokens = [id for document in documents for id in document]
    path.write_bytes(np.array(tokens, f"<u{itemsize}").tobytes())
    ends = np.cumsum([len(document) for document in documents])
    path.with_name(f"{path.name}.index").write_bytes(ends.astype("<u8").tobytes())
    if metadata:
        words = f"a|name|{itemsize}\n{len(tokens)}\n{len(tokens) / 1000:.1f} kT"
        path.with_name(f"{path.name}.metadata").write_text(words)
    return path
