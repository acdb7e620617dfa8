"""`parallel = "auto"`: how it is written, that all ranks come to the same, and that a run in the chosen layout is the
same run."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from corpus.engine import durable
from corpus.engine.config import parse
from corpus.engine.errors import UsageError
from pretrain import scale
from pretrain.__main__ import main, planner
from pretrain.batch_size import check_batch_sizes
from pretrain.config import ParallelConfig, RunConfig, load_config, to_json
from pretrain.console import log_message
from pretrain.parallel.base import mesh
from pretrain.plan import auto
from pretrain.plan.auto import choose, cluster_for, resolve, toml_lines
from pretrain.plan.machines.cluster import Cluster, load_cluster
from pretrain.run.command import laid_out
from pretrain.run.train import train
from tests.pretrain.ranks import reused_ranks, run_ranks
from tests.pretrain.texts import small_tokenizer, text_folder
from tests.pretrain.tiny import tiny_config
from tests.tokenizer.texts import documents

AUTO = tiny_config(parallel={"auto": True})


def with_parallel(text: str) -> RunConfig:
    return load_config("demo", [f"parallel={text}"])


def test_the_forms_of_it() -> None:
    assert with_parallel("auto") == with_parallel("{auto=true}") == with_parallel('"auto"')
    assert with_parallel('{auto=true, cluster="h100-80"}').parallel == ParallelConfig(auto=True, cluster="h100-80")
    assert not load_config("demo").parallel.auto
    config = with_parallel("auto")
    assert parse(RunConfig, to_json(config), "again") == config


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("automatic", "'automatic' is no layout. Let it be \"auto\", or a section of settings"),
        ("{auto=true, tp=2}", "auto chooses tp. Leave it out (`--set parallel=auto` replaces the section), or auto"),
        ("{auto=true, zero=1, pp=2}", "auto chooses pp and zero. Leave them out"),
        ('{cluster="h100-80"}', "auto is off. Set auto = true, or leave cluster out"),
        ("{auto=1}", "valid boolean"),
    ],
)
def test_what_auto_cannot_be(text: str, message: str) -> None:
    with pytest.raises(UsageError, match="parallel") as caught:
        with_parallel(text)
    assert message in str(caught.value)


@pytest.mark.parametrize("num_ranks", [1, 2, 8])
def test_the_choice_can_be_trained_and_pinned(num_ranks: int) -> None:
    rampup = {"start": 8, "increment": 8, "num_samples": 100}
    config = tiny_config(
        model={"num_layers": 4},
        training={"global_batch_size": 32, "micro_batch_size": 32, "rampup": rampup},
        parallel={"auto": True},
    )
    said: list[str] = []
    found = resolve(config, num_ranks, said.append)
    assert found == parse(RunConfig, to_json(found), "again")
    _, replicas, shards, _ = mesh.layout(found.parallel, num_ranks)
    check_batch_sizes(found.training, replicas * shards)
    assert not found.parallel.auto and found.parallel.dp_shard is None
    assert found.training.model_copy(update={"micro_batch_size": 32}) == config.training

    at = said.index("to pin it:")
    assert f"chosen for {num_ranks} x cpu (cluster cpu)" in said[0] and "s a step (" in said[1]
    assert [line.removeprefix("  ") for line in said[at + 1 :]] == toml_lines(found).splitlines()


def test_what_pins_a_layout_is_read_back(tmp_path: Path) -> None:
    layout = ParallelConfig(tp=2, pp=2, schedule="interleaved", zero=1, recompute="full", sequence_parallel=False)
    config = load_config("demo", ["training.micro_batch_size=1", "model.num_layers=4"]).model_copy(
        update={"parallel": layout}
    )
    (tmp_path / "pin.toml").write_text(toml_lines(config))
    pinned = load_config("demo", ["model.num_layers=4"]).model_dump() | {"parallel": {}}
    read = parse(RunConfig, _merged(pinned, tmp_path / "pin.toml"), "pinned")
    assert read == config
    assert toml_lines(load_config("demo")) == "[parallel]\ntp = 1\n\n[training]\nmicro_batch_size = 2"


def _merged(values: Mapping[str, Any], path: Path) -> dict[str, Any]:
    import tomllib

    theirs = tomllib.loads(path.read_text())
    return {**values, **{name: {**values[name], **section} for name, section in theirs.items()}}


def test_the_configured_layout_does_not_matter() -> None:
    others = [AUTO, tiny_config(parallel={"tp": 2}), tiny_config(training={"micro_batch_size": 8})]
    assert len({json.dumps(to_json(choose(config, 2).config)) for config in others}) == 1


def digest_here(config: RunConfig) -> str:
    return durable.digest(to_json(resolve(config, int(os.environ["WORLD_SIZE"]), log_message)))


def test_all_ranks_choose_alike() -> None:
    first, second = reused_ranks(digest_here, 2, AUTO)
    assert first == second == durable.digest(to_json(choose(AUTO, 2).config))


def joins(shapes: list[ParallelConfig]) -> str:
    try:
        with mesh.start(shapes[int(os.environ["RANK"])], "cpu", 1.0):
            return "joined"
    except UsageError as error:
        return str(error)


@pytest.mark.long
def test_ranks_that_chose_differently_are_told_at_once() -> None:
    said = run_ranks(joins, 2, [ParallelConfig(), ParallelConfig(tp=2)])
    assert said[0] == said[1] and "rank 1 has pp 1 x dp_replicate 1 x dp_shard 1 x tp 2" in said[0]


def test_nothing_fits_is_said_in_a_sentence() -> None:
    cluster = load_cluster("cpu")
    tiny = {name: getattr(cluster, name).model_copy(update={"memory_gib": 0.001}) for name in ("device", "host")}
    with pytest.raises(UsageError) as caught:
        choose(AUTO, 2, cluster.model_copy(update=tiny))
    assert "fits" in str(caught.value) and "\n" not in str(caught.value)
    with pytest.raises(UsageError, match="cluster dgx-station-v100-32 has 4 devices, 4 fewer than the 8"):
        choose(tiny_config(), 8, load_cluster("dgx-station-v100-32"))
    assert choose(tiny_config(), 4, load_cluster("dgx-station-v100-32")).num_ranks == 4


def test_a_choice_that_training_refuses_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """As zero-bubble under torch.compile: the planner's durations do not tell them apart."""
    config = tiny_config(training={"compile": True}, model={"num_layers": 4})
    base = choose(config, 2)
    refused = config.model_copy(update={"parallel": ParallelConfig(pp=2, schedule="zero-bubble")})
    fine = config.model_copy(update={"parallel": ParallelConfig(pp=2)})

    def search(*configs: RunConfig) -> SimpleNamespace:
        return SimpleNamespace(layouts=[SimpleNamespace(config=each) for each in configs])

    monkeypatch.setattr(auto, "search", lambda *_: search(refused, fine))
    assert choose(config, 2, base.cluster).config == fine
    monkeypatch.setattr(auto, "search", lambda *_: search(refused))
    with pytest.raises(UsageError, match=r"none of 1 layouts can train this configuration.*training.compile"):
        choose(config, 2, base.cluster)
    growing = tiny_config(training={"rampup": {"start": 1, "increment": 7, "num_samples": 9}})
    monkeypatch.setattr(auto, "search", lambda *_: search(growing))
    with pytest.raises(UsageError, match="a batch of 1 samples"):
        choose(growing, 2, base.cluster)


def see_gpus(monkeypatch: pytest.MonkeyPatch, name: str, gib: float, number: int) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: number)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda _: name)
    monkeypatch.setattr(
        torch.cuda, "get_device_properties", lambda _: SimpleNamespace(total_memory=int((gib + 0.05) * 2**30))
    )


@pytest.mark.parametrize(
    ("name", "gib", "number", "cluster"),
    [
        ("NVIDIA A100-SXM4-80GB", 79.2, 8, "selene-a100-80"),
        ("NVIDIA A100-SXM4-40GB", 39.4, 8, "selene-a100-80"),
        ("NVIDIA A100-PCIE-40GB", 39.4, 8, "firefly-a100-40"),
        ("NVIDIA H100 80GB HBM3", 79.1, 8, "h100-80"),
        ("NVIDIA H200", 139.8, 8, "h200-141"),
        ("Tesla V100-SXM2-16GB", 15.7, 8, "dlperf-v100-16"),
        ("Tesla V100-DGXS-32GB", 31.7, 4, "dgx-station-v100-32"),
        ("AMD Instinct MI250X", 64.0, 8, "frontier-mi250x"),
    ],
)
def test_a_gpu_is_known_by_its_name(
    monkeypatch: pytest.MonkeyPatch, name: str, gib: float, number: int, cluster: str
) -> None:
    monkeypatch.delenv("LOCAL_WORLD_SIZE", raising=False)
    see_gpus(monkeypatch, name, gib, number)
    found = cluster_for(tiny_config(training={"device": "auto"}))
    shipped = load_cluster(cluster)
    assert found.name == cluster and found.networks == shipped.networks
    assert found.device.memory_gib == gib


def test_a_node_is_as_large_as_it_is_here(monkeypatch: pytest.MonkeyPatch) -> None:
    config = tiny_config(training={"device": "auto"})
    see_gpus(monkeypatch, "NVIDIA H100 80GB HBM3", 79.1, 8)
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "4")
    found = cluster_for(config)
    assert (found.devices_per_node, found.networks[0].devices) == (4, 4)
    assert found == Cluster.model_validate(found.model_dump())
    monkeypatch.delenv("LOCAL_WORLD_SIZE")
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)  # as Slurm shows each rank its own
    assert cluster_for(config).devices_per_node == 8
    see_gpus(monkeypatch, "AMD Instinct MI250X", 64.0, 3)  # pairs of dies in a node of three
    with pytest.raises(UsageError, match=r"frontier-mi250x has 8 devices a node, here are 3. Name a cluster"):
        cluster_for(config)


def test_the_host_has_the_memory_of_this_machine_or_what_a_run_may_take(monkeypatch: pytest.MonkeyPatch) -> None:
    pages = {"SC_PHYS_PAGES": int(37.26 * 2**18), "SC_PAGE_SIZE": 4096}
    monkeypatch.setattr(os, "sysconf", pages.__getitem__)
    cpu = cluster_for(tiny_config())
    assert (cpu.host.memory_gib, cpu.device.memory_gib) == (37.2, 18.6)
    assert cluster_for(tiny_config(training={"host_memory_gib": 5.0})).host.memory_gib == 5.0
    see_gpus(monkeypatch, "NVIDIA H100 80GB HBM3", 79.1, 8)
    h100 = cluster_for(tiny_config(training={"device": "auto"}))
    assert (h100.host.memory_gib, h100.device.memory_gib) == (37.2, 79.1)


def test_what_is_named_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    see_gpus(monkeypatch, "Voodoo 3", 0.02, 1)
    assert cluster_for(tiny_config()).name == "cpu"  # training.device is
    assert cluster_for(tiny_config(parallel={"auto": True, "cluster": "selene-a100-80"})).name == "selene-a100-80"
    assert cluster_for(tiny_config(), "H200").name == "h200-141"
    assert cluster_for(tiny_config(), "A100").name == "selene-a100-80"
    with pytest.raises(UsageError, match=r"knows no cluster of Voodoo 3. Name one as parallel.cluster"):
        cluster_for(tiny_config(training={"device": "auto"}))
    with pytest.raises(UsageError, match="knows no cluster of NVIDIA H100 PCIe"):
        cluster_for(tiny_config(), "NVIDIA H100 PCIe")
    with pytest.raises(UsageError, match="nowhere"):
        cluster_for(tiny_config(parallel={"auto": True, "cluster": "nowhere.toml"}))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(UsageError, match=r"training.device is cuda, but torch sees no GPU"):
        cluster_for(tiny_config(training={"device": "cuda"}))


def test_a_dry_run_asks_which_gpus(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["train", "--dry-run", "--config", "demo", "--world-size", "4", "--set", "parallel=auto"]
    if not torch.cuda.is_available():
        assert main(words) == 2
        assert "auto chooses for GPUs, and none is here. Say which: --device H100" in capsys.readouterr().err
    assert main([*words, "--device", "H100", "--json"]) == 0
    plan, said = capsys.readouterr()
    assert "chosen for 4 x H100-SXM5-80GB (cluster h100-80)" in said
    chosen = choose(load_config("demo"), 4, load_cluster("h100-80")).config
    value = json.loads(plan)
    assert (value["mesh"]["tp"], value["mesh"]["pp"]) == (chosen.parallel.tp, chosen.parallel.pp)
    assert value["micro_batch_size"] == chosen.training.micro_batch_size


def test_training_lays_out_for_its_ranks_and_the_first_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    said = []
    for rank in ("0", "1"):
        monkeypatch.setenv("RANK", rank)
        assert laid_out(AUTO, planner()) == choose(AUTO, 2).config
        said.append("".join(capsys.readouterr()))
    assert "chosen for 2 x cpu" in said[0] and not said[1]
    given = tiny_config(parallel={"tp": 2})
    assert laid_out(given, planner()) is given


def test_scaling_chooses_for_each_number_of_ranks() -> None:
    weak = [scale.config_of(AUTO, "weak", ranks, 1) for ranks in (1, 2, 4)]
    assert [config.training.global_batch_size for config in weak] == [8, 16, 32]
    strong = scale.config_of(AUTO, "strong", 4, 1)
    assert strong == choose(AUTO, 4).config
    assert not any(config.parallel.auto for config in (*weak, strong))
    with pytest.raises(UsageError, match=r"cannot grow from 3 to 4 ranks. Let it be a multiple of 3"):
        scale.config_of(AUTO, "weak", 4, 3)


def run_config(num_steps: int, **parallel: Any) -> RunConfig:
    return tiny_config(
        model={"vocab_size": None, "padded_vocab_size": 512},
        schedule={"kind": "constant", "warmup_steps": 0},
        training={"num_steps": num_steps},
        checkpoint={"every_steps": 3},
        metrics={"every_steps": 1, "tensorboard": False},
        evaluation={"every_steps": 100, "sample_tokens": 1, "prompt": "学"},
        parallel=parallel,
    )


def train_here(config: RunConfig, data: Path, out: Path) -> None:
    train(laid_out(config, planner()), data / "tokens", out, data / "tokenizer.model")


def records(out: Path, kind: str) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    return [line for line in lines if line["kind"] == kind]


@pytest.mark.long
def test_a_run_is_planned_again_on_other_ranks(tmp_path: Path) -> None:
    """Its losses are those of one process whose layout was given."""
    tokenizer = small_tokenizer(tmp_path / "tokenizer.model")
    shards = {"00000-00-train": documents(120), "00000-00-validation": documents(130)[120:]}
    text_folder(tmp_path / "tokens", tokenizer, shards)
    train_here(run_config(6), tmp_path, tmp_path / "one")
    reused_ranks(train_here, 2, run_config(3, auto=True), tmp_path, tmp_path / "auto")
    train_here(run_config(6, auto=True), tmp_path, tmp_path / "auto")

    losses, expected = ([line["loss"] for line in records(tmp_path / name, "train")] for name in ("auto", "one"))
    assert losses == pytest.approx(expected, rel=1e-4) and len(losses) == 6
    starts = records(tmp_path / "auto", "start")
    assert [start["ranks"] for start in starts] == [2, 1]
    for start, num_steps, num_ranks in zip(starts, (3, 6), (2, 1), strict=True):
        chosen = choose(run_config(num_steps), num_ranks).config
        assert start["micro_batch_size"] == chosen.training.micro_batch_size
        assert start["parallel"] == chosen.parallel.model_dump(mode="json", exclude_defaults=True)
        folder = tmp_path / "auto" / "checkpoints" / f"step-{num_steps:08}"
        saved = json.loads((folder / "config.json").read_text())["config"]
        assert not saved["parallel"]["auto"]
        assert saved["training"]["micro_batch_size"] == chosen.training.micro_batch_size
