"""The command line: parses, and calls the module of the command."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from corpus.engine.cli import Command, run_package

COMMANDS = {
    "run": Command(
        "tokenizer.commands.run",
        "train a vocabulary and encode the text; what is done already is skipped",
        """
python -m tokenizer run --recipe demo --out build/demo              # the text stage of a finished `corpus run`
python -m tokenizer run --out build/mine --text 'data/*.parquet'    # any Parquet files with a `text` column
""",
    ),
    "import": Command(
        "tokenizer.commands.import_shards",
        "make token shards of Megatron's .bin and .idx, or of datatrove's .ds",
        """
python -m tokenizer import old/part-*.idx --tokenizer build/demo --out build/own
python -m tokenizer import old/train.ds --validation old/held.ds --tokenizer build/demo --out build/own --append-eod
""",
        was="adopt",
    ),
    "check": Command(
        "tokenizer.commands.check",
        "check a recipe's [tokenizer] section and print it with its defaults filled in",
        """
python -m tokenizer check --recipe demo --set tokenizer.vocab_size=16000
""",
    ),
    "report": Command(
        "tokenizer.commands.report",
        "tell what a tokenizer is like: by source, its pieces, the suspicious ones",
        """
python -m tokenizer report build/demo --html tokenizer.html         # what training measured, also as a page
python -m tokenizer report a.model --text 'data/*.parquet'
""",
    ),
    "compare": Command(
        "tokenizer.commands.compare",
        "compare tokenizers on the same texts, and say which is better at what",
        """
python -m tokenizer compare build/demo a.model --text 'data/*.parquet'
""",
    ),
    "inspect": Command(
        "tokenizer.commands.inspect",
        "what the shards hold: documents, tokens, characters per token, bytes, by split",
        """
python -m tokenizer inspect build/demo
python -m tokenizer inspect build/demo --json
""",
    ),
    "verify": Command(
        "tokenizer.commands.verify",
        "read every shard and compare every checksum; files that no manifest lists are named",
        """
python -m tokenizer verify build/demo                               # read every shard, check every checksum
""",
    ),
    "head": Command(
        "tokenizer.commands.head",
        "print the first documents of the first shard as text, with their token counts",
        """
python -m tokenizer head build/demo -n 2
""",
    ),
    "locate": Command(
        "tokenizer.commands.locate",
        "which document holds a token, and where in the shards a document lies",
        """
python -m tokenizer locate build/demo --token 123456                # of the training split
python -m tokenizer locate build/demo --url https://example.org/1   # all its copies
""",
    ),
    "encode": Command(
        "tokenizer.commands.encode",
        "print the ids (or pieces) of the text on standard input",
        """
echo 学而时习之 | python -m tokenizer encode --tokenizer build/demo --pieces
""",
    ),
    "decode": Command(
        "tokenizer.commands.decode",
        "print the text of tokens of a shard, or of the ids on standard input, byte for byte",
        """
python -m tokenizer decode build/demo --shard 00000-00-train --sequence 5
python -m tokenizer decode build/demo --shard 00000-00-train --tokens 0:100 --pieces
echo 学而时习之 | python -m tokenizer encode --tokenizer build/demo | python -m tokenizer decode --tokenizer build/demo
""",
    ),
    "export": Command(
        "tokenizer.commands.export",
        "write tokenizer.json and a folder for transformers, proven to give equal ids on the text",
        """
python -m tokenizer export build/demo --out build/demo-hf --text build/demo --documents 500
""",
    ),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code."""
    return run_package(
        "tokenizer", "Train a tokenizer, encode documents into token shards, look into them.", COMMANDS, arguments
    )


if __name__ == "__main__":
    sys.exit(main())
