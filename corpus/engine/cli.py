"""What every command line of ours does the same way: messages on stderr, exit codes, a closed pipe, Ctrl-C.

Exit codes: 0 done, 1 failed, 2 usage or recipe, 3 another run holds the lock, 75 stopped but resumable.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable

from corpus.engine.errors import Stopped, WenhaiError

Command = Callable[[argparse.Namespace], None]


def run_command(program: str, parser: argparse.ArgumentParser, arguments: list[str] | None) -> int:
    """Parse, call the chosen `command`, and turn errors into messages and exit codes; returns the exit code."""
    parsed = parser.parse_args(arguments)
    command: Command | None = getattr(parsed, "command", None)
    if command is None:
        parser.print_help(sys.stderr)
        return 2
    try:
        command(parsed)
        sys.stdout.flush()
        return 0
    except WenhaiError as error:
        print(f"{program}: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print(f"{program}: stopped. Run the same command again to resume.", file=sys.stderr)
        return Stopped.exit_code
    except BrokenPipeError:  # the reader of our output went away, for example `| head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


def add_examples(parser: argparse.ArgumentParser, examples: str) -> None:
    """Show examples under a parser's help, as they are written."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = "examples:\n" + "\n".join(f"  {line}" for line in examples.strip().splitlines())
