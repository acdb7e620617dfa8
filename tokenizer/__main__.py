"""The command line: parses, and calls the module of the command."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from importlib import import_module

from corpus.engine.cli import add_examples, run_command

COMMANDS = {  # name: (module with add_arguments and main, help, examples)
    "run": (
        "tokenizer.commands.run",
        "train a vocabulary and encode the text; what is done already is skipped",
        """
python -m tokenizer run --recipe demo --out build/demo              # the text stage of a finished `corpus run`
python -m tokenizer run --out build/mine --text 'data/*.parquet'    # any Parquet files with a `text` column
""",
    ),
    "adopt": (
        "tokenizer.commands.adopt",
        "make token shards of Megatron's .bin and .idx, or of datatrove's .ds",
        """
python -m tokenizer adopt old/part-*.idx --tokenizer build/demo --out build/adopted
python -m tokenizer adopt old/train.ds --validation old/heldout.ds --tokenizer build/demo --out build/adopted --append-eod
""",
    ),
    "check": (
        "tokenizer.commands.check",
        "check a recipe's [tokenizer] section and print it with its defaults filled in",
        """
python -m tokenizer check --recipe demo --set tokenizer.vocab_size=16000
""",
    ),
    "report": (
        "tokenizer.commands.report",
        "tell what a tokenizer is like: by source, its pieces, the suspicious ones",
        """
python -m tokenizer report build/demo --html tokenizer.html         # what training measured, also as a page
python -m tokenizer report a.model --text 'data/*.parquet'
""",
    ),
    "compare": (
        "tokenizer.commands.compare",
        "compare tokenizers on the same texts, and say which is better at what",
        """
python -m tokenizer compare build/demo a.model --text 'data/*.parquet'
""",
    ),
    "inspect": (
        "tokenizer.commands.inspect",
        "what the shards hold: documents, tokens, characters per token, bytes, by split",
        """
python -m tokenizer inspect build/demo
python -m tokenizer inspect build/demo --json
""",
    ),
    "verify": (
        "tokenizer.commands.verify",
        "read every shard and compare every checksum; files that no manifest lists are named",
        """
python -m tokenizer verify build/demo                               # read every shard, check every checksum
""",
    ),
    "head": (
        "tokenizer.commands.head",
        "print the first documents of the first shard as text, with their token counts",
        """
python -m tokenizer head build/demo -n 2
""",
    ),
    "locate": (
        "tokenizer.commands.locate",
        "which document holds a token, and where in the shards a document lies",
        """
python -m tokenizer locate build/demo --token 123456                # of the training split
python -m tokenizer locate build/demo --url https://example.org/1   # all its copies
""",
    ),
    "encode": (
        "tokenizer.commands.encode",
        "print the ids (or pieces) of the text on standard input",
        """
echo 学而时习之 | python -m tokenizer encode --tokenizer build/demo --pieces
""",
    ),
    "decode": (
        "tokenizer.commands.decode",
        "print the text of tokens of a shard, or of the ids on standard input, byte for byte",
        """
python -m tokenizer decode build/demo --shard 00000-00-train --sequence 5
python -m tokenizer decode build/demo --shard 00000-00-train --tokens 0:100 --pieces
echo 学而时习之 | python -m tokenizer encode --tokenizer build/demo | python -m tokenizer decode --tokenizer build/demo
""",
    ),
    "export": (
        "tokenizer.commands.export",
        "write tokenizer.json and a folder for transformers, proven to give equal ids on the text",
        """
python -m tokenizer export build/demo --out build/demo-hf --text build/demo --documents 500
""",
    ),
}
EXIT_CODES = """
exit codes: 0 done, 1 failed, 2 usage or recipe, 3 another run holds the folder, 75 stopped, run again to resume
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code."""
    words = sys.argv[1:] if arguments is None else arguments
    return run_command("tokenizer", build_parser(words), words)


def build_parser(words: Sequence[str]) -> argparse.ArgumentParser:
    """The parser; only the module of the command that is called is imported, so that --help needs no library."""
    parser = argparse.ArgumentParser(
        prog="python -m tokenizer", description="Train a tokenizer, encode documents into token shards, look into them."
    )
    add_examples(parser, "\n".join(examples.strip() for _, _, examples in COMMANDS.values()))
    parser.epilog = f"{parser.epilog}\n{EXIT_CODES}"
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for name, (module_name, text, examples) in COMMANDS.items():
        command = commands.add_parser(name, help=text, description=text)
        add_examples(command, examples)
        if name in words:
            module = import_module(module_name)
            module.add_arguments(command)
            command.set_defaults(command=module.main)
    return parser


if __name__ == "__main__":
    sys.exit(main())
