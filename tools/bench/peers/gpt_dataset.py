"""Megatron-Core's GPTDataset and BlendedDataset; runs in the peers' environment `megatron`.

    python gpt_dataset.py arrays CASES.json OUT     the arrays and the first samples of many small runs, as OUT/NAME.npz
    python gpt_dataset.py read CASE.json            start-up time, memory and reading speed of one dataset, as JSON

A case is an object: prefixes, weights (or null), sequence_length, num_samples, seed and read (how many samples). Those
of `arrays` have a name; that of `read` has warm (map every page of the tokens first) and points (how often memory is
noted).
"""

from __future__ import annotations

import json
import logging
import sys
import tempfile
import warnings
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from tools.bench import timing

warnings.filterwarnings("ignore")  # it warns of each accelerator library that is not there
logging.disable(logging.WARNING)

from megatron.core.datasets.blended_dataset import BlendedDataset  # noqa: E402
from megatron.core.datasets.blended_megatron_dataset_builder import BlendedMegatronDatasetBuilder  # noqa: E402
from megatron.core.datasets.gpt_dataset import GPTDataset, GPTDatasetConfig  # noqa: E402


def build(case: dict[str, Any], cache: str) -> Any:
    """The training set as Megatron-LM's pretrain_gpt.py builds it."""
    config = GPTDatasetConfig(
        random_seed=case["seed"],
        sequence_length=case["sequence_length"],
        blend=(case["prefixes"], case["weights"]),
        split="100,0,0",
        path_to_cache=cache,
        tokenizer=SimpleNamespace(vocab_size=60_000, eod=0, unique_identifiers={}),
        reset_position_ids=False,
        reset_attention_mask=False,
        eod_mask_loss=False,
        create_attention_mask=False,
    )
    sizes = [case["num_samples"], 0, 0]
    return BlendedMegatronDatasetBuilder(GPTDataset, sizes, lambda: True, config).build()[0]


def arrays(cases_path: str, out: str) -> dict[str, Any]:
    """Write the arrays of each case: those of each dataset, of their blend, and the first samples."""
    import torch

    # BlendedDataset asks for its rank even where there is only one process.
    torch.distributed.init_process_group("gloo", rank=0, world_size=1, init_method=f"file://{out}/store")
    cases = json.loads(Path(cases_path).read_text())
    for case in cases:
        dataset = build(case, f"{out}/{case['name']}.cache")
        found = {}
        for number, part in enumerate(getattr(dataset, "datasets", [dataset])):
            found[f"document_{number}"] = part.document_index
            found[f"sample_{number}"] = part.sample_index
            found[f"shuffle_{number}"] = part.shuffle_index
        if isinstance(dataset, BlendedDataset):
            found |= {"datasets": dataset.dataset_index, "numbers": dataset.dataset_sample_index}
        samples = [dataset[index] for index in range(min(case.get("read", 0), len(dataset)))]
        if samples:
            found["tokens"] = np.stack([sample["tokens"].numpy() for sample in samples])
            found["labels"] = np.stack([sample["labels"].numpy() for sample in samples])
        np.savez(f"{out}/{case['name']}.npz", **found)
    return {"cases": len(cases)}


def read(case_path: str) -> dict[str, Any]:
    """Build with an empty cache until the first sample is there, then read samples in their order."""
    case = json.loads(Path(case_path).read_text())
    with tempfile.TemporaryDirectory(dir=Path(case_path).parent) as cache:
        dataset, measured = timing.run_measured(partial(open_dataset, case, cache))
    if case["warm"]:
        for pages in np.array_split(dataset.dataset.bin_reader._bin_buffer_mmap, 100):
            pages.max()

    def samples(start: int, stop: int) -> None:
        for index in range(start, stop):
            dataset[index]

    return measured | timing.watch_reads(samples, case["read"], case["points"])


def open_dataset(case: dict[str, Any], cache: str) -> Any:
    """The dataset, of which the first sample has been read."""
    dataset = build(case, cache)
    dataset[0]
    return dataset


if __name__ == "__main__":
    verb, *paths = sys.argv[1:]
    print(json.dumps(arrays(*paths) if verb == "arrays" else read(*paths)))
