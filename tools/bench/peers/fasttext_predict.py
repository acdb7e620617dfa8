"""fastText's `predict` on documents already split into characters; runs in the peers' environment.

    python fasttext_predict.py DOCUMENTS.jsonl

The model is trained here on labels that mean nothing: its speed does not depend on them. One word a character, word
bigrams and 100 dimensions are what ChineseWebText's filter has; splitting is not timed.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

import fasttext

from tools.bench import timing


def main(path: str) -> None:
    """Print documents, bytes, CPU seconds of one run, and the median rate."""
    with open(path, encoding="utf-8") as file:
        texts = [json.loads(line)["text"] for line in file]
    spaced = [" ".join(text.replace("\n", "")) for text in texts]
    with tempfile.TemporaryDirectory() as folder:
        training = Path(folder, "train.txt")
        lines = [f"__label__{row % 2} {text}\n" for row, text in enumerate(spaced)]
        training.write_text("".join(lines), encoding="utf-8")
        model = fasttext.train_supervised(
            str(training), lr=0.5, epoch=1, wordNgrams=2, dim=100, bucket=200_000, thread=1, verbose=0
        )
    size = sum(len(text.encode()) for text in texts)
    spent = timing.seconds_of(lambda: [model.predict(text) for text in spaced])
    print(json.dumps({"documents": len(texts), "bytes": size, "cpu_seconds": spent, "mb_a_second": size / 1e6 / spent}))


if __name__ == "__main__":
    main(*sys.argv[1:])
