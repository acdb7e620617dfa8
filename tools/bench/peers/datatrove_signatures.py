"""datatrove's MinHash signature step on documents, timed; runs in the peers' environment.

    python datatrove_signatures.py DOCUMENTS.jsonl

Its setting for Chinese, as FineWeb-2 runs it: word 5-grams (language `cmn_Hani`, jieba), 14 buckets of 8 hashes, 64 bits.
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
import time

from datatrove.data import Document
from datatrove.pipeline.dedup import MinhashDedupSignature
from datatrove.pipeline.dedup.minhash import MinhashConfig
from datatrove.utils.hashing import HashConfig
from datatrove.utils.word_tokenizers import load_word_tokenizer

LANGUAGE = "cmn_Hani"
PARTS = 3  # each timed by itself: different documents, so that no run is of text that was seen


def main(path: str) -> None:
    """Print the median MB of text for each CPU second."""
    config = MinhashConfig(n_grams=5, num_buckets=14, hashes_per_bucket=8, hash_config=HashConfig(precision=64))
    with open(path, encoding="utf-8") as file:
        texts = [json.loads(line)["text"] for line in file]
    load_word_tokenizer(LANGUAGE).word_tokenize("预热一下分词器")
    rates = []
    for part in range(PARTS):
        documents = [Document(text=text, id=str(row)) for row, text in enumerate(texts[part::PARTS])]
        with tempfile.TemporaryDirectory() as out:
            step = MinhashDedupSignature(out, config=config, language=LANGUAGE)
            start = time.process_time()
            step.run(iter(documents))
            spent = time.process_time() - start
        rates.append(sum(len(document.text.encode()) for document in documents) / 1e6 / spent)
    print(json.dumps({"documents": len(texts), "mb_a_second": statistics.median(rates)}))


if __name__ == "__main__":
    main(sys.argv[1])
