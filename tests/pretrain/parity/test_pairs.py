"""The matrix holds every legal pair of choices: looked for in its cases, and against all combinations where it lacks
one."""

from __future__ import annotations

from itertools import product

from hypothesis import given
from hypothesis import strategies as st

from tests.pretrain.parity.cases import (
    CONSTRAINED,
    FACTORS,
    SCHEDULES,
    cubic_cases,
    is_legal,
    pairwise_rows,
    quick_cases,
)
from tests.pretrain.parity.pairs import Row, all_pairs, covering_rows, pairs_of

VALUES = {name: list(values) for name, values in FACTORS.items()}


def test_every_pair_of_choices_meets_or_cannot() -> None:
    rows = pairwise_rows()
    assert all(is_legal(row) for row in rows)
    met = set().union(*map(pairs_of, rows))
    for pair in set(all_pairs(VALUES)) - met:
        chosen = dict(pair)
        free = [name for name in CONSTRAINED if name not in chosen]
        for values in product(*(VALUES[name] for name in free)):
            row = chosen | dict(zip(free, values, strict=True))
            assert not is_legal(row), f"{pair} do not meet, though {row} is legal"


def test_what_must_be_in_it_is() -> None:
    met = set().union(*map(pairs_of, pairwise_rows()))
    for pair in product(("pp 2", "pp 4"), SCHEDULES):
        assert tuple(sorted(zip(("pipeline", "schedule"), pair, strict=True))) in met
    assert (("schedule", "zbv"), ("tensor", "tp 4 sp")) in met
    assert (("pipeline", "pp 4"), ("tensor", "tp 4")) not in met, "would take 16 ranks"
    assert (("kv heads", "8/2 heads"), ("tensor", "tp 4")) not in met, "is refused"
    assert {(case.config.parallel.schedule, case.config.model.tied) for case in cubic_cases()} == set(
        product(SCHEDULES, (True, False))
    )
    assert all(
        (case.num_ranks, case.config.parallel.pp, case.config.parallel.tp) == (8, 2, 2) for case in cubic_cases()
    )
    quick = quick_cases()
    assert {case.config.parallel.schedule for case in quick if case.config.parallel.pp > 1} == set(SCHEDULES)
    assert len(quick) >= 16 and {case.config.training.precision for case in quick} == {"fp64"}


@given(
    sizes=st.lists(st.integers(1, 4), min_size=2, max_size=4),
    forbidden=st.sets(
        st.tuples(st.integers(0, 3), st.integers(0, 3), st.integers(0, 3), st.integers(0, 3)), max_size=40
    ),
)
def test_covering_rows_cover_what_all_rows_do(sizes: list[int], forbidden: set[tuple[int, ...]]) -> None:
    factors = {str(factor): [str(value) for value in range(size)] for factor, size in enumerate(sizes)}

    def legal(row: Row) -> bool:
        return tuple(map(int, row.values())) not in {combination[: len(sizes)] for combination in forbidden}

    every_row = [dict(zip(factors, values, strict=True)) for values in product(*factors.values())]
    legal_rows = [row for row in every_row if legal(row)]
    rows = covering_rows(factors, list(factors), legal)
    assert all(legal(row) for row in rows)
    assert set().union(*map(pairs_of, rows)) == set().union(*map(pairs_of, legal_rows))
    assert len(rows) <= len(legal_rows)
