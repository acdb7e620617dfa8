"""text-dedup's MinHash deduplication on documents, one token a character; runs in the peers' environment `text_dedup`.

    python text_dedup_minhash.py DOCUMENTS.jsonl

As it ships, a token is what stands between two non-word characters: of Chinese, a clause, and documents of fewer than
five are deleted. Here its splitter is replaced by one that gives the single word characters, so that it is compared at
its best. 5-grams, 112 permutations, 14 bands of 8.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

import datasets
import text_dedup.minhash as peer

OPTIONS = "--split train --column text --ngram 5 --num_perm 112 --b 14 --r 8 --hash_func xxh3 --num_proc 1".split()


class Characters:
    """Stands in for the compiled pattern that it splits with."""

    def split(self, text: str) -> list[str]:
        """The word characters of a text."""
        return [character for character in text if character.isalnum() or character == "_"]


def main(path: str) -> None:
    """Print the line numbers of the documents that it keeps."""
    peer.NON_ALPHA = Characters()
    documents = [json.loads(line) for line in Path(path).read_text(encoding="utf-8").splitlines()]
    with tempfile.TemporaryDirectory() as out:
        source = Path(out, "documents.jsonl")
        source.write_text(
            "\n".join(json.dumps({"text": entry["text"], "row": row}) for row, entry in enumerate(documents))
        )
        files = [
            "--path",
            "json",
            "--data_files",
            str(source),
            "--output",
            f"{out}/kept",
            "--cache_dir",
            f"{out}/cache",
        ]
        peer.main(files + OPTIONS, standalone_mode=False)
        kept = sorted(datasets.load_from_disk(f"{out}/kept")["row"])
    print(json.dumps({"documents": len(documents), "kept": kept}))


if __name__ == "__main__":
    main(sys.argv[1])
