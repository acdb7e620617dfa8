from pathlib import Path

import numpy as np
import pytest

from corpus.engine.errors import UsageError
from pretrain.config import load_config
from pretrain.plan.cost import step_seconds
from pretrain.plan.machines.cluster import load_cluster
from pretrain.sweep_report import rank_correlation
from pretrain.workload import parameters
from pretrain.workload.framework_profiles import ALL, find_software
from tests.fidelity import __main__ as fidelity
from tests.fidelity import errors, fit, scores
from tests.fidelity.rows import load_published, published_tables


def test_the_scalars_of_selene_are_near_what_was_measured() -> None:
    table = load_published(fit.TABLE)
    for row in table.rows:
        seconds = step_seconds(row.config, row.gpus, table.cluster, find_software(row.software), exact=False).total
        assert seconds == pytest.approx(row.seconds, rel=0.06), row.name


@pytest.mark.long
def test_the_scalars_of_selene_are_what_the_fit_gives() -> None:
    table = load_published(fit.TABLE)
    found = fit.fit(table.cluster, table.rows)
    efficiency = load_cluster("selene-a100-80").efficiency
    assert found.scalars == {
        "products": pytest.approx(efficiency.products, abs=0.0021),
        "memory": pytest.approx(efficiency.memory, abs=0.0021),
    }
    assert errors.Errors(found.errors).worst < 0.05


def test_the_fit_finds_scalars_from_afar() -> None:
    table = load_published(fit.TABLE)
    far = table.cluster.efficiency.model_copy(update={"products": 0.5, "memory": 0.9})
    some = [row for row in table.rows if row.pp <= 8]
    near = fit.fit(table.cluster, some).scalars
    assert fit.fit(table.cluster.model_copy(update={"efficiency": far}), some).scalars == pytest.approx(near, abs=2e-3)


def test_narayanan_table_1_is_predicted_better_than_by_any_constant() -> None:
    scored = scores.score("narayanan-2021")
    found = scored.errors
    assert len(found.values) == 10
    assert found.mean <= 0.045 and found.worst <= 0.10
    measured = np.array([row.tflops for row in scored.table.rows])
    predicted = np.array([prediction.tflops_per_gpu for prediction in scored.predictions])
    assert all(found.mean < other.mean and found.worst < other.worst for _, _, other in errors.constants(measured))
    assert rank_correlation(measured.tolist(), predicted.tolist()) > 0.8


def test_constants_are_those_of_the_table() -> None:
    measured = np.array([row.tflops for row in load_published("narayanan-2021").rows])
    found = {name: (round(of.mean, 3), round(of.worst, 3)) for name, _, of in errors.constants(measured)}
    assert found["144, errors as of step times"] == (0.06, 0.132)


def test_an_error_is_of_speed_whatever_was_published() -> None:
    row = load_published("narayanan-2021").rows[0]
    prediction = row.predict(load_cluster("selene-a100-80"))
    seconds, tokens = prediction.step_seconds, prediction.tokens_per_second
    plain = row.model_copy(update={"tflops": 0.0})
    assert plain.error(prediction) is None
    for name, value in (
        ("seconds", 2 * seconds),
        ("tflops", prediction.tflops_per_gpu / 2),
        ("tokens_per_second", tokens / 2),
        ("device_tokens_per_second", tokens / row.gpus / 2),
        ("mfu_percent", 50 * prediction.mfu),
        ("peak_percent", 50 * prediction.hfu),
    ):
        assert plain.model_copy(update={name: value}).error(prediction) == pytest.approx(1.0), name


def test_activation_memory_of_all_recompute_columns() -> None:
    found = scores.memory_errors()
    assert len(found.activations.values) == 20 and len(found.lines) == 4
    assert found.activations.mean <= 0.01


def test_the_published_state_is_that_of_blocks_alone() -> None:
    found = scores.memory_errors()
    assert found.blocks.worst < 0.005 < found.first_stage.values.min()


def test_zero_3_falls_behind_as_gpus_are_added() -> None:
    sharded, both = scores.score("narayanan-2021-zero-3"), scores.score("narayanan-2021-scaling")
    ratios = [
        own[1].tflops_per_gpu / other[1].tflops_per_gpu for own, other in zip(sharded.timed, both.timed, strict=False)
    ]
    for small, middle, large in (ratios[:3], ratios[3:]):
        assert 1 > small > middle > large
        assert large < 0.65


@pytest.mark.parametrize(
    ("name", "mean"),
    [
        pytest.param("mega-scale-2024", 0.08, marks=pytest.mark.long),
        ("mosaic-2023-a100", 0.06),
        ("mosaic-2023-h100", 0.08),
        ("narayanan-2021-scaling", 0.10),
    ],
)
def test_tables_that_no_fit_has_seen(name: str, mean: float) -> None:
    assert scores.score(name).errors.mean <= mean


def test_yuan_on_its_2128_gpus() -> None:
    assert 0.38 <= scores.yuan().hfu <= 0.45
    assert scores.yuan().data_parallel == 7


def test_exact_figures() -> None:
    numbers = parameters.of_model(load_config("yuan-245b").model)
    assert round(numbers / 1e9, 3) == 245.735
    assert round(8 * 245.7e9 * scores.YUAN_TOKENS / fidelity.PFLOPS_DAY, 1) == 4095.0
    assert round(scores.bubble(38, 480), 3) == 0.077
    assert round(scores.bubble(2, 6), 3) == 0.167
    assert any("4,095.0" in line for line in fidelity.exact_lines())


def test_asc22_logs() -> None:
    scored = scores.score("asc22-2022")
    assert scored.errors.mean <= 0.2 and scored.errors.worst <= 0.2
    for row, prediction in zip(scored.table.rows, scored.predictions, strict=True):
        assert prediction.fits != row.out_of_memory, row.name


def test_every_published_table_is_shown_and_every_software_known() -> None:
    assert set(published_tables()) <= set(fidelity.SECTIONS)
    for name in published_tables():
        table = load_published(name)
        assert table.rows and {row.software for row in table.rows} <= set(ALL)


def test_recalled_tables_are_in_no_summary() -> None:
    assert [name for name in published_tables() if load_published(name).recalled] == ["frontier-2023"]
    assert "frontier-2023" not in fidelity.UNSEEN


def test_pages_have_a_place_for_each_table_and_hold_the_same(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- fidelity exact -->\nold\n<!-- end -->\nafter\n", encoding="utf-8")
    fidelity.rewrite(page, {"exact": ["| new |"]})
    assert page.read_text(encoding="utf-8") == ("before\n<!-- fidelity exact -->\n\n| new |\n\n<!-- end -->\nafter\n")
    with pytest.raises(UsageError, match="0 places for <!-- fidelity summary -->"):
        fidelity.rewrite(page, {"summary": []})


def test_both_pages_show_the_same_tables(repository: Path) -> None:
    folder = repository / "docs"
    pages = [(folder / name).read_text(encoding="utf-8") for name in ("fidelity.md", "fidelity.zh.md")]
    for name in fidelity.SECTIONS:
        blocks = [page.partition(f"<!-- fidelity {name} -->\n")[2].partition("<!-- end -->")[0] for page in pages]
        assert blocks[0] and blocks[0] == blocks[1], name
