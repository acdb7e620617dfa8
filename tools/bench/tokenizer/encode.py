"""Text to ids: ours beside SentencePiece, kitoken, tokenizers and Megatron's way, all on one core and on text new to
them.

The vocabularies are trained on every other document (or taken from `--data`), and the time is for the others, each
encoded once; kernels are compiled and caches warmed on documents of the training half. MB of UTF-8 for each CPU second.
The last lines of a model compare what makes token shards of the same documents: our whole `tokens` task, from a text
shard (zstd Parquet) to committed files with provenance and checksums, and Megatron's from JSONL. Neither counts imports
and loading.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
from argparse import Namespace
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import xxhash

from corpus.engine.inputs import list_inputs
from corpus.engine.stage import Task, run_task
from corpus.engine.storage import File
from tokenizer.config import TokenizerConfig
from tokenizer.encode import TokensStage
from tokenizer.kernels.encoder import BatchEncoder, batch_encoder
from tokenizer.model import Tokenizer
from tokenizer.train import train
from tools.bench.inputs import read_documents, spread
from tools.bench.peers.environment import MEGATRON, TOKENIZERS, write_documents
from tools.bench.timing import one_core, show, timed

VOCAB_SIZES = (32_000, 50_304)
WARM_BYTES = 2_000_000
ROUNDS = (
    3  # ours and SentencePiece's batch take turns on a third of the documents each, so that a disturbance hits both
)


def run(arguments: Namespace) -> None:
    """Print a table for each vocabulary."""
    texts = list(read_documents(arguments))
    trained, fresh = texts[::2], texts[1::2]
    if arguments.peers:
        install()
    with tempfile.TemporaryDirectory(prefix="wenhai-bench-") as folder, one_core():
        for tokenizer in tokenizers(arguments.data, trained, Path(folder)):
            compare(tokenizer, spread(trained, WARM_BYTES), fresh, Path(folder))


def install() -> None:
    """Make the peers' environments; one that cannot be made here is left out."""
    try:
        TOKENIZERS.install()
        MEGATRON.install()
    except subprocess.CalledProcessError as error:
        print(f"not all of the peers can be installed here (pip ended with {error.returncode})\n")


def tokenizers(data: Path | None, texts: Sequence[str], folder: Path) -> Iterator[Tokenizer]:
    """A build's tokenizer, or BPE and Unigram of two sizes trained on texts."""
    if data:
        yield Tokenizer(data)
        return
    for kind in ("bpe", "unigram"):
        for size in VOCAB_SIZES:
            path = folder / f"{kind}-{size}.model"
            path.write_bytes(train(texts, TokenizerConfig.model_validate({"model_type": kind, "vocab_size": size})))
            yield Tokenizer(path)


def compare(tokenizer: Tokenizer, warm: Sequence[str], fresh: Sequence[str], folder: Path) -> None:
    """Print the table of one vocabulary."""
    size = sum(len(text.encode()) for text in fresh)
    plain = tokenizer.processor
    encoder = batch_encoder(tokenizer)
    print(f"{tokenizer.path.name}: {tokenizer.vocab_size:,} ids; {len(fresh):,} documents, {size / 1e6:.1f} MB")
    encoder.encode(pa.array(warm, pa.large_string()))
    seconds, batch_seconds, found, expected = take_turns(encoder, plain, fresh)
    rate = size / 1e6 / batch_seconds
    show("sentencepiece, all documents a call", rate)
    single, _ = timed(lambda: [plain.encode(text) for text in fresh])
    show("sentencepiece, a document a call", size / 1e6 / single, rate)
    note = encoder.reason or equal(found, expected)
    show("ours", size / 1e6 / seconds, rate, note)
    peers(tokenizer, warm, fresh, expected, folder, rate)
    stages(tokenizer, warm, fresh, folder)
    print()


def take_turns(encoder: BatchEncoder, plain: Any, texts: Sequence[str]) -> tuple[float, float, list[Any], list[Any]]:
    """CPU seconds of ours and of SentencePiece's batch, and their ids; they take turns, so that a disturbance hits
    both."""
    seconds, batch_seconds, found, expected = 0.0, 0.0, list[Any](), list[Any]()
    step = -(-len(texts) // ROUNDS)
    for part in (texts[start : start + step] for start in range(0, len(texts), step)):
        theirs, ids = timed(partial(plain.encode, part, num_threads=1))
        mine, tokens = timed(partial(encoder.encode, pa.array(part, pa.large_string())))
        batch_seconds, seconds = batch_seconds + theirs, seconds + mine
        expected, found = expected + ids, found + tokens
    return seconds, batch_seconds, found, expected


def equal(found: Sequence[Any], expected: Sequence[Any]) -> str:
    """The share of documents with SentencePiece's ids, in words. U+2581 in a text is a space to SentencePiece alone."""
    same = sum(map(np.array_equal, found, expected))
    return f"{100 * same / len(expected):.2f} % of documents have equal ids"


def peers(
    tokenizer: Tokenizer, warm: Sequence[str], fresh: Sequence[str], expected: Sequence[Any], folder: Path, rate: float
) -> None:
    """kitoken with the model, tokenizers with our export of it; each in a process of its own."""
    if not TOKENIZERS.is_installed():
        return
    write_documents(folder / "warm.jsonl", warm)
    write_documents(folder / "fresh.jsonl", fresh)
    size = sum(len(text.encode()) for text in fresh)
    for library, model in (("kitoken", tokenizer.path), ("tokenizers", export_tokenizer(tokenizer, folder))):
        files = [str(folder / name) for name in ("warm.jsonl", "fresh.jsonl", "ids.npz")]
        done = TOKENIZERS.run("encode_texts.py", library, str(model), *files)
        with np.load(folder / "ids.npz", allow_pickle=False) as arrays:
            found = np.split(arrays["ids"], np.cumsum(arrays["lengths"])[:-1])
        show(f"{library}, a document a call", size / 1e6 / done["seconds"], rate, equal(found, expected))


def export_tokenizer(tokenizer: Tokenizer, folder: Path) -> Path:
    """`tokenizer.json` as `python -m tokenizer export` writes it, which refuses those that are not equal."""
    from tokenizer.export.convert import tokenizer_json

    path = folder / "tokenizer.json"
    path.write_text(json.dumps(tokenizer_json(tokenizer), ensure_ascii=False), encoding="utf-8")
    return path


def text_shard(path: Path, texts: Sequence[str]) -> File:
    """Documents with the columns that a build's text shards have and encoding reads."""
    columns = {
        "id": pa.array([xxhash.xxh3_128_digest(text.encode()) for text in texts], pa.binary(16)),
        "source": pa.array(["bench"] * len(texts)),
        "url": pa.array([f"https://example.org/{number}" for number in range(len(texts))]),
        "text": pa.array(texts, pa.large_string()),
    }
    pq.write_table(pa.table(columns), path, compression="zstd", write_page_checksum=True)
    (file,) = list_inputs([str(path)])
    return file


def stages(tokenizer: Tokenizer, warm: Sequence[str], fresh: Sequence[str], folder: Path) -> None:
    """Our `tokens` task beside what Megatron's preprocess_data does; both have done the same for `warm` before."""
    size = sum(len(text.encode()) for text in fresh)
    (model,) = list_inputs([str(tokenizer.path)])
    seconds = 0.0
    for name, texts in (("warm", warm), ("fresh", fresh)):
        text = text_shard(folder / f"{name}.parquet", texts)
        stage = TokensStage(TokenizerConfig.model_validate({}), files=(text,))
        task, out = Task(name, (text, model)), str(folder / f"tokens-{tokenizer.path.stem}")
        seconds, _ = timed(partial(run_task, stage, task, out))
    rate = None
    if MEGATRON.is_installed():
        write_documents(folder / "warm.jsonl", warm)
        write_documents(folder / "fresh.jsonl", fresh)
        arguments = [str(tokenizer.path), *(str(folder / name) for name in ("warm.jsonl", "fresh.jsonl", "megatron"))]
        done = MEGATRON.run("megatron_preprocess.py", *arguments)
        rate = size / 1e6 / done["seconds"]
        show("JSONL to .bin/.idx as Megatron does", rate)
    show("text shard to token shard, our whole task", size / 1e6 / seconds, rate)
