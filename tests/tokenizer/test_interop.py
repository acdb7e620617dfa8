"""Other programs' own code reads what we write, and we read what it writes: in their environments below build/peers.

Over the real texts of WENHAI_TEST_DATA where it is set, else over made ones; each test prints what it counted. The
environments are made by `python -m tools.bench ... --peers`, or by `tools.bench.peers.environment.MEGATRON.install()`.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from corpus.__main__ import main as corpus
from corpus.engine.run import current
from tests.corpus.texts import document
from tokenizer.__main__ import main
from tokenizer.model import Tokenizer
from tokenizer.shards import SPLITS, TokenShard, open_split
from tools.bench.peers.environment import DATATROVE, MEGATRON, Environment, write_documents

PEERS = Path(__file__).parent / "peers"  # each a script that runs in an environment of its own
pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
RECIPE = """
extends = "web_zh"
[tokenizer]
vocab_size = {vocab_size}
num_threads = 1
validation_ratio = 0.05
sample_bytes = 4000000
"""


@pytest.fixture(scope="module")
def megatron() -> Environment:
    if not MEGATRON.is_installed():
        pytest.skip("needs megatron-core: tools.bench.peers.environment.MEGATRON.install()")
    return MEGATRON


@pytest.fixture(scope="module")
def datatrove() -> Environment:
    if not DATATROVE.is_installed():
        pytest.skip("needs datatrove: tools.bench.peers.environment.DATATROVE.install()")
    return DATATROVE


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A corpus and its token shards, several of each split."""
    folder = tmp_path_factory.mktemp("interop")
    data = os.environ.get("WENHAI_TEST_DATA")
    files = sorted(Path(data, "text").glob("*.jsonl")) if data else []
    if not files:
        lines = [json.dumps({"text": document(number)}, ensure_ascii=False) for number in range(400)]
        files = [folder / "made.jsonl"]
        files[0].write_text("\n".join(lines))
    (folder / "recipe.toml").write_text(RECIPE.format(vocab_size=16_000 if data else 600))
    out = ["--out", str(folder / "out"), "--recipe", str(folder / "recipe.toml"), "--workers", "0", "--quiet"]
    assert corpus(["run", *out, "--input", *map(str, files), "--set", "input.task_bytes=1500000"]) == 0
    assert main(["run", *out]) == 0
    return folder / "out"


def digest_of(shard: TokenShard) -> str:
    """What `megatron_shards.py read` computes."""
    hasher = hashlib.sha256()
    for index in range(shard.num_sequences):
        ids = shard.sequence(index)
        hasher.update(len(ids).to_bytes(8, "little") + ids.astype("<i8").tobytes())
    return hasher.hexdigest()


def all_shards(built: Path) -> list[TokenShard]:
    return [shard for split in SPLITS for shard in open_split(built, split)]


def adopted(out: Path, tokenizer: Path, *prefixes: Path | str) -> list[TokenShard]:
    words = ["adopt", *map(str, prefixes), "--tokenizer", str(tokenizer), "--out", str(out)]
    assert main([*words, "--workers", "0", "--quiet"]) == 0
    assert main(["verify", str(out)]) == 0
    return open_split(out, "train")


def documents_of(shards: Sequence[TokenShard]) -> list[list[int]]:
    return [shard.sequence(index).tolist() for shard in shards for index in range(shard.num_sequences)]


def told(words: str, **counts: Any) -> None:
    print(f"\n{words}: " + ", ".join(f"{name} {value:,}" for name, value in counts.items()))


def test_megatron_reads_our_shards_token_for_token(built: Path, megatron: Environment) -> None:
    shards = all_shards(built)
    found = megatron.run(str(PEERS / "megatron_shards.py"), "read", *(str(shard.prefix) for shard in shards))
    for shard, theirs in zip(shards, found, strict=True):
        assert theirs == {
            "sequences": shard.num_sequences,
            "documents": shard.num_sequences,
            "tokens": shard.num_tokens,
            "dtype": shard.dtype.name,
            "one_each": True,
            "sha256": digest_of(shard),
        }
    totals = {key: sum(theirs[key] for theirs in found) for key in ("documents", "tokens")}
    told("read by IndexedDataset, all equal", shards=len(shards), **totals)


def test_gpt_dataset_draws_samples_of_our_tokens(built: Path, megatron: Environment, tmp_path: Path) -> None:
    """Its three indices and our shards give the tokens that it gives, over more than an epoch."""
    length = 512
    shard = max(open_split(built, "train"), key=lambda shard: shard.num_tokens)
    count = 2 * shard.num_tokens // length - 2
    words = [shard.prefix, length, count, 1234, shard.eod, shard.vocab_size, tmp_path / "drawn.npz"]
    found = megatron.run(str(PEERS / "megatron_shards.py"), "samples", *map(str, words))
    drawn = np.load(tmp_path / "drawn.npz")
    documents, places, shuffle = drawn["document_index"], drawn["sample_index"], drawn["shuffle_index"]
    for number in range(count):
        (first, start), (last, stop) = places[shuffle[number]].tolist(), places[shuffle[number] + 1].tolist()
        parts = [shard.sequence(document).astype(np.int64) for document in documents[first : last + 1].tolist()]
        parts[-1] = parts[-1][: stop + 1]
        parts[0] = parts[0][start:]
        ours = np.concatenate(parts)
        assert np.array_equal(drawn["tokens"][number], ours[:-1])
        assert np.array_equal(drawn["labels"][number], ours[1:])
    assert found["samples"] == count
    told("samples of GPTDataset, all equal", samples=count, tokens=count * (length + 1), epochs=2)


@pytest.mark.parametrize("dtype", ["uint16", "int32"])
def test_what_megatron_writes_is_adopted(built: Path, megatron: Environment, tmp_path: Path, dtype: str) -> None:
    documents = documents_of(open_split(built, "train"))
    cut = [[part.tolist() for part in np.array_split(ids, 1 + number % 3)] for number, ids in enumerate(documents)]
    cut = [[part for part in parts if part] for parts in cut]
    (tmp_path / "documents.json").write_text(json.dumps(cut))
    wrote = megatron.run(
        str(PEERS / "megatron_shards.py"), "write", str(tmp_path / "documents.json"), str(tmp_path / "m"), dtype
    )
    shards = adopted(tmp_path / "out", built, tmp_path / "m")
    assert documents_of(shards) == documents
    tokens = sum(map(len, documents))
    told(f"written by IndexedDatasetBuilder ({dtype}), adopted, all equal", **wrote, tokens=tokens)
    characters = sum(shard.meta.num_characters for shard in open_split(built, "train"))
    assert sum(shard.meta.num_characters for shard in shards) == characters


def test_what_datatrove_writes_is_adopted(built: Path, datatrove: Environment, tmp_path: Path) -> None:
    documents = documents_of(open_split(built, "train"))
    (tmp_path / "documents.json").write_text(json.dumps(documents))
    for num_bytes in (2, 4):
        words = [tmp_path / "documents.json", tmp_path, f"t{num_bytes}.ds", num_bytes]
        wrote = datatrove.run(str(PEERS / "datatrove_tokens.py"), "write", *map(str, words))
        shards = adopted(tmp_path / f"out{num_bytes}", built, tmp_path / f"t{num_bytes}.ds")
        assert documents_of(shards) == documents
        told(f"written by TokenizedFile ({num_bytes} bytes a token), adopted, all equal", **wrote)


def test_what_datatrove_tokenizes_is_adopted(built: Path, datatrove: Environment, tmp_path: Path) -> None:
    """`DocumentTokenizer` and `MegatronDocumentTokenizer`, with a library's tokenizer of our one-character pieces."""
    tokenizer = Tokenizer(built)
    pieces = {tokenizer.decode([id]): id for id in range(258, tokenizer.vocab_size)}
    vocabulary = {piece: id for piece, id in pieces.items() if len(piece) == 1}
    files = current(str(built), "text").files()
    texts = [text for file in files for text in pq.read_table(file.url, columns=["text"])["text"].to_pylist()][:2000]
    known = ["".join(character for character in text if character in vocabulary) for text in texts]
    eod = {"id": tokenizer.eod, "content": "<|endoftext|>", "special": True}
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    split = {"type": "Split", "pattern": {"Regex": r"[\s\S]"}, "behavior": "Isolated", "invert": False}
    model = {"type": "WordLevel", "vocab": vocabulary | {"<unk>": 0, "<|endoftext|>": 1}, "unk_token": "<unk>"}
    library = {"version": "1.0", "added_tokens": [eod | flags], "pre_tokenizer": split, "model": model}
    (tmp_path / "tokenizer.json").write_text(json.dumps(library, ensure_ascii=False))
    write_documents(tmp_path / "texts.jsonl", known)
    words = [tmp_path / "tokenizer.json", tmp_path / "texts.jsonl", tmp_path / "made"]
    expected = datatrove.run(str(PEERS / "datatrove_tokens.py"), "tokenize", *map(str, words))["ids"]
    assert expected == [[vocabulary[character] for character in text] for text in known]
    for path in (tmp_path / "made/ds/00000_unshuffled.ds", tmp_path / "made/megatron/00000_tokens.idx"):
        shards = adopted(tmp_path / f"out{path.suffix}", built, path)
        assert documents_of(shards) == [[*ids, tokenizer.eod] for ids in expected]
        assert [tokenizer.decode(ids) for ids in documents_of(shards)] == known
        told(f"{path.name} of datatrove, adopted, all equal", documents=len(known), tokens=shards[0].num_tokens)


def test_datasets_loads_our_text_shards(built: Path, datatrove: Environment, tmp_path: Path) -> None:
    files = [Path(file.url) for file in current(str(built), "text").files()]
    found = datatrove.run(str(PEERS / "datasets_parquet.py"), str(tmp_path / "cache"), *map(str, files))
    hasher, rows = hashlib.sha256(), 0
    for file in files:
        for row in pq.read_table(file).to_pylist():
            shown = {name: value.hex() if isinstance(value, bytes) else value for name, value in row.items()}
            hasher.update(json.dumps(shown, ensure_ascii=False, sort_keys=True, default=str).encode() + b"\n")
            rows += 1
    assert (found["rows"], found["sha256"]) == (rows, hasher.hexdigest())
    told("rows of load_dataset, all equal", files=len(files), rows=rows)
