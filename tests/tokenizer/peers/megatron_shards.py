"""Token files by megatron-core's own code, in its own environment: reads ours, draws samples of them, writes some for
us.

read PREFIX...                                      digests of every sequence that `IndexedDataset` gives
samples PREFIX T N SEED EOD VOCABULARY OUT.npz      the first N samples of `GPTDataset`, and its three indices
write DOCUMENTS.json PREFIX DTYPE                   documents, each a list of sequences, by `IndexedDatasetBuilder`
"""

from __future__ import annotations

import hashlib
import json
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from megatron.core.datasets.gpt_dataset import GPTDataset, GPTDatasetConfig
from megatron.core.datasets.indexed_dataset import IndexedDataset, IndexedDatasetBuilder
from megatron.core.datasets.utils import Split


def read(*prefixes: str) -> list[dict[str, Any]]:
    """Counts of each file, and a digest over its sequences as it numbers them."""
    found = []
    for prefix in prefixes:
        dataset, hasher, num_tokens = IndexedDataset(prefix), hashlib.sha256(), 0
        for index in range(len(dataset)):
            ids = dataset[index]
            hasher.update(len(ids).to_bytes(8, "little") + ids.astype("<i8").tobytes())
            num_tokens += len(ids)
        documents = dataset.document_indices.tolist()
        counts = {"sequences": len(dataset), "documents": len(documents) - 1, "tokens": num_tokens}
        is_one_each = documents == list(range(len(dataset) + 1))
        found.append(counts | {"dtype": ids.dtype.name, "one_each": is_one_each, "sha256": hasher.hexdigest()})
    return found


def samples(prefix: str, length: str, count: str, seed: str, eod: str, vocabulary: str, out: str) -> dict[str, Any]:
    """Write tokens and labels of the first samples, and the document, sample and shuffle index."""
    dataset = IndexedDataset(prefix)
    with tempfile.TemporaryDirectory() as cache:
        config = GPTDatasetConfig(
            random_seed=int(seed),
            sequence_length=int(length),
            blend=([prefix], None),
            split="1,0,0",
            path_to_cache=cache,
            tokenizer=SimpleNamespace(eod=int(eod), pad=-1, vocab_size=int(vocabulary), unique_identifiers={}),
            reset_position_ids=False,
            reset_attention_mask=False,
            eod_mask_loss=False,
            create_attention_mask=False,
        )
        documents = np.arange(len(dataset.document_indices) - 1, dtype=np.int32)
        drawn = GPTDataset(dataset, prefix, documents, int(count), Split.train, config)
        rows = [drawn[index] for index in range(int(count))]
    np.savez(
        out,
        tokens=torch.stack([row["tokens"] for row in rows]).numpy(),
        labels=torch.stack([row["labels"] for row in rows]).numpy(),
        document_index=drawn.document_index,
        sample_index=drawn.sample_index,
        shuffle_index=drawn.shuffle_index,
    )
    return {"samples": len(rows), "all": len(drawn)}


def write(path: str, prefix: str, dtype: str) -> dict[str, Any]:
    """Write documents of several sequences each."""
    builder = IndexedDatasetBuilder(f"{prefix}.bin", dtype=getattr(np, dtype))
    documents = json.loads(Path(path).read_text())
    for document in documents:
        for sequence in document:
            builder.add_item(torch.tensor(sequence, dtype=torch.int64))
        builder.end_document()
    builder.finalize(f"{prefix}.idx")
    return {"documents": len(documents), "sequences": sum(map(len, documents))}


COMMANDS: dict[str, Callable[..., Any]] = {"read": read, "samples": samples, "write": write}

if __name__ == "__main__":
    print(json.dumps(COMMANDS[sys.argv[1]](*sys.argv[2:])))
