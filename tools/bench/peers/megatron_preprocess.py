"""What Megatron-LM's tools/preprocess_data.py does to a JSONL file, on one core; runs in the peers' environment
`megatron`.

    python megatron_preprocess.py MODEL WARM.jsonl TEXTS.jsonl OUT

As there with `--workers 1`: a process of a pool parses a line, encodes its text by megatron-core's own
SentencePieceTokenizer, adds the end-of-document token and sends ids and lengths back, 32 documents at a time; the
parent gives them to IndexedDatasetBuilder.add_document. Prints the CPU seconds of both without imports, model and
warming.
"""

from __future__ import annotations

import json
import multiprocessing
import sys
import time

from megatron.core.datasets.indexed_dataset import DType, IndexedDatasetBuilder
from megatron.core.tokenizers.text.libraries.sentencepiece_tokenizer import SentencePieceTokenizer


class Encoder:
    """A text to ids, as preprocess_data's Encoder without sentence splitting; its state is of the pool's process."""

    tokenizer: SentencePieceTokenizer
    eod: int
    started: float

    def __init__(self, model: str, warm: str) -> None:
        self.model, self.warm = model, warm

    def initializer(self) -> None:
        Encoder.tokenizer = SentencePieceTokenizer(self.model)
        Encoder.eod = Encoder.tokenizer.tokenizer.piece_to_id("<|endoftext|>")
        with open(self.warm, encoding="utf-8") as lines:
            for line in lines:
                Encoder.tokenizer.text_to_ids(json.loads(line)["text"])
        Encoder.started = time.process_time()

    def encode(self, line: str) -> tuple[dict[str, list[int]], dict[str, list[int]], int]:
        ids: list[int] = []
        lengths = []
        for sentence in [json.loads(line)["text"]]:
            found = Encoder.tokenizer.text_to_ids(sentence)
            if len(found) > 0:
                ids.extend(found)
                lengths.append(len(found))
        if ids:
            ids.append(Encoder.eod)
            lengths[-1] += 1
        return {"text": ids}, {"text": lengths}, len(line)

    def seconds(self, _: int) -> float:
        """CPU seconds of the pool's process since it was warm."""
        return time.process_time() - Encoder.started


def main() -> None:
    model, warm, texts, out = sys.argv[1:]
    num_ids = SentencePieceTokenizer(model).tokenizer.vocab_size()
    encoder = Encoder(model, warm)
    with multiprocessing.Pool(1, initializer=encoder.initializer) as pool:
        pool.apply(encoder.seconds, (0,))  # it is warm then
        start = time.process_time()
        builder = IndexedDatasetBuilder(f"{out}.bin", dtype=DType.optimal_dtype(num_ids))
        with open(texts, encoding="utf-8") as lines:
            for ids, lengths, _ in pool.imap(encoder.encode, lines, 32):
                for key in ids:
                    builder.add_document(ids[key], lengths[key])
        builder.finalize(f"{out}.idx")
        seconds = time.process_time() - start + pool.apply(encoder.seconds, (0,))
    print(json.dumps({"seconds": seconds}))


if __name__ == "__main__":
    main()
