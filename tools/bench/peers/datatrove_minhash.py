"""datatrove's MinHash deduplication on documents; runs in the peers' environment.

    python datatrove_minhash.py DOCUMENTS.jsonl

Its setting for Chinese, as FineWeb-2 runs it: word 5-grams (language `cmn_Hani`, jieba), 14 buckets of 8 hashes, 64 bits.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

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

LANGUAGE = "cmn_Hani"


def main(path: str) -> None:
    """Print the line numbers of the documents that it keeps."""
    config = MinhashConfig(n_grams=5, num_buckets=14, hashes_per_bucket=8, hash_config=HashConfig(precision=64))
    documents = [json.loads(line) for line in Path(path).read_text(encoding="utf-8").splitlines()]
    with tempfile.TemporaryDirectory() as out:
        source = Path(out, "in")
        source.mkdir()
        lines = [json.dumps({"text": entry["text"], "id": str(row)}) for row, entry in enumerate(documents)]
        Path(source, "documents.jsonl").write_text("\n".join(lines))

        def run(name: str, steps: list[Any], tasks: int = 1) -> None:
            LocalPipelineExecutor(pipeline=steps, tasks=tasks, workers=1, logging_dir=f"{out}/logs/{name}").run()

        def reader() -> Any:
            return JsonlReader(str(source), glob_pattern="*.jsonl", compression=None)

        run("signatures", [reader(), MinhashDedupSignature(f"{out}/signatures", config=config, language=LANGUAGE)])
        run("buckets", [MinhashDedupBuckets(f"{out}/signatures", f"{out}/buckets", config=config)], config.num_buckets)
        run("clusters", [MinhashDedupCluster(f"{out}/buckets", f"{out}/remove", config=config)])
        run("filter", [reader(), MinhashDedupFilter(f"{out}/remove"), JsonlWriter(f"{out}/kept", compression=None)])
        kept = [json.loads(line) for file in Path(out, "kept").glob("*.jsonl") for line in file.open()]
    print(json.dumps({"documents": len(documents), "kept": sorted(int(document["id"]) for document in kept)}))


if __name__ == "__main__":
    main(sys.argv[1])
