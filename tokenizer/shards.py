"""Token shards: the format in which the corpus meets the trainer. Standard library, numpy and the engine's basics only.

A shard is a prefix P with four files (`tokenizer.shard_writer` writes the first three):

    P.bin           the tokens, little-endian uint16 (vocabulary < 65,500) or int32, one document after another
    P.idx           Megatron's index v1, byte for byte: Megatron-LM, NeMo and GPT-NeoX open the pair as it is
    P.meta.json     the commit record, written last: which tokenizer, end-of-document id, counts, checksums
    P.docs.parquet  row i = sequence i: document id, url, source (written by `tokenizer.encode`, not read here)

Layout of P.idx: 9 bytes `MMIDIDX\\0\\0`, u64 version = 1, u8 dtype code (8 uint16, 4 int32), u64 sequences S, u64
entries of the document table; from offset 34 i32 lengths[S], i64 byte pointers[S], i64 document table[S + 1]. One
document is one sequence, so the table is 0, 1, ..., S; each ends with the end-of-document token, which no
text produces.

Opening checks every header field, size, count and pointer against the sizes of the files before tokens are mapped, in
integers that do not overflow: a lie is refused, it never becomes a wild read. That is one pass over the index, 20 bytes
a document. Checksums of the tokens (SHA-256 of each 4 MiB) are the work of `verify()`, which reads everything. A file
that is truncated while it is mapped still ends the process (SIGBUS): committed shards are never written to.
"""

from __future__ import annotations

import hashlib
import os
import struct
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path, PurePosixPath
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from corpus.engine import durable
from corpus.engine.errors import WenhaiError

FORMAT_NAME = "wenhai.tokens"
FORMAT_VERSION = 1
MAGIC = b"MMIDIDX\x00\x00"
INDEX_VERSION = 1
HEADER = struct.Struct("<9sQBQQ")
UINT16_VOCAB_LIMIT = 65_500  # Megatron's own limit: below it tokens are uint16, from it on int32
INT32_VOCAB_LIMIT = 1 << 31
DTYPE_CODES = {"uint16": 8, "int32": 4}
DTYPES: dict[str, np.dtype[Any]] = {"uint16": np.dtype("<u2"), "int32": np.dtype("<i4")}
LENGTH_BYTES, POINTER_BYTES = 4, 8
MAX_LENGTH = 2**31 - 1
BLOCK_BYTES = 4 << 20
CHECK_ROWS = 1 << 20
SPLITS = ("train", "validation")
SUFFIXES = (".bin", ".idx", ".meta.json")
MEND = "Restore the file from a copy, or remove its stage folder and run `python -m tokenizer run` again."

Tokens = NDArray[Any]


class ShardError(WenhaiError):
    """A token shard is not what its record says, or a token does not fit."""


@dataclass(frozen=True)
class ShardMeta:
    """The commit record of a shard: what `P.meta.json` holds."""

    split: str
    dtype: str
    vocab_size: int
    eod: int
    tokenizer_sha256: str
    recipe: str  # digest of the part of the recipe that orders and splits documents
    num_sequences: int
    num_documents: int
    num_tokens: int
    num_characters: int  # code points of the text, for losses per character
    max_id: int
    bin_bytes: int
    idx_bytes: int
    idx_sha256: str
    block_bytes: int
    block_sha256: tuple[str, ...]


class TokenShard:
    """One committed shard, memory-mapped and read-only.

    Raises:
        ShardError: a file is missing, foreign, truncated, extended, or disagrees with its record.
    """

    def __init__(self, prefix: str | Path) -> None:
        self.prefix = Path(prefix)
        self.bin_path, self.idx_path, self.meta_path = shard_paths(self.prefix)
        self.meta = read_meta(self.meta_path)
        self.dtype = DTYPES[self.meta.dtype]
        self._check_sizes()
        self._check_header()
        self.lengths, self.pointers, self.documents = self._map_index()
        self._check_index()
        self._tokens: Tokens = (
            np.memmap(self.bin_path, dtype=self.dtype, mode="r", shape=(self.num_tokens,))
            if self.num_tokens
            else np.empty(0, dtype=self.dtype)  # an empty file cannot be mapped
        )

    def __reduce__(self) -> tuple[type[TokenShard], tuple[Path]]:
        return TokenShard, (self.prefix,)  # a worker maps the files again; pickling a map would copy its tokens

    def __repr__(self) -> str:
        return f"TokenShard({str(self.prefix)!r}, {self.num_sequences:,} sequences, {self.num_tokens:,} tokens)"

    @property
    def num_tokens(self) -> int:
        return self.meta.num_tokens

    @property
    def num_sequences(self) -> int:
        return self.meta.num_sequences

    @property
    def eod(self) -> int:
        return self.meta.eod

    @property
    def vocab_size(self) -> int:
        return self.meta.vocab_size

    @property
    def tokenizer_sha256(self) -> str:
        return self.meta.tokenizer_sha256

    @property
    def identity(self) -> tuple[str, int, int]:
        """What shards that are trained on together must share."""
        return self.tokenizer_sha256, self.eod, self.vocab_size

    def tokens(self, start: int, stop: int) -> Tokens:
        """The tokens [start, stop) of the shard, a view of the map: [stop - start], uint16 or int32."""
        if not 0 <= start <= stop <= self.num_tokens:
            raise IndexError(f"{self.bin_path}: tokens [{start}, {stop}) of {self.num_tokens}")
        return self._tokens[start:stop]

    def sequence(self, index: int) -> Tokens:
        """The tokens of sequence `index`, its end-of-document token included."""
        start, stop = self.bounds(index)
        return self._tokens[start:stop]

    def bounds(self, index: int) -> tuple[int, int]:
        """The token offsets [start, stop) of sequence `index`."""
        if not 0 <= index < self.num_sequences:
            raise IndexError(f"{self.idx_path}: sequence {index} of {self.num_sequences}")
        start = int(self.pointers[index]) // self.dtype.itemsize
        return start, start + int(self.lengths[index])

    def sequence_of(self, offset: int) -> int:
        """The sequence that holds the token at `offset`."""
        if not 0 <= offset < self.num_tokens:
            raise IndexError(f"{self.bin_path}: token {offset} of {self.num_tokens}")
        return int(np.searchsorted(self.pointers, offset * self.dtype.itemsize, side="right")) - 1

    def verify(self) -> None:
        """Read everything: checksums of index and tokens, and that no token lies outside the vocabulary.

        Raises:
            ShardError: names the file and the offset of the first bad block.
        """
        if durable.sha256_file(self.idx_path) != self.meta.idx_sha256:
            _refuse(self.idx_path, 0, "the checksum of the index does not match its record")
        max_id = -1
        with open(self.bin_path, "rb") as file:
            for number, expected in enumerate(self.meta.block_sha256):
                block, offset = file.read(self.meta.block_bytes), number * self.meta.block_bytes
                if hashlib.sha256(block).hexdigest() != expected:
                    _refuse(self.bin_path, offset, f"the checksum of block {number} ({len(block):,} bytes) differs")
                tokens = np.frombuffer(block, dtype=self.dtype)
                if int(tokens.min()) < 0 or int(tokens.max()) >= self.vocab_size:
                    _refuse(self.bin_path, offset, f"block {number} holds ids outside 0..{self.vocab_size - 1}")
                max_id = max(max_id, int(tokens.max()))
            if file.read(1):
                _refuse(self.bin_path, self.meta.bin_bytes, "the file is longer than its record says")
        if max_id != self.meta.max_id:
            _refuse(self.meta_path, 0, f"max_id is {self.meta.max_id} but the largest token is {max_id}")

    def _check_sizes(self) -> None:
        for path, expected in ((self.bin_path, self.meta.bin_bytes), (self.idx_path, self.meta.idx_bytes)):
            try:
                size = os.stat(path).st_size
            except OSError as error:
                raise ShardError(f"{path}: cannot be read ({error.strerror}). {MEND}") from error
            if size != expected:
                _refuse(path, min(size, expected), f"{size:,} bytes, but its record says {expected:,}")

    def _check_header(self) -> None:
        with open(self.idx_path, "rb") as file:
            magic, version, code, num_sequences, num_entries = HEADER.unpack(file.read(HEADER.size))
        if magic != MAGIC:
            _refuse(self.idx_path, 0, "this is not an index of Megatron's format")
        if version != INDEX_VERSION:
            _refuse(self.idx_path, 9, f"index version {version}; this reader knows {INDEX_VERSION}")
        if code != DTYPE_CODES[self.meta.dtype]:
            _refuse(self.idx_path, 17, f"dtype code {code}, but the record says {self.meta.dtype}")
        if num_sequences != self.meta.num_sequences:
            _refuse(self.idx_path, 18, f"{num_sequences} sequences, but the record says {self.meta.num_sequences}")
        if num_entries != self.meta.num_documents + 1:
            _refuse(self.idx_path, 26, f"{num_entries} document entries for {self.meta.num_documents} documents")

    def _map_index(self) -> tuple[NDArray[np.int32], NDArray[np.int64], NDArray[np.int64]]:
        """The three tables of the index as views of one map; sizes are known to fit."""
        lengths_end = HEADER.size + self.num_sequences * LENGTH_BYTES
        pointers_end = lengths_end + self.num_sequences * POINTER_BYTES
        raw = np.memmap(self.idx_path, dtype=np.uint8, mode="r", shape=(self.meta.idx_bytes,))
        return (
            raw[HEADER.size : lengths_end].view("<i4"),
            raw[lengths_end:pointers_end].view("<i8"),
            raw[pointers_end:].view("<i8"),
        )

    def _check_index(self) -> None:
        """Lengths are positive, pointers are their running sum, and the document table is 0, 1, ..., S."""
        lengths_at, end = HEADER.size, 0
        pointers_at = lengths_at + self.num_sequences * LENGTH_BYTES
        documents_at = pointers_at + self.num_sequences * POINTER_BYTES
        for first in range(0, self.num_sequences, CHECK_ROWS):
            lengths = self.lengths[first : first + CHECK_ROWS].astype(np.int64)
            if bad := _first(lengths < 1):
                _refuse(self.idx_path, lengths_at + (first + bad[0]) * LENGTH_BYTES, "a sequence without tokens")
            ends = np.cumsum(lengths) * self.dtype.itemsize  # at most 2^20 x 2^31 x 4 = 2^53
            pointers = self.pointers[first : first + CHECK_ROWS]
            if bad := _first(pointers - end != ends - lengths * self.dtype.itemsize):
                _refuse(
                    self.idx_path,
                    pointers_at + (first + bad[0]) * POINTER_BYTES,
                    "a pointer is not where its sequence is",
                )
            end += int(ends[-1])
            if end > self.meta.bin_bytes:
                _refuse(self.idx_path, lengths_at, "sequences run past the end of the tokens")
        if end != self.meta.bin_bytes:
            _refuse(self.idx_path, lengths_at, f"sequences hold {end:,} bytes of {self.meta.bin_bytes:,}")
        for first in range(0, len(self.documents), CHECK_ROWS):
            documents = self.documents[first : first + CHECK_ROWS]
            if bad := _first(documents != np.arange(first, first + len(documents))):
                _refuse(
                    self.idx_path,
                    documents_at + (first + bad[0]) * POINTER_BYTES,
                    "the document table is not 0, 1, 2, ...",
                )


def open_split(data: str | Path | Sequence[str | Path], split: str) -> list[TokenShard]:
    """The shards of one split ("train" or "validation"), in the order of their names.

    Args:
        data: an output folder (it holds `run.json`), the folder of its tokens stage (it holds `MANIFEST.json`), or a
            list of shard prefixes.
        split: which documents. A split that no document fell to has no shards: the list is empty.

    Raises:
        ShardError: an unknown split, a shard that is missing or damaged, or shards of different tokenizers.
    """
    if split not in SPLITS:
        raise ShardError(f"split {split!r} is not one of {', '.join(SPLITS)}.")
    if isinstance(data, str | Path):
        shards = [open_listed(prefix, sha256) for prefix, sha256 in listed_shards(Path(data), split)]
    else:
        shards = [TokenShard(prefix) for prefix in data]
    for shard in shards:
        if shard.meta.split != split:
            raise ShardError(f"{shard.meta_path}: holds {shard.meta.split} documents, not {split}. Name its own split.")
        if shard.identity != shards[0].identity:
            raise ShardError(
                f"{shard.meta_path}: made by another tokenizer than {shards[0].meta_path}. Encode both with one."
            )
    return shards


def listed_shards(folder: Path, split: str) -> list[tuple[Path, str]]:
    """The shards of a split that the tokens stage lists: (prefix, SHA-256 of its record), sorted by name."""
    folder = tokens_folder(folder)
    manifest = folder / "MANIFEST.json"
    files = _table(durable.read_json(manifest), "files", manifest)
    names = [name.removesuffix(".meta.json") for name in sorted(files) if name.endswith(f"-{split}.meta.json")]
    return [
        (_inside(folder, name, manifest), str(_table(files, f"{name}.meta.json", manifest).get("sha256")))
        for name in names
    ]


def open_listed(prefix: Path, sha256: str) -> TokenShard:
    """Open a shard whose record must be the one a manifest lists; through its record the rest of it is."""
    shard = TokenShard(prefix)
    if durable.sha256_file(shard.meta_path) != sha256:
        _refuse(shard.meta_path, 0, "this is not the record that the manifest lists: another shard has taken its name")
    return shard


def tokens_folder(folder: Path) -> Path:
    """The folder of the tokens stage: `folder` itself, or the current one of the build in `folder`."""
    if (folder / "MANIFEST.json").is_file():
        return folder
    run = folder / "run.json"
    if not run.is_file():
        raise ShardError(
            f"{folder}: holds neither MANIFEST.json nor run.json, so there is no finished build here. Give the output "
            "folder of `python -m tokenizer run`."
        )
    stages = _table(durable.read_json(run), "stages", run)
    if "tokens" not in stages:
        raise ShardError(f"{run}: the tokens stage is not complete. Run `python -m tokenizer run --out {folder}`.")
    return _inside(folder, _table(stages, "tokens", run).get("folder"), run)


def shard_paths(prefix: Path) -> tuple[Path, Path, Path]:
    """(`P.bin`, `P.idx`, `P.meta.json`); a dot in the prefix's own name is kept."""
    tokens, idx, meta = (prefix.with_name(prefix.name + suffix) for suffix in SUFFIXES)
    return tokens, idx, meta


def dtype_name(vocab_size: int) -> str:
    """How tokens of a vocabulary are stored, by Megatron's rule.

    >>> dtype_name(65_499), dtype_name(65_500)
    ('uint16', 'int32')
    """
    if vocab_size > INT32_VOCAB_LIMIT:
        raise ShardError(f"a vocabulary of {vocab_size} does not fit int32, the widest token a shard holds.")
    return "uint16" if vocab_size < UINT16_VOCAB_LIMIT else "int32"


def read_meta(path: Path) -> ShardMeta:
    """Read a commit record and check everything in it that can be checked without the other files."""
    if not path.is_file():
        raise ShardError(f"{path}: missing; without its record a shard was never committed. {MEND}")
    record = durable.read_json(path)
    if not isinstance(record, dict) or (record.pop("format", None), record.pop("version", None)) != (
        FORMAT_NAME,
        FORMAT_VERSION,
    ):
        _refuse(path, 0, f"this is not a record of {FORMAT_NAME} version {FORMAT_VERSION}")
    types = {field.name: field.type for field in fields(ShardMeta)}
    if set(record) != set(types):
        _refuse(path, 0, f"keys differ from the format's: {', '.join(sorted(set(record) ^ set(types)))}")
    for name, kind in types.items():
        value = record[name]
        if kind == "int" and (type(value) is not int or not -1 <= value < 2**63):
            _refuse(path, 0, f"{name} is not a count")
        if kind == "str" and not isinstance(value, str):
            _refuse(path, 0, f"{name} is not a string")
    blocks = record["block_sha256"]
    if not isinstance(blocks, list) or not all(isinstance(block, str) for block in blocks):
        _refuse(path, 0, "block_sha256 is not a list of checksums")
    meta = ShardMeta(**(record | {"block_sha256": tuple(blocks)}))
    _check_meta(meta, path)
    return meta


def _check_meta(meta: ShardMeta, path: Path) -> None:
    """The record agrees with itself; all in Python integers, which do not overflow."""
    if meta.vocab_size < 1 or meta.dtype != dtype_name(meta.vocab_size):
        _refuse(path, 0, f"dtype {meta.dtype!r} does not belong to a vocabulary of {meta.vocab_size}")
    if not 0 <= meta.eod < meta.vocab_size:
        _refuse(path, 0, f"eod {meta.eod} is outside the vocabulary of {meta.vocab_size}")
    if not -1 <= meta.max_id < meta.vocab_size or (meta.max_id == -1) != (meta.num_tokens == 0):
        _refuse(path, 0, f"max_id {meta.max_id} is outside the vocabulary of {meta.vocab_size}")
    if meta.num_sequences != meta.num_documents or min(meta.num_sequences, meta.num_tokens, meta.num_characters) < 0:
        _refuse(
            path, 0, f"{meta.num_sequences} sequences for {meta.num_documents} documents: one document is one sequence"
        )
    if meta.bin_bytes != meta.num_tokens * DTYPES[meta.dtype].itemsize:
        _refuse(path, 0, f"{meta.bin_bytes} bytes of tokens cannot be {meta.num_tokens} tokens of {meta.dtype}")
    if meta.idx_bytes != HEADER.size + meta.num_sequences * (LENGTH_BYTES + 2 * POINTER_BYTES) + POINTER_BYTES:
        _refuse(path, 0, f"an index of {meta.num_sequences} sequences is not {meta.idx_bytes} bytes long")
    if meta.block_bytes != BLOCK_BYTES or len(meta.block_sha256) != -(-meta.bin_bytes // BLOCK_BYTES):
        _refuse(path, 0, f"{len(meta.block_sha256)} checksums do not cover {meta.bin_bytes} bytes in blocks of 4 MiB")


def _table(values: Any, key: str, source: Path) -> dict[str, Any]:
    """The JSON object under `key`, or a refusal that names the file."""
    found = values.get(key) if isinstance(values, dict) else None
    if not isinstance(found, dict):
        raise ShardError(f"{source}: has no table {key!r}, so it is not a manifest of ours. {MEND}")
    return found


def _inside(folder: Path, name: Any, source: Path) -> Path:
    """`folder / name`, for a name that stays inside the folder."""
    if not isinstance(name, str) or PurePosixPath(name).is_absolute() or ".." in PurePosixPath(name).parts:
        raise ShardError(f"{source}: names {name!r}, which lies outside its folder. Do not use this build.")
    return folder / name


def _first(mask: NDArray[np.bool_]) -> tuple[int] | None:
    """The first true place, or None."""
    return (int(np.argmax(mask)),) if mask.any() else None


def _refuse(path: Path, offset: int, problem: str) -> NoReturn:
    raise ShardError(f"{path}: offset {offset}: {problem}. {MEND}")
