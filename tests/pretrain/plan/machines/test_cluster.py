"""Clusters as data: those of the package are what their sources say, mistakes in a file are named."""

from __future__ import annotations

from pathlib import Path

import pytest

from corpus.engine import toml
from corpus.engine.errors import UsageError
from pretrain.plan.machines.cluster import Cluster, Cores, HostReduce, load_cluster, named_clusters

CPU = load_cluster("cpu")


def test_the_clusters_that_come_along() -> None:
    expected = {
        "cpu",
        "dgx-station-v100-32",
        "firefly-a100-40",
        "frontier-mi250x",
        "h100-80",
        "h200-141",
        "jean-zay-a100-80",
        "selene-a100-80",
    }
    assert set(named_clusters()) >= expected
    for name in named_clusters():
        cluster = load_cluster(name)
        assert cluster.name == name and cluster.description
        assert (cluster.cores is not None) == (name == "cpu")
        assert cluster.device.peak_flops("fp32" if name == "cpu" else "fp16")


@pytest.mark.parametrize("name", named_clusters())
def test_a_written_cluster_is_the_same_again(name: str, tmp_path: Path) -> None:
    cluster = load_cluster(name)
    path = tmp_path / "mine.toml"
    path.write_text(cluster.as_toml())
    assert load_cluster(str(path)) == cluster


def test_peaks_come_from_the_file_or_from_the_name() -> None:
    station = load_cluster("dgx-station-v100-32").device
    assert (station.peak_flops("fp16"), station.peak_flops("bf16")) == (125e12, None)
    own = station.model_copy(update={"peak": {"bf16": 1e12}})
    assert (own.peak_flops("fp16"), own.peak_flops("bf16")) == (125e12, 1e12)
    assert own.model_copy(update={"name": "nobody's"}).peak_flops("fp16") is None


def test_efficiencies_of_other_clusters_are_those_of_selene_by_their_largest_products() -> None:
    """Their comments say which figures: measured rates of the largest products over peaks, of Selene 271 of 312."""
    selene = load_cluster("selene-a100-80").efficiency
    share = selene.products * 312 / 271
    reached = {"dgx-station-v100-32": 97.5 / 125, "firefly-a100-40": 220 / 312, "frontier-mi250x": 125 / 191.5}
    for name, rate in {**reached, "h100-80": 670 / 989.4, "h200-141": 670 / 989.4}.items():
        own = load_cluster(name).efficiency
        assert own.products == pytest.approx(share * rate, rel=0.025), name
        assert own.model_copy(update={"products": selene.products}) == selene, name


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"networks": []}, "at least 1"),
        ({"networks": [{"devices": 8}, {"devices": 4}]}, "one of 4 devices cannot be made of units of 8"),
        ({"networks": [{"devices": 8}, {"devices": 12}]}, "one of 12 devices cannot be made of units of 8"),
        ({"networks": [{}, {"devices": 8}]}, "only the last one may join all devices"),
        ({"networks": [{"efficiency": 1.2}]}, "less than or equal to 1"),
        ({"networks": [{"half_factor": 0.5}]}, "greater than or equal to 1"),
        ({"host_reduce": {"devices": [16, 32], "bandwidth": [1e9]}}, "2 numbers of devices, but 1 bandwidths"),
        ({"host_reduce": {"devices": [32, 16], "bandwidth": [1e9, 1e9]}}, "from few to many"),
        ({"device": {"name": "x", "memory_gib": -1, "memory_bandwidth": 1}}, "greater than 0"),
        ({"colour": "red"}, "colour"),
    ],
)
def test_mistakes_in_a_file_are_named(changes: dict[str, object], message: str, tmp_path: Path) -> None:
    values = CPU.model_dump(mode="json", exclude_none=True) | changes
    usual = {"name": "n", "bandwidth": 1e9, "latency": 0.0}
    values["networks"] = [usual | network for network in values["networks"]]
    path = tmp_path / "mine.toml"
    text = toml.dump(values)
    path.write_text(text if values["networks"] else f"networks = []\n{text.replace('networks = []', '')}")
    with pytest.raises(UsageError, match=message):
        load_cluster(str(path))


def with_cores(**cores: float) -> Cluster:
    return CPU.model_copy(update={"cores": Cores.model_validate({"number": 4, **cores})})


def test_the_pace_of_ranks_that_share_cores() -> None:
    """Alone as measured alone; on all cores as measured there; with twice as many ranks as cores half of that."""
    cluster = with_cores(products=0.7, memory=0.4)
    assert cluster.pace(1) == (1.0, 1.0, 1.0)
    assert cluster.pace(4) == pytest.approx((0.7, 0.4, 1.0))
    assert cluster.pace(8) == pytest.approx((0.35, 0.2, 0.5))
    assert cluster.pace(2) == pytest.approx((0.9, 0.8, 1.0))
    one = with_cores(number=1)
    assert one.pace(1) == (1.0, 1.0, 1.0) and one.pace(3) == pytest.approx((1 / 3, 1 / 3, 1 / 3))


def test_measured_reductions_between_their_sizes() -> None:
    table = HostReduce(devices=(16, 64, 256), bandwidth=(8e9, 6e9, 7e9))
    assert table.bandwidth_over(8) is None
    assert [table.bandwidth_over(number) for number in (16, 64, 256, 1000)] == pytest.approx([8e9, 6e9, 7e9, 7e9])
    assert table.bandwidth_over(32) == pytest.approx(7e9)  # half way, by the logarithm
    assert table.bandwidth_over(128) == pytest.approx(6.5e9)
