"""datatrove's MinHash deduplication on documents, or its signature step alone, timed; runs in the peers' environment.

    python datatrove_minhash.py DOCUMENTS.jsonl duplicates|signatures

Its setting for Chinese, as FineWeb-2 runs it: word 5-grams (language `cmn_Hani`, jieba), 14 buckets of 8 hashes, 64
bits.
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

from datatrove.data import Document
from datatrove.executor.local import LocalPipelineExecutor
from datatrove.pipeline.dedup import MinhashDedupSignature
from datatrove.pipeline.dedup.minhash import (
    MinhashConfig,
    MinhashDedupBuckets,
    MinhashDedupCluster,
    MinhashDedupFilter,
)
from datatrove.pipeline.readers import JsonlReader
from datatrove.pipeline.writers import JsonlWriter
from datatrove.utils.hashing import HashConfig
from datatrove.utils.word_tokenizers import load_word_tokenizer

from tools.bench.timing import timed

LANGUAGE = "cmn_Hani"
CONFIG = MinhashConfig(n_grams=5, num_buckets=14, hashes_per_bucket=8, hash_config=HashConfig(precision=64))
PARTS = 3  # each timed by itself: different documents, so that no run is of text that was seen


def duplicates(texts: list[str]) -> dict[str, Any]:
    """The line numbers of the documents that it keeps."""
    with tempfile.TemporaryDirectory() as out:
        source = Path(out, "in")
        source.mkdir()
        lines = [json.dumps({"text": text, "id": str(row)}) for row, text in enumerate(texts)]
        Path(source, "documents.jsonl").write_text("\n".join(lines))

        def run(name: str, steps: list[Any], tasks: int = 1) -> None:
            LocalPipelineExecutor(pipeline=steps, tasks=tasks, workers=1, logging_dir=f"{out}/logs/{name}").run()

        def reader() -> Any:
            return JsonlReader(str(source), glob_pattern="*.jsonl", compression=None)

        run("signatures", [reader(), MinhashDedupSignature(f"{out}/signatures", config=CONFIG, language=LANGUAGE)])
        run("buckets", [MinhashDedupBuckets(f"{out}/signatures", f"{out}/buckets", config=CONFIG)], CONFIG.num_buckets)
        run("clusters", [MinhashDedupCluster(f"{out}/buckets", f"{out}/remove", config=CONFIG)])
        run("filter", [reader(), MinhashDedupFilter(f"{out}/remove"), JsonlWriter(f"{out}/kept", compression=None)])
        kept = [json.loads(line) for file in Path(out, "kept").glob("*.jsonl") for line in file.open()]
    return {"documents": len(texts), "kept": sorted(int(document["id"]) for document in kept)}


def signatures(texts: list[str]) -> dict[str, Any]:
    """The median MB of text for each CPU second."""
    load_word_tokenizer(LANGUAGE).word_tokenize("预热一下分词器")
    rates = []
    for part in range(PARTS):
        documents = [Document(text=text, id=str(row)) for row, text in enumerate(texts[part::PARTS])]
        with tempfile.TemporaryDirectory() as out:
            step = MinhashDedupSignature(out, config=CONFIG, language=LANGUAGE)
            spent, _ = timed(partial(step.run, iter(documents)))
        rates.append(sum(len(document.text.encode()) for document in documents) / 1e6 / spent)
    return {"documents": len(texts), "mb_a_second": statistics.median(rates)}


if __name__ == "__main__":
    with open(sys.argv[1], encoding="utf-8") as lines:
        found = [json.loads(line)["text"] for line in lines]
    print(json.dumps({"duplicates": duplicates, "signatures": signatures}[sys.argv[2]](found)))
