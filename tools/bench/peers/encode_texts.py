"""kitoken or Hugging Face tokenizers on one core, a document a call; runs in the peers' environment `tokenizers`.

    python encode_texts.py kitoken|tokenizers MODEL WARM.jsonl TEXTS.jsonl IDS.npz

Each document of TEXTS is encoded once, after those of WARM; prints CPU seconds, and writes all ids and their number by
document.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np

from tools.bench.timing import timed

Encode = Callable[[str], list[int]]


def load(library: str, model: str) -> Encode:
    """The encoder of a library; kitoken reads the `.model`, tokenizers a `tokenizer.json`."""
    if library == "kitoken":
        from kitoken import Kitoken  # type: ignore[import-not-found]

        kitoken = Kitoken.from_file(model)
        return lambda text: kitoken.encode(text, False)
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(model)
    return lambda text: tokenizer.encode(text, add_special_tokens=False).ids


def read(path: str) -> list[str]:
    with open(path, encoding="utf-8") as lines:
        return [json.loads(line)["text"] for line in lines]


def main() -> None:
    library, model, warm, texts, out = sys.argv[1:]
    encode = load(library, model)
    for text in read(warm):
        encode(text)
    documents = read(texts)
    seconds, found = timed(lambda: [encode(text) for text in documents])
    ids = np.fromiter((id for one in found for id in one), np.int32)
    np.savez(Path(out), ids=ids, lengths=[len(one) for one in found])
    print(json.dumps({"seconds": seconds}))


if __name__ == "__main__":
    main()
