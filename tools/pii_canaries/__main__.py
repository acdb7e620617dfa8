"""The table of tools/pii_canaries: `python -m tools.pii_canaries`."""

from __future__ import annotations

import argparse

import numpy as np

import tools.pii_canaries
from corpus.filters.personal_data import KINDS
from tools.evaluate_filters import wilson
from tools.pii_canaries import SEED, canaries, score


def main() -> None:
    """Run `python -m tools.pii_canaries`."""
    parser = argparse.ArgumentParser(
        description=tools.pii_canaries.__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--misses", type=int, default=0, metavar="N", help="show so many of what went wrong")
    arguments = parser.parse_args()
    items = list(canaries(arguments.seed))
    result = score(items)
    print(f"{len(items):,} strings, {sum(not item.values for item in items):,} of them look-alikes\n")
    print(f"{'kind':<10} {'values':>7} {'found':>7}   precision                 recall")
    for kind in KINDS:
        hits, values, found = result.hits[kind], result.values[kind], result.found[kind]
        cells = []
        for total in (found, values):
            low, high = wilson(hits, total)
            cells.append(f"{hits / max(1, total):.4f} [{low:.4f}, {high:.4f}]")
        print(f"{kind:<10} {values:>7} {found:>7}   {cells[0]}   {cells[1]}")
    for what, kind, text in np.random.default_rng(0).permutation(np.array(result.wrong, object))[: arguments.misses]:
        print(f"{what} {kind}: {text!r}")


if __name__ == "__main__":
    main()
