"""The command line: parses, calls the module of the command, turns errors into messages and exit codes."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from importlib import import_module

from corpus.engine.errors import WenhaiError

EXAMPLES = """
examples:
  python -m pretrain train --config demo --data build/demo --out build/demo-gpt --nproc 2
  python -m pretrain train --config demo --data build/demo --out runs/a --set training.num_steps=1000
  torchrun --nproc-per-node 8 -m pretrain train --config gpt2-124m --data build/web --out runs/gpt2
  python -m pretrain generate --checkpoint runs/a/checkpoints/step-00001000 --prompt 春天
  python -m pretrain evaluate --checkpoint runs/a/checkpoints/step-00001000 --data build/demo
  python -m pretrain COMMAND --help

exit codes: 0 done, 1 failed, 2 usage or configuration, 3 another run holds the folder, 75 stopped, can be
resumed
"""

COMMANDS = {  # name: (module with add_arguments and main, help)
    "train": ("pretrain.launch", "train a model, or go on with a run"),
    "generate": ("pretrain.generate", "continue a prompt"),
    "evaluate": ("pretrain.evaluate", "held-out bits per character of a checkpoint"),
    "trace": ("pretrain.trace", "the documents that a training step saw"),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns its exit code."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    options = build_parser(arguments).parse_args(arguments)
    try:
        return int(options.run(options))
    except WenhaiError as error:
        if os.environ.get("RANK", "0") == "0":  # all ranks raise it, one says it
            print(f"pretrain: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("pretrain: interrupted before training began; nothing was changed.", file=sys.stderr)
        return 75


def build_parser(arguments: Sequence[str]) -> argparse.ArgumentParser:
    """The parser; only the module of the command that is called is imported, so that --help needs no torch."""
    parser = argparse.ArgumentParser(
        prog="pretrain",
        description="Train GPTs on token shards, and use them.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, (module_name, text) in COMMANDS.items():
        command = commands.add_parser(name, help=text, description=text)
        if name in arguments:
            module = import_module(module_name)
            module.add_arguments(command)
            command.set_defaults(run=module.main)
    return parser


if __name__ == "__main__":
    sys.exit(main())
