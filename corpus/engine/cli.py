"""What every command line of ours does the same way: messages on stderr, exit codes, a closed pipe, Ctrl-C.

Exit codes: 0 done, 1 failed, 2 usage, recipe or configuration, 3 another run holds the lock, 4 the input needs a look,
75 stopped but resumable.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from importlib import import_module
from typing import Any, NamedTuple

from corpus.engine.errors import Stopped, UsageError, WenhaiError

EXIT_CODES = """
exit codes: 0 done, 1 failed, 2 usage, recipe or configuration, 3 another run holds the folder,
            4 the input needs a look, 75 stopped, run again to resume
"""

CONTROLS = {code: None for code in (*range(32), *range(127, 160)) if chr(code) not in "\n\t"}  # names hold some


class Command(NamedTuple):
    """A command of a package: the module with its `add_arguments` and `main`, a line of help, examples, what else
    `main` gets."""

    module: str
    summary: str
    examples: str
    given: Callable[[], Mapping[str, Any]] = dict
    was: str = ""  # its name in the version before, which still works


def run_package(package: str, description: str, commands: Mapping[str, Command], words: Sequence[str] | None) -> int:
    """Run one command of `python -m PACKAGE`; only its module is imported, so that --help needs no library."""
    words = list(sys.argv[1:] if words is None else words)
    parser = argparse.ArgumentParser(prog=f"python -m {package}", description=description)
    add_examples(parser, "\n".join(command.examples.strip() for command in commands.values()))
    parser.epilog = f"{parser.epilog}\n{EXIT_CODES}"
    verbs = parser.add_subparsers(title="commands", metavar="COMMAND")
    for name, command in commands.items():
        verb = verbs.add_parser(name, help=command.summary, description=command.summary)
        add_examples(verb, command.examples)
        if command.was and words[:1] == [command.was]:
            print(
                f"{package}: {command.was} is called {name} now; the old name goes with the next version.",
                file=sys.stderr,
            )
            words = [name, *words[1:]]
        if words[:1] == [name]:
            module = import_module(command.module)
            module.add_arguments(verb)
            verb.set_defaults(command=partial(module.main, **command.given()))
    return run_command(package, parser, words)


def run_command(program: str, parser: argparse.ArgumentParser, arguments: Sequence[str] | None) -> int:
    """Parse, call the chosen `command`, and turn errors into messages and exit codes; returns the exit code."""
    for stream in (sys.stdout, sys.stderr):  # Chinese in and out, whatever the locale says
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding="utf-8", errors="backslashreplace")
    parsed = parser.parse_args(arguments)
    command: Callable[[argparse.Namespace], None] | None = getattr(parsed, "command", None)
    if command is None:
        parser.print_help(sys.stderr)
        return 2
    try:
        command(parsed)
        sys.stdout.flush()
        return 0
    except WenhaiError as error:
        print(f"{program}: {str(error).translate(CONTROLS)}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print(f"{program}: stopped. Run the same command again to resume.", file=sys.stderr)
        return Stopped.exit_code
    except BrokenPipeError:  # the reader of our output went away, for example `| head`
        _discard_output()
        return 0
    except OSError as error:  # not our bug but the machine's answer, of which only the kernel's words are known
        where = error.filename or "input or output"
        print(
            f"{program}: {where}: {error.strerror or error}. Mend it and run the same command again.", file=sys.stderr
        )
        _discard_output()
        return WenhaiError.exit_code


def add_out_arguments(parser: argparse.ArgumentParser) -> None:
    """Of a command that looks into a build: its folder, and whether JSON is wanted."""
    parser.add_argument("out", metavar="OUT", help="the output folder of a run")
    parser.add_argument("--json", action="store_true", help="print JSON")


def print_json(value: Any) -> None:
    """A value as indented JSON, Chinese as it is."""
    print(json.dumps(value, ensure_ascii=False, indent=1))


def add_executor_arguments(
    parser: argparse.ArgumentParser, default: str = "one a CPU that this process may use"
) -> None:
    """Who does the tasks of a run: `--workers`, `--executor`, `--address`."""
    parser.add_argument("--workers", type=int, metavar="N", help=f"processes (default: {default}; 0: none)")
    parser.add_argument(
        "--executor", choices=("local", "ray"), default="local", help="processes here, or a Ray cluster's machines"
    )
    parser.add_argument(
        "--address", metavar="HOST:PORT", help="the cluster (default: auto, the one this machine belongs to)"
    )


def cluster_address(arguments: argparse.Namespace) -> str | None:
    """The Ray cluster that does the tasks, None for this machine.

    Raises:
        UsageError: the options contradict each other.
    """
    workers: int | None = arguments.workers
    if workers is not None and workers < 0:
        raise UsageError(f"--workers {workers}: give 0 (run in this process) or more.")
    if arguments.executor == "local":
        if arguments.address is not None:
            raise UsageError(f"--address {arguments.address}: only for --executor ray.")
        return None
    if workers is not None:
        raise UsageError(
            "--workers: the cluster's CPUs count with --executor ray. Use [resources.STAGE] in the recipe."
        )
    return arguments.address or "auto"


def _discard_output() -> None:
    """What is still buffered must not fail once more when the interpreter leaves."""
    with suppress(OSError):  # a captured stream has no number
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def add_examples(parser: argparse.ArgumentParser, examples: str) -> None:
    """Show examples under a parser's help, as they are written."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = "examples:\n" + "\n".join(f"  {line}" for line in examples.strip().splitlines())
