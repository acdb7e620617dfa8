"""`python -m tools.bench`: choose what is timed, and one core for it."""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from corpus.engine.cli import add_examples
from corpus.engine.errors import WenhaiError
from tools.bench import __doc__ as about

EXAMPLES = """
python -m tools.bench filters --input 'data/*.parquet' --column text
python -m tools.bench filters --input 'data/*.jsonl.zst' --recipe my.toml --peers --memory
python -m tools.bench --data build/demo
python -m tools.bench extraction --labelled pages-with-gold --peers --worst 25
python -m tools.bench readers --input 'data/*.jsonl' --peers
python -m tools.bench dedup --documents 1_000_000
python -m tools.bench signatures --input 'data/*.jsonl' --peers
python -m tools.bench pipeline --input 'data/*.jsonl' --peers
python -m tools.bench encode --input 'data/*.jsonl' --peers
python -m tools.bench loader --peers --plot docs/loader-memory.svg
python -m tools.bench pretrain
python -m tools.bench offload
python -m tools.bench checkpoint
python -m tools.bench generate
"""
DEFAULT = ("filters", "signatures", "encode")  # what needs no more than the text of a build
BENCHES = {  # name: its folder
    **dict.fromkeys(("filters", "readers", "extraction", "dedup", "signatures", "pipeline"), "corpus."),
    **dict.fromkeys(("loader", "encode"), "tokenizer."),
    **dict.fromkeys(("pretrain", "offload", "checkpoint", "generate"), "pretrain."),
}


def main(words: Sequence[str] | None = None) -> None:
    """Parse, keep to one core, print a table."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.bench", description=about, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_examples(parser, EXAMPLES)
    parser.add_argument("what", nargs="*", metavar="WHAT", help=f"{', '.join(BENCHES)} (default: {' '.join(DEFAULT)})")
    parser.add_argument(
        "--data",
        type=Path,
        help="the output folder of a finished build; dedup, loader, checkpoint: where to work",
    )
    parser.add_argument("--labelled", type=Path, help="extraction: a folder with gold.jsonl and pages/")
    parser.add_argument("--strip-classes", action="store_true", help="extraction: pages without class and id")
    parser.add_argument("--worst", type=int, default=10, help="extraction: how many of our worst pages (default: 10)")
    parser.add_argument("--input", nargs="+", metavar="GLOB", help="JSONL or Parquet files with text; not of dedup")
    parser.add_argument(
        "--recipe", default="web_zh", help="filters, pipeline: whose rules and stages (default: web_zh)"
    )
    parser.add_argument("--column", default="text", help="of --input: the field or column with the text")
    parser.add_argument(
        "--peers", action="store_true", help="install what others use, below build/peers, and time it as well"
    )
    parser.add_argument("--memory", action="store_true", help="filters: also the peak memory on a JSONL.zst of 1 GB")
    parser.add_argument("--documents", type=int, default=1_000_000, help="dedup: how many (default: a million)")
    parser.add_argument("--planted", type=float, default=0.1, help="dedup: share of documents in planted clusters")
    parser.add_argument("--workers", type=int, default=0, help="dedup: processes (default: one, this one's child)")
    parser.add_argument("--megabytes", type=float, default=160, help="pipeline: of text to make (default: 160)")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="pipeline: over the recipe")
    parser.add_argument(
        "--samples",
        type=int,
        nargs="+",
        default=[10**6, 10**8, 10**10],
        help="loader: of the runs (default: 10^6, 10^8 and 10^10)",
    )
    parser.add_argument("--plot", type=Path, metavar="SVG", help="loader: draw the memory over samples")
    parser.add_argument("--steps", type=int, default=500, help="offload: of each run (default: 500)")
    parser.add_argument("--checkpoint", type=Path, help="generate: a step-... folder of a run, beside random models")
    parser.add_argument("--out", type=Path, help="pipeline, extraction: keep inputs and results there")
    arguments = parser.parse_args(words)
    if unknown := [what for what in arguments.what if what not in BENCHES]:
        parser.error(f"no benchmark is called {', '.join(unknown)}. Choose from {', '.join(BENCHES)}")
    os.environ["OMP_NUM_THREADS"] = "1"  # before numpy is loaded, and for children
    for what in arguments.what or DEFAULT:
        importlib.import_module(f"tools.bench.{BENCHES[what]}{what}").run(arguments)  # after the line above


if __name__ == "__main__":
    try:
        main()
    except WenhaiError as error:
        sys.exit(f"bench: {error}")
