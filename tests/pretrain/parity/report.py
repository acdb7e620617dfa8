"""Print the matrix: of each case how far its training is from that of one process.

python -m tests.pretrain.parity.report                 all of it
python -m tests.pretrain.parity.report zbv "dp 3"      the cases whose names hold one of the words
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from itertools import groupby

from tests.pretrain.parity.cases import Case, cubic_cases, pairwise_cases, quick_cases, uneven_cases
from tests.pretrain.parity.measure import FP64, difference_from_one_process
from tests.pretrain.ranks import RanksFailed, end_reused_ranks

COLUMNS = "| case | ranks | loss | norm | gradient | weights | CPU s | |\n|---|---|---|---|---|---|---|---|"


def main(words: Sequence[str]) -> int:
    """Print a row for each case as it is measured; returns the number of those that differ."""
    cases = {case.name: case for case in (*quick_cases(), *pairwise_cases(), *cubic_cases(), *uneven_cases())}
    chosen = [case for name, case in cases.items() if not words or any(word in name for word in words)]
    print(COLUMNS)
    num_bad = 0
    for _, alike in groupby(sorted(chosen, key=_num_ranks), key=_num_ranks):
        num_bad += sum(not _print_row(case) for case in alike)
        end_reused_ranks()  # threads of idle groups wake up a hundred times a second
    print(f"{len(chosen)} cases, {num_bad} beyond {FP64}")
    return num_bad


def _num_ranks(case: Case) -> int:
    return case.num_ranks


def _print_row(case: Case) -> bool:
    """Whether the case is within the limits."""
    try:
        off, training = difference_from_one_process(case)
    except (RanksFailed, AssertionError) as error:
        print(f"| {case.name} | {case.num_ranks} | {type(error).__name__}: {str(error).splitlines()[-1]} |", flush=True)
        return False
    numbers = " | ".join(f"{value:.1e}" for value in (off.loss, off.norm, off.gradient, off.weights))
    good = off.is_within(FP64)
    remark = "" if good else f"{off.worst_gradient}{'' if off.first_weights_equal else ', first weights differ'}"
    print(f"| {case.name} | {case.num_ranks} | {numbers} | {training.seconds:.1f} | {remark} |", flush=True)
    return good


if __name__ == "__main__":
    sys.exit(min(main(sys.argv[1:]), 1))
