"""Every room on a finished build, beside what one would use instead: `make bench`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tools.bench.timing import cpu_seconds, num_bytes, show, speed

PEER_DOCUMENTS = 150  # datasketch is two orders slower
MAX_PAGES = 400
BATCH = 64


def run(data: Path, html: Path | None) -> None:
    """Print a table: what, MB/s, and the ratio to the row above it that it is compared with."""
    if html:
        extraction(html)
    texts = read_texts(data)
    filtering(texts)
    signing(texts)
    encoding(data, texts)
    loading(data)


def extraction(path: Path) -> None:
    """Main text of pages, beside the parser alone and resiliparse's own main content."""
    from resiliparse.extract.html2text import extract_plain_text
    from resiliparse.parse.html import HTMLTree

    from corpus.encoding import decode
    from corpus.extract import ExtractConfig, extract_html
    from corpus.sources import Record, SourcesConfig, read

    records = [record for record in read(str(path), SourcesConfig()) if isinstance(record, Record)][:MAX_PAGES]
    pages = [decode(record.raw, record.charset).text for record in records]
    size = sum(len(record.raw) for record in records)
    config = ExtractConfig()
    limit = speed(size, lambda: [HTMLTree.parse(page) for page in pages])
    show(f"parse {len(pages)} pages, nothing else", limit)
    show(
        "resiliparse main_content",
        speed(size, lambda: [extract_plain_text(p, main_content=True) for p in pages]),
        limit,
    )
    show("corpus.extract", speed(size, lambda: [extract_html(page, config) for page in pages]), limit)


def filtering(texts: Any) -> None:
    """All statistics, rules and editors of web_zh, beside reading the text once as Python strings."""
    from corpus.filters import load

    chosen = load("web_zh")
    size = num_bytes(texts)
    limit = speed(size, texts.to_pylist)
    show("text to Python strings, nothing else", limit)
    show("corpus.filters web_zh, everything", speed(size, lambda: chosen.apply(texts)), limit)


def signing(texts: Any) -> None:
    """Exact keys, 112 minima of character 5-grams and band keys, beside datasketch's minima alone."""
    import pyarrow as pa
    from datasketch import MinHash

    from corpus.dedup import DedupConfig
    from corpus.dedup.near.signatures import sign_texts

    config = DedupConfig()
    ids = pa.array([bytes(16)] * len(texts), pa.binary(16))
    few = texts.slice(0, PEER_DOCUMENTS).to_pylist()

    def peer() -> None:
        for text in few:
            shingles = {text[start : start + config.ngram].encode() for start in range(len(text) - config.ngram + 1)}
            MinHash(num_perm=config.num_permutations).update_batch(shingles)

    rate = speed(sum(len(text.encode()) for text in few), peer)
    show("datasketch MinHash", rate)
    show("corpus.dedup signatures, keys, bands", speed(num_bytes(texts), lambda: sign_texts(ids, texts, config)), rate)


def encoding(data: Path, texts: Any) -> None:
    """Text to token ids, beside SentencePiece called document by document."""
    import pyarrow as pa
    import sentencepiece

    from tokenizer.kernels.encoder import BatchEncoder
    from tokenizer.model import Tokenizer

    tokenizer = Tokenizer(data)
    encoder = BatchEncoder(tokenizer)
    plain = sentencepiece.SentencePieceProcessor(model_file=str(tokenizer.path))
    strings = texts.to_pylist()
    size = num_bytes(texts)
    rate = speed(size, lambda: [plain.encode(text) for text in strings])
    show("sentencepiece, a document a call", rate)
    show("tokenizer encode_batch", speed(size, lambda: tokenizer.encode_batch(strings)), rate)
    arrow = texts.combine_chunks() if isinstance(texts, pa.ChunkedArray) else texts
    show("tokenizer BatchEncoder", speed(size, lambda: encoder.encode(arrow)), rate, encoder.reason or "")


def loading(data: Path) -> None:
    """Shuffled batches from token shards, checksums on first touch included in the first run only."""
    from pretrain.data import Loader, ShardReader, Stream
    from tokenizer.shards import open_split

    loader = Loader([Stream([ShardReader(shard) for shard in open_split(data, "train")], 256)])
    batches = max(1, loader.num_samples_per_epoch // BATCH)
    seconds = cpu_seconds(lambda: [loader.batch(index * BATCH, BATCH) for index in range(batches)])
    print(f"{'pretrain loader, 64 x 256 tokens':<46}{batches * BATCH * 256 / 1e6 / seconds:>10,.1f} M tokens/s")


def read_texts(data: Path) -> Any:
    """The text column of a build's text shards, as one Arrow array."""
    import pyarrow as pa

    from corpus.document import read_table
    from corpus.engine.run import current

    tables = [read_table(Path(file.url), ["text"]) for file in current(str(data), "text").files()]
    return pa.concat_tables(tables)["text"].combine_chunks()
