"""How fast the rooms are on one core, beside what one would use instead, in one run: `make bench`.

    python -m tools.bench --data build/demo --html build/demo-input/demo-0000.warc.gz

CPU seconds of this process, the median of several runs; MB are 10^6 bytes of HTML or of UTF-8 text. Ratios are what to
trust: absolute figures belong to the machine. Nothing here is asserted by a test.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

RUNS = 3
PEER_DOCUMENTS = 150  # datasketch is two orders slower
MAX_PAGES = 400
BATCH = 64


def main() -> None:
    """Print a table: what, MB/s, and the ratio to the row above it that it is compared with."""
    parser = argparse.ArgumentParser(prog="python -m tools.bench", description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="the output folder of a finished build")
    parser.add_argument("--html", type=Path, help="a WARC file of pages, for extraction")
    arguments = parser.parse_args()
    if arguments.html:
        extraction(arguments.html)
    texts = read_texts(arguments.data)
    filtering(texts)
    signing(texts)
    encoding(arguments.data, texts)
    loading(arguments.data)


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
    from corpus.dedup.signatures import sign_texts

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
    import sentencepiece

    from tokenizer.model import Tokenizer

    tokenizer = Tokenizer(data)
    plain = sentencepiece.SentencePieceProcessor(model_file=str(tokenizer.path))
    strings = texts.to_pylist()
    size = num_bytes(texts)
    rate = speed(size, lambda: [plain.encode(text) for text in strings])
    show("sentencepiece, a document a call", rate)
    show("tokenizer encode_batch", speed(size, lambda: tokenizer.encode_batch(strings)), rate)


def loading(data: Path) -> None:
    """Shuffled batches from token shards, checksums on first touch included in the first run only."""
    from pretrain.data import open_loader

    loader = open_loader(data, "train", 256, seed=0)
    batches = max(1, loader.num_windows // BATCH)
    seconds = cpu_seconds(lambda: [loader.batch(index * BATCH, BATCH) for index in range(batches)])
    print(f"{'pretrain loader, 64 x 256 tokens':<42}{batches * BATCH * 256 / 1e6 / seconds:>9,.1f} M tokens/s")


def read_texts(data: Path) -> Any:
    """The text column of a build's text shards, as one Arrow array."""
    import pyarrow as pa

    from corpus.document import read_table
    from corpus.engine.run import current

    tables = [read_table(Path(file.url), ["text"]) for file in current(str(data), "text").files()]
    return pa.concat_tables(tables)["text"].combine_chunks()


def num_bytes(texts: Any) -> int:
    """UTF-8 bytes of an Arrow string array."""
    import pyarrow.compute as pc

    return int(pc.sum(pc.binary_length(texts)).as_py() or 0)


def speed(size: int, work: Callable[[], Any]) -> float:
    """MB of `size` bytes for each CPU second of `work`."""
    return size / 1e6 / cpu_seconds(work)


def cpu_seconds(work: Callable[[], Any]) -> float:
    """The median CPU time of several runs, after one that is not counted."""
    work()
    times = []
    for _ in range(RUNS):
        start = time.process_time()
        work()
        times.append(time.process_time() - start)
    return statistics.median(times)


def show(what: str, rate: float, other: float | None = None) -> None:
    """One line of the table."""
    ratio = f"   x {rate / other:,.2f}" if other else ""
    print(f"{what:<42}{rate:>9,.1f} MB/s{ratio}", flush=True)


if __name__ == "__main__":
    main()
