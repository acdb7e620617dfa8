"""The small costs are measured, and have a constant each."""

from __future__ import annotations

import pytest

from tools import projection, small_costs


@pytest.mark.long
def test_each_is_a_constant_of_the_projection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(small_costs, "MEASURED_FILES", 5)
    monkeypatch.setattr(small_costs, "MEASURED_TASKS", 3)
    names = [line.split()[0] for line in small_costs.measure().splitlines()]
    assert names == ["READ_SECONDS", "ENTRY_SECONDS", "DRIVER_SECONDS"]
    assert all(float(line.split()[1]) > 0 for line in small_costs.measure().splitlines())
    assert all(hasattr(projection, name) for name in names)
