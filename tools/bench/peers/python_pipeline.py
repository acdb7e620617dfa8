"""The text side as one would write it of the usual Python components; runs in the peers' environment `pipeline`.

    python python_pipeline.py DOCUMENTS.jsonl TOKENIZER.model

Document by document in one process: zstandard and json read it, datatrove's FineWeb-2 filters for Chinese (jieba) and
its masking of personal data judge and edit it, OpenCC folds the scripts and datasketch's MinHashLSH finds its twin,
json and zstandard write it, SentencePiece encodes it into a file of uint16. Permutations, n-grams and bands are ours.
Imports, jieba's dictionary and the model are loaded before; a document that one step drops costs the next ones nothing.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from io import TextIOWrapper
from pathlib import Path

import numpy as np
import opencc
import sentencepiece
import zstandard
from datasketch import MinHash, MinHashLSH
from datatrove.data import Document
from datatrove.utils.word_tokenizers import load_word_tokenizer

from tools.bench.peers import datatrove_rules

NGRAM = 5
PERMUTATIONS = 112
BANDS, ROWS = 14, 8
LEVEL = 3

seconds: dict[str, float] = defaultdict(float)


@contextmanager
def charge_time(step: str) -> Iterator[None]:
    """Charge CPU time to a step."""
    start = time.process_time()
    yield
    seconds[step] += time.process_time() - start


def main(path: str, model: str) -> None:
    """Print documents, bytes, kept documents, and CPU seconds by step."""
    load_word_tokenizer(datatrove_rules.LANGUAGE).word_tokenize("预热一下分词器")
    converter = opencc.OpenCC("t2s")
    processor = sentencepiece.SentencePieceProcessor(model_file=model)
    index = MinHashLSH(num_perm=PERMUTATIONS, params=(BANDS, ROWS))
    *rules, personal = datatrove_rules.steps("fineweb2")
    kept = number = size = 0
    with tempfile.TemporaryDirectory() as folder:
        packed = Path(folder, "in.jsonl.zst")
        packed.write_bytes(zstandard.ZstdCompressor(LEVEL).compress(Path(path).read_bytes()))
        with (
            open(packed, "rb") as source,
            zstandard.ZstdDecompressor().stream_reader(source) as stream,
            open(Path(folder, "out.jsonl.zst"), "wb") as target,
            zstandard.ZstdCompressor(LEVEL).stream_writer(target) as writer,
            open(Path(folder, "tokens.bin"), "wb") as tokens,
        ):
            lines = iter(TextIOWrapper(stream, encoding="utf-8"))
            while True:
                with charge_time("zstandard, json: read"):
                    line = next(lines, None)
                    document = Document(text=json.loads(line)["text"], id=str(number)) if line else None
                if document is None:
                    break
                number += 1
                size += len(document.text.encode())
                with charge_time("datatrove: FineWeb-2 cmn_Hani filters"):
                    passed = all(step.filter(document) is True for step in rules)
                if not passed:
                    continue
                with charge_time("datatrove: personal data"):
                    document.text = personal.format(document.text)
                with charge_time("opencc: t2s"):
                    folded = converter.convert(document.text)
                with charge_time("datasketch: minima"):
                    shingles = {folded[start : start + NGRAM] for start in range(max(1, len(folded) - NGRAM + 1))}
                    signature = MinHash(num_perm=PERMUTATIONS)
                    signature.update_batch([shingle.encode() for shingle in shingles])
                with charge_time("datasketch: MinHashLSH"):
                    twins = index.query(signature)
                    if not twins:
                        index.insert(document.id, signature)
                if twins:
                    continue
                kept += 1
                with charge_time("json, zstandard: write"):
                    writer.write(json.dumps({"text": document.text}, ensure_ascii=False).encode() + b"\n")
                with charge_time("sentencepiece"):
                    np.array(processor.encode(document.text), np.uint16).tofile(tokens)
    print(json.dumps({"documents": number, "bytes": size, "kept": kept, "seconds": seconds}, ensure_ascii=False))


if __name__ == "__main__":
    main(*sys.argv[1:])
